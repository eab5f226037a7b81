"""Tables of examples: TSV, CSV, JSON lines, Parquet, Arrow, and folders of such files, as DataFrames of pandas.

The ending of a file's name selects the format; it may be followed by .gz, .bz2, .xz or .zst. Files with an unknown
ending are TSV, in which quotation marks are ordinary text: the files of GLUE contain thousands of unpaired ones.
"""

import ast
import contextlib
import csv
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from albert_tf.core import compression, files
from albert_tf.core.errors import UserError, first_line

if TYPE_CHECKING:
    import pandas

Cell = str | list[str]

_NAMES_SHOWN = 20  # labels or columns in one message
_BINARY = (".arrow", ".parquet")  # read as a whole, without lines
_JSON = (".jsonl", ".ndjson", ".json")
ENDINGS = (*_BINARY, *_JSON, ".csv", ".tsv")
_ABOUT = ("state.json", "dataset_info.json", "dataset_dict.json")  # `datasets` writes them
_SEPARATORS = ",;\t|"
_ZIP = b"PK\x03\x04"  # the start of a workbook (.xlsx, .ods)
_ROWS_TO_GUESS = 20
_BYTES_AT_START = 1 << 20  # of a file, in which its columns are looked for
_SPLITS = re.compile(r"(train|dev|val|valid|validation|eval|test)(?![a-z])", re.IGNORECASE)
_IDS = ("id", "guid", "uuid", "idx")
_RECORDS = 'DataFrame.to_json writes rows with orient="records"'


def is_table(path: str) -> bool:
    """Whether a name is that of a table, whose lines are not texts."""
    return _ending(path) in ENDINGS or files.is_folder(path)


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
    """The rows of a file, of all files in a folder, or of several of these: a glob, or paths separated by commas.

    Values are as the format has them; numbers that stand for names of classes (`datasets.ClassLabel`) are these names.
    The index says where each row is, for messages: "row 338 (line 3526, id politics/279)". Rows of data count from 1,
    without the header; the line is that of the file; the id is the user's, if there is such a column. A UserError if
    the file cannot be read, is of another format, or has no rows.

    Args:
      source: names the file in messages, such as "--train_file=x.csv".
      header: names of the columns of a TSV file that has no header.
      fills_short_rows: whether rows of too few columns are read, with empty texts; otherwise they are errors.
      empty_rows: whether lines without any text are rows, as where each is answered; of one column, they always are.
    """
    import pandas
    import pyarrow

    frames: list[pandas.DataFrame] = []
    parts = [part for name in _paths(path) for part in _parts(name, source)]
    for name, content in parts:
        where = source if len(parts) == 1 else name
        try:
            frame, lines = _read(name, content, header, fills_short_rows, empty_rows)
            _check_names(frame)
        # Of a damaged file, pyarrow also raises an OSError.
        except (UserError, ValueError, csv.Error, OSError, pyarrow.ArrowException) as error:
            is_known = isinstance(error, UserError)
            reason = error if is_known else f"cannot be read: {first_line(error)}"
            raise UserError(f"{where}: {reason}") from None
        is_json = _ending(name) in _JSON  # whose rows may lack keys
        if frames and not is_json and {*frame.columns} != {*frames[0].columns}:
            raise UserError(f"{where}: has other columns than {parts[0][0]}")
        part = os.path.basename(name) if len(parts) > 1 else ""
        frame.index = pandas.Index(_places(frame, lines, part), dtype=object)
        frames.append(frame)
    table = pandas.concat(frames) if len(frames) > 1 else frames[0]
    if table.empty:
        raise UserError(f"{source}: contains no rows")
    return table


def check_columns(path: str, columns: Sequence[str], source: str) -> None:
    """Raises the error of `chosen` if a table lacks a column; mostly, only the start of the file is read.

    Args:
      source: see `read_table`.
    """
    if not {*columns} <= _columns_at_start(path):
        chosen(read_table(path, source=source, empty_rows=True), columns, source)


