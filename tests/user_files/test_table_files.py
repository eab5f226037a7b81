"""Tables in all formats have the same rows; a file that cannot be read gives one line."""

import json

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from albert_tf.core.errors import UserError
from albert_tf.user_files.table_files import cell, chosen, read_table

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
    "a.csv.gz": lambda path: FRAME.to_csv(path, index=False),
    "a.csv.bz2": lambda path: FRAME.to_csv(path, index=False),
    "a.jsonl.xz": lambda path: FRAME.to_json(path, orient="records", lines=True),
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


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quotation_marks_are_text_in_tsv(tmp_path, end):
    lines = ["\ufefftext \tlabel", '"a\t""b""', ' c \t"', "d\x85e\t", ""]
    (tmp_path / "a.txt").write_bytes(end.join(lines).encode())
    assert read(tmp_path / "a.txt", "text", "label") == [
        ("row 1 (line 2)", ('"a', '""b""')),
        ("row 2 (line 3)", (" c ", '"')),
        ("row 3 (line 4)", ("d\x85e", "")),
    ]
    (tmp_path / "b.tsv").write_text("1\tx\n0\ty\n")
    assert read(tmp_path / "b.tsv", header=["n", "text"]) == [
        ("row 1 (line 1)", ("1", "x")),
        ("row 2 (line 2)", ("0", "y")),
    ]


def test_values_become_text(tmp_path):
    values = [1.0, 1.5, True, None, float("nan"), -3, ["x", 2, None], 10**20]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"x": value}) for value in values))
    cells = [cell for _, (cell,) in read(tmp_path / "a.jsonl")]
    assert cells == ["1", "1.5", "true", "", "", "-3", ["x", "2", ""], str(10**20)]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n{"b": "y"}\n')
    assert [cells for _, cells in read(tmp_path / "b.jsonl")] == [("1", ""), ("", "y")]


def test_values_of_parquet_become_text(tmp_path):
    tags = {"feature": {"names": ["O", "B-LOC"], "_type": "ClassLabel"}, "_type": "List"}
    columns = {"text": [b"caf\xc3\xa9", b"", None], "n": [1, None, 2], "tags": [[0, 1], [-1], []]}
    table = with_classes({"tags": tags}, **columns)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    expected = [("café", "1", ["O", "B-LOC"]), ("", "", [""]), ("", "2", [])]
    assert [cells for _, cells in read(tmp_path / "a.parquet")] == expected


WRONG = {
    "open.csv": (b'text,label\na,b\n"c,d\n', "cannot be read: "),
    "wide.csv": (b"text,label\na,b,c\nd,e\n", "row 1 (line 2): expected 2 columns, got 3"),
    "wide.tsv": (b"text\tlabel\na\tb\nd\te\tf\n", "row 2 (line 3): expected 2 columns, got 3"),
    "short.csv": (b'text,label\n"a\nb",c\n\nd\n', "row 2 (line 5): expected 2 columns, got 1"),
    "short.tsv": (b"text\tlabel\na\tb\nd\n", "row 2 (line 3): expected 2 columns, got 1"),
    "twice.csv": (b"text, text ,label\na,b,c\n", "has two columns 'text'"),
    "empty.csv": (b"\n\n", "contains no rows"),
    "header.csv": (b"text,label\n", "contains no rows"),
    "latin.csv": (
        "text,label\nété,b\n".encode("latin-1"),
        "line 2: 'utf-8' codec can't decode byte 0xe9 in position 11: invalid continuation byte; save it as UTF-8",
    ),
    "book.xlsx": (b"PK\x03\x04 and more", "a workbook or another ZIP file; save the table as CSV"),
    "list.jsonl": (b'{"text": 1}\n["a"]\n', "line 2: expected a JSON object"),
    "text.json": (b'[{"text": 1}, "a"]', "row 2: expected a JSON object"),
    "open.jsonl": (b'{"text": "a"}\n{"text": ', "line 2: not "),
    "empty.jsonl": (b"", "contains no rows"),
    "other.csv": (b"title,label\na,b\n", "'title', 'label'; the first line must name the columns"),
    "columns.json": (b'{"text":{"0":"a","1":"b"},"n":{"0":1,"1":2}}', 'orient="records"'),
    "index.json": (b'{"0":{"text":"a","n":1},"1":{"text":"b","n":2}}', 'orient="records"'),
    "split.json": (b'{"columns":["text"],"index":[0,1],"data":[["a"],["b"]]}', 'orient="records"'),
    "indented.json": (b'{\n "text": {\n  "0": "a"\n }\n}', 'orient="records"'),
    "object.jsonl": (
        b'{"text": "a"}\n{"text": {"a": 1}}\n',
        "row 2 (line 2): column 'text': expected",
    ),
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


def test_a_folder_of_several_formats_is_no_table(tmp_path):
    """Reading one of them would leave out rows without a word; files of other kinds are no tables."""
    for name in ("a.csv", "B.CSV", "README.md", "dataset_info.json"):
        (tmp_path / name).write_text("text\nit is good\n")
    assert len(read(tmp_path, "text")) == 2
    (tmp_path / "c.jsonl").write_text('{"text": "it is bad"}')
    with pytest.raises(UserError, match=r"holds .csv, .jsonl; name one, such as .*/\*.jsonl$"):
        read(tmp_path, "text")


def test_rows_are_named_by_their_number_and_the_users_id(tmp_path):
    FRAME.assign(ID=["a/1", "a/2", "", "b", "c"]).to_csv(tmp_path / "a.csv", index=False)
    places = [place for place, _ in read(tmp_path / "a.csv")]
    assert places[:3] == ["row 1 (line 2, id a/1)", "row 2 (line 3, id a/2)", "row 3 (line 5)"]
    FRAME.assign(id=list("abcde")).set_index("id").to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "text")[4][0] == "row 5 (id e)"


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_in_a_table_of_one_column_every_line_is_a_row(name, tmp_path):
    (tmp_path / name).write_text("text\nit is good\n\nit is bad\n\n")
    assert [cells for _, (cells,) in read(tmp_path / name)] == ["it is good", "", "it is bad", ""]


