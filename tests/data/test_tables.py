"""Tables in all formats have the same rows; a file that cannot be read gives one line."""

import json

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from albert_tf.core.errors import UserError
from albert_tf.data.tables import chosen, read_table

TEXTS = ['said "no"', "two\nlines", "a,b;c\td", "NA", ""]
LABELS = ["pos", "neg", "pos", "neg", "neg"]
FRAME = pandas.DataFrame({"text": TEXTS, "label": LABELS})


def read(path, *columns, **named):
    """The number and the cells of each row."""
    frame = read_table(str(path), source=f"--train_file={path}", **named)
    cells = chosen(frame, columns or list(frame.columns), f"--train_file={path}")
    return list(zip(frame.index, cells, strict=True))


def with_classes(features, **columns) -> pyarrow.Table:
    """A table as `datasets` writes it, with the names of classes in its schema."""
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    return pyarrow.table(columns).replace_schema_metadata(metadata)


def write_dataset(folder) -> None:
    """Writes a folder as `save_to_disk` does: two Arrow streams, and state.json."""
    folder.mkdir()
    numbers = [["neg", "pos"].index(label) for label in LABELS]
    classes = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": classes}
    table = with_classes(features, text=TEXTS, label=numbers)
    for name, part in {"data-0": table[:3], "data-1": table[3:]}.items():
        with pyarrow.ipc.new_stream(folder / f"{name}.arrow", table.schema) as file:
            file.write_table(part)
    (folder / "state.json").write_text("{}")


def write_parts(folder) -> None:
    """Writes a folder as Spark does: parts, and files that are none."""
    folder.mkdir()
    FRAME[:3].to_parquet(folder / "part-00000-x.snappy.parquet", index=False)
    FRAME[3:].to_parquet(folder / "part-00001-x.snappy.parquet", index=False)
    for name in ("_SUCCESS", ".part-00000-x.snappy.parquet.crc", "_common_metadata.parquet"):
        (folder / name).write_bytes(b"")


SEMICOLONS = {"sep": ";", "encoding": "utf-8-sig", "lineterminator": "\r\n"}
FORMATS = {
    "a.csv": lambda path: FRAME.to_csv(path, index=False),
    "b.CSV": lambda path: FRAME.to_csv(path, index=False, **SEMICOLONS),
    "a.jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "a.json": lambda path: FRAME.to_json(path, orient="records", indent=1),
    "a.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "a": write_dataset,
    "parts.parquet": write_parts,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_rows(name, tmp_path):
    FORMATS[name](tmp_path / name)
    rows = [cells for _, cells in read(tmp_path / name, "label", "text")]
    assert rows == list(zip(LABELS, TEXTS, strict=True))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quotation_marks_are_text_in_tsv(tmp_path, end):
    lines = ["\ufefftext \tlabel", '"a\t""b""', ' c \t"', "d\x85e\t", ""]
    (tmp_path / "a.txt").write_bytes(end.join(lines).encode())
    assert read(tmp_path / "a.txt", "text", "label") == [
        (2, ('"a', '""b""')),
        (3, (" c ", '"')),
        (4, ("d\x85e", "")),
    ]
    (tmp_path / "b.tsv").write_text("1\tx\n0\ty\n")
    assert read(tmp_path / "b.tsv", header=["n", "text"]) == [(1, ("1", "x")), (2, ("0", "y"))]


def test_values_become_text(tmp_path):
    values = [1.0, 1.5, True, None, float("nan"), -3, {"a": 1}, ["x", 2, None], 10**20]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"x": value}) for value in values))
    cells = [cell for _, (cell,) in read(tmp_path / "a.jsonl")]
    assert cells == ["1", "1.5", "true", "", "", "-3", '{"a": 1}', ["x", "2", ""], str(10**20)]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n{"b": "y"}\n')
    assert read(tmp_path / "b.jsonl") == [(1, ("1", "")), (2, ("", "y"))]


def test_values_of_parquet_become_text(tmp_path):
    tags = {"feature": {"names": ["O", "B-LOC"], "_type": "ClassLabel"}, "_type": "List"}
    columns = {"text": [b"caf\xc3\xa9", b"", None], "n": [1, None, 2], "tags": [[0, 1], [-1], []]}
    table = with_classes({"tags": tags}, **columns)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    expected = [("café", "1", ["O", "B-LOC"]), ("", "", [""]), ("", "2", [])]
    assert [cells for _, cells in read(tmp_path / "a.parquet")] == expected


WRONG = {
    "open.csv": (b'text,label\na,b\n"c,d\n', "cannot be read: "),
    "wide.csv": (b"text,label\na,b,c\nd,e\n", "cannot be read: "),
    "wide.tsv": (b"text\tlabel\na\tb\nd\te\tf\n", "cannot be read: "),
    "empty.csv": (b"\n\n", "cannot be read: "),
    "header.csv": (b"text,label\n", "contains no rows"),
    "latin.csv": ("text,label\nété,b\n".encode("latin-1"), "'utf-8' codec can't decode"),
    "list.jsonl": (b'{"text": 1}\n["a"]\n', "list.jsonl:2: expected a JSON object"),
    "text.json": (b'[{"text": 1}, "a"]', "text.json:2: expected a JSON object"),
    "open.jsonl": (b'{"text": "a"}\n{"text": ', "open.jsonl:2: not "),
    "empty.jsonl": (b"", "contains no rows"),
    "other.csv": (b"title,label\na,b\n", "has no column 'text', only 'title', 'label'"),
    "x.parquet": (b"PAR1 and something else", "cannot be read: "),
    "x.arrow": (b"ARROW1 and something else", "cannot be read: "),
    "folder": (None, "is a folder without .arrow, .parquet, "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_cannot_be_read_gives_one_line(name, tmp_path):
    content, expected = WRONG[name]
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path, "text")
    assert expected in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_folder_of_splits_names_them(tmp_path):
    (tmp_path / "splits").mkdir()
    for split in ("train", "test"):
        write_dataset(tmp_path / "splits" / split)
    with pytest.raises(UserError, match="name one of test, train in it"):
        read(tmp_path / "splits")
    assert len(read(tmp_path / "splits" / "train")) == len(TEXTS)
