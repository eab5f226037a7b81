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


def beside(names: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """For names of an answer's values those of their columns: a prefix keeps them apart from the user's."""
    columns = {}
    for name in names:
        columns[name] = name
        while columns[name] in taken:
            columns[name] = _PREFIX + columns[name]
    return columns


def answer_table(path: str, frame: "pandas.DataFrame", answers: Sequence[Mapping]) -> bytes:
    """The content of a file with a table's rows and their answers; the ending of the path selects the format.

    JSON lines have answers as they are. In other formats, each entry of an answer's dictionary is a column, such as
    `probability_NAME`; where cells cannot be lists, they are JSON. In a .tsv file, whose texts end at a tab or a line
    break, and in which quotation marks are ordinary text, tabs and line breaks become blanks.
    """
    import pandas

    ending, taken = _ending(path), list(map(str, frame.columns))
    if taken.count("") > 1:  # as pandas names them
        taken = [name or f"Unnamed: {index}" for index, name in enumerate(taken)]
    rows = list(answers) if ending == ".jsonl" else list(map(_flat, answers))
    columns = beside(dict.fromkeys(name for row in rows for name in row), taken)
    own = frame.set_axis(taken, axis=1).reset_index(drop=True)
    if ending == ".jsonl":
        lines = [
            json.dumps(_plain(given | {columns[key]: row[key] for key in row}), ensure_ascii=False)
            for given, row in zip(own.to_dict("records"), rows, strict=True)
        ]
        return "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")
    found = {column: [row.get(name) for row in rows] for name, column in columns.items()}
    table = pandas.concat([own, pandas.DataFrame(found, index=own.index)], axis=1)
    return _parquet(table) if ending == ".parquet" else _text(table, is_tsv=ending == ".tsv")


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _flat(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with the entries of dictionaries as values; the columns of `probabilities` are `probability_NAME`."""
    flat: dict[str, Any] = {}
    for name, value in answer.items():
        one = "probability" if name == "probabilities" else name
        entries = value.items() if isinstance(value, Mapping) else ()
        flat |= {f"{one}_{key}": entry for key, entry in entries} if entries else {name: value}
    return flat


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
    if value is None or value != value or str(value) == "<NA>":  # noqa: PLR0124 - NaN and NaT
        return None
    return value if isinstance(value, str | int | float | bool) else str(value)


def _text(table: "pandas.DataFrame", is_tsv: bool) -> bytes:
    import pandas

    def cell(value: Any) -> Any:
        plain = _plain(value)
        text = json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict) else plain
        return " ".join(_BREAKS.split(text)) if is_tsv and isinstance(text, str) else text

    names = [name for name in table if table[name].dtype.kind not in "biuf"]
    cells = {name: pandas.Series([*map(cell, table[name])], table.index, object) for name in names}
    table = table.assign(**cells).rename(columns=cell)
    # All texts of CSV have quotation marks: the csv module writes none around a lone "\r", where readers end a row.
    quoting = csv.QUOTE_NONE if is_tsv else csv.QUOTE_NONNUMERIC
    options: dict[str, Any] = {"sep": "\t" if is_tsv else ",", "lineterminator": "\n"}
    text = table.to_csv(index=False, quoting=quoting, **options)
    return text.encode("utf-8", "surrogatepass")


def _parquet(table: "pandas.DataFrame") -> bytes:
    import pyarrow

    for name in [name for name in table if table[name].dtype.kind == "O"]:
        table[name] = table[name].where(table[name].notna(), None)  # NaN makes floats of numbers
        try:
            pyarrow.array(table[name], from_pandas=True)
        except (pyarrow.ArrowException, TypeError):  # values of several types, as JSON may have
            table[name] = table[name].map(lambda value: json.dumps(_plain(value)))
    output = io.BytesIO()
    table.to_parquet(output, index=False)
    return output.getvalue()
