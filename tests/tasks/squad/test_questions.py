"""SQuAD's questions from the official JSON: every field, and an error for everything that is wrong."""

import json

import pytest

from albert_tf.core.errors import UserError
from albert_tf.tasks.squad.questions import SquadQuestion, read_squad
from tests.helpers import error_of


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


AT_Q1 = "article 1, paragraph 1, question 'q1'"


def with_answer(text, start):
    return squad_file(entry(answers=[{"text": text, "answer_start": start}]))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ": is empty; expected the JSON of a SQuAD file"),
        (b'{"data": [', ": not JSON (Expecting value: line 1 column 11"),
        (b'{"data": "\xff"}', ": not JSON ('utf-8' codec"),
        ([], ': expected an object with "data", got []'),
        ({"version": "1.1"}, ': has no "data"'),
        ({"data": {}}, ': "data" must be a list, got {}'),
        ({"data": []}, ": contains no questions"),
        ({"data": [5]}, ': article 1: expected an object with "paragraphs", got 5'),
        (squad_file(context=None), ': article 1, paragraph 1: "context" must be a string, got None'),
        (squad_file(entry(id=None)), 'paragraph 1: has no "id"'),
        (squad_file(entry(answers=[])), f'{AT_Q1}: "answers" is empty; expected at least one'),
        (squad_file(entry(answers=[{"text": "cat"}])), f'{AT_Q1}, answers: has no "answer_start"'),
        (with_answer("cat", True), '"answer_start" must be a whole number, got True'),
        (
            with_answer("cat", 5),
            f"{AT_Q1}: answer 'cat' should begin at character 5 of the context, where 'at ' stands;"
            " correct answer_start",
        ),
        (with_answer("ma", -3), "at character -3 of the context, where '' stands"),
        (with_answer(" ", 3), f"{AT_Q1}: an answer is empty; expected words of the context"),
        (
            squad_file(entry("q0"), entry("q1"), entry("q0")),
            ": article 1, paragraph 1: question 'q0' is in article 1, paragraph 1 as well",
        ),
        (
            squad_file(entry(is_impossible=True, answers=[])),
            f"{AT_Q1}: is marked impossible, which only SQuAD 2.0 allows; choose version 2.0",
        ),
        (squad_file(entry(is_impossible="no")), '"is_impossible" must be true or false, got \'no\''),
    ],
)  # fmt: skip
def test_wrong_files(tmp_path, content, expected):
    path = write(tmp_path, content)
    message = error_of(read, path)
    assert message.startswith(f"--predict_file={path}: ")
    assert expected in message


def test_impossible_question_with_answers(tmp_path):
    path = write(tmp_path, squad_file(entry(is_impossible=True)))
    with pytest.raises(UserError, match="'q1': is impossible and has answers"):
        read(path, version="2.0")
