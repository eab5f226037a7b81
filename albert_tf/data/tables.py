"""Tables of examples: TSV, CSV, JSON lines and Parquet, as DataFrames of pandas.

The ending of a file's name selects the format; it may be followed by .gz. Files with an unknown ending are TSV, in
which quotation marks are ordinary text: the files of GLUE contain thousands of unpaired ones.
"""

import contextlib
import csv
import gzip
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

if TYPE_CHECKING:
    import pandas

Cell = str | list[str]

_NAMES_SHOWN = 20  # labels or columns in one message
_JSON = (".jsonl", ".json")
ENDINGS = (".csv", ".tsv", *_JSON, ".parquet")
_RECORDS = 'DataFrame.to_json writes rows with orient="records"'


def is_table(path: str) -> bool:
    """Whether a name is that of a table, whose lines are not texts."""
    return _ending(path) in ENDINGS


def has_lists(path: str) -> bool:
    """Whether the cells of a table may be lists; in CSV, they are lists of Python or JSON."""
    return is_table(path) and _ending(path) != ".tsv"


def read_table(
    path: str,
    *,
    source: str,
    header: Sequence[str] = (),
    fills_short_rows: bool = False,
    empty_rows: bool = False,
) -> "pandas.DataFrame":
    """The rows of a file, or of several files with the same columns: a glob, or paths separated by commas.

    A line without any text is a row if the table has one column.

    Args:
      source: names the file in messages, such as "--train_file=x.csv".
      header: names of the columns of a TSV file that has no header.
      fills_short_rows: whether rows of too few columns are read, with empty texts; otherwise they are errors.
      empty_rows: whether lines without any text are rows also with several columns, as where each row is answered.

    Returns:
      Values as the format has them. The index says where each row is, for messages: "row 338 (line 3526)". Rows of
      data count from 1, without the header; the line is that of the file.

    Raises:
      UserError: the file cannot be read, is of another format, or has no rows.
    """
    import pandas
    import pyarrow

    frames: list[pandas.DataFrame] = []
    paths = _paths(path)
    for name in paths:
        own = source if len(paths) == 1 else name
        content = _content(name, own)
        try:
            frame, lines = _read(name, content, header, fills_short_rows, empty_rows)
        except (UserError, ValueError, csv.Error, pyarrow.ArrowException) as error:
            is_ours = isinstance(error, UserError)
            reason = error if is_ours else f"cannot be read: {first_line(error)}"
            raise UserError(f"{own}: {reason}") from None
        frame.columns = frame.columns.map(str)
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise UserError(f"{own}: has two columns {twice!r}")
        is_json = _ending(name) in _JSON  # whose rows may lack keys
        if frames and not is_json and {*frame.columns} != {*frames[0].columns}:
            raise UserError(f"{own}: has other columns than {paths[0]}")
        start = f"{os.path.basename(name)} row" if len(paths) > 1 else "row"
        places = [f"{start} {row}" for row in range(1, len(frame) + 1)]
        if lines:
            places = [f"{row} (line {line})" for row, line in zip(places, lines, strict=True)]
        frame.index = pandas.Index(places, dtype=object)
        frames.append(frame)
    table = pandas.concat(frames) if len(frames) > 1 else frames[0]
    if table.empty:
        raise UserError(f"{source}: contains no rows")
    return table


def chosen(frame: "pandas.DataFrame", columns: Sequence[str], source: str) -> list[tuple]:
    """The cells of some columns, row by row; cells are texts or lists of texts, missing ones are empty texts."""
    for column in columns:
        if column not in frame.columns:
            names = listed([repr(name) for name in frame.columns])
            has_header = _ending(source) not in (".parquet", *_JSON)
            hint = "; the first line must name the columns" if has_header else ""
            raise UserError(f"{source}: has no column {column!r}, only {names}{hint}")
    return list(zip(*(_cells(frame, name, source) for name in columns), strict=True))


def _cells(frame: "pandas.DataFrame", name: str, source: str) -> list[Cell]:
    cells = []
    for place, value in zip(frame.index, frame[name], strict=True):
        try:
            cells.append(cell(value))
        except UserError as error:
            raise UserError(f"{source}: {place}: column {name!r}: {error}") from None
    return cells


def text_of(cell: Cell, place: str) -> str:
    """A cell that must be one text."""
    if not isinstance(cell, str):
        raise UserError(f"{place}: expected a text, got a list of {len(cell)}")
    return cell


