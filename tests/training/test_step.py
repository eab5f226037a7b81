"""Predictions of batches as arrays of all examples."""

import numpy as np

from albert_tf.training.step import EXAMPLE_INDEX, in_example_order


def test_outputs_keep_their_order_so_that_equal_runs_write_equal_files():
    names = [f"output_{number}" for number in range(12)]
    step = {name: np.zeros([2, 3]) for name in names[:5]}
    step[EXAMPLE_INDEX] = np.array([1, 0])
    step |= {name: np.zeros(2) for name in names[5:]}
    assert list(in_example_order([step], 2)) == names
