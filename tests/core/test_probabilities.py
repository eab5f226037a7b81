"""Probabilities equal SciPy's, also where a logit is large, and in the type of the logits."""

import numpy as np
import pytest
import scipy.special

from albert_tf.core import probabilities

LOGITS_BC = np.array(
    [[0.0, 0.0, 0.0], [1000.0, -1000.0, 3.5], [-np.inf, 2.0, -7.25], [1e-8, 88.8, 88.9]],
    np.float32,
)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_probabilities_over_the_last_axis_are_those_of_scipy(name):
    ours = getattr(probabilities, name)(LOGITS_BC)
    theirs = getattr(scipy.special, name)(LOGITS_BC, axis=-1)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-30)


def test_a_sigmoid_is_that_of_scipy_on_both_sides_without_overflow():
    with np.errstate(over="raise"):
        ours = probabilities.sigmoid(LOGITS_BC)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, scipy.special.expit(LOGITS_BC), rtol=1e-6)
    assert float(probabilities.sigmoid(-2.0)) == pytest.approx(0.11920292, rel=1e-7)
