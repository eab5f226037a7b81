"""Answers of an ONNX export to texts: the ranges of its activations, and which answers rounding changes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.serving.onnx_model import OnnxModel
from albert_tf.tasks.predictor import Answer, Item

MOST_CHANGED = 0.01  # share of the answers, above which the export warns
MOST_LOST = 0.004  # of the metric
_PROBABILITIES = ("probability", "probabilities", "null_odds", "masks")  # keys of answers


class Observer(OnnxModel):
    """A model whose file also returns the inputs of products; `ranges` are their smallest and largest values so far."""

    def __init__(self, contents, config):
        super().__init__(contents, config)
        self.ranges: dict[str, tuple[float, float]] = {}

    def outputs(self, file, features):
        outputs = super().outputs(file, features)
        for name in [name for name in outputs if ":" in name]:
            array = outputs.pop(name)
            low, high = self.ranges.get(name, (np.inf, -np.inf))
            self.ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
        return outputs


class Comparison(NamedTuple):
    """Answers of a model to texts, and those of its export; `source` is the file of the texts."""

    items: Sequence[Item]
    before: Sequence[Answer]
    after: Sequence[Answer]
    source: str = "texts"

    def lines(self) -> list[str]:
        """What changed, and a warning if it is much; a single changed answer is little."""
        number = len(self.items)
        changed = self.num_changed()
        lines, reasons = [f"{changed:,} of {number:,} answers changed"], []
        if changed > max(1, MOST_CHANGED * number):
            reasons.append(f"more than {MOST_CHANGED:.0%} of the answers changed")
        if before := self.metric(self.before):
            name, value = before
            _, then = self.metric(self.after) or before
            lines[0] += f"; {name} {then:.4f} instead of {value:.4f}"
            if changed > 1 and value - then > MOST_LOST:
                reasons.append(f"the metric lost more than {MOST_LOST}")
        if reasons:
            warning = f"WARNING: {' and '.join(reasons)}; --quantization=int8_weights changes less"
            lines.append(warning)
        return lines

    def num_changed(self) -> int:
        """How many answers are others, see `is_changed`."""
        return sum(map(is_changed, self.before, self.after))

    def metric(self, answers: Sequence[Answer]) -> tuple[str, float] | None:
        """The accuracy, or the Pearson correlation of scores, if every item has the truth under the answer's key.

        Raises:
          UserError: a truth is no label of the model, or no number.
        """
        from albert_tf.tasks.metrics import pearson

        key = next(iter(answers[0]))  # what was asked for comes first
        if not all(isinstance(item, Mapping) and key in item for item in self.items):
            return None
        truths: list[Any] = [item[key] for item in self.items]  # type: ignore[index]
        found = [answer[key] for answer in answers]
        if isinstance(found[0], float):
            for number, truth in enumerate(truths, start=1):
                if type(truth) not in (int, float) or not np.isfinite(truth):
                    raise UserError(
                        f"{self.source}: text {number}: {key} must be a number, got {truth!r}"
                    )
            return "Pearson correlation", pearson(np.array(found), np.array(truths, np.float64))
        if labels := answers[0].get("probabilities") if key == "label" else None:
            truths = list(map(str, truths))
            for number, truth in enumerate(truths, start=1):
                if truth not in labels:
                    expected = f"expected one of {', '.join(labels)}, got {truth!r}"
                    raise UserError(f"{self.source}: text {number}: {expected}")
        return "accuracy", float(np.mean([a == b for a, b in zip(found, truths, strict=True)]))


def is_changed(before: Answer, after: Answer) -> bool:
    """Whether two answers to an item differ: scores by more than .1, vectors by a cosine below .99."""
    if "embedding" in before:
        one, other = (np.array(answer["embedding"]) for answer in (before, after))
        return bool(one @ other < 0.99 * np.linalg.norm(one) * np.linalg.norm(other))
    return any(
        abs(value - after[key]) > 0.1
        if isinstance(value, float)
        else _without_probability(value) != _without_probability(after[key])
        for key, value in before.items()
        if key not in _PROBABILITIES
    )


def _without_probability(value: Any) -> Any:
    """A value of an answer; of entities, without their probabilities."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [(entity["label"], entity["start"], entity["end"]) for entity in value]
    return value
