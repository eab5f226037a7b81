"""SQuAD's questions from the official JSON: every field, and an error for everything that is wrong."""

import gzip
import json

import pandas
import pytest

from albert_tf.tasks.squad.questions import SquadQuestion, read_squad, version_of
from tests.helpers import error_of, fine_tuning_settings


def squad_file(*questions, context="the cat sat on the mat"):
    return {
        "version": "x",
        "data": [{"title": "Cats", "paragraphs": [{"context": context, "qas": [*questions]}]}],
    }


def entry(id="q1", **changes):
    fields = {"id": id, "question": "who sat", "answers": [{"text": "cat", "answer_start": 4}]}
    return {key: value for key, value in (fields | changes).items() if value is not None}


def write(tmp_path, content):
    path = tmp_path / "squad.json"
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    path.write_bytes(content)
    return str(path)


def read(path, version="1.1", need_answers=True):
    return read_squad(path, version=version, flag="predict_file", need_answers=need_answers)


def test_reads_every_field(tmp_path):
    several = [{"text": "mat", "answer_start": 19}, {"text": "the mat", "answer_start": 15}]
    content = squad_file(entry("q1", answers=several), entry("q2", question="where"))
    content["data"].append({"paragraphs": squad_file(entry("q3"))["data"][0]["paragraphs"]})
    first, second, third = read(write(tmp_path, content))
    assert first == SquadQuestion(
        "q1", "who sat", "the cat sat on the mat", (("mat", 19), ("the mat", 15)), False
    )
    assert (second.id, second.question) == ("q2", "where")
    assert third.id == "q3"


def test_reads_impossible_questions(tmp_path):
    content = squad_file(
        entry("q1", is_impossible=True, answers=[], plausible_answers=[{"text": "x"}]),
        entry("q2", is_impossible=False),
        entry("q3"),
        entry("q4", is_impossible=True, answers=None),
    )
    questions = read(write(tmp_path, content), version="2.0")
    assert [q.is_impossible for q in questions] == [True, False, False, True]
    assert [len(q.answers) for q in questions] == [0, 1, 1, 0]


def test_files_to_predict_on_need_no_answers(tmp_path):
    content = squad_file(entry("q1", answers=None), entry("q2", is_impossible=True, answers=[]))
    questions = read(write(tmp_path, content), need_answers=False)
    assert [(q.id, q.answers, q.is_impossible) for q in questions] == [
        ("q1", (), False),
        ("q2", (), False),
    ]


def with_answer(text, start):
    return squad_file(entry(answers=[{"text": text, "answer_start": start}]))


NO_SQUAD = "is not in the format of SQuAD ("
WRONG = {
    "no JSON": (b'{"data": [', "JSON (Expecting value: line 1 column 11"),
    "list": ([], ": contains no questions"),
    "no data": ({"version": "1.1"}, f"{NO_SQUAD}KeyError: 'data')"),
    "no questions": ({"data": []}, ": contains no questions"),
    "number": ({"data": [5]}, NO_SQUAD),
    "no context": (squad_file(entry(), context=None), "'q1' has a value of another type"),
    "no answers": (squad_file(entry(answers=[])), "'q1': has no answer, and is not marked"),
    "place": (
        with_answer("cat", 5),
        "answer 'cat' should begin at character 5 of the context, where 'at ' s",
    ),
    "below 0": (with_answer("ma", -3), "at character -3 of the context, where '' stands"),
    "white space": (with_answer(" ", 3), "answer ' ' should begin"),
    "twice": (squad_file(entry("q0"), entry("q0")), ": there are two questions 'q0'"),
    "version": (
        squad_file(entry(is_impossible=True, answers=[])),
        "is impossible, which needs --version=2.0",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(tmp_path, case):
    content, expected = WRONG[case]
    message = error_of(read, write(tmp_path, content))
    assert f"{tmp_path / 'squad.json'}" in message and expected in message
    assert len(message.splitlines()) == 1


ROWS = [
    {"id": "q1", "title": "t", "context": "the cat sat", "question": "who"}
    | {"answers": {"text": ["cat", "the cat"], "answer_start": [4, 0]}},
    {"id": "q2", "title": "t", "context": "the cat sat", "question": "why"}
    | {"answers": {"text": [], "answer_start": []}},
]


@pytest.mark.parametrize(
    "name",
    ["a.json", "a.jsonl", "lines.json", "a.parquet", "data.json", "lists.json", "data.json.gz"],
)
def test_rows_of_others_are_questions(tmp_path, name):
    path = tmp_path / name
    if name in ("a.jsonl", "lines.json"):
        path.write_text("\n".join(map(json.dumps, ROWS)))
    elif name == "a.parquet":
        pandas.DataFrame(ROWS).to_parquet(path)
    elif name == "data.json.gz":
        path.write_bytes(gzip.compress(json.dumps({"data": ROWS}).encode()))
    elif name == "lists.json":
        answers = [{"text": "cat", "answer_start": 4}, {"text": "the cat", "answer_start": 0}]
        rows = [ROWS[0] | {"answers": answers}, ROWS[1] | {"answers": [], "is_impossible": True}]
        path.write_text(json.dumps(rows))
    else:
        path.write_text(json.dumps(ROWS if name == "a.json" else {"data": ROWS}))
    first, second = read(str(path), version="2.0")
    assert first.answers == (("cat", 4), ("the cat", 0)) and first.context == "the cat sat"
    assert (second.id, second.answers, second.is_impossible) == ("q2", (), True)
    assert version_of(str(path), "x") == "2.0"


def test_keys_may_be_missing_and_ids_may_be_numbers(tmp_path):
    rows = [
        ROWS[0] | {"id": 7},
        ROWS[1] | {"is_impossible": True},
        ROWS[0] | {"is_impossible": None},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    questions = read(str(tmp_path / "a.jsonl"), version="2.0")
    assert [question.is_impossible for question in questions] == [False, True, False]
    assert [question.id for question in questions] == ["7", "q2", "q1"]


def test_the_version_is_that_of_the_file(tmp_path, tiny_pretrained):
    flags = [f"--init_checkpoint={tiny_pretrained}", "--output_dir=x", "--max_query_length=9"]
    impossible = squad_file(entry("q1"), entry("q2", answers=[], is_impossible=True))
    for content, more, version in (
        (squad_file(entry()), [], "1.1"),
        (impossible, [], "2.0"),
        (squad_file(entry()), ["--version=2.0"], "2.0"),
    ):
        path = write(tmp_path, content)
        settings = fine_tuning_settings("squad", *flags, f"--train_file={path}", *more)
        assert settings[-1].version == version


def test_wrong_starts_are_counted_and_can_be_left_out(tmp_path, capsys):
    half = [{"text": "cat", "answer_start": 5}, {"text": "mat", "answer_start": 19}]
    wrong = [{"text": "cat", "answer_start": 0}]
    path = write(
        tmp_path, squad_file(entry("q1"), entry("q2", answers=half), entry("q3", answers=wrong))
    )
    line = error_of(read, path)
    assert "2 answers are not at answer_start, first: question 'q2': answer 'cat'" in line
    assert "--skip_wrong_answers" in line and len(line.splitlines()) == 1
    named = {"version": "1.1", "flag": "train_file", "need_answers": True, "skip_wrong": True}
    first, second = read_squad(path, **named)
    assert (first.id, second.id, second.answers) == ("q1", "q2", (("mat", 19),))
    assert "2 answers are not" in capsys.readouterr().out
