"""Readers of TSV, SQuAD, RACE and JSON lines: what was written is read; anything else gives one line."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf import UserError
from albert_tf.data_prep import split_sentences
from albert_tf.data_prep.corpus import LineReader
from albert_tf.tasks.classification import tsv
from albert_tf.tasks.race.passages import read_race
from albert_tf.tasks.squad.questions import read_squad
from albert_tf.tasks.tagging import conll, entities
from tests.properties.strategies import TEXTS, broken


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("read")


def write(path: pathlib.Path, content: object) -> str:
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def check_one_line(read, *arguments, **named) -> None:
    """Checks that a reader reads text that can be written again, or rejects the file in one line."""
    try:
        found = read(*arguments, **named)
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 1000
    else:
        json.dumps(found, default=vars, ensure_ascii=False).encode()


FIELDS = TEXTS.map(lambda text: "".join(char for char in text if char not in "\t\n\r"))
ROWS = st.lists(st.tuples(FIELDS, FIELDS, st.sampled_from(["no", "yes"])), min_size=1)


@given(rows=ROWS, end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans(), is_open=st.booleans())
def test_the_rows_of_a_tsv_file_are_read_as_they_are(folder, rows, end, bom, is_open):
    rows = [("one", "two", "no"), *rows]
    lines = ["a\tb\tlabel", *map("\t".join, rows)]
    text = "\ufeff" * bom + end.join(lines) + end * (not is_open)
    path = write(folder / "rows.tsv", text)
    columns = {"text_columns": ["a", "b"], "label_columns": ["label"]}
    examples = tsv.read_own(path, flag="train_file", **columns)
    examples = tsv.with_values(examples, path, ["no", "yes"])
    found = [(each.text_a, each.text_b, ["no", "yes"][each.label]) for each in examples]
    assert found == rows


@given(
    content=st.binary(max_size=200) | TEXTS.map(str.encode), label=st.sampled_from(["", "label"])
)
def test_any_bytes_are_a_tsv_file_or_rejected_in_one_line(folder, content, label):
    path = write(folder / "any.tsv", b"a\tb\tlabel\n" + content)
    columns = {"text_columns": ["a", "b"], "label_columns": [label] if label else []}
    check_one_line(tsv.read_own, path, flag="train_file", **columns)
    path = write(folder / "any.tsv", content)
    check_one_line(tsv.read_own, path, flag="train_file", **columns)


COLUMNS = {"token_column": "first", "tag_column": "last", "flag": "train_file"}
TAGS = ["O", "B-A", "I-A", "B-C-D", "I-C-D"]
SENTENCES = st.lists(
    st.lists(st.tuples(FIELDS.filter(str.strip), st.sampled_from(TAGS)), min_size=1), min_size=1
)


@given(sentences=SENTENCES, end=st.sampled_from(["\n", "\r\n"]), bom=st.booleans())
def test_tagged_words_are_read_as_they_are(folder, sentences, end, bom):
    sentences = [[("Ann", "B-A")], *sentences]
    lines = ["\t".join(row) for sentence in sentences for row in [*sentence, ()]]
    path = write(folder / "words.conll", "\ufeff" * bom + end.join(lines))
    file = conll.read_tagged(path, need_tags=True, **COLUMNS)
    expected = [[word.strip(conll._BLANKS) for word, _ in sentence] for sentence in sentences]
    assert [list(sentence.words) for sentence in file.sentences] == expected
    tags = [entities.to_iob2([tag for _, tag in sentence]) for sentence in sentences]
    assert [list(row) for row in file.tags] == tags


PROSE = TEXTS.filter(str.strip)


@st.composite
def squad_paragraphs(draw):
    """A paragraph with questions whose answers are where the file says."""
    context = draw(PROSE)
    questions = []
    for number in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(context) - 1))
        text = context[start : draw(st.integers(start + 1, len(context)))]
        answers = [{"text": text, "answer_start": start}] if text.strip() else []
        question = {"id": str(number), "question": draw(PROSE), "answers": answers}
        questions.append({**question, "is_impossible": not answers})
    return {"context": context, "qas": questions}


SQUAD = st.lists(squad_paragraphs(), min_size=1, max_size=4).map(
    lambda paragraphs: {"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
)


def unique_ids(values: dict) -> dict:
    """The same file, every question with an id of its own."""
    for number, paragraph in enumerate(values["data"][0]["paragraphs"]):
        for question in paragraph["qas"]:
            question["id"] += f"-{number}"
    return values


@given(values=SQUAD.map(unique_ids), ascii=st.booleans())
def test_squad_is_read_as_it_was_written(folder, values, ascii):
    path = write(folder / "squad.json", json.dumps(values, ensure_ascii=ascii))
    expected = [
        {
            **{name: entry[name] for name in ("id", "question", "is_impossible")},
            "context": paragraph["context"],
            "answers": tuple(tuple(answer.values()) for answer in entry["answers"]),
        }
        for paragraph in values["data"][0]["paragraphs"]
        for entry in paragraph["qas"]
    ]
    if not expected:
        with pytest.raises(UserError, match="contains no questions"):
            read_squad(path, version="2.0", flag="train_file", need_answers=True)
        return
    found = read_squad(path, version="2.0", flag="train_file", need_answers=True)
    assert [{name: getattr(q, name) for name in expected[0]} for q in found] == expected


@given(
    values=broken(SQUAD).map(json.dumps),
    version=st.sampled_from(["1.1", "2.0"]),
    need_answers=st.booleans(),
)
def test_a_wrong_squad_file_is_rejected_in_one_line(folder, values, version, need_answers):
    path = write(folder / "broken.json", values)
    check_one_line(read_squad, path, version=version, flag="f", need_answers=need_answers)


def exactly(count: int, values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, min_size=count, max_size=count)


PASSAGES = st.integers(1, 3).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            "id": st.just("high1.txt"),
            "article": PROSE,
            "questions": exactly(count, PROSE),
            "options": exactly(count, exactly(4, TEXTS)),
            "answers": exactly(count, st.sampled_from("ABCD")),
        }
    )
)


@given(passage=PASSAGES, ascii=st.booleans())
def test_race_is_read_as_it_was_written(folder, passage, ascii):
    root = folder / "race"
    write(root / "train" / "high" / "1.txt", json.dumps(passage, ensure_ascii=ascii))
    found = read_race(str(root), "train", level="high", need_answers=True)
    expected = [
        (passage["article"], *row)
        for row in zip(passage["questions"], passage["options"], passage["answers"], strict=True)
    ]
    assert [(q.article, q.question, list(q.options), "ABCD"[q.answer]) for q in found] == expected


SPLIT = {"input_file": "x", "output_file": "y"}


def documents_of(path: str, **changes) -> list[str]:
    """The texts of the documents of a file, as `split_sentences` reads them."""
    settings = split_sentences.SplitSettings(**{**SPLIT, **changes})
    reader = LineReader(settings.invalid_utf8)
    found = split_sentences.read_documents(path, reader, settings)
    return ["\n".join(document.lines) for document in found]


@given(
    content=st.binary(max_size=60) | TEXTS.map(str.encode),
    start=st.sampled_from([b"", b"<doc id='1'>\n", b'{"text": "a"}\n', b'{"text": "', b"\xff\xfe"]),
    invalid_utf8=st.sampled_from(["error", "replace"]),
)
def test_any_bytes_are_text_or_rejected_in_one_line(folder, content, start, invalid_utf8):
    path = write(folder / "any", start + content)
    check_one_line(documents_of, path, invalid_utf8=invalid_utf8)
