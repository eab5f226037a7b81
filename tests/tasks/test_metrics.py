"""Metrics: equal to scikit-learn and scipy where these have a value, 0 where the formula has none."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from albert_tf.tasks import metrics
from albert_tf.tasks.metrics import METRICS

LABEL_METRICS = ("accuracy", "matthews", "f1", "macro_f1")
SCORE_METRICS = ("pearson", "spearman")


def random_labels(seed, num_labels, num_examples=57):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_labels, num_examples)
    noise = rng.integers(0, num_labels, num_examples)
    return np.where(rng.random(num_examples) < 0.6, labels, noise), labels


def test_names():
    assert set(METRICS) == {*LABEL_METRICS, *SCORE_METRICS}


@pytest.mark.parametrize("num_labels", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_metrics_of_labels_equal_scikit_learn(seed, num_labels):
    predictions, labels = random_labels(seed, num_labels)
    assert metrics.accuracy(predictions, labels) == np.mean(predictions == labels)
    expected = sklearn.metrics.f1_score(labels, predictions, average="macro")
    assert metrics.macro_f1(predictions, labels) == expected
    expected = sklearn.metrics.matthews_corrcoef(labels, predictions)
    assert metrics.matthews(predictions, labels) == expected
    # F1 takes every label but 1 for a negative.
    expected = sklearn.metrics.f1_score(labels == 1, predictions == 1)
    assert metrics.f1(predictions, labels) == expected
    # It is no symmetric function: which argument is which shows.
    predictions[:] = 1
    assert metrics.f1(predictions, labels) == pytest.approx(
        2 * (labels == 1).sum() / (57 + (labels == 1).sum())
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_correlations_equal_scipy(seed, dtype):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 26, 43) / 5
    scores = (labels**2 + rng.normal(size=43) + 1000).astype(dtype)
    exact = scores.astype(np.float64)
    assert metrics.pearson(scores, labels) == scipy.stats.pearsonr(exact, labels).statistic
    assert metrics.spearman(scores, labels) == scipy.stats.spearmanr(exact, labels).statistic
    assert 0.5 < metrics.pearson(scores, labels) < 1


ZEROS, ONES, MIXED = np.zeros(6, int), np.ones(6, int), np.array([0, 1, 1, 0, 1, 0])
DEGENERATE = {  # predictions, labels, and then the values of LABEL_METRICS
    "one_class_predicted": (ONES, MIXED, 0.5, 0.0, 2 / 3, 1 / 3),
    "one_class_true": (MIXED, ZEROS, 0.5, 0.0, 0.0, 1 / 3),
    "one_class_all_right": (ONES, ONES, 1.0, 0.0, 1.0, 1.0),
    "one_class_all_wrong": (ZEROS, ONES, 0.0, 0.0, 0.0, 0.0),
    "no_positive": (ZEROS, ZEROS, 1.0, 0.0, 0.0, 1.0),
    "single_right": (ONES[:1], ONES[:1], 1.0, 0.0, 1.0, 1.0),
    "single_wrong": (ONES[:1], ZEROS[:1], 0.0, 0.0, 0.0, 0.0),
    "none": (ZEROS[:0], ZEROS[:0], 0.0, 0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_labels_always_have_a_number(name):
    predictions, labels, *expected = DEGENERATE[name]
    found = [METRICS[metric](predictions, labels) for metric in LABEL_METRICS]
    assert found == pytest.approx(expected)
    assert all(type(value) is float for value in found)


RAMP = np.arange(5) / 5


@pytest.mark.parametrize("name", SCORE_METRICS)
@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        (np.full(5, 2.5), RAMP, 0.0),
        (RAMP, np.full(5, 2.5), 0.0),
        (np.full(5, 0.1, np.float32) + np.float32(1e-9) * RAMP.astype(np.float32), RAMP, 0.0),
        (RAMP[:1], RAMP[:1], 0.0),
        (RAMP[:0], RAMP[:0], 0.0),
        (np.array([0, 1, np.nan, 3, 4]), RAMP, 0.0),
        (np.array([0, 1, np.inf, 3, 4]), RAMP, 0.0),
        (RAMP[:2], RAMP[:2], 1.0),
        (-RAMP, RAMP, -1.0),
    ],
    ids=[
        *("constant", "constant_labels", "constant_in_float32", "single", "none"),
        *("nan", "infinite", "two", "reversed"),
    ],
)
def test_scores_always_have_a_number(name, scores, labels, expected):
    value = METRICS[name](scores, labels)
    assert value == pytest.approx(expected)
    assert type(value) is float


def test_confusion_table_has_the_counts_of_scikit_learn():
    predictions, labels = random_labels(3, 4)
    predictions[predictions == 2] = 0  # a label that is never predicted
    expected = sklearn.metrics.confusion_matrix(labels, predictions, labels=range(4))
    text = metrics.format_confusion(predictions, labels, [*"abcd"])
    rows = [line.split()[1:5] for line in text.splitlines()[1:5]]
    assert rows == expected.astype(str).tolist()
    empty = metrics.format_confusion(labels[:0], labels[:0], [*"abc"]).splitlines()[1:4]
    assert [line.split()[1:] for line in empty] == [["0", "0", "0", "-"]] * 3


def test_confusion_table_as_text():
    labels, predictions = np.zeros(1500, int), np.repeat([0, 1], [1200, 300])
    assert metrics.format_confusion(predictions, labels, ["no", "maybe"]).splitlines() == [
        "true \\ predicted       no  maybe  recall",
        "no                  1,200    300  80.0 %",
        "maybe                   0      0       -",
        "precision         100.0 %  0.0 %  80.0 %",
    ]


def test_worst_errors_are_the_surest_mistakes():
    probabilities = np.array(
        [[0.1, 0.7, 0.2], [0.9, 0.0, 0.1], [0.2, 0.2, 0.6], [0.05, 0.05, 0.9], [0.3, 0.4, 0.3]]
    )
    labels = np.array([0, 0, 1, 1, 2])  # the second is right
    assert metrics.worst_errors(
        np.argmax(probabilities, axis=1), labels, probabilities
    ).tolist() == [3, 0, 2, 4]
    assert metrics.worst_errors(
        np.argmax(probabilities, axis=1), labels, probabilities, count=2
    ).tolist() == [3, 0]
    assert metrics.worst_errors(np.arange(3), np.arange(3), np.eye(3)).tolist() == []
    tied = np.zeros(30, int), np.ones(30, int)
    assert metrics.worst_errors(*tied, np.full((30, 2), 0.5)).tolist() == [*range(20)]


def test_worst_score_errors_are_the_largest():
    scores, labels = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.5, 4.0, 3.0, 2.0])
    assert metrics.worst_errors(scores, labels, None).tolist() == [1, 3, 0, 2]
    assert metrics.worst_errors(scores, labels, None, count=1).tolist() == [1]
