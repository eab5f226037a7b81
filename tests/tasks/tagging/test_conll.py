"""Files of tagged words: formats, columns, wrong files, real data."""

import pytest

from albert_tf.tasks.tagging import conll
from albert_tf.tasks.tagging.conll import Sentence
from tests.helpers import error_of

TWO = "EU B-ORG\nrejects O\n\nPeter I-PER\nBlackburn I-PER\n"
WORDS = [("EU", "rejects"), ("Peter", "Blackburn")]


def read(folder, text, token_column="first", tag_column="last", need_tags=True, name="words.conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    columns = {"token_column": token_column, "tag_column": tag_column}
    return conll.read_tagged(str(path), **columns, need_tags=need_tags, flag="train_file")


VARIANTS = {
    "as it is": TWO,
    "mark": "\ufeff" + TWO,
    "crlf": TWO.replace("\n", "\r\n"),
    "white lines": "\n\n" + TWO.rstrip().replace("\n\n", "\n\t\n\n"),
    "docstart": "-DOCSTART- -X- O O\n\n" + TWO.replace("\n\n", "\n-DOCSTART- O\n"),
    "spaces": TWO.replace(" ", "  "),
    "tabs": TWO.replace(" ", "\t"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_the_format_hold_the_same_sentences(tmp_path, variant):
    text = VARIANTS[variant]
    file = read(tmp_path, text)
    assert [sentence.words for sentence in file.sentences] == WORDS
    assert file.tags == (("B-ORG", "O"), ("B-PER", "I-PER"))
    assert file.labels() == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert [sentence.tags for sentence in file.labelled(file.labels())] == [(1, 0), (3, 4)]
    lines = text.lstrip("\ufeff").splitlines()
    for sentence in file.sentences:
        assert lines[sentence.row - 1].startswith(sentence.words[0])


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_tables_hold_the_same_sentences(tmp_path, name):
    rows = [
        '{"w": ["EU", "said \\"no\\""], "t": ["B-ORG", "O"]}',
        '{"w": [" Peter"], "t": ["I-PER"]}',
    ]
    text = "\n".join(rows) if name == "a.jsonl" else f"[{','.join(rows)}]"
    file = read(tmp_path, text, name=name)
    assert file.sentences == (Sentence(("EU", 'said "no"'), row=1), Sentence(("Peter",), row=2))
    assert file.tags == (("B-ORG", "O"), ("B-PER",))


@pytest.mark.parametrize("columns", [("2", "3"), ("word", "tag"), ("2", "tag"), ("word", "3")])
def test_columns_have_numbers_or_names(tmp_path, columns):
    has_header = not all(map(str.isdecimal, columns))
    lines = ["id\tword\ttag\tpos"] * has_header + ["1\tNew York\tB-LOC\tNNP", "2\tis\tO\tVBZ"]
    for need_tags in (True, False):
        file = read(tmp_path, "\n".join(lines), *columns, need_tags=need_tags)
        assert file.sentences == (Sentence(("New York", "is"), row=1 + has_header),)
        assert file.tags == ((("B-LOC", "O"),) if need_tags else None)


def test_a_file_to_predict_for_needs_no_tags(tmp_path):
    for text in ("EU\nrejects\n", "EU x\nrejects y\n"):
        file = read(tmp_path, text, need_tags=False)
        assert file.sentences == (Sentence(("EU", "rejects"), row=1),) and file.tags is None


WRONG = {
    "\n \n-DOCSTART- O\n": "contains no words",
    "EU O\nrejects\n": "words.conll:2: expected 2 columns, got 1",
    "EU\tB-ORG\n\tO\n": "words.conll:2: has no word; an empty line ends a sentence",
    "EU B-ORG\nis VBZ\n": "words.conll:2: expected a tag such as O, B-LOC or I-LOC, got 'VBZ';",
    "EU O\n": "every tag is O; name the column of the tags with --tag_column",
    "EU\xff O\n".encode("latin-1"): "cannot be read: 'utf-8' codec can't decode",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_files_are_refused_in_one_line(tmp_path, text):
    line = error_of(read, tmp_path, text)
    assert WRONG[text] in line and len(line.splitlines()) == 1


@pytest.mark.parametrize(
    "row",
    ['{"w": "EU", "t": ["O"]}', '{"w": ["EU"], "t": "O"}', '{"w": ["EU"], "t": ["O", "O"]}'],
)
def test_a_table_of_another_form(tmp_path, row):
    line = error_of(read, tmp_path, row, name="words.jsonl")
    assert "words.jsonl:1: expected lists of the same length in 'w' and 't'; --token_column" in line


def test_a_column_that_is_not_there_is_named(tmp_path):
    for column in ("3", "c"):
        line = error_of(read, tmp_path, "a b\nEU O\n", tag_column=column)
        assert line.endswith(f"words.conll:1: has no column {column!r}, only a, b")


def test_an_unknown_type_names_its_line(tmp_path):
    line = error_of(read(tmp_path, TWO).labelled, ("O", "B-ORG", "I-ORG"))
    assert line.endswith("words.conll:4: expected a label (O, B-ORG, I-ORG), got 'B-PER'")


@pytest.mark.parametrize("name, sentences, types", [("wnut17", 1009, 6), ("msra_zh", 2000, 3)])
def test_real_files_are_read_whole(real_data, name, sentences, types):
    path = str(real_data / "tagging" / name / "dev.conll")
    columns = {"token_column": "first", "tag_column": "last"}
    file = conll.read_tagged(path, **columns, need_tags=True, flag="train_file")
    assert len(file.sentences) == sentences and len(file.labels()) == 1 + 2 * types
