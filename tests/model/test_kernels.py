"""The fused parts of a block: values and gradients of TensorFlow's own operations, in every type."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import kernels
from albert_tf.model.encoder import ACTIVATIONS
from tests.helpers import TINY

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
        lambda *tensors: kernels.bias_activation(*tensors, activation, training=True), hidden, bias
    )
    expected = value_and_gradients(lambda h, b: activation(h + b), hidden, bias)
    assert_same(found, expected, dtype)


def half_dropped(tensor):
    """Drops the same half of the values at every call."""
    return tf.nn.experimental.stateless_dropout(tensor, 0.5, [1, 2])


@pytest.mark.parametrize("drop", [None, half_dropped])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_residual_and_norm(dtype, drop):
    update, residual = (random(seed, ROWS, WIDTH, dtype=dtype) for seed in (3, 4))
    bias, gamma, beta = random(10, WIDTH, dtype=dtype), random(5, WIDTH), random(6, WIDTH)

    def plain(update, bias, residual, gamma, beta):
        update = (drop or tf.identity)(update + bias)
        total = tf.cast(update, tf.float32) + tf.cast(residual, tf.float32)
        mean, variance = tf.nn.moments(total, [-1], keepdims=True)
        return (total - mean) / tf.sqrt(variance + 1e-3) * gamma + beta

    tensors = (update, bias, residual, gamma, beta)
    expected = value_and_gradients(plain, *tensors)
    for training in (True, False) if drop is None else (True,):
        found = value_and_gradients(
            lambda *parts, training=training: kernels.residual_norm(
                *parts, 1e-3, drop=drop, training=training
            ),
            *tensors,
        )
        assert_same(found, expected, dtype)


@pytest.mark.parametrize("on_processor", [True, False])
@pytest.mark.parametrize("drop", [None, half_dropped])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_attention(dtype, drop, on_processor, monkeypatch):
    monkeypatch.setattr(kernels, "_is_on_processor", lambda: on_processor)
    width = HEADS * HEAD
    projected = random(7, BATCH * LENGTH, 3 * width, dtype=dtype)
    bias = random(8, 3 * width, dtype=dtype)
    num_kept = tf.constant([LENGTH - 2, LENGTH])[:, None, None, None]
    adder = tf.where(tf.range(LENGTH) < num_kept, 0.0, -10000.0)

    def plain(projected, bias):
        heads = tf.reshape(projected + bias, [BATCH, LENGTH, 3, HEADS, HEAD])
        query, key, value = tf.unstack(heads, axis=2)
        scores = tf.einsum("BLNH,BMNH->BNLM", query / HEAD**0.5, key)
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + adder)
        probabilities = (drop or tf.identity)(tf.cast(probabilities, value.dtype))
        output = tf.einsum("BNLM,BMNH->BLNH", probabilities, value)
        return tf.reshape(output, [BATCH * LENGTH, width])

    expected = value_and_gradients(plain, projected, bias)
    for training in (True, False) if drop is None else (True,):
        found = value_and_gradients(
            lambda *parts, training=training: kernels.attention(
                *parts, adder, HEADS, drop=drop, training=training
            ),
            projected,
            bias,
        )
        assert_same(found, expected, dtype)
        if training:  # keys and values of padding get nothing
            assert not found[1].reshape(BATCH, LENGTH, 3, width)[0, -2:, 1:].any()


def test_softmax_in_bfloat16_rounds_once():
    """Where TensorFlow's softmax of bfloat16 is not that of float32, rounded, ours goes through float32."""
    query, key = (random(seed, 4, 3, 50, 8, dtype="bfloat16") for seed in (12, 13))
    query *= 3
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    expected = tf.cast(tf.nn.softmax(scores), tf.bfloat16)
    found = kernels._probabilities(query, key)
    np.testing.assert_allclose(
        tf.cast(found, tf.float32), tf.cast(expected, tf.float32), rtol=0.02, atol=1e-6
    )


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
