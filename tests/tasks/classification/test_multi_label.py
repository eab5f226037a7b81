"""Several labels per text: thresholds, scores and weights against numbers by hand and scikit-learn; reports.

Covers: core/tables.py.
"""

import numpy as np
import pytest

from albert_tf import UserError
from albert_tf.tasks.classification import multi_label

TRUTHS = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
PROBABILITIES = np.array([[0.9, 0.4, 0.1], [0.6, 0.3, 0.2], [0.7, 0.8, 0.4], [0.1, 0.2, 0.1]])


def random_example(seed: int, examples: int = 90, labels: int = 4):
    """Probabilities that know something of the truths; many of them are equal."""
    rng = np.random.default_rng(seed)
    truths = (rng.random([examples, labels]) < [0.5, 0.3, 0.15, 0.05]).astype(np.int32)
    probabilities = np.clip(rng.normal(0.3 + 0.3 * truths, 0.25), 0, 1)
    return np.round(probabilities, 2).astype(np.float32), truths


def test_scores_are_those_by_hand():
    predictions = PROBABILITIES >= 0.5
    # Decisions: 1 and 4 and 7 of label 0 are right, wrong, ...: 2 true of 3 predicted and of 2; 1 of 1 and of 2; none.
    scores = multi_label.label_scores(predictions, TRUTHS)
    np.testing.assert_allclose(scores["precision"], [2 / 3, 1, np.nan])
    np.testing.assert_allclose(scores["recall"], [1, 1 / 2, np.nan])
    np.testing.assert_allclose(scores["f1"], [4 / 5, 2 / 3, np.nan])
    f1 = multi_label.f1_scores(predictions, TRUTHS)
    assert f1 == pytest.approx({"micro_f1": 2 * 3 / (4 + 4), "macro_f1": (4 / 5 + 2 / 3) / 2})
    # In the order of label 0: right, wrong, right. Of label 1: right, wrong, right. Label 2 is nobody's.
    macro = ((1 + 2 / 3) / 2 + (1 + 2 / 3) / 2) / 2
    # Of all: .9 and .8 right, .7 wrong, .6 right, both .4 wrong, .3 right.
    micro = (1 + 1 + 3 / 4 + 4 / 7) / 4
    expected = {"micro_average_precision": micro, "macro_average_precision": macro}
    assert multi_label.average_precisions(PROBABILITIES, TRUTHS) == pytest.approx(expected)


def test_without_any_label_the_scores_are_0():
    nothing = np.zeros([5, 2], np.int32)
    assert set(multi_label.f1_scores(nothing == 1, nothing).values()) == {0.0}
    assert set(multi_label.average_precisions(nothing + 0.5, nothing).values()) == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_no_other_threshold_has_a_better_f1(seed):
    probabilities, truths = random_example(seed)
    thresholds = multi_label.best_thresholds(probabilities, truths)
    assert thresholds.dtype == np.float32
    found = multi_label.label_scores(probabilities >= thresholds, truths)["f1"]
    for threshold in np.linspace(0, 1, 201, dtype=np.float32):
        others = multi_label.label_scores(probabilities >= threshold, truths)["f1"]
        frequent = truths.sum(axis=0) >= multi_label.FEWEST_EXAMPLES
        assert np.all(found[frequent] >= np.nan_to_num(others[frequent]) - 1e-12)


def test_a_threshold_is_in_the_middle_and_of_equally_good_ones_near_a_half():
    truths = np.repeat([1, 0], 12)[:, None]
    probabilities = np.repeat([0.3, 0.1], 12)[:, None].astype(np.float32)
    assert multi_label.best_thresholds(probabilities, truths) == pytest.approx([0.2])
    # All at 0.9: any threshold gives them all the label, the middle between 0.9 and 0 does.
    same = np.full([24, 1], 0.9, np.float32)
    assert multi_label.best_thresholds(same, truths) == pytest.approx([0.45])


def test_a_threshold_separates_neighboring_numbers():
    truths = np.repeat([1, 0], 12)[:, None]
    low = np.float32(0.3)
    high = np.nextafter(low, np.float32(1))
    probabilities = np.repeat([high, low], 12)[:, None]
    thresholds = multi_label.best_thresholds(probabilities, truths)
    assert np.array_equal(probabilities >= thresholds, truths == 1)


@pytest.mark.parametrize("count", [9, 10])
def test_few_examples_choose_no_threshold(count):
    truths = (np.arange(40) < count).astype(np.int32)
    both = np.stack([truths, 1 - truths], axis=1)  # few have the label; few do not
    probabilities = np.where(both == 1, 0.2, 0.1).astype(np.float32)
    expected = [0.5, 0.5] if count == 9 else [0.15, 0.15]
    assert multi_label.best_thresholds(probabilities, both) == pytest.approx(expected)


def test_balanced_weights_by_hand():
    labels = np.array([0, 2, 2, 0, 2, 2, 3, 2])
    found = multi_label.balanced_weights(labels[:, None], 5, is_multi_label=False)
    # n / (5 n_c), as scikit-learn has it; labels that nobody has get 1.
    np.testing.assert_allclose(found, [8 / 10, 1, 8 / 25, 8 / 5, 1])
    # With several labels, the ratio of examples without a label to those with it, at least 1 / n_c.
    truths = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1]])
    found = multi_label.balanced_weights(truths, 4, is_multi_label=True)
    np.testing.assert_allclose(found, [1 / 3, 1, 2, 2])


def test_given_weights_and_unknown_labels():
    found = multi_label.given_weights({"b": 3.0}, ("a", "b", "c"))
    assert found.tolist() == [1, 3, 1] and found.dtype == np.float32
    with pytest.raises(UserError, match=r"--class_weights: expected labels \(a, b\), got 'd'"):
        multi_label.given_weights({"d": 2.0}, ("a", "b"))


def test_thresholds_of_a_model_are_in_the_order_of_its_labels():
    found = multi_label.thresholds_of({"thresholds": {"a": 0.25, "b": 1}}, ("b", "a"))
    assert found.tolist() == [1, 0.25]
    assert multi_label.thresholds_of({}, ("b", "a")) is None
