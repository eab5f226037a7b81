"""Weights that layers share have the values and gradients of a variable that is used several times."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model.weight_sharing import cast_weights_per_layer

ROWS, WIDTH, USES = 3, 5, 4


def values(seed, *shape):
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


class Block:
    """A product, a tanh and a sum, with a weight in the type of use and a weight in float32."""

    def __init__(self, dtype: str, seed: int):
        self.compute_dtype = dtype
        self.kernel = tf.Variable(values(seed, WIDTH, WIDTH))
        self.beta = tf.Variable(values(2, WIDTH))

    def weights_by_name(self):
        return {"input_kernel": self.kernel, "beta": self.beta}

    def __call__(self, hidden, weights):
        kernel = weights["input_kernel"]
        assert (kernel.dtype, weights["beta"].dtype) == (self.compute_dtype, tf.float32)
        product = tf.matmul(tf.cast(hidden, kernel.dtype), kernel)
        return tf.tanh(tf.cast(product, tf.float32) + weights["beta"])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_those_of_all_uses_together(dtype, plain):
    shared = Block(dtype, 1)
    single = Block(dtype, 4)
    variables = [shared.kernel, shared.beta, single.kernel, single.beta]
    order = [*[shared] * (USES - 1), single, shared]
    start = values(3, ROWS, WIDTH)

    def result(weights_of_uses):
        hidden = start
        for block, weights in zip(order, weights_of_uses, strict=True):
            hidden = block(hidden, weights)
        return tf.reduce_sum(tf.square(hidden))

    @tf.function
    def ours():
        with tf.GradientTape() as tape:
            value = result(cast_weights_per_layer(order, plain=plain))
        return value, *tape.gradient(value, variables)

    @tf.function
    def independent():
        """Every use casts the variables again."""
        with tf.GradientTape() as tape:
            value = result(
                {"input_kernel": tf.cast(block.kernel, dtype), "beta": tf.identity(block.beta)}
                for block in order
            )
        return value, *tape.gradient(value, variables)

    # In the plain form, TensorFlow adds gradients up in the type of use.
    tolerance = 0.01 if plain and dtype == "bfloat16" else 1e-5
    for actual, expected in zip(ours(), independent(), strict=True):
        assert actual.dtype == tf.float32
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
