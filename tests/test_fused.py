"""The fused parts of a block: values and gradients of TensorFlow's own operations, in every type."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import TINY

from albert_tf import fused
from albert_tf.modeling import ACTIVATIONS

BATCH, HEADS, LENGTH, HEAD, ROWS, WIDTH = 2, 3, 7, 5, 11, 13
TOLERANCE = {"float32": 2e-6, "bfloat16": 6e-2}


def random(seed, *shape, dtype="float32"):
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return tf.cast(tf.constant(values), dtype)


def value_and_gradients(function, *tensors):
    """What a function gives inside a graph, and its gradients for a random upstream gradient; float32."""

    @tf.function
    def compute():
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
        upstream = random(99, *value.shape, dtype=value.dtype)
        return value, *tape.gradient(value, tensors, upstream)

    return [tf.cast(tensor, tf.float32).numpy() for tensor in compute()]


def assert_same(found, expected, dtype):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        scale = np.abs(other).max() + 1
        np.testing.assert_allclose(one / scale, other / scale, atol=TOLERANCE[dtype])
        assert np.abs(other).max() > 0.01


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["gelu", "relu", "tanh"])
def test_bias_and_activation(name, dtype):
    hidden, bias = random(1, ROWS, WIDTH, dtype=dtype), random(2, WIDTH, dtype=dtype)
    activation = ACTIVATIONS[name]
    found = value_and_gradients(
        lambda *tensors: fused.bias_activation(*tensors, activation, training=True), hidden, bias
    )
    expected = value_and_gradients(lambda h, b: activation(h + b), hidden, bias)
    assert_same(found, expected, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_residual_and_norm(dtype):
    tensors = [random(seed, ROWS, WIDTH, dtype=dtype) for seed in (3, 4)]
    tensors += [random(5, WIDTH), random(6, WIDTH)]

    def plain(update, residual, gamma, beta):
        total = tf.cast(update, tf.float32) + tf.cast(residual, tf.float32)
        mean, variance = tf.nn.moments(total, [-1], keepdims=True)
        return (total - mean) / tf.sqrt(variance + 1e-3) * gamma + beta

    found = value_and_gradients(
        lambda *parts: fused.residual_norm(*parts, 1e-3, training=True), *tensors
    )
    assert_same(found, value_and_gradients(plain, *tensors), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_attention(dtype):
    query, key, value = (random(s, BATCH, HEADS, LENGTH, HEAD, dtype=dtype) for s in (7, 8, 9))
    adder = tf.where(tf.range(LENGTH) < LENGTH - 2, 0.0, -10000.0)[None, None, None, :]

    def plain(query, key, value):
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32) + adder
        return tf.matmul(tf.cast(tf.nn.softmax(scores), value.dtype), value)

    found = value_and_gradients(
        lambda *tensors: fused.attention(*tensors, adder), query, key, value
    )
    assert_same(found, value_and_gradients(plain, query, key, value), dtype)
    assert not found[2][:, :, -2:].any() and not found[3][:, :, -2:].any()  # padding gets nothing


def test_training_and_inference_give_the_same():
    from albert_tf import AlbertEncoder

    encoder = AlbertEncoder(TINY, seed=3)
    ids = tf.constant(np.random.default_rng(0).integers(0, TINY.vocab_size, (BATCH, LENGTH)))
    mask = tf.constant([[1] * LENGTH, [1] * (LENGTH - 3) + [0] * 3])
    first, second = (
        encoder({"input_ids": ids, "input_mask": mask}, training=training)["sequence_output"]
        for training in (False, True)
    )
    np.testing.assert_allclose(first, second, atol=2e-6)