def _columns_at_start(path: str) -> set[str]:
    """The columns of the first rows of a text file; none if the whole file must be read to know them."""
    first, *_ = _paths(path)
    if files.is_folder(first) or _ending(first) in _BINARY:
        return set()
    try:
        with files.open_binary(first) as file:
            content = compression.uncompressed(file, first).read(_BYTES_AT_START)
        if len(content) == _BYTES_AT_START:
            content = content[: content.rfind(b"\n") + 1]
        frame, _ = _read(first, content, (), True, True)
    except (UserError, ValueError, csv.Error, OSError):
        return set()
    return {*map(str, frame.columns)}


def chosen(frame: "pandas.DataFrame", columns: Sequence[str], source: str) -> list[tuple]:
    """The cells of some columns, row by row; cells are texts or lists of texts, missing ones are empty texts."""
    for column in columns:
        if column not in frame.columns:
            names = listed([repr(name) for name in frame.columns])
            has_header = _ending(source) not in (*_BINARY, *_JSON)
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
        text = _decoded(_content(path, source))
    except ValueError as error:
        raise UserError(f"{source}: cannot be read: {first_line(error)}") from None
    lines = _lines(text)
    while lines and not lines[-1] and not empty_rows:
        lines.pop()
    return lines


def read_texts(patterns: str, source: str) -> list[str]:
    """The lines that are not blank of a file, of the files of a glob, or of several of these, separated by commas."""
    lines = (line.strip() for path in _paths(patterns) for line in read_lines(path, source))
    texts = [line for line in lines if line]
    if not texts:
        raise UserError(f"{source}: contains no text")
    return texts


def cell(value: Any) -> Cell:
    """A value of JSON, Arrow or pandas as text, or as a list of texts; an object is an error."""
    if isinstance(value, str):
        return value
    if is_missing(value):
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


