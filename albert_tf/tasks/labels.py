"""Labels and scores as they stand in files of users."""

import math
import re
from collections.abc import Mapping, Sequence

from albert_tf.core.errors import UserError
from albert_tf.user_files.table_files import Cell, as_list, listed


def label_name(word: str) -> str:
    """The name of a label: formats and libraries write the same bool or whole number in several ways.

    Example: " pos " -> "pos"; "1.0" -> "1"; "True" -> "true"; "007" and "1.50" stay
    """
    word = word.strip()
    if word.lower() in ("true", "false"):
        return word.lower()
    whole = re.fullmatch(r"(-?(?:0|[1-9][0-9]*))\.0+", word)
    return str(int(whole[1])) if whole else word


def label_indices(labels: Sequence[str]) -> dict[str, int]:
    """The index of each label, also under its `label_name`, which models of other projects may not have."""
    indices = {label: index for index, label in enumerate(labels)}
    return {**{label_name(label): index for label, index in indices.items()}, **indices}


def parse_value(word: str, indices: Mapping[str, int], place: str) -> int | float:
    """The index of a label of `label_indices`; or a score if there are no labels."""
    word = word.strip()
    if indices:
        index = indices.get(word, indices.get(label_name(word)))
        if index is None:
            labels = listed(list(indices))
            raise UserError(f"{place}: expected a label ({labels}), got {word[:80]!r}")
        return index
    try:
        score = float(word if "_" not in word else "nan")  # Python reads 1_000, tables do not
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise UserError(f"{place}: expected a number as score, got {word[:80]!r}")
    return score


def split_labels(field: Cell, separator: str, place: str) -> list[str]:
    """The names of the labels in a field; a list, also one that is written in CSV, needs no separator."""
    field = as_list(field, place)
    if not isinstance(field, str):
        return [label_name(label) for label in field if label.strip()]
    if not field.strip():
        return []
    labels = [label_name(label) for label in field.strip().split(separator)]
    if not all(labels):
        expected = f"expected labels with {separator!r} between them"
        raise UserError(f"{place}: {expected}, got {field[:80]!r}")
    return labels
