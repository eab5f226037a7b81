"""Losses and metrics: values computed by hand, and sums over batches."""

import math

import numpy as np
import pytest

from albert_tf.training import losses


def test_cross_entropy_by_hand():
    # Two classes with odds 3:1 and 1:3; the third item is left out.
    logits = np.log(np.array([[3.0, 1.0], [1.0, 3.0], [9.0, 1.0]], np.float32))
    ratio = losses.cross_entropy(logits, np.array([0, 0, 1]), np.array([1.0, 2.0, 0.0]))
    assert float(ratio.count) == 3.0
    assert float(ratio.sum) == pytest.approx(-math.log(0.75) - 2 * math.log(0.25), rel=1e-6)


def test_accuracy_by_hand():
    logits = np.array([[[0.1, 0.9, 0.0], [0.5, 0.2, 0.3]], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])
    labels = np.array([[1, 2], [2, 0]])
    weights = np.array([[1.0, 1.0], [1.0, 0.0]])
    ratio = losses.accuracy(logits, labels, weights)
    assert (float(ratio.sum), float(ratio.count)) == (2.0, 3.0)


@pytest.mark.parametrize("function", [losses.cross_entropy, losses.accuracy])
def test_batches_of_any_size_add_up_to_the_whole(function):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(10, 7)).astype(np.float32)
    labels = rng.integers(0, 7, 10)
    weights = rng.integers(0, 2, 10).astype(np.float32)
    whole = function(logits, labels, weights)
    for size in (2, 5, 7):
        parts = [
            function(logits[i : i + size], labels[i : i + size], weights[i : i + size])
            for i in range(0, 10, size)
        ]
        assert float(sum(part.sum for part in parts)) == pytest.approx(float(whole.sum), rel=1e-5)
        assert float(sum(part.count for part in parts)) == float(whole.count)


def test_half_precision_logits_are_summed_in_float32():
    logits = np.full((3000, 2), 1.0, np.float16)
    ratio = losses.cross_entropy(logits, np.zeros(3000, np.int32), np.ones(3000))
    assert float(ratio.sum) == pytest.approx(3000 * math.log(2), rel=1e-5)  # float16 ends at 2048