def as_list(field: Cell, place: str) -> Cell:
    """The list that a text writes in Python or JSON, as pandas writes lists to CSV; other texts as they are."""
    text = field.strip() if isinstance(field, str) else ""
    if text == "set()":
        return []
    if text[:1] + text[-1:] not in ("[]", "()", "{}"):
        return field
    try:
        value = ast.literal_eval(re.sub(r"\bnull\b", "None", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        value = None
    # NumPy writes no commas: Python would join the texts.
    has_joined = re.search(r"""['"]\s+['"]""", text)
    if isinstance(value, list | tuple | set) and not has_joined:
        return cell(list(value))
    if re.match(r"""\[|\{\s*(\}|['"][^:]*:)""", text):  # an object is none, either
        raise UserError(f"{place}: expected a list of Python or JSON, got {text[:80]!r}")
    return field


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
    """Whether a value of JSON or pandas stands for a missing one."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _ending(path: str) -> str:
    return os.path.splitext(compression.without_ending(path.rstrip("/")))[1].lower()


def _content(path: str, source: str) -> bytes:
    try:
        content = files.read_bytes(path, may_be_pipe=True)
        return compression.uncompressed_bytes(content, path)
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None


def _paths(path: str) -> list[str]:
    """The files or folders that a flag names."""
    paths: list[str] = []
    for name in files.listed(path):
        paths += files.texts_matching(name) or [name]
    return paths


def _parts(path: str, source: str) -> list[tuple[str, bytes]]:
    """Name and content of each file of a table."""
    if not files.is_folder(path):
        return [(path, _content(path, source))]
    # Spark writes files such as _SUCCESS beside the parts.
    names = [name for name in sorted(files.names_in(path)) if name[0] not in "._"]
    parts = [name for name in names if _ending(name) in ENDINGS and name not in _ABOUT]
    if not parts:
        hint = f"; name one of {listed(names)} in it" if names else ""
        raise UserError(f"{source}: is a folder without {', '.join(ENDINGS)} files{hint}")
    # Tables of several formats or splits may hold the same rows, or others: nobody but the user knows.
    splits = sorted({match[0].lower() for match in map(_SPLITS.match, parts) if match})
    if len(splits) > 1:
        _refuse_several(splits, f"{path.rstrip('/')}/{splits[-1]}*", source)
    endings = sorted(set(map(_ending, parts)))
    if len(endings) > 1:
        _refuse_several(endings, f"{path.rstrip('/')}/*{endings[-1]}", source)
    paths = [os.path.join(path, name) for name in parts]
    return [(part, _content(part, source)) for part in paths]


def _refuse_several(kinds: Sequence[str], example: str, source: str) -> NoReturn:
    """Raises the error for a folder with files of several kinds."""
    raise UserError(f"{source}: holds {', '.join(kinds)}; name one, such as {example}")


def _places(frame: "pandas.DataFrame", lines: Sequence[int], part: str) -> list[str]:
    """Where each row is, for messages."""
    details = [[f"line {line}"] for line in lines] or [[] for _ in range(len(frame))]
    columns_of_ids = [name for name in frame.columns if name.lower() in _IDS]
    if columns_of_ids:
        for details_of_row, value in zip(details, frame[columns_of_ids[0]], strict=True):
            if isinstance(value, str | int) and value != "":
                details_of_row.append(f"id {str(value)[:80]}")
    start = f"{part} row" if part else "row"
    shown = (f" ({', '.join(of_row)})" if of_row else "" for of_row in details)
    return [f"{start} {row}{place}" for row, place in enumerate(shown, start=1)]


def _check_names(frame: "pandas.DataFrame") -> None:
    """Checks that columns have different names, which are texts from here on."""
    frame.columns = frame.columns.map(str)
    for name, count in Counter(frame.columns).items():
        if name and count > 1:
            raise UserError(f"has two columns {name!r}")


def _read(
    path: str, content: bytes, header: Sequence[str], fills_short_rows: bool, empty_rows: bool
) -> tuple["pandas.DataFrame", list[int]]:
    """The rows of a file, and the line of each, if the format has lines."""
    import pandas

    ending = _ending(path)
    if ending in _BINARY:
        return _read_arrow(content, ending), []
    text = _decoded(content)
    if ending in _JSON:
        rows, lines = _json_rows(text, empty_rows)
        return pandas.DataFrame(rows, dtype=object), lines
    return _read_text(text, ending == ".csv", header, fills_short_rows, empty_rows)


def _decoded(content: bytes) -> str:
    if content.startswith(_ZIP):
        raise ValueError("it is a workbook or another ZIP file; save the table as CSV")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line:,}: {error}; save it as UTF-8") from None


def _lines(text: str) -> list[str]:
    # Not str.splitlines, which also splits at U+0085, U+2028 and others; real files have these characters inside texts.
    end = "\n" if "\n" in text else "\r"  # as spreadsheets on a Mac can write it
    return [line.removesuffix("\r") for line in text.removesuffix(end).split(end)]


def _read_text(
    text: str, is_csv: bool, header: Sequence[str], fills_short_rows: bool, empty_rows: bool
) -> tuple["pandas.DataFrame", list[int]]:
    import pandas

    rows_of_tsv = (line.split("\t") for line in _lines(text))
    numbered_rows = _csv_rows(text) if is_csv else enumerate(rows_of_tsv, start=1)
    names = list(header)
    num_used = 0
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, row in numbered_rows:
        is_blank = not "".join(row).strip() and len(row) <= 1
        # A blank line is a row, with an empty text, of a table of one column, or of any if the caller asks for it. It
        # means nothing above the names of columns and in all other tables.
        is_row = len(names) == 1 or (names and empty_rows)
        if is_blank and not is_row:
            continue
        if not names:
            names = list(map(str.strip, row))
            continue
        row = [""] * len(names) if is_blank else row
        place = f"row {len(rows) + 1} (line {line})"
        if len(row) > len(names) or (len(row) < len(names) and not fills_short_rows):
            raise UserError(f"{place}: expected {len(names)} columns, got {len(row)}")
        rows.append(row + [""] * (len(names) - len(row)))
        lines.append(line)
        if len(names) == 1 or not is_blank:
            num_used = len(rows)
    # Without empty lines at the end.
    table = pandas.DataFrame(rows[:num_used], columns=names, dtype=object)
    return table, lines[:num_used]


def _csv_rows(text: str, separator: str = "", limit: int | None = None) -> list:
    """The line at which each row of CSV begins, and its fields."""
    csv.field_size_limit(2**31 - 1)
    separator = separator or _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows = []
    line = 1
    try:
        for row in reader:
            rows.append((line, row))
            line = reader.line_num + 1
            if len(rows) == limit:
                break
    except csv.Error as error:
        raise UserError(f"cannot be read: line {line}: {error}") from None
    return rows


def _separator(text: str) -> str:
    """What separates the columns of CSV: it is in no quotes, gives the same number of columns, and the most of them."""
    best = ","
    best_fit = (False, False, 1)
    for separator in _SEPARATORS:
        try:
            rows = [row for _, row in _csv_rows(text, separator, _ROWS_TO_GUESS) if row]
        except UserError:
            continue
        widths = list(map(len, rows)) or [0]
        is_in_no_quotes = all(field.count('"') % 2 == 0 for row in rows for field in row)
        are_equally_wide = len(set(widths)) == 1
        fit = (is_in_no_quotes, are_equally_wide, widths[0])
        if widths[0] > 1 and fit > best_fit:
            best = separator
            best_fit = fit
    return best


def _json_rows(text: str, empty_rows: bool) -> tuple[list[Any], list[int]]:
    """JSON lines, one array of objects, or one object; and the line of each row of JSON lines."""
    lines: list[int] = []
    is_indented = text.lstrip().partition("\n")[0].strip() == "{"
    if text.lstrip().startswith("[") or is_indented:
        value = files.parse_json(text, "the file", object)
        rows = [value] if is_indented else value
    else:
        rows = []
        for number, line in enumerate(_lines(text), start=1):
            if line.strip() or empty_rows:
                lines.append(number)
                rows.append(files.parse_json(line.strip() or "{}", f"line {number}"))
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            place = f"line {lines[index]}" if lines else f"row {index + 1}"
            raise UserError(f"{place}: expected a JSON object with the columns as keys")
    if len(rows) == 1 and rows[0] and _is_of_columns(rows[0]):
        raise UserError(f"is one JSON object, expected one for each row; {_RECORDS}")
    return rows, lines


def _is_of_columns(values: Mapping[str, Any]) -> bool:
    """Whether an object is what DataFrame.to_json writes by default, or with orient="index", "split" or "table"."""
    has_data = {"data"} < {*values} <= {"schema", "columns", "index", "data"}
    return has_data or all(isinstance(value, dict) for value in values.values())


def _read_arrow(content: bytes, ending: str) -> "pandas.DataFrame":
    import pyarrow
    import pyarrow.parquet

    buffer = pyarrow.BufferReader(content)
    if ending == ".parquet":
        table = pyarrow.parquet.read_table(buffer)
    else:
        is_file = content.startswith(b"ARROW1")  # otherwise it is a stream, as `datasets` writes it
        open_arrow = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
        table = open_arrow(buffer).read_all()
    # The metadata of pandas would make an index of the user's column.
    frame = table.to_pandas(integer_object_nulls=True, ignore_metadata=True)
    about = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    for name, feature in about.get("info", {}).get("features", {}).items():
        if classes := _class_names(feature):
            frame[name] = [class_name(value, classes) for value in table[name].to_pylist()]
    return frame


def _class_names(feature: Any) -> Sequence[str]:
    """The names of the classes of a feature of `datasets`, or of the items of its lists; none if it has no classes."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, Mapping):
        return ()
    is_label = feature.get("_type") == "ClassLabel"
    return feature["names"] if is_label else _class_names(feature.get("feature"))


def class_name(value: Any, classes: Sequence[str]) -> Any:
    """The name of a class, or the names of a list of them; -1 and a missing value, which have none, become ""."""
    plain = value.tolist() if hasattr(value, "tolist") else value  # a number or an array of NumPy
    if isinstance(plain, list):
        return [class_name(item, classes) for item in plain]
    # A column of pandas with missing values has the numbers of its classes as floats.
    is_class = isinstance(plain, int | float) and 0 <= plain < len(classes)
    return classes[int(plain)] if is_class else ""
