"""Tables of examples: TSV, CSV, JSON lines, Parquet, Arrow, and folders of Hugging Face's `datasets`.

The ending of a file's name selects the format. Files with an unknown ending are TSV, in which quotation marks are
ordinary text: the files of GLUE contain thousands of unpaired ones, and a reader that quotes as CSV does would join all
rows up to the next one.
"""

import codecs
import csv
import dataclasses
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

if TYPE_CHECKING:
    import pyarrow

Cell = str | list[str]

_NAMES_SHOWN = 20  # labels or columns in one message
_NOT_TABLES = (".xlsx", ".xls", ".ods", ".gz", ".zip", ".bz2", ".xz", ".zst")


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a file.

    Attributes:
      source: names the file in messages, such as "--train_file=x.csv".
      rows: the number and the cells of each row, of which there is at least one. In files of text, it is the number of
        the row's first line, from 1; otherwise the row's number, from 1. A row of a file of text may have more or fewer
        cells than there are columns.
      quotes_are_text: whether quotation marks around a cell belong to its text.
    """

    path: str
    source: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[int, Sequence[Any]]]
    quotes_are_text: bool = False

    def position(self, column: str) -> int:
        """Index of a column."""
        count = self.columns.count(column)
        if count == 1:
            return self.columns.index(column)
        if count:
            raise UserError(f"{self.source}: has {count} columns named {column!r}; rename one")
        is_one = len(self.columns) == 1 and self.quotes_are_text
        hint = "; columns are separated by tabs" if is_one else ""
        names = listed([repr(name) for name in self.columns])
        raise UserError(f"{self.source}: has no column {column!r}, only {names}{hint}")

    def whole_rows(self) -> Iterable[tuple[int, Sequence[Any]]]:
        """The rows; one with more or fewer cells than there are columns is an error."""
        for row, cells in self.rows:
            if len(cells) != len(self.columns):
                raise self.width_error(row, cells)
            yield row, cells

    def width_error(self, row: int, cells: Sequence[Cell]) -> UserError:
        """The error for a row whose number of cells differs from the file's number of columns."""
        columns = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
        hint = "is a text with a separator not within quotation marks?"
        if self.quotes_are_text:
            hint = "is there a tab or a line break inside a text?"
        return UserError(
            f"{self.path}:{row}: expected {len(self.columns)} columns, got {columns}; {hint}"
        )


def text_of(cell: Cell, place: str) -> str:
    """A cell that must be one text."""
    if not isinstance(cell, str):
        raise UserError(f"{place}: expected a text, got a list of {len(cell)}")
    return cell


