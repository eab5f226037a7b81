"""Tab-separated files: reads rows, labels and scores, also of a classification or regression task of the user's own.

Quotation marks are ordinary text here. The files of GLUE contain thousands of unpaired ones, and a reader that quotes
as CSV does would join all rows up to the next one.
"""

import codecs
import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.core.files import read_bytes
from albert_tf.tasks.classification.text_pairs import TextExample

_NAMES_SHOWN = 20  # labels or columns in one message


@dataclasses.dataclass(frozen=True)
class TsvTable:
    """The lines of a file and its columns; `first_row` is a line number, `source` names the file in messages."""

    path: str
    source: str
    columns: tuple[str, ...]
    lines: Sequence[str]
    first_row: int

    def position(self, column: str) -> int:
        """Index of a column."""
        count = self.columns.count(column)
        if count == 1:
            return self.columns.index(column)
        if count:
            raise UserError(f"{self.source}: has {count} columns named {column!r}; rename one")
        hint = "" if len(self.columns) > 1 else "; columns are separated by tabs"
        names = _listed([repr(name) for name in self.columns])
        raise UserError(f"{self.source}: has no column {column!r}, only {names}{hint}")

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The line number and the fields of each row; their number may differ from the number of columns."""
        for row, line in enumerate(self.lines, start=self.first_row):
            yield row, line.split("\t")

    def width_error(self, row: int, fields: Sequence[str]) -> UserError:
        """The error for a row whose number of fields differs from the file's number of columns."""
        columns = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
        return UserError(
            f"{self.path}:{row}: expected {len(self.columns)} columns, got {columns};"
            " is there a tab or a line break inside a text?"
        )


def read_tsv(path: str, *, source: str, columns: Sequence[str] = ()) -> TsvTable:
    """Reads a UTF-8 file with any line ends; without `columns`, the first line has their names; `source` is for
    messages.
    """
    lines = read_lines(path, source)
    first_row = 1
    if not columns and lines:
        columns = [name.strip() for name in lines.pop(0).split("\t")]
        first_row = 2
    if len(columns) == 1 and path.lower().endswith(".csv"):
        raise UserError(f"{source}: CSV is not read; save the file with tabs between the columns")
    if not lines:
        raise UserError(f"{source}: contains no rows")
    return TsvTable(path, source, tuple(columns), lines, first_row)


def read_lines(path: str, source: str) -> list[str]:
    """The lines of a file, decoded as in `read_tsv`; empty lines at the end are left out."""
    return _split_lines(_decode(path, source))


def _decode(path: str, source: str) -> str:
    try:
        content = read_bytes(path)
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{source}: is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{row}: is not UTF-8; convert the file") from None


def _split_lines(text: str) -> list[str]:
    # Not str.splitlines, which also splits at U+0085, U+2028 and others; real files have these characters inside texts.
    if "\n" not in text:
        text = text.replace("\r", "\n")  # line ends of spreadsheets on old Macs
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


# --- Labels and scores ---


def parse_value(word: str, indices: Mapping[str, int], place: str) -> int | float:
    """The index of a label, without white space around it; or a score if there are no labels."""
    word = word.strip()
    if indices:
        if word not in indices:
            known = _listed(list(indices))
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
    field: str, indices: Mapping[str, int], separator: str, place: str
) -> tuple[int, ...]:
    """1 for each label in a field, and 0 for the others; all 0 for an empty field."""
    found = {parse_value(word, indices, place) for word in split_labels(field, separator, place)}
    return tuple(int(index in found) for index in range(len(indices)))


def split_labels(field: str, separator: str, place: str) -> list[str]:
    """The labels in a field, without white space around them."""
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
    path: str,
    *,
    text_columns: Sequence[str],
    label_column: str = "",
    id_column: str = "",
    labels: Sequence[str] = (),
    label_separator: str = "",
    flag: str,
) -> list[TextExample]:
    """Reads a file with a header; the user names its columns.

    Without a label column, a file for predictions need not have one; without an id column, examples are numbered from
    0. Without labels, the task is a regression; without a separator, each example has one label.
    """
    table = read_tsv(path, source=f"--{flag}={path}")
    texts = [table.position(column) for column in text_columns]
    label = table.position(label_column) if label_column else None
    id = table.position(id_column) if id_column else None
    indices = {name: index for index, name in enumerate(labels)}
    examples: list[TextExample] = []
    for row, fields in _whole_rows(table):
        name = str(len(examples)) if id is None else fields[id]
        value: Any = None
        place = f"{path}:{row}"
        if label is not None and label_separator:
            value = parse_labels(fields[label], indices, label_separator, place)
        elif label is not None:
            value = parse_value(fields[label], indices, place)
        words = [fields[column] for column in texts]
        examples.append(TextExample.of_texts(name, words, label=value, row=row))
    check_texts(examples, text_columns, table.source)
    _warn_of_quotes(examples, table.source)
    return examples


def check_texts(examples: Sequence[TextExample], text_columns: Sequence[str], source: str) -> None:
    """Checks that the columns with text are not empty in every row."""
    for column, name in zip(text_columns, ("text_a", "text_b"), strict=False):
        if not any(getattr(example, name).strip() for example in examples):
            raise UserError(f"{source}: column {column!r} has no text in any row")


def _warn_of_quotes(examples: Sequence[TextExample], source: str) -> None:
    """Prints a warning if the file seems to come from a program that quotes texts: '"He said ""no""."'."""
    quoted = sum(
        len(text) > 1 and text[0] == text[-1] == '"' and '""' in text[1:-1]
        for example in examples
        for text in (example.text_a, example.text_b or "")
    )
    if quoted >= max(2, len(examples) / 100):
        print(
            f"WARNING {source}: {quoted:,} texts are within quotes, which count as text here: write the file"
            " without quoting",
            flush=True,
        )


def find_labels(
    path: str, *, label_column: str, label_separator: str = "", flag: str
) -> tuple[str, ...]:
    """The labels in a file, in order: by value if all are numbers, otherwise alphabetically.

    There must be two different labels or more, and each row must have one; with a separator, some row must have
    several.

    Example:
      a column with 10, 2, 1, 2 -> ("1", "2", "10")
    """
    table = read_tsv(path, source=f"--{flag}={path}")
    position = table.position(label_column)
    labels, counts = set(), set()
    for row, fields in _whole_rows(table):
        label, place = fields[position].strip(), f"{path}:{row}"
        if label_separator:
            own = split_labels(label, label_separator, place)
        elif label:
            own = [label]
        else:
            raise UserError(f"{place}: has no label in column {label_column!r}")
        labels.update(own)
        counts.add(len(own))
    if label_separator and counts == {1}:
        raise UserError(
            f"{table.source}: every row has one label in column {label_column!r}, such as {label[:80]!r}; expected"
            f" several with {label_separator!r} between them, or none; change --label_separator or leave it out"
        )
    if len(labels) < 2:
        only = next(iter(labels), label)
        raise UserError(
            f"{table.source}: expected two labels or more in column {label_column!r}, got only {only!r}"
        )
    with contextlib.suppress(ValueError):  # some labels are not numbers
        if all(math.isfinite(float(label)) for label in labels):
            return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


def _whole_rows(table: TsvTable) -> Iterator[tuple[int, list[str]]]:
    for row, fields in table.rows():
        if len(fields) != len(table.columns):
            raise table.width_error(row, fields)
        yield row, fields
