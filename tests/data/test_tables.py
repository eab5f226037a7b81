"""Tables in all formats: the same rows, and one line for a file that cannot be read."""

import json

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from albert_tf.core.errors import UserError
from albert_tf.data.tables import Table, read_table

TEXTS = ['said "no"', "two\nlines", "a,b;c\td", "NA", ""]
LABELS = ["pos", "neg", "pos", "neg", "neg"]
ROWS = [list(row) for row in zip(TEXTS, LABELS, strict=True)]
FRAME = pandas.DataFrame({"text": TEXTS, "label": LABELS})


def read(path) -> Table:
    return read_table(str(path), source=f"--train_file={path}")


def write_csv(path) -> None:
    FRAME.to_csv(path, index=False)


def write_semicolons(path) -> None:
    FRAME.to_csv(path, index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n")


def write_json_lines(path) -> None:
    FRAME.to_json(path, orient="records", lines=True)


def write_json(path) -> None:
    FRAME.to_json(path, orient="records", indent=1)


def write_parquet(path) -> None:
    FRAME.to_parquet(path, index=False)


def write_dataset(folder) -> None:
    """Writes a folder as `datasets` 4 does: Arrow streams, here two, with the names of classes in the schema."""
    folder.mkdir()
    classes = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": classes}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    schema = pyarrow.schema([("text", pyarrow.string()), ("label", pyarrow.int64())], metadata)
    numbers = [["neg", "pos"].index(label) for label in LABELS]
    table = pyarrow.table({"text": TEXTS, "label": numbers}, schema)
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (table[:3], table[3:]), strict=True):
        with pyarrow.ipc.new_stream(folder / name, schema) as file:
            file.write_table(part)
    state = {"_data_files": [{"filename": name} for name in names]}
    (folder / "state.json").write_text(json.dumps(state))


FORMATS = {
    "a.csv": write_csv,
    "b.CSV": write_semicolons,
    "a.jsonl": write_json_lines,
    "a.json": write_json,
    "a.parquet": write_parquet,
    "a": write_dataset,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_rows(name, tmp_path):
    FORMATS[name](tmp_path / name)
    table = read(tmp_path / name)
    assert table.columns == ("text", "label")
    assert [list(cells) for _, cells in table.whole_rows()] == ROWS


def test_rows_have_the_number_of_their_first_line(tmp_path):
    write_csv(tmp_path / "a.csv")
    assert [row for row, _ in read(tmp_path / "a.csv").rows] == [2, 3, 5, 6, 7]
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    assert [row for row, _ in read(tmp_path / "a.jsonl").rows] == [1, 3]


def test_quotation_marks_are_text_in_tsv(tmp_path):
    (tmp_path / "a.txt").write_text('text\tlabel\n"a\t""b""\n')
    assert read(tmp_path / "a.txt").rows == [(2, ['"a', '""b""'])]


def test_values_become_text(tmp_path):
    values = [1.0, 1.5, True, None, float("nan"), -3, {"a": 1}, ["x", 2, None], 10**20]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"x": value}) for value in values))
    cells = [cell for _, (cell,) in read(tmp_path / "a.jsonl").rows]
    assert cells == ["1", "1.5", "true", "", "", "-3", '{"a": 1}', ["x", "2", ""], str(10**20)]


def test_missing_keys_of_json_are_empty(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": "x"}\n{"b": "y"}\n')
    assert read(tmp_path / "a.jsonl").rows == [(1, ["x", ""]), (2, ["", "y"])]


def test_bytes_of_parquet_are_texts(tmp_path):
    table = pyarrow.table({"text": [b"caf\xc3\xa9", b""]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert [cells for _, cells in read(tmp_path / "a.parquet").rows] == [["café"], [""]]
    table = pyarrow.table({"text": [b"\xff"]})
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(UserError):
        read(tmp_path / "b.parquet")


def test_names_of_classes_in_lists(tmp_path):
    tags = {"feature": {"names": ["O", "B-LOC"], "_type": "ClassLabel"}, "_type": "List"}
    metadata = {b"huggingface": json.dumps({"info": {"features": {"tags": tags}}}).encode()}
    schema = pyarrow.schema([("tags", pyarrow.list_(pyarrow.int64()))], metadata)
    table = pyarrow.table({"tags": [[0, 1], [-1], []]}, schema)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert [cells for _, cells in read(tmp_path / "a.parquet").rows] == [
        [["O", "B-LOC"]],
        [[""]],
        [[]],
    ]


WRONG = {
    "a.xlsx": (b"PK", ".xlsx files are not read; save it as one of .tsv, .csv, "),
    "open.csv": (b'text,label\na,b\n"c,d\n', "open.csv:3: is not CSV (unexpected end of data)"),
    "inside.csv": (b'text,label\n"c"d,e\n', "inside.csv:2: is not CSV ("),
    "narrow.csv": (b"text,label\na\n", "narrow.csv:2: expected 2 columns, got 1 column; is a text"),
    "wide.csv": (b"text,label\na,b,c\n", "wide.csv:2: expected 2 columns, got 3 columns"),
    "empty.csv": (b"\n\n", "contains no rows"),
    "header.csv": (b"text,label\n", "contains no rows"),
    "latin.csv": ("text,label\nété,b\n".encode("latin-1"), "latin.csv:2: is not UTF-8"),
    "list.jsonl": (b'{"text": 1}\n["a"]\n', "list.jsonl:2: expected a JSON object"),
    "text.json": (b'[{"text": 1}, "a"]', "text.json:2: expected a JSON object"),
    "open.jsonl": (b'{"text": "a"}\n{"text": ', "open.jsonl:2: not JSON"),
    "empty.jsonl": (b"", "contains no rows"),
    "x.parquet": (b"PAR1 and something else", "cannot be read by pyarrow ("),
    "x.arrow": (b"ARROW1 and something else", "cannot be read by pyarrow ("),
    "folder.csv": (None, "Is a directory"),
    "folder": (None, "Is a directory, without the state.json of `datasets`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_read(name, tmp_path):
    content, expected = WRONG[name]
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(read(path).whole_rows())
    assert expected in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_folder_of_splits_names_them(tmp_path):
    (tmp_path / "splits").mkdir()
    for split in ("train", "test"):
        write_dataset(tmp_path / "splits" / split)
    with pytest.raises(UserError, match="name one of test, train in it"):
        read(tmp_path / "splits")
    assert len(read(tmp_path / "splits" / "train").rows) == len(ROWS)


@pytest.mark.parametrize("entries", [None, 5, ["a"], [{}], {"a": 1}])
def test_a_folder_with_a_wrong_state(entries, tmp_path):
    write_dataset(tmp_path / "a")
    (tmp_path / "a" / "state.json").write_text(json.dumps({"_data_files": entries}))
    with pytest.raises(UserError, match="_data_files"):
        read(tmp_path / "a")
