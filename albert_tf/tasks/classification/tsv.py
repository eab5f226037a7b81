"""Labels and scores of tables, and the reader of a classification or regression task of the user's own."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence

from albert_tf.core.errors import UserError
from albert_tf.data.tables import Cell, chosen, listed, read_table, text_of
from albert_tf.tasks.classification.text_pairs import TextExample

# --- Labels and scores ---


def parse_value(word: str, indices: Mapping[str, int], place: str) -> int | float:
    """The index of a label, without white space around it; or a score if there are no labels."""
    word = word.strip()
    if indices:
        if word not in indices:
            known = listed(list(indices))
            raise UserError(f"{place}: expected a label ({known}), got {word[:80]!r}")
        return indices[word]
    try:
        score = float(word)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise UserError(f"{place}: expected a number as score, got {word[:80]!r}")
    return score


def parse_labels(
    field: Cell, indices: Mapping[str, int], separator: str, place: str
) -> tuple[int, ...]:
    """1 for each label in a field, and 0 for the others; all 0 for an empty field."""
    found = {parse_value(word, indices, place) for word in split_labels(field, separator, place)}
    return tuple(int(index in found) for index in range(len(indices)))


def split_labels(field: Cell, separator: str, place: str) -> list[str]:
    """The labels in a field, without white space around them; a list of JSON or Parquet needs no separator."""
    if not isinstance(field, str):
        return [label.strip() for label in field if label.strip()]
    if not field.strip():
        return []
    labels = [label.strip() for label in field.strip().split(separator)]
    if not all(labels):
        raise UserError(
            f"{place}: expected labels with {separator!r} between them, got {field[:80]!r}"
        )
    return labels


# --- A task of the user's own ---


def read_own(
    path: str, *, text_columns: Sequence[str], label_column: str = "", flag: str
) -> list[TextExample]:
    """Reads a table (`data.tables`); the user names its columns.

    Labels are as in the file, a text or a list of texts; see `find_labels` and `with_values`. Without a label column, a
    file for predictions need not have one. Examples are numbered from 0.
    """
    source = f"--{flag}={path}"
    frame = read_table(path, source=source)
    columns = [*text_columns, *([label_column] if label_column else [])]
    examples: list[TextExample] = []
    for row, cells in zip(frame.index, chosen(frame, columns, source), strict=True):
        words = [text_of(cell, f"{path}:{row}") for cell in cells[: len(text_columns)]]
        label = cells[-1] if label_column else None
        examples.append(TextExample.of_texts(str(len(examples)), words, label=label, row=row))
    check_texts(examples, text_columns, source)
    return examples


def with_values(
    examples: Sequence[TextExample], path: str, labels: Sequence[str], label_separator: str = ""
) -> list[TextExample]:
    """The examples of `read_own` with indices of labels; without labels with scores; with a separator with sets."""
    indices = {name: index for index, name in enumerate(labels)}
    found = []
    for example in examples:
        place, value = f"{path}:{example.row}", example.label
        if label_separator:
            value = parse_labels(value, indices, label_separator, place)
        else:
            value = parse_value(text_of(value, place), indices, place)
        found.append(dataclasses.replace(example, label=value))
    return found


def check_texts(examples: Sequence[TextExample], text_columns: Sequence[str], source: str) -> None:
    """Checks that the columns with text are not empty in every row; prints how many rows have no text."""
    for column, name in zip(text_columns, ("text_a", "text_b"), strict=False):
        num_empty = sum(not getattr(example, name).strip() for example in examples)
        if num_empty == len(examples):
            raise UserError(f"{source}: column {column!r} has no text in any row")
        if num_empty:
            print(
                f"{source}: {num_empty:,} of {len(examples):,} rows have no text in column {column!r}",
                flush=True,
            )


def find_labels(
    examples: Sequence[TextExample], path: str, label_separator: str = ""
) -> tuple[str, ...]:
    """The labels of examples of `read_own`, in order: by value if all are numbers, otherwise alphabetically.

    There must be two different labels or more, and each row must have one; with a separator, some row must have
    several.

    Example:
      examples with 10, 2, 1, 2 -> ("1", "2", "10")
    """
    labels, counts = set(), set()
    for example in examples:
        label, place = example.label, f"{path}:{example.row}"
        if label_separator:
            own = split_labels(label, label_separator, place)
        elif label := text_of(label, place).strip():
            own = [label]
        else:
            raise UserError(f"{place}: has no label")
        labels.update(own)
        counts.add(len(own))
    if label_separator and counts == {1}:
        raise UserError(
            f"{path}: every row has one label, such as {label[:80]!r}; expected several with {label_separator!r}"
            " between them, or none; change --label_separator or leave it out"
        )
    if len(labels) < 2:
        only = next(iter(labels), label)
        raise UserError(f"{path}: expected two labels or more in --label_column, got only {only!r}")
    with contextlib.suppress(ValueError):  # some labels are not numbers
        if all(math.isfinite(float(label)) for label in labels):
            return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))
