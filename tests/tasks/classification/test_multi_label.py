"""Several labels per text: scores and weights against numbers by hand."""

import numpy as np
import pytest

from albert_tf.tasks.classification import multi_label

TRUTHS = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
PROBABILITIES = np.array([[0.9, 0.4, 0.1], [0.6, 0.3, 0.2], [0.7, 0.8, 0.4], [0.1, 0.2, 0.1]])


def test_scores_are_those_by_hand():
    predictions = PROBABILITIES >= 0.5
    # Decisions: 1 and 4 and 7 of label 0 are right, wrong, ...: 2 true of 3 predicted and of 2; 1 of 1 and of 2; none.
    f1 = multi_label.f1_scores(predictions, TRUTHS)
    assert f1 == pytest.approx({"micro_f1": 2 * 3 / (4 + 4), "macro_f1": (4 / 5 + 2 / 3) / 2})
    # In the order of label 0: right, wrong, right. Of label 1: right, wrong, right. Label 2 is nobody's.
    macro = ((1 + 2 / 3) / 2 + (1 + 2 / 3) / 2) / 2
    # Of all: .9 and .8 right, .7 wrong, .6 right, both .4 wrong, .3 right.
    micro = (1 + 1 + 3 / 4 + 4 / 7) / 4
    expected = {"micro_average_precision": micro, "macro_average_precision": macro}
    assert multi_label.average_precisions(PROBABILITIES, TRUTHS) == pytest.approx(expected)


def test_without_any_label_the_scores_are_undefined():
    nothing = np.zeros([5, 2], np.int32)
    assert multi_label.f1_scores(nothing == 1, nothing) == {"micro_f1": None, "macro_f1": None}
    assert set(multi_label.average_precisions(nothing + 0.5, nothing).values()) == {None}
    # Predicted, but wrong: all precisions are 0.
    assert set(multi_label.f1_scores(nothing == 0, nothing).values()) == {0.0}


def test_scores_of_probabilities_that_are_not_finite_are_undefined():
    probabilities = np.array([[0.9, np.nan], [0.2, 0.3]])
    scores = multi_label.scores(probabilities, np.array([[1, 0], [0, 1]]))
    assert set(scores.values()) == {None}


def test_balanced_weights_by_hand():
    labels = np.array([0, 2, 2, 0, 2, 2, 3, 2])
    found = multi_label.balanced_weights(labels[:, None], 5, is_multi_label=False)
    # n / (5 n_c), as scikit-learn has it; labels that nobody has get 1.
    np.testing.assert_allclose(found, [8 / 10, 1, 8 / 25, 8 / 5, 1])
    # With several labels, the ratio of examples without a label to those with it, at least 1 / n_c.
    truths = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1]])
    found = multi_label.balanced_weights(truths, 4, is_multi_label=True)
    np.testing.assert_allclose(found, [1 / 3, 1, 2, 2])
