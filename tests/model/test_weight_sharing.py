"""Weights that layers share: the values and gradients of a variable that is used several times."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model.weight_sharing import SharedWeights

ROWS, WIDTH, USES = 3, 5, 4


def values(seed, *shape):
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_gradients_are_those_of_all_uses_together(dtype):
    kernel, bias = tf.Variable(values(1, WIDTH, WIDTH)), tf.Variable(values(2, WIDTH))
    start = values(3, ROWS, WIDTH)

    def result(next_weights):
        hidden = start
        for _ in range(USES):
            kernel, bias = next_weights()
            product = tf.matmul(tf.cast(hidden, dtype), kernel)
            hidden = tf.tanh(tf.cast(product, tf.float32) + bias)
        return tf.reduce_sum(tf.square(hidden))

    @tf.function
    def shared():
        with tf.GradientTape() as tape:
            value = result(SharedWeights([(kernel, dtype), (bias, tf.float32)], USES).use)
        return value, *tape.gradient(value, (kernel, bias))

    @tf.function
    def plain():
        with tf.GradientTape() as tape:
            value = result(lambda: (tf.cast(kernel, dtype), tf.convert_to_tensor(bias)))
        return value, *tape.gradient(value, (kernel, bias))

    for found, expected in zip(shared(), plain(), strict=True):
        assert found.dtype == tf.float32
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_one_use_and_no_gradient():
    weights = SharedWeights([(values(1, 2), tf.float32), (values(2, 3), tf.bfloat16)], 1)
    first, second = weights.use()
    np.testing.assert_array_equal(first, values(1, 2))
    assert second.dtype == tf.bfloat16
    with pytest.raises(AssertionError, match="announced"):
        weights.use()
