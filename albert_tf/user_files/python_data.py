"""Data of a caller in Python -> the content of a file that programs read: lists, DataFrames, `datasets.Dataset`s.

Rows become JSON lines and texts become lines, so that all checks and messages are those of files.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from albert_tf.core.errors import UserError, shortened
from albert_tf.user_files.answer_tables import plain_rows
from albert_tf.user_files.table_files import class_name

if TYPE_CHECKING:
    import pandas


class Content(NamedTuple):
    """The content of a file, and the ending that says its format."""

    ending: str
    data: bytes


def is_path(value: Any) -> bool:
    """Whether an argument names files: a path, or several in a list."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(path, os.PathLike) for path in value)
    return value is None or isinstance(value, str | os.PathLike)


def is_table(value: Any) -> bool:
    """Whether data has named columns: a DataFrame, a `Dataset`, a dictionary of columns, or a list of dictionaries."""
    if _is_frame(value) or _is_dataset(value) or isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def table_content(value: Any, name: str) -> Content:
    """Data that `is_table` as JSON lines."""
    frame = frame_of(value, name)
    rows = [json.dumps(row, ensure_ascii=False) + "\n" for row in plain_rows(frame)]
    _check_characters(rows, name)
    return Content(".jsonl", "".join(rows).encode())


def columns_content(columns: Mapping[str, Sequence], name: str) -> Content:
    """Columns of equal length, by their names, as JSON lines; a UserError if their lengths differ."""
    lengths = {column: len(values) for column, values in columns.items()}
    if len({*lengths.values()}) > 1:
        shown = ", ".join(f"{length:,} of {column}" for column, length in lengths.items())
        raise UserError(f"{name}: expected equally many of each, got {shown}")
    return table_content(columns, name)


def frame_of(value: Any, name: str) -> "pandas.DataFrame":
    """Data that `is_table` as a DataFrame; numbers of classes of a `Dataset` become the names of the classes."""
    import pandas

    if _is_dataset(value):
        frame = value.to_pandas()
        for column, feature in value.features.items():
            if class_names := _class_names(feature):
                frame[column] = [class_name(cell, class_names) for cell in frame[column]]
    elif _is_frame(value):
        frame = value
    else:
        try:
            # Of objects, because an array would make floats of whole numbers beside missing ones.
            frame = pandas.DataFrame(value, dtype=object)
        except ValueError as error:
            raise UserError(f"{name}: is no table: {error}") from None
    columns = [str(column) for column in frame.columns]
    if len({*columns}) < len(columns):
        raise UserError(f"{name}: has two columns {max(columns, key=columns.count)!r}")
    if frame.empty:
        raise UserError(f"{name}: contains no rows")
    return frame


def text_content(value: Any, name: str) -> Content:
    """Texts as lines; an empty text is an empty line, so that the number of a line is that of its text."""
    lines = _lines_of_all(value, name)
    _check_characters(lines, name)
    return Content(".txt", "".join(f"{line}\n" for line in lines).encode())


def lines_of(value: Any, name: str) -> list[str]:
    """The texts that are not empty; white space in a text, such as line breaks, becomes blanks."""
    return [line for line in _lines_of_all(value, name) if line]


def _lines_of_all(value: Any, name: str) -> list[str]:
    """The same with the empty texts; at least one text is not empty."""
    lines = [" ".join(text.split()) for text in texts_of(value, name)]
    if not any(lines):
        raise UserError(f"{name}: expected at least one text that is not empty")
    return lines


def _check_characters(parts: Sequence[str], name: str) -> None:
    """Checks the parts of a file, one for each item of the caller's data.

    A UserError for half a surrogate pair, as programs leave it that cut texts: it is no character, and not in UTF-8.
    """
    for number, part in enumerate(parts, start=1):
        try:
            part.encode()
        except UnicodeEncodeError as error:
            half = ascii(part[error.start])
            shown = ascii(part[max(0, error.start - 40) : error.end + 40])
            reason = f"has {half}, half a surrogate pair, which is no character"
            raise UserError(f"{name}: item {number} {reason}: {shown}") from None


def document_content(value: Any, name: str) -> Content:
    """Texts as documents with blank lines between them; blank lines in a text are left out."""
    texts = texts_of(value, name)
    _check_characters(texts, name)
    documents = []
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip()]
        documents.append("".join(f"{line}\n" for line in lines))
    documents = [document for document in documents if document]
    if not documents:
        raise UserError(f"{name}: expected at least one text that is not empty")
    return Content(".txt", "\n".join(documents).encode())


def json_content(value: Any, name: str) -> Content:
    """An object of JSON, or rows of a table, as JSON."""
    if _is_frame(value) or _is_dataset(value):
        value = plain_rows(frame_of(value, name))
    try:
        return Content(".json", json.dumps(value).encode())
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: cannot be written as JSON: {error}") from None


def texts_of(value: Any, name: str) -> list[str]:
    """A list, a Series or a column of texts as a list of texts."""
    texts = list_of(value, name, "texts")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise UserError(f"{name}: expected a list of texts; item {number} is {shortened(text)}")
    return texts


def list_of(value: Any, name: str, what: str) -> list[Any]:
    """A list, an array, a Series or a column as a list."""
    if (
        isinstance(value, str | bytes | Mapping)
        or not hasattr(value, "__iter__")
        or is_table(value)
    ):
        raise UserError(f"{name}: expected a list of {what}, got {_kind_of(value)}")
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _kind_of(value: Any) -> str:
    if isinstance(value, str):
        return "one text"
    return "a table" if is_table(value) else shortened(value)


def _is_frame(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "columns")


def _is_dataset(value: Any) -> bool:
    return hasattr(value, "to_pandas") and hasattr(value, "features")


def _class_names(feature: Any) -> Sequence[str]:
    """The names of the classes of a feature of `datasets`, or of the items of its lists; none if it has no classes."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if names := getattr(feature, "names", None):
        return names
    inner = getattr(feature, "feature", None)
    return _class_names(inner) if inner is not None else ()
