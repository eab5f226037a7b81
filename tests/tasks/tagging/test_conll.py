"""Files of tagged words: formats, columns, wrong files, real data."""

import re

import pytest

from albert_tf.core.errors import UserError
from albert_tf.tasks.tagging import conll
from albert_tf.tasks.tagging.conll import Sentence
from tests.helpers import error_of

TWO = "EU B-ORG\nrejects O\n\nPeter I-PER\nBlackburn I-PER\n"


def read(folder, text, token_column="first", tag_column="last", need_tags=True, name="words.conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    columns = {"token_column": token_column, "tag_column": tag_column}
    return conll.read_tagged(str(path), **columns, need_tags=need_tags, flag="train_file")


@pytest.mark.parametrize("need_tags", [True, False])
def test_a_header_with_the_name_of_the_tags_is_no_word(tmp_path, need_tags):
    text = "word\tner\nEU\tB-ORG\nrejects\tO\n"
    file = read(tmp_path, text, tag_column="ner", need_tags=need_tags)
    assert file.sentences == (Sentence(("EU", "rejects"), row=2),)


def test_sentences_are_read_with_their_lines_and_tags_in_iob2(tmp_path):
    file = read(tmp_path, TWO)
    assert file.sentences == (
        Sentence(("EU", "rejects"), row=1),
        Sentence(("Peter", "Blackburn"), row=4),
    )
    assert file.tags == (("B-ORG", "O"), ("B-PER", "I-PER"))
    assert file.labels() == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert [sentence.tags for sentence in file.labelled(file.labels())] == [(1, 0), (3, 4)]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + TWO,
        TWO.replace("\n", "\r\n"),
        TWO.rstrip(),
        "\n\n" + TWO.replace("\n\n", "\n\t\n\n") + "\n",
        "-DOCSTART- -X- O O\n\n" + TWO.replace("\n\n", "\n-DOCSTART-\tO\n").replace(" ", "\t"),
        TWO.replace(" ", "  "),
        TWO.replace(" ", "\t"),
    ],
    ids=["mark", "crlf", "open end", "white lines", "docstart", "spaces", "tabs"],
)
def test_variants_of_the_format_hold_the_same_sentences(tmp_path, text):
    file = read(tmp_path, text)
    assert [sentence.words for sentence in file.sentences] == [
        ("EU", "rejects"),
        ("Peter", "Blackburn"),
    ]
    assert file.tags == (("B-ORG", "O"), ("B-PER", "I-PER"))


TABLES = {
    "a.csv": 'EU,B-ORG\n"say ""no""",O\n,\n\nPeter,I-PER\n',
    "a.jsonl": '{"w": ["EU", "say \\"no\\""], "t": ["B-ORG", "O"]}\n{"w": ["Peter"], "t": ["I-PER"]}\n',
    "a.json": '[{"w": ["EU", "say \\"no\\""], "t": ["B-ORG", "O"]}, {"w": [" Peter"], "t": ["I-PER"]}]',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_hold_the_same_sentences(tmp_path, name):
    file = read(tmp_path, TABLES[name], name=name)
    assert [sentence.words for sentence in file.sentences] == [("EU", 'say "no"'), ("Peter",)]
    assert file.tags == (("B-ORG", "O"), ("B-PER",))
    last = file.sentences[-1].row
    with pytest.raises(
        UserError, match=rf"{name}:{last}: expected a label \(O, B-ORG\), got 'B-PER'"
    ):
        file.labelled(["O", "B-ORG"])


@pytest.mark.parametrize(
    "row, message",
    [
        ('{"w": "EU", "t": ["O"]}', "1: expected a list of words in column 'w'; --token_column"),
        ('{"w": ["EU", " "], "t": ["O", "O"]}', "1: expected a list of words in column 'w'"),
        ('{"w": ["EU"], "t": "O"}', "1: expected a list of 1 tags in column 't'; --tag_column"),
        ('{"w": ["EU"], "t": ["O", "O"]}', "1: expected a list of 1 tags in column 't'"),
        ('{"w": ["EU"], "t": ["3"]}', "1: expected a tag such as O, B-LOC or I-LOC, got '3'"),
        ('{"w": [], "t": []}', "contains no words"),
    ],
)
def test_a_table_of_another_form(tmp_path, row, message):
    with pytest.raises(UserError, match="words.jsonl:? ?" + re.escape(message)):
        read(tmp_path, row, name="words.jsonl")


@pytest.mark.parametrize(
    "columns", [("2", "3"), ("word", "tag"), ("2", "tag"), ("word", "3")], ids=str
)
def test_columns_have_numbers_or_names(tmp_path, columns):
    lines = ["1\tNew York\tB-LOC\tNNP", "2\tis\tO\tVBZ"]
    has_header = not all(map(str.isdecimal, columns))
    lines = ["id\tword\ttag\tpos"] * has_header + lines
    file = read(tmp_path, "\n".join(lines), *columns)
    assert file.sentences == (Sentence(("New York", "is"), row=1 + has_header),)
    assert file.tags == (("B-LOC", "O"),)


def test_a_file_to_predict_for_needs_no_tags(tmp_path):
    for text in ("EU\nrejects\n", "EU x\nrejects y\n"):
        file = read(tmp_path, text, need_tags=False)
        assert file.sentences == (Sentence(("EU", "rejects"), row=1),) and file.tags is None


@pytest.mark.parametrize(
    "text, columns, message",
    [
        ("", {}, "--train_file={path}: contains no words"),
        ("\n \n-DOCSTART- O\n", {}, "--train_file={path}: contains no words"),
        ("EU O\nrejects\n", {}, "{path}:2: expected 2 columns, got 1"),
        ("EU\tO\nNew York O\n", {}, "{path}:2: expected 2 columns, got 1"),
        ("EU\tB-ORG\n\tO\n", {}, "{path}:2: has no word; an empty line ends a sentence"),
        (
            "EU B-ORG\nis VBZ\n",
            {},
            "{path}:2: expected a tag such as O, B-LOC or I-LOC, got 'VBZ';"
            " --tag_column names the column of the tags",
        ),
        ("EU B-ORG\n", {"tag_column": "3"}, "{path}:1: has no column 3, only 2"),
        ("a b\nEU O\n", {"tag_column": "c"}, "{path}:1: expected one column 'c', got a, b"),
        (
            "EU O\n",
            {},
            "--train_file={path}: every tag is O; name the column of the tags with --tag_column",
        ),
        (b"EU O\n\xff O\n", {}, "{path}:2: is not UTF-8; convert the file"),
    ],
)
def test_wrong_files_are_refused_in_one_line(tmp_path, text, columns, message):
    assert error_of(read, tmp_path, text, **columns) == message.format(
        path=tmp_path / "words.conll"
    )


def test_an_unknown_type_names_its_line(tmp_path):
    file = read(tmp_path, TWO)
    with pytest.raises(
        UserError, match=r"words\.conll:4: expected a label \(O, B-ORG, I-ORG\), got 'B-PER'"
    ):
        file.labelled(("O", "B-ORG", "I-ORG"))


@pytest.mark.parametrize(
    "name, sentences, types", [("wnut17", 1009, 6), ("msra_zh", 2000, 3)], ids=str
)
def test_real_files_are_read_whole(real_data, name, sentences, types):
    path = str(real_data / "tagging" / name / "dev.conll")
    columns = {"token_column": "first", "tag_column": "last"}
    file = conll.read_tagged(path, **columns, need_tags=True, flag="train_file")
    assert len(file.sentences) == sentences and len(file.labels()) == 1 + 2 * types
