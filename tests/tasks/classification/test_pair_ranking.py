"""QNLI and WNLI as a ranking."""

import numpy as np

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.classification.pair_ranking import is_best, pair_up, paired_table


def test_rows_of_a_question_are_paired_with_each_other():
    questions = ["a", "b", "a", "a", "b"]
    pairs = pair_up(questions, np.array([1, 0, 0, 0, 1]), 1, seed=0)
    assert sorted(map(tuple, pairs.tolist())) == [(0, 2), (0, 3), (4, 1)]


def test_the_positive_label_may_be_0():
    pairs = pair_up(["a", "a"], np.array([1, 0]), 0, seed=0)
    assert pairs.tolist() == [[1, 0]]


def test_a_row_without_a_counterpart_gets_one_of_another_question():
    questions, labels = ["a", "a", "b", "c"], np.array([1, 0, 1, 0])
    pairs = pair_up(questions, labels, 1, seed=3)
    assert set(pairs.ravel()) == {0, 1, 2, 3}
    assert all(labels[pairs[:, 0]] == 1) and all(labels[pairs[:, 1]] == 0)
    assert np.array_equal(pairs, pair_up(questions, labels, 1, seed=3))


def test_rows_of_one_label_give_no_pairs():
    assert pair_up(["a", "b"], np.array([1, 1]), 1, seed=0).shape == (0, 2)


def test_a_pair_is_an_example_of_two_sequences():
    rows = [[2, 11, 3], [2, 3], [2, 7, 8, 9, 3]]
    table = FeatureTable.from_rows({"input_ids": rows}, {"label_ids": [1, 0, 0]})
    paired = paired_table(table, np.array([[0, 1], [0, 2]]))
    assert len(paired) == 2 and paired.choices == 2
    assert paired.columns["label_ids"].tolist() == [[1, 0], [1, 0]]
    batch = paired.batch(np.array([1]), 6, ["input_ids"])
    assert batch["input_ids"].tolist() == [[[2, 11, 3, 0, 0, 0], [2, 7, 8, 9, 3, 0]]]


def test_the_best_row_of_a_question_is_its_answer():
    questions = ["a", "b", "a", "c", "b"]
    found = is_best(questions, np.array([-3.0, 2.0, -1.0, -0.5, 5.0]))
    assert found.tolist() == [False, False, True, False, True]
    assert is_best(["a"], np.array([0.1])).tolist() == [True]
