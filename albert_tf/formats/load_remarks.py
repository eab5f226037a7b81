"""One line for whoever loads a model: the variables of its file that were not used, and the parts without values.

It is for models that are used as they are. A fine-tuning begins with the encoder alone, by design without the heads of
the file, and prints a table of its variables; so do `convert` and `fold`.
"""

from collections.abc import Collection

from absl import logging

from albert_tf.core.errors import shortened
from albert_tf.formats.weights import Weights

# How the released names of the variables begin that files may lack -> what they are.
_PARTS = {
    "bert/pooler/": "pooler",
    "cls/predictions/": "masked-LM head",
    "cls/seq_relationship/": "sentence-order head",
}


def remark_on_load(
    weights: Weights, *, unused: Collection[str] = (), untrained: Collection[str] = ()
) -> None:
    """Logs a line about what is not as somebody would expect it; nothing if all is.

    Args:
      unused: names of variables of the file that no part of the model has.
      untrained: released names of variables of the model that have random values. Those of a new head, for which the
        caller asked, are not named.
    """
    remarks = [_remark_on_unused(weights, unused), _remark_on_untrained(untrained)]
    said = "; ".join(remark for remark in remarks if remark)
    if said:
        logging.warning("%s: %s", weights.source, said)


def _remark_on_unused(weights: Weights, names: Collection[str]) -> str:
    if not names:
        return ""
    number = f"{len(names)} variables of the checkpoint"
    shown = shortened(", ".join(sorted(names)))
    return f"is read as {weights.model_class}, without {number}: {shown}"


def _remark_on_untrained(names: Collection[str]) -> str:
    parts = []
    for start, part in _PARTS.items():
        if any(name.startswith(start) for name in names):
            parts.append(part)
    if not parts:
        return ""
    those = "that of the model has" if len(parts) == 1 else "those of the model have"
    return f"has no {' and no '.join(parts)}; {those} random values"