def listed(names: Sequence[str]) -> str:
    """Names for a message, not more than `_NAMES_SHOWN` of them."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def read_table(path: str, *, source: str) -> Table:
    """Reads a file or a folder in the format that its name says; cells that are missing are empty texts.

    Whole numbers are written without a decimal point, also where a missing value has made them floats. Numbers that
    stand for names of classes (`datasets.ClassLabel`) become these names.

    Raises:
      UserError: the file cannot be read, is of another format, or has no rows.
    """
    ending = os.path.splitext(path.rstrip("/"))[1].lower()
    if ending in _NOT_TABLES:
        known = ", ".join([".tsv", *_READERS])
        raise UserError(f"{source}: {ending} files are not read; save it as one of {known}")
    is_folder = ending not in _READERS and files.is_folder(path)
    reader = read_dataset_folder if is_folder else _READERS.get(ending, read_tsv)
    table = reader(path, source=source)
    if not table.rows:
        raise UserError(f"{source}: contains no rows")
    return table


# --- Text: TSV and CSV ---


def read_tsv(path: str, *, source: str, columns: Sequence[str] = ()) -> Table:
    """Reads a UTF-8 file with any line ends; without `columns`, the first line has their names."""
    lines = read_lines(path, source)
    first_row = 1
    if not columns and lines:
        columns = [name.strip() for name in lines.pop(0).split("\t")]
        first_row = 2
    if not lines:
        raise UserError(f"{source}: contains no rows")
    rows = [(row, line.split("\t")) for row, line in enumerate(lines, start=first_row)]
    return Table(path, source, tuple(columns), rows, quotes_are_text=True)


def read_lines(path: str, source: str) -> list[str]:
    """The lines of a UTF-8 file with any line ends, with or without byte-order mark; without empty lines at the end."""
    return _split_lines(_decode(path, source))


def _decode(path: str, source: str) -> str:
    content = _content(path, source)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{source}: is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{row}: is not UTF-8; convert the file") from None


def _content(path: str, source: str) -> bytes:
    try:
        return files.read_bytes(path)
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None


def _split_lines(text: str) -> list[str]:
    # Not str.splitlines, which also splits at U+0085, U+2028 and others; real files have these characters inside texts.
    if "\n" not in text:
        text = text.replace("\r", "\n")  # line ends of spreadsheets on old Macs
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def csv_rows(path: str, source: str) -> list[tuple[int, list[str]]]:
    """The number of the first line and the cells of each row of a CSV file; empty lines have no cells.

    The separator is the character among comma, semicolon and tab that the first line has most often.
    """
    text = _decode(path, source)
    header = text.partition("\n")[0]
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=max(",;\t", key=header.count),
        strict=True,
    )
    rows, row = [], 1
    try:
        for cells in reader:
            rows.append((row, cells))
            row = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}:{row}: is not CSV ({error}); is a quotation mark in a text not doubled?"
        ) from None
    return rows


def _read_csv(path: str, *, source: str) -> Table:
    header, *rows = [row for row in csv_rows(path, source) if row[1]] or [(1, [])]
    return Table(path, source, tuple(name.strip() for name in header[1]), rows)


# --- Values: JSON, Parquet and Arrow ---


def _read_json(path: str, *, source: str) -> Table:
    """Reads JSON lines, or one array, of objects."""
    text = _decode(path, source)
    if text.lstrip().startswith("["):
        numbered = list(enumerate(files.parse_json(text, path, list), start=1))
    else:
        lines = enumerate(_split_lines(text), start=1)
        numbered = [
            (row, files.parse_json(line, f"{path}:{row}")) for row, line in lines if line.strip()
        ]
    for row, values in numbered:
        if not isinstance(values, dict):
            raise UserError(f"{path}:{row}: expected a JSON object with the columns as keys")
    columns = tuple(dict.fromkeys(name for _, values in numbered for name in values))
    rows = [(row, [_cell(values.get(name)) for name in columns]) for row, values in numbered]
    return Table(path, source, columns, rows)


def read_arrow_files(path: str, *, source: str, parts: Sequence[str] = ()) -> Table:
    """Reads a Parquet file or an Arrow file, or the parts of a table in several Arrow files."""
    import pyarrow
    import pyarrow.parquet

    def read(part: str) -> "pyarrow.Table":
        buffer = pyarrow.BufferReader(_content(part, source))
        if part.lower().endswith(".parquet"):
            return pyarrow.parquet.read_table(buffer)
        is_file = buffer.read(6) == b"ARROW1"  # otherwise it is a stream, as `datasets` writes it
        buffer.seek(0)
        ipc = pyarrow.ipc
        return (ipc.open_file(buffer) if is_file else ipc.open_stream(buffer)).read_all()

    try:
        table = pyarrow.concat_tables([read(part) for part in parts or [path]])
        features = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        classes = features.get("info", {}).get("features", {})
        values = [
            [_cell(value, _class_names(classes.get(name))) for value in table[index].to_pylist()]
            for index, name in enumerate(table.column_names)
        ]
    except (pyarrow.ArrowException, ValueError, AttributeError, OSError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{source}: cannot be read by pyarrow ({first_line(error)})") from None
    rows = list(enumerate(map(list, zip(*values, strict=True)), start=1))
    return Table(path, source, tuple(table.column_names), rows)


def read_dataset_folder(path: str, *, source: str) -> Table:
    """Reads a folder that `datasets.Dataset.save_to_disk` has written."""
    state = os.path.join(path, "state.json")
    if not files.exists(state):
        inside = [name for name in files.names_in(path) if files.is_folder(f"{path}/{name}")]
        splits = f"; name one of {listed(inside)} in it" if inside else ""
        raise UserError(f"{source}: Is a directory, without the state.json of `datasets`{splits}")
    entries = files.read_json(state).get("_data_files")
    try:
        parts = [os.path.join(path, os.path.basename(entry["filename"])) for entry in entries]
    except (TypeError, KeyError):
        raise UserError(f"{source}: state.json has no list of _data_files") from None
    return read_arrow_files(path, source=source, parts=parts)


def _class_names(feature: Any) -> Sequence[str]:
    """The names of the classes of a feature of `datasets`, or of the items of its lists; none if it has no classes."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return ()
    if feature.get("_type") == "ClassLabel":
        return feature.get("names") or ()
    return _class_names(feature.get("feature"))


def is_missing(value: Any) -> bool:
    """Whether a value of JSON, Arrow or pandas stands for none."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _cell(value: Any, classes: Sequence[str] = ()) -> Cell:
    """A value of JSON or Arrow as text, or as a list of texts."""
    if isinstance(value, list):
        return [str(_cell(item, classes)) for item in value]
    if isinstance(value, bytes):  # as some writers of Parquet store texts
        return value.decode()
    if is_missing(value):
        return ""
    if isinstance(value, int) and classes:
        return classes[value] if 0 <= value < len(classes) else ""
    if isinstance(value, bool | dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# Formats whose cells are values, not always text.
TABLES_OF_VALUES: Mapping[str, Callable[..., Table]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _read_json),
    **dict.fromkeys((".parquet", ".arrow"), read_arrow_files),
}
_READERS = {".csv": _read_csv, **TABLES_OF_VALUES}
