"""What int8 costs: mean differences with their intervals, and scores by the task's own metric."""

import math
import types

import pytest

from albert_tf.tasks.classification.text_pairs import TextExample
from albert_tf.tasks.squad.questions import SquadQuestion
from albert_tf.tasks.tagging.conll import Sentence
from lab.benchmarks import int8_answers


def run(score, changed=1):
    form = {"score": score, "changed": changed}
    return {"model": 80.0, "texts": 7, "forms": {"onnx_runtime_int8": form}}


def predictor(*labels):
    config = types.SimpleNamespace(labels=labels)
    return types.SimpleNamespace(model=types.SimpleNamespace(config=config))


def test_the_interval_is_that_of_t_over_the_runs():
    mean, half, worst = int8_answers.loss([run(80), run(79), run(81)], "onnx_runtime_int8")
    assert (mean, worst) == (0, -1)
    assert half == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)


def test_a_mean_loss_above_the_limit_is_bold_and_missing_forms_are_empty():
    task = {"metric": "accuracy", "runs": {"1": run(79), "2": run(79, 2)}}
    row = int8_answers.rows({"SST-2": task})[2]
    assert row == "| SST-2, accuracy | 2 x 7 | 80.00 |  | **-1.00 ± 0.00**; -1.00; 3 |  |  |  |  |"


def test_each_kind_of_task_has_its_own_score():
    rows = [TextExample(str(n), "a text", label=n % 2, group="m" * (n < 4)) for n in range(6)]
    answers = [{"label": "no"}] * 2 + [{"label": "yes"}] * 4
    assert int8_answers.score_of("MNLI", predictor("no", "yes"), rows, answers) == 0.5
    scores = [TextExample("", "a text", label=float(n)) for n in range(3)]
    answers = [{"score": n**3} for n in range(3)]
    assert int8_answers.score_of("STS-B", predictor("score"), scores, answers) == pytest.approx(1)
    sentences = [(0, Sentence(("in", "Rome"), (0, 1)))]
    tags = predictor("O", "B-place")
    assert int8_answers.score_of("WNUT", tags, sentences, [{"tags": ["O", "B-place"]}]) == 1
    questions = [(0, SquadQuestion("1", "Where?", "in Rome", (("Rome", 3),)))]
    assert int8_answers.score_of("SQuAD", tags, questions, [{"answer": "Rome"}]) == 1


def test_an_example_becomes_an_item_of_predict():
    assert int8_answers.item_of(TextExample("", "one")) == {"text_a": "one"}
    assert int8_answers.item_of((3, Sentence(("in", "Rome")))) == {"tokens": ["in", "Rome"]}


def test_the_page_has_the_committed_numbers():
    page = int8_answers.PAGE.read_text()
    results = int8_answers.files.read_json(str(int8_answers.RESULTS))
    assert int8_answers.with_table(page, "answers", int8_answers.rows(results["tasks"])) == page
