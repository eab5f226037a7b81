"""Tables of answers: the rows of a user's file, each with its answer in columns of its own."""

import csv
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core.errors import UserError

if TYPE_CHECKING:
    import pandas

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
_PREFIX = "predicted_"
_BREAKS = re.compile(r"[\t\r\n]+")


def check_ending(path: str, source: str, endings: Sequence[str] = ENDINGS) -> None:
    """Checks that the ending of a file's name selects a format of answers."""
    if path and _ending(path) not in endings:
        raise UserError(f"{source}: expected a name that ends with {', '.join(endings)}")


def free_columns(names: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """For names of an answer's values those of their columns: a prefix keeps them apart from the user's."""
    columns = {}
    for name in names:
        column = name
        while column in taken:
            column = _PREFIX + column
        columns[name] = column
    return columns


def answer_table(path: str, frame: "pandas.DataFrame", answers: Sequence[Mapping]) -> bytes:
    """The content of a file with a table's rows and their answers; the ending of the path selects the format.

    JSON lines have answers as they are. In other formats, each entry of an answer's dictionary is a column, such as
    `probability_NAME`; where cells cannot be lists, they are JSON. In a .tsv file, whose texts end at a tab or a line
    break, and in which quotation marks are ordinary text, tabs and line breaks become blanks.
    """
    ending = _ending(path)
    if ending == ".jsonl":
        return _json_lines(_user_table(frame), answers)
    table = with_answers(frame, answers)
    if ending == ".parquet":
        return _parquet(table)
    return _text(table, is_tsv=ending == ".tsv")


def with_answers(frame: "pandas.DataFrame", answers: Sequence[Mapping]) -> "pandas.DataFrame":
    """The rows of a table with their answers; each entry of an answer's dictionary is a column."""
    import pandas

    user_table = _user_table(frame)
    flat_answers = [_flat(answer) for answer in answers]
    cells = {
        column: [answer.get(name) for answer in flat_answers]
        for name, column in free_columns(_names_of(flat_answers), list(user_table.columns)).items()
    }
    answer_columns = pandas.DataFrame(cells, index=user_table.index)
    return pandas.concat([user_table, answer_columns], axis=1)


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _user_table(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """A table whose columns have names, and whose rows are numbered from 0."""
    return frame.set_axis(_user_columns(frame), axis=1).reset_index(drop=True)


def _user_columns(frame: "pandas.DataFrame") -> list[str]:
    """The names of a table's columns; several without a name are named as pandas names them."""
    columns = [str(column) for column in frame.columns]
    if columns.count("") <= 1:
        return columns
    return [column or f"Unnamed: {index}" for index, column in enumerate(columns)]


def _names_of(answers: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the values of all answers, each once, in the order in which they first occur."""
    names: dict[str, None] = {}
    for answer in answers:
        names |= dict.fromkeys(answer)
    return list(names)


def _flat(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with the entries of dictionaries as values; the columns of `probabilities` are `probability_NAME`.

    Example: {"label": "a", "probabilities": {"a": 0.9, "b": 0.1}} -> {"label": "a", "probability_a": 0.9,
    "probability_b": 0.1}. An empty dictionary stays.
    """
    flat: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, Mapping) and value:
            prefix = "probability" if name == "probabilities" else name
            flat |= {f"{prefix}_{key}": entry for key, entry in value.items()}
        else:
            flat[name] = value
    return flat


def _json_lines(user_table: "pandas.DataFrame", answers: Sequence[Mapping[str, Any]]) -> bytes:
    columns = free_columns(_names_of(answers), list(user_table.columns))
    lines = []
    for row, answer in zip(user_table.to_dict("records"), answers, strict=True):
        row |= {columns[name]: value for name, value in answer.items()}
        lines.append(json.dumps(_plain(row), ensure_ascii=False) + "\n")
    return _encoded("".join(lines))


def _encoded(text: str) -> bytes:
    """A text in UTF-8; half a surrogate pair, which JSON can contain, is written as it is."""
    return text.encode("utf-8", "surrogatepass")


def plain_rows(frame: "pandas.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table, by column, with values that JSON can contain."""
    return [_plain(row) for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    """A value of pandas or Arrow as one of JSON."""
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()

    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")

    is_nan_or_nat = value != value  # noqa: PLR0124 - nothing else differs from itself
    if value is None or is_nan_or_nat or str(value) == "<NA>":
        return None
    return value if isinstance(value, str | int | float | bool) else str(value)


def _text(table: "pandas.DataFrame", is_tsv: bool) -> bytes:
    """The content of a .csv or .tsv file."""
    import pandas

    def cell(value: Any) -> Any:
        plain = _plain(value)
        if isinstance(plain, list | dict):
            plain = json.dumps(plain, ensure_ascii=False)
        if is_tsv and isinstance(plain, str):
            plain = _BREAKS.sub(" ", plain)
        return plain

    # pandas itself writes columns of the kinds bool, integer, unsigned integer and float.
    cells: dict[str, Any] = {}
    for name in table:
        if table[name].dtype.kind not in "biuf":
            cells[name] = pandas.Series(list(map(cell, table[name])), table.index, object)
    table = table.assign(**cells).rename(columns=cell)

    # All texts of CSV have quotation marks: the csv module writes none around a lone "\r", where readers end a row.
    text = table.to_csv(
        index=False,
        quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_NONNUMERIC,
        sep="\t" if is_tsv else ",",
        lineterminator="\n",
    )
    return _encoded(text)


def _parquet(table: "pandas.DataFrame") -> bytes:
    """The content of a .parquet file; a column of objects that Parquet cannot store becomes one of JSON."""
    names_of_objects = [name for name in table if table[name].dtype.kind == "O"]
    for name in names_of_objects:
        column = table[name].where(table[name].notna(), None)  # NaN makes floats of numbers
        table[name] = column if _is_storable(column) else column.map(_json_or_none)
    output = io.BytesIO()
    table.to_parquet(output, index=False)
    return output.getvalue()


def _json_or_none(value: Any) -> str | None:
    return None if value is None else json.dumps(_plain(value))


def _is_storable(column: "pandas.Series") -> bool:
    """Whether Parquet can store a column of objects: not values of several types, as JSON may have, {}, or 10**30."""
    import pyarrow

    try:
        kind = pyarrow.array(column, from_pandas=True).type
    except (pyarrow.ArrowException, TypeError, OverflowError):
        return False
    return not _has_empty_object(kind)


def _has_empty_object(kind: Any) -> bool:
    """Whether a type of Arrow is that of objects without keys, or contains one."""
    import pyarrow

    if pyarrow.types.is_struct(kind):
        fields = [kind.field(number).type for number in range(kind.num_fields)]
        return not fields or any(map(_has_empty_object, fields))
    return pyarrow.types.is_list(kind) and _has_empty_object(kind.value_type)