HEADERS = {
    'text;"date, place, hour";label\r\na;"1, 2, 3";b': ["text", "date, place, hour", "label"],
    'text,"a;b;c;d"\nx,y;z': ["text", "a;b;c;d"],
    "text;date, place\na;b": ["text", "date, place"],
    "text|label\na, b|c": ["text", "label"],
    '"two\nlines",text\na,b': ["two\nlines", "text"],
    "text\nword": ["text"],
}


@pytest.mark.parametrize("content", HEADERS)
def test_the_separator_of_csv_is_not_inside_quotes(content, tmp_path):
    (tmp_path / "a.csv").write_bytes(content.encode())
    frame = read_table(str(tmp_path / "a.csv"), source="x")
    assert list(frame.columns) == HEADERS[content] and len(frame) == 1


def test_several_files_are_one_table(tmp_path):
    paths = [tmp_path / f"train-0000{part}-of-00002.parquet" for part in (0, 1)]
    for part, path in enumerate(paths):
        FRAME[3 * part : 3 * part + 3].to_parquet(path)
    for name in (tmp_path, tmp_path / "train-*.parquet", ",".join(map(str, paths))):
        rows = read(name, "text", "label")
        assert [cells for _, cells in rows] == list(zip(TEXTS, LABELS, strict=True))
        assert rows[3][0] == "train-00001-of-00002.parquet row 1"
    FRAME.rename(columns={"label": "other"}).to_parquet(tmp_path / "train-2.parquet")
    with pytest.raises(UserError, match="train-2.parquet: has other columns than"):
        read(tmp_path)
    (tmp_path / "train-2.parquet").rename(tmp_path / "test-0.parquet")
    with pytest.raises(UserError, match="holds test, train; name one"):
        read(tmp_path)


def test_missing_values_of_pandas_are_empty_texts():
    values = pandas.Series(["a", None], dtype="string").to_list() + [pandas.NaT, np.float32("nan")]
    assert list(map(cell, values)) == ["a", "", "", ""]
    assert cell(np.float32(0.1)) == "0.1" and cell(np.array([1.0, 2.5])) == ["1", "2.5"]


def test_a_list_may_have_blanks_after_its_commas(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\na\tx\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.tsv").write_text("text\tlabel\nb\ty\n")
    table = read_table(f"{tmp_path}/a.tsv, {tmp_path}/**/c.tsv", source="--train_file")
    assert table["text"].tolist() == ["a", "b"]
