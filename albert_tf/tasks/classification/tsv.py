"""The reader of a classification or regression task of the user's own."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification.text_pairs import TextExample
from albert_tf.tasks.labels import label_indices, label_name, parse_value, split_labels
from albert_tf.tasks.source import read_rows
from albert_tf.user_files.table_files import Cell, as_list, chosen, text_of


def read_own(
    path: str,
    *,
    text_columns: Sequence[str],
    label_columns: Sequence[str] = (),
    flag: str,
    skip_unlabeled: bool = False,
) -> list[TextExample]:
    """Reads a table (`user_files.table_files`); the user names its columns.

    Labels are as in the file, a text or a list of texts; see `find_labels` and `with_values`. Several label columns
    have 0 or 1 for the label that they are named after, and become a list. Without a label column, a file for
    predictions need not have one. Examples are numbered from 0.

    Args:
      skip_unlabeled: whether rows without a label are left out, if labels are read.
    """
    source = f"--{flag}={path}"
    frame = read_rows(path, flag)
    examples: list[TextExample] = []
    columns = [*text_columns, *label_columns]
    for row, cells in zip(frame.index, chosen(frame, columns, source), strict=True):
        place = f"{path}: {row}"
        texts = [text_of(cell, place) for cell in cells[: len(text_columns)]]
        label = cells[-1] if label_columns else None
        if len(label_columns) > 1:
            marks = zip(label_columns, cells[len(text_columns) :], strict=True)
            label = [name for name, mark in marks if _is_marked(name, mark, place)]
        examples.append(TextExample.of_texts(str(len(examples)), texts, label=label, row=row))
    if skip_unlabeled and label_columns:
        examples = _labelled(examples, source)
    check_texts(examples, text_columns, source)
    return examples


def _labelled(examples: Sequence[TextExample], source: str) -> list[TextExample]:
    """The examples that have a label; prints how many have none."""
    labelled = [example for example in examples if str(example.label).strip()]
    if not labelled:
        raise UserError(f"{source}: no row has a label")
    num_left_out = len(examples) - len(labelled)
    if num_left_out:
        counts = f"{num_left_out:,} of {len(examples):,} rows have no label"
        print(f"{source}: {counts}; left out", flush=True)
    return labelled


def _is_marked(name: str, mark: Cell, place: str) -> bool:
    word = label_name(text_of(mark, place))
    if word not in ("0", "1", "false", "true"):
        raise UserError(f"{place}: expected 0 or 1 in the label column {name!r}, got {word[:80]!r}")
    return word in ("1", "true")


def with_values(
    examples: Sequence[TextExample], path: str, labels: Sequence[str], label_separator: str = ""
) -> list[TextExample]:
    """The examples of `read_own` with indices of labels; without labels with scores; with a separator with sets."""
    indices = label_indices(labels)
    examples_with_values = []
    for example in examples:
        place = f"{path}: {example.row}"
        value: Any
        if label_separator:
            names = split_labels(example.label, label_separator, place)
            indices_of_example = {parse_value(name, indices, place) for name in names}
            value = tuple(int(index in indices_of_example) for index in range(len(labels)))
        else:
            value = parse_value(_one_label(example.label, place), indices, place)
        examples_with_values.append(dataclasses.replace(example, label=value))
    return examples_with_values


def check_labelled(examples: Sequence[TextExample], path: str) -> None:
    """Checks that every row has a label."""
    unlabeled = [example for example in examples if not str(example.label).strip()]
    if not unlabeled:
        return
    further_rows = f", nor have {len(unlabeled) - 1:,} other rows" if len(unlabeled) > 1 else ""
    reason = f"has no label{further_rows}; --skip_unlabeled leaves such rows out"
    raise UserError(f"{path}: {unlabeled[0].row}: {reason}")


def _one_label(field: Cell, place: str) -> str:
    try:
        field = as_list(field, place)
    except UserError:  # brackets around a name, such as [pos], are a part of it
        if not re.fullmatch(r"\s*\[[^\W\d][^,'\"\[\]]*\]\s*", str(field)):
            raise
    if isinstance(field, str):
        return label_name(field)
    if len(field) == 1:
        return label_name(field[0])
    reason = f"expected one label, got a list of {len(field)}; --label_separator allows several"
    raise UserError(f"{place}: {reason}")


def check_texts(examples: Sequence[TextExample], text_columns: Sequence[str], source: str) -> None:
    """Checks that the columns with text are not empty in every row; prints how many rows have no text."""
    for column, name in zip(text_columns, ("text_a", "text_b"), strict=False):
        num_empty = sum(not getattr(example, name).strip() for example in examples)
        if num_empty == len(examples):
            raise UserError(f"{source}: column {column!r} has no text in any row")
        if num_empty:
            count = f"{num_empty:,} of {len(examples):,} rows"
            print(f"{source}: {count} have no text in column {column!r}", flush=True)


def find_labels(
    examples: Sequence[TextExample],
    path: str,
    label_separator: str = "",
    initial: Sequence[str] = (),
) -> tuple[str, ...]:
    """The labels of examples of `read_own`, in order: by value if all are numbers, otherwise alphabetically.

    If all are among the `initial` ones of a model, they are these.

    There must be two different labels or more, and each row must have one; with a separator, some row must have
    several. Example: examples with 10, 2, 1.0, 2 -> ("1", "2", "10")
    """
    labels: set[str] = set()
    counts: set[int] = set()  # how many labels an example has
    has_twice = False  # whether an example has the same label twice
    for example in examples:
        labels_of_example = _labels_of(example, path, label_separator)
        labels.update(labels_of_example)
        counts.add(len(labels_of_example))
        if len({*labels_of_example}) < len(labels_of_example):
            has_twice = True

    if labels and labels <= {*initial}:
        return tuple(initial)

    shown = examples[-1].label  # in messages
    has_equally_many = len(counts) == 1 and max(counts) > 1
    if label_separator and labels <= {"0", "1"} and (has_twice or has_equally_many):
        expected = "lists of labels, or a column of 0 and 1 for each name in --label_column"
        raise UserError(f"{path}: expected {expected}; got lists such as {str(shown)[:80]!r}")
    if label_separator and counts == {1}:
        reason = f"no row has labels with --label_separator={label_separator} between them"
        raise UserError(f"{path}: {reason}; every row has one label, such as {shown[:80]!r}")
    if len(labels) < 2:
        only = next(iter(labels), shown)
        raise UserError(f"{path}: expected two labels or more in --label_column, got only {only!r}")
    return _in_order(labels)


def _labels_of(example: TextExample, path: str, label_separator: str) -> list[str]:
    """The labels of an example of `read_own`; without a separator, exactly one."""
    place = f"{path}: {example.row}"
    if label_separator:
        labels = split_labels(example.label, label_separator, place)
    else:
        labels = [_one_label(example.label, place)]
    if labels == [""]:
        raise UserError(f"{place}: has no label")
    if any(character in label for label in labels for character in "\t\r\n"):
        shown = str(example.label)[:80]
        raise UserError(f"{place}: has a tab or a line break in the label {shown!r}")
    return labels


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels by value if all are numbers, otherwise alphabetically."""
    with contextlib.suppress(ValueError):  # some labels are not numbers
        if all(math.isfinite(float(label)) for label in labels):
            return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))
