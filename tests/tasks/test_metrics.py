"""Metrics by hand, and None where they are undefined; the arguments are in the right order."""

import numpy as np
import pytest

from albert_tf.tasks import metrics
from albert_tf.tasks.metrics import METRICS, measured, names_for

LABELS = np.array([0, 0, 1, 1, 1, 0])
PREDICTIONS = np.array([0, 1, 1, 1, 1, 1])
PROBABILITIES = np.array([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.1, 0.9], [0.45, 0.55], [0.2, 0.8]])
SCORES = np.array([1.0, 2.0, 4.0])
BY_HAND = {
    "accuracy": 4 / 6,
    "f1": 2 * 3 / (5 + 3),
    "macro_f1": (2 * 1 / (1 + 3) + 2 * 3 / (5 + 3)) / 2,
    "matthews": (3 * 1 - 2 * 0) / np.sqrt(5 * 3 * 3 * 1),
    # Of the 9 pairs of a positive and a negative example, the positive one has more in 3 + 2 + 1.
    "auc": 6 / 9,
}


def test_labels_by_hand():
    assert {*BY_HAND} == {*names_for(is_regression=False)}
    assert names_for(is_regression=False)[:2] == ("accuracy", "macro_f1")
    for name, expected in BY_HAND.items():
        value = measured(name, PREDICTIONS, LABELS, PROBABILITIES)
        assert value == pytest.approx(expected) and type(value) is float, name


def test_auc_of_three_labels_is_the_mean_over_the_labels():
    labels = np.array([0, 1, 2, 2])
    probabilities = np.eye(3)[[0, 1, 2, 1]] * 0.7 + 0.1
    # Label 0: 1; label 1: 2 1/2 of 3; label 2: 3 of 4.
    assert metrics.auc(probabilities, labels) == pytest.approx((1 + 2.5 / 3 + 3 / 4) / 3)
    # Without the example of label 1: of 0 all 1 x 2 pairs are in order, of 2 1 1/2 of 2 x 1.
    some = labels != 1
    assert metrics.auc(probabilities[some], labels[some]) == pytest.approx((1 + 1.5 / 2) / 2)
    assert metrics.auc(probabilities * np.nan, labels) is None


def test_scores_by_hand():
    assert names_for(is_regression=True) == ("pearson", "spearman")
    assert measured("spearman", SCORES, np.array([0, 3, 5]), None) == 1
    expected = np.corrcoef(SCORES, [0, 3, 5])[0, 1]
    assert measured("pearson", SCORES + 1000, np.array([0, 3, 5]), None) == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
def test_metrics_are_undefined_where_their_formulas_have_no_value():
    ones = np.ones(5, int)
    nothing = np.zeros(0)
    mixed = np.array([0, 1, 1, 0, 1])
    undefined = {
        "accuracy": [(nothing, nothing)],
        "macro_f1": [(nothing, nothing)],
        "f1": [(nothing, nothing), (0 * ones, 0 * ones)],
        "matthews": [(nothing, nothing), (ones, ones), (mixed, ones), (ones[:1], ones[:1])],
        "auc": [(np.eye(2)[ones], ones), (np.eye(2)[mixed], 0 * ones), (np.zeros([0, 2]), nothing)],
        "pearson": [(nothing, nothing), (0.1 * ones, mixed), (mixed, ones), (ones[:1], ones[:1])],
    }
    undefined["spearman"] = undefined["pearson"]
    undefined["auc"].append((np.eye(3)[2 * ones], 2 * ones))
    assert undefined.keys() == METRICS.keys()
    for name, cases in undefined.items():
        for predictions, labels in cases:
            assert METRICS[name](predictions, labels) is None, name
    for name in ("pearson", "spearman"):
        assert METRICS[name](np.array([0, 1, np.nan]), np.arange(3)) is None


def test_metrics_that_are_bad_but_defined_have_a_number():
    ones = np.ones(5, int)
    mixed = np.array([0, 1, 1, 0, 1])
    assert METRICS["matthews"](ones, mixed) == 0  # as in scikit-learn
    assert METRICS["f1"](0 * ones, mixed) == METRICS["f1"](mixed, 0 * ones) == 0
    assert METRICS["macro_f1"](ones, 0 * ones) == METRICS["accuracy"](ones, 0 * ones) == 0
    assert METRICS["auc"](np.eye(2)[1 - mixed], mixed) == 0


def test_metrics_of_glue_are_those_of_its_leaderboard():
    assert [metrics.official(name, None) for name in ("f1", "matthews", "pearson")] == [0, 0, None]
    assert metrics.official("f1", 0.5) == 0.5


def test_confusion_table_as_text():
    labels = np.zeros(1500, int)
    predictions = np.repeat([0, 1], [1200, 300])
    assert metrics.format_confusion(predictions, labels, ["no", "maybe"]).splitlines() == [
        "true \\ predicted       no  maybe  recall",
        "no                  1,200    300  80.0 %",
        "maybe                   0      0       -",
        "precision         100.0 %  0.0 %  80.0 %",
    ]


def test_a_report_has_the_surest_mistakes():
    sureness = np.array([0.7, 0.9, 0.6, 0.9, 0.4])
    is_wrong = np.array([1, 0, 1, 1, 1]) == 1
    report = metrics.error_report("a summary", sureness, is_wrong, "number {}".format)
    expected = ["a summary", "The 4 worst of 4 errors in 5 answers", ""]
    assert report.splitlines() == [*expected, *(f"number {n}" for n in (3, 0, 2, 4))]
    tied = metrics.error_report("", np.ones(30), np.ones(30, bool), str)
    assert tied.splitlines()[3:] == [*map(str, range(20))]
