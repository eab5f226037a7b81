"""Texts of similar length share a batch."""

import math

import numpy as np
import pytest

from albert_tf.tasks.predictor import batches_by_length


def sizes_of(lengths: list[int], *limits: float) -> list[tuple[int, int]]:
    """The number of examples and the length of each batch; checks that each example is in one that it fits into."""
    batches = [*batches_by_length(np.array(lengths), *limits)]
    examples = np.concatenate([numbers for numbers, _ in batches])
    assert sorted(examples.tolist()) == list(range(len(lengths)))
    for numbers, length in batches:
        assert max(lengths[number] for number in numbers) == length
    return [(len(numbers), length) for numbers, length in batches]


def test_a_batch_ends_at_its_limits():
    assert sizes_of([4] * 5, 3, 100) == [(3, 4), (2, 4)]
    assert sizes_of([4] * 5, 9, 8) == [(2, 4), (2, 4), (1, 4)]
    assert sizes_of([9, 4, 4], 9, 8) == [(1, 9), (2, 4)]  # a longer text is alone


def test_another_batch_begins_where_padding_would_cost_more_than_a_call():
    lengths = [20, 19, 18, 17, 5, 4, 4, 3]
    assert sizes_of(lengths, 4, 1000, 12) == [(4, 20), (4, 5)]
    assert sizes_of(lengths, 7, 1000, 6) == [(4, 20), (4, 5)]  # 0 + 1 + 2 + 3 and 0 + 1 + 1 + 2
    assert sizes_of(lengths, 7, 1000, 5) == [(3, 20), (1, 17), (4, 5)]
    assert sizes_of(lengths, 7, 1000, math.inf) == [(7, 20), (1, 3)]


@pytest.mark.parametrize("most_padding", [0, 32])
def test_texts_that_fit_into_one_batch_stay_together(most_padding):
    assert sizes_of([90, 3, 2], 3, 270, most_padding) == [(3, 90)]