def listed(names: Sequence[str]) -> str:
    """Names for a message, not more than `_NAMES_SHOWN` of them."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def read_lines(path: str, source: str, *, empty_rows: bool = False) -> list[str]:
    """The lines of a UTF-8 file, with or without byte-order mark; without empty lines at the end, or with them."""
    try:
        text = _content(path, source).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: cannot be read: {first_line(error)}") from None
    lines = _lines(text)
    while lines and not lines[-1] and not empty_rows:
        lines.pop()
    return lines


def read_texts(patterns: str, source: str) -> list[str]:
    """The lines that are not blank of a file, of the files of a glob, or of several of these, separated by commas."""
    lines = (line.strip() for path in _paths(patterns) for line in read_lines(path, source))
    if not (texts := [line for line in lines if line]):
        raise UserError(f"{source}: contains no text")
    return texts


def cell(value: Any) -> Cell:
    """A value of JSON, Arrow or pandas as text, or as a list of texts; an object is an error."""
    if isinstance(value, str):
        return value
    if value is None or is_missing(value):
        return ""
    if isinstance(value, Mapping):
        raise UserError(f"expected a text, got an object; {_RECORDS}")
    if isinstance(value, bytes):  # as some writers of Parquet store texts
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UserError("expected a text, got bytes that are not UTF-8") from None
    if isinstance(value, Sequence):
        return [text_of(cell(item), "a list in a list") for item in value]
    if hasattr(value, "tolist"):  # of NumPy; the text of a float32 has no digits of float64
        is_float = isinstance(value.tolist(), float)
        return cell(float(str(value)) if is_float else value.tolist())
    if isinstance(value, bool):
        return json.dumps(value)
    # A missing value makes floats of the whole numbers of its column.
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


def items_of(frame: "pandas.DataFrame") -> list[dict[str, Cell]]:
    """The rows of a table as items of a predictor: texts and lists of texts by column; other values stay."""

    def text_or_value(value: Any) -> Any:
        with contextlib.suppress(UserError):  # a column that no model reads may have objects
            return cell(value)
        return value

    return [
        {str(name): text_or_value(value) for name, value in zip(frame.columns, row, strict=True)}
        for row in frame.itertuples(index=False)
    ]


def is_missing(value: Any) -> bool:
    """Whether a value of pandas stands for a missing one."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan or type(value).__name__ in ("NAType", "NaTType")


# --- Files ---


def _ending(path: str) -> str:
    return os.path.splitext(path.removesuffix(".gz"))[1].lower()


def _content(path: str, source: str) -> bytes:
    if files.is_folder(path):
        raise UserError(f"{source}: is a folder; name its files, such as {path}/*.parquet")
    try:
        content = files.read_bytes(path)
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{source}: cannot be read: {first_line(error)}") from None
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None


def _paths(path: str) -> list[str]:
    """The files that a flag names."""
    if files.exists(path):
        return [path]
    names = [name.strip() for name in path.split(",") if name.strip()]
    return [found for name in names for found in (sorted(files.matching(name)) or [name])]


def _read(
    path: str,
    content: bytes,
    header: Sequence[str],
    fills_short_rows: bool,
    empty_rows: bool,
) -> tuple["pandas.DataFrame", list[int]]:
    """The rows of a file, and the line of each, if the format has lines."""
    import pandas

    ending = _ending(path)
    if ending == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(io.BytesIO(content))
        # The metadata of pandas would make an index of the user's column.
        return table.to_pandas(integer_object_nulls=True, ignore_metadata=True), []
    text = content.decode("utf-8-sig")
    if ending in _JSON:
        rows, lines = _json_rows(text, empty_rows)
        return pandas.DataFrame(rows, dtype=object), lines
    return _read_text(text, ending == ".csv", header, fills_short_rows, empty_rows)


def _lines(text: str) -> list[str]:
    # Not str.splitlines, which also splits at U+0085, U+2028 and others; real files have these characters inside texts.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _read_text(
    text: str, is_csv: bool, header: Sequence[str], fills_short_rows: bool, empty_rows: bool
) -> tuple["pandas.DataFrame", list[int]]:
    import pandas

    rows_of_tsv = enumerate((line.split("\t") for line in _lines(text)), start=1)
    names, num_used = list(header), 0
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, row in _csv_rows(text) if is_csv else rows_of_tsv:
        is_blank = not "".join(row).strip() and len(row) <= 1
        if is_blank and len(names) != 1 and not (names and empty_rows):
            continue
        if not names:
            names = list(map(str.strip, row))
            continue
        row = [""] * len(names) if is_blank else row
        if len(row) > len(names) or (len(row) < len(names) and not fills_short_rows):
            place = f"row {len(rows) + 1} (line {line})"
            raise UserError(f"{place}: expected {len(names)} columns, got {len(row)}")
        rows.append(row + [""] * (len(names) - len(row)))
        lines.append(line)
        num_used = len(rows) if len(names) == 1 or not is_blank else num_used
    # Without empty lines at the end.
    return pandas.DataFrame(rows[:num_used], columns=names, dtype=object), lines[:num_used]


def _csv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The line at which each row of CSV begins, and its fields; the header tells what separates them."""
    csv.field_size_limit(2**31 - 1)
    header = re.sub('"[^"]*"', "", text.lstrip()[: 1 << 16]).partition("\n")[0]
    separator = max(",;\t|", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"cannot be read: line {line}: {error}") from None


def _json_rows(text: str, empty_rows: bool) -> tuple[list[Any], list[int]]:
    """JSON lines, or an array of objects; and the line of each row of JSON lines."""
    lines: list[int] = []
    if text.lstrip().startswith("["):
        rows = files.parse_json(text, "the file", list)
    else:
        numbered = enumerate(_lines(text), 1)
        found = [(line, row) for line, row in numbered if row.strip() or empty_rows]
        lines = [line for line, _ in found]
        rows = [files.parse_json(row.strip() or "{}", f"line {line}") for line, row in found]
    for row, values in enumerate(rows, start=1):
        if not isinstance(values, dict):
            raise UserError(f"row {row}: expected a JSON object with the columns as keys")
    return rows, lines
