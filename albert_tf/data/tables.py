"""Tables of examples: TSV, CSV, JSON lines, Parquet, Arrow, and folders of such files, as DataFrames of pandas.

The ending of a file's name selects the format. Files with an unknown ending are TSV, in which quotation marks are
ordinary text: the files of GLUE contain thousands of unpaired ones.
"""

import csv
import io
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

if TYPE_CHECKING:
    import pandas

Cell = str | list[str]

_NAMES_SHOWN = 20  # labels or columns in one message
_JSON = (".jsonl", ".ndjson", ".json")
# If a folder has files of several formats, the first of these is its table; `datasets` writes state.json beside .arrow.
_ENDINGS = (".arrow", ".parquet", *_JSON, ".csv", ".tsv")


def is_table(path: str) -> bool:
    """Whether a name is that of a table, whose lines are not texts."""
    return _ending(path) in _ENDINGS or files.is_folder(path)


def has_lists(path: str) -> bool:
    """Whether the cells of a table may be lists."""
    return is_table(path) and _ending(path) not in (".csv", ".tsv")


def read_table(path: str, *, source: str, header: Sequence[str] = ()) -> "pandas.DataFrame":
    """The rows of a file, or of all files in a folder, in the order of their names.

    Args:
      source: names the file in messages, such as "--train_file=x.csv".
      header: names of the columns of a TSV file that has no header.

    Returns:
      Values as the format has them; numbers that stand for names of classes (`datasets.ClassLabel`) are these names.
      The index is the row's number in the file as a spreadsheet shows it, from 1; a header is row 1.

    Raises:
      UserError: the file cannot be read, is of another format, or has no rows.
    """
    import pandas
    import pyarrow

    frames = []
    for part in _parts(path, source):
        try:
            frames.append(_read(part, header))
        except UserError:
            raise
        except (ValueError, pyarrow.ArrowException, pandas.errors.ParserWarning) as error:
            raise UserError(f"{source}: cannot be read: {first_line(error)}") from None
    frame = pandas.concat(frames)
    if frame.empty:
        raise UserError(f"{source}: contains no rows")
    return frame


def chosen(frame: "pandas.DataFrame", columns: Sequence[str], source: str) -> list[tuple]:
    """The cells of some columns, row by row; cells are texts or lists of texts, missing ones are empty texts."""
    names = list(map(str, frame.columns))
    for column in columns:
        if column not in names:
            raise UserError(
                f"{source}: has no column {column!r}, only {listed(list(map(repr, names)))}"
            )
    return list(zip(*([cell(value) for value in frame[name]] for name in columns), strict=True))


def text_of(cell: Cell, place: str) -> str:
    """A cell that must be one text."""
    if not isinstance(cell, str):
        raise UserError(f"{place}: expected a text, got a list of {len(cell)}")
    return cell


def listed(names: Sequence[str]) -> str:
    """Names for a message, not more than `_NAMES_SHOWN` of them."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def read_lines(path: str, source: str) -> list[str]:
    """The lines of a UTF-8 file, with or without byte-order mark; without empty lines at the end."""
    try:
        text = _content(path, source).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: cannot be read: {first_line(error)}") from None
    # Not str.splitlines, which also splits at U+0085, U+2028 and others; real files have these characters inside texts.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def cell(value: Any) -> Cell:
    """A value of JSON, Arrow or pandas as text, or as a list of texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [str(cell(item)) for item in value]
    if hasattr(value, "tolist"):  # of NumPy
        return cell(value.tolist())
    if isinstance(value, bytes):  # as some writers of Parquet store texts
        return value.decode()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool | dict):
        return json.dumps(value, ensure_ascii=False)
    # A missing value makes floats of the whole numbers of its column.
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


# --- Files ---


def _ending(path: str) -> str:
    return os.path.splitext(path.rstrip("/"))[1].lower()


def _content(path: str, source: str) -> bytes:
    try:
        return files.read_bytes(path)
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None


def _parts(path: str, source: str) -> list[tuple[str, bytes]]:
    """Name and content of each file of a table."""
    if not files.is_folder(path):
        return [(path, _content(path, source))]
    # Spark writes files such as _SUCCESS beside the parts.
    names = [name for name in sorted(files.names_in(path)) if name[0] not in "._"]
    for ending in _ENDINGS:
        if parts := [os.path.join(path, name) for name in names if _ending(name) == ending]:
            return [(part, _content(part, source)) for part in parts]
    hint = f"; name one of {listed(names)} in it" if names else ""
    raise UserError(f"{source}: is a folder without {', '.join(_ENDINGS)} files{hint}")


def _read(part: tuple[str, bytes], header: Sequence[str]) -> "pandas.DataFrame":
    import pandas

    path, content = part
    ending = _ending(path)
    if ending in (".parquet", ".arrow"):
        frame = _read_arrow(content, ending)
    elif ending in _JSON:
        frame = pandas.DataFrame(_json_rows(content.decode("utf-8-sig"), path), dtype=object)
    else:
        frame = _read_text(content, ending, header)
    has_header = ending not in (".parquet", ".arrow", *_JSON) and not header
    frame.index = pandas.RangeIndex(1 + has_header, 1 + has_header + len(frame))
    return frame


def _read_text(content: bytes, ending: str, header: Sequence[str]) -> "pandas.DataFrame":
    import pandas

    options: dict[str, Any] = {"sep": "\t", "quoting": csv.QUOTE_NONE, "lineterminator": "\n"}
    if ending == ".csv":
        first = content.partition(b"\n")[0].decode("utf-8-sig")
        options = {"sep": max(",;\t", key=first.count)}
    if header:
        options |= {"names": list(header), "header": None}
    with warnings.catch_warnings():
        # Without index_col, a row with too many cells would shift all columns; with it, pandas warns.
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        frame = pandas.read_csv(
            io.BytesIO(content.replace(b"\r\n", b"\n")),
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
            index_col=False,
            **options,
        )
    return frame.rename(columns=str.strip)


def _json_rows(text: str, path: str) -> list[Any]:
    """JSON lines, or one array, of objects."""
    if text.lstrip().startswith("["):
        rows = files.parse_json(text, path, list)
    else:
        lines = enumerate(text.split("\n"), start=1)
        rows = [files.parse_json(line, f"{path}:{row}") for row, line in lines if line.strip()]
    for row, values in enumerate(rows, start=1):
        if not isinstance(values, dict):
            raise UserError(f"{path}:{row}: expected a JSON object with the columns as keys")
    return rows


def _read_arrow(content: bytes, ending: str) -> "pandas.DataFrame":
    import pyarrow
    import pyarrow.parquet

    buffer = pyarrow.BufferReader(content)
    if ending == ".parquet":
        table = pyarrow.parquet.read_table(buffer)
    else:
        is_file = content.startswith(b"ARROW1")  # otherwise it is a stream, as `datasets` writes it
        table = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(buffer).read_all()
    frame = table.to_pandas(integer_object_nulls=True)
    about = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    for name, feature in about.get("info", {}).get("features", {}).items():
        if classes := _class_names(feature):
            frame[name] = [_named(value, classes) for value in table[name].to_pylist()]
    return frame


def _class_names(feature: Any) -> Sequence[str]:
    """The names of the classes of a feature of `datasets`, or of the items of its lists; none if it has no classes."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, Mapping):
        return ()
    is_label = feature.get("_type") == "ClassLabel"
    return feature["names"] if is_label else _class_names(feature.get("feature"))


def _named(value: Any, classes: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, classes) for item in value]
    is_class = isinstance(value, int) and 0 <= value < len(classes)
    return classes[value] if is_class else ""
