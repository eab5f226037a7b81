"""Tables of answers: the rows of a user's file, each with its answer in columns of its own."""

import csv
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core import files
from albert_tf.core.errors import UserError

if TYPE_CHECKING:
    import pandas

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
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


def write_answers(
    path: str, frame: "pandas.DataFrame", answers: Sequence[Mapping[str, Any]]
) -> str:
    """Writes `answer_table`; the file is complete or absent. Returns a remark, or ""."""
    content, remark = answer_table(path, frame, answers)
    files.write_bytes(path, content)
    return remark


def answer_table(
    path: str, frame: "pandas.DataFrame", answers: Sequence[Mapping[str, Any]]
) -> tuple[bytes, str]:
    """The content of a file with a table's rows and their answers, and a remark, or "".

    The ending of the path selects the format. JSON has answers as they are. In other formats, each entry of an answer's
    dictionary is a column, such as `probability_NAME`; where cells cannot be lists, they are JSON.
    """
    ending, taken = _ending(path), list(map(str, frame.columns))
    is_json = ending in (".jsonl", ".ndjson", ".json")
    rows = list(answers) if is_json else list(map(_flat, answers))
    columns = beside(dict.fromkeys(name for row in rows for name in row), taken)
    if is_json:
        given = [dict(zip(taken, row, strict=True)) for row in frame.itertuples(index=False)]
        rows = [
            {**_plain(own), **{columns[name]: _plain(row[name]) for name in row}}
            for own, row in zip(given, rows, strict=True)
        ]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        text = "[\n" + ",\n".join(lines) + "\n]\n" if ending == ".json" else "\n".join([*lines, ""])
        return text.encode("utf-8", "surrogatepass"), ""
    import pandas

    found = {column: [row.get(name) for row in rows] for name, column in columns.items()}
    own = frame.set_axis(taken, axis=1).reset_index(drop=True)
    table = pandas.concat([own, pandas.DataFrame(found, index=own.index)], axis=1)
    return _parquet(table) if ending == ".parquet" else _text(table, ending)


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


def _cell(value: Any) -> Any:
    """A value as one of a text file; lists and objects are JSON."""
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict) else plain


def _text(table: "pandas.DataFrame", ending: str) -> tuple[bytes, str]:
    names = [name for name in table if table[name].dtype.kind not in "biuf"]
    texts, remark = table[names].map(_cell).astype(object), ""
    if (
        ending == ".tsv"
    ):  # its texts end at a tab or a line break, and quotation marks are ordinary text
        clean = texts.map(
            lambda value: " ".join(_BREAKS.split(value)) if isinstance(value, str) else value
        )
        if number := int((clean.fillna("") != texts.fillna("")).any(axis=1).sum()):
            remark = f"{number:,} rows have tabs or line breaks; they are blanks in a .tsv file, and stay in .csv"
        texts = clean
    # The csv module leaves a field with a lone "\r" without quotation marks, and readers end the row there.
    has_returns = texts.map(lambda value: "\r" in str(value)).any(axis=None)
    quoting = csv.QUOTE_NONNUMERIC if has_returns else csv.QUOTE_MINIMAL
    options: dict[str, Any] = {"quoting": quoting}
    if ending == ".tsv":
        table.columns = [" ".join(_BREAKS.split(name)) for name in table.columns]
        texts.columns = [" ".join(_BREAKS.split(name)) for name in names]
        options = {"quoting": csv.QUOTE_NONE, "sep": "\t"}
    text = table.assign(**texts).to_csv(index=False, lineterminator="\n", **options)
    return text.encode("utf-8", "surrogatepass"), remark


def _parquet(table: "pandas.DataFrame") -> tuple[bytes, str]:
    import pyarrow
    import pyarrow.parquet

    for name in [name for name in table if table[name].dtype.kind == "O"]:
        try:
            pyarrow.array(table[name], from_pandas=True)
        except (pyarrow.ArrowException, TypeError):  # values of several types, as JSON may have
            table[name] = table[name].map(lambda value: json.dumps(_plain(value)))
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(table, preserve_index=False), sink)
    return sink.getvalue().to_pybytes(), ""
