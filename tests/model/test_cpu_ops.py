"""The kernels have the values and gradients of the plain operations, in every precision."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import cpu_ops, device, plain_ops
from albert_tf.model.activations import function_of

BATCH, HEADS, LENGTH, HEAD, WIDTH = 2, 3, 7, 5, 13
TOLERANCE = {"float32": 2e-6, "bfloat16": 6e-2, "float16": 8e-3}


def random(seed, *shape, dtype="float32"):
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return tf.cast(tf.constant(values), dtype)


def values_and_gradients(function, *tensors, jit_compile=None):
    """The values of a function inside a graph, and its gradients for random upstream gradients; float32."""

    @tf.function(jit_compile=jit_compile)
    def compute():
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            values = tf.nest.flatten(function(*tensors))
        upstream = [random(99, *value.shape, dtype=value.dtype) for value in values]
        return *values, *tape.gradient(values, tensors, upstream)

    return [tf.cast(tensor, tf.float32).numpy() for tensor in compute()]


def assert_equal(actual, expected, dtype):
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        scale = np.abs(theirs).max() + 1
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype])
        assert np.abs(theirs).max() > 0.01


def assert_both_equal(definition, name, tensors, *options, dtype):
    """Checks an operation of both modules; returns the values and gradients of each."""
    expected = values_and_gradients(definition, *tensors)
    results = []
    for module in (plain_ops, cpu_ops):
        operation = getattr(module, name)
        actual = values_and_gradients(lambda *each, of=operation: of(*each, *options), *tensors)
        assert_equal(actual, expected, dtype)
        results.append(actual)
    return results


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["gelu", "gelu_exact", "relu", "tanh"])
def test_bias_activation_equals_the_sum_and_the_activation(name, dtype):
    hidden = random(1, BATCH, LENGTH, WIDTH, dtype=dtype)
    bias = random(2, WIDTH, dtype=dtype)
    activation = function_of(name)
    tensors = (hidden, bias)
    operation = "bias_activation"
    assert_both_equal(lambda h, b: activation(h + b), operation, tensors, activation, dtype=dtype)


def half_dropped(tensor):
    return tf.nn.experimental.stateless_dropout(tensor, 0.5, [1, 2])


@pytest.mark.parametrize("drop", [None, half_dropped])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_residual_norm_equals_its_definition(dtype, drop):
    update, residual = (random(seed, BATCH, LENGTH, WIDTH, dtype=dtype) for seed in (3, 4))
    bias = random(10, WIDTH, dtype=dtype)
    gamma = random(5, WIDTH)
    beta = random(6, WIDTH)

    def definition(update, bias, residual, gamma, beta):
        update = (drop or tf.identity)(update + bias)
        total = tf.cast(update, tf.float32) + tf.cast(residual, tf.float32)
        mean, variance = tf.nn.moments(total, [-1], keepdims=True)
        return (total - mean) / tf.sqrt(variance + 1e-3) * gamma + beta

    tensors = (update, bias, residual, gamma, beta)
    assert_both_equal(definition, "residual_norm", tensors, 1e-3, drop, dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_split_heads_equals_three_reshaped_parts(dtype):
    projected = random(7, BATCH, LENGTH, 3 * HEADS * HEAD, dtype=dtype)
    bias = random(8, 3 * HEADS * HEAD, dtype=dtype)

    def definition(projected, bias):
        parts = tf.split(projected + bias, 3, axis=-1)
        heads = [tf.reshape(part, [BATCH, LENGTH, HEADS, HEAD]) for part in parts]
        return [tf.transpose(part, [0, 2, 1, 3]) for part in heads]

    assert_both_equal(definition, "split_heads", (projected, bias), HEADS, dtype=dtype)


# The first row ends with two padding positions.
IS_TOKEN = tf.constant([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
EXAMPLE_NUMBERS = tf.constant([[1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 1, 2, 3, 3]])
MASKS = {
    "padding": (
        plain_ops.padding_mask(IS_TOKEN),
        tf.where(IS_TOKEN == 1, 0.0, -10000.0)[:, None, None],
    ),
    "examples": (
        plain_ops.example_mask(EXAMPLE_NUMBERS, 4),
        tf.where(
            # What a padding position attends to is of no use to anybody.
            (EXAMPLE_NUMBERS[:, :, None] == EXAMPLE_NUMBERS[:, None]) & (IS_TOKEN[:, None] == 1)
            | (IS_TOKEN[:, :, None] == 0),
            0.0,
            -10000.0,
        )[:, None],
    ),
}


@pytest.mark.parametrize(
    ("on_cpu", "mask", "drop"),
    [(True, "padding", None), (True, "examples", half_dropped), (False, "padding", half_dropped)],
)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_attention_equals_its_definition(dtype, drop, mask, on_cpu, monkeypatch):
    is_padding_mask = mask == "padding"
    mask, bias = MASKS[mask]
    monkeypatch.setattr(cpu_ops, "_is_on_cpu", lambda: on_cpu)
    heads = [random(seed, BATCH, HEADS, LENGTH, HEAD, dtype=dtype) for seed in (7, 8, 9)]

    def definition(query, key, value):
        scores = tf.einsum("BNLH,BNMH->BNLM", query / HEAD**0.5, key)
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
        probabilities = (drop or tf.identity)(tf.cast(probabilities, value.dtype))
        return tf.einsum("BNLM,BNMH->BNLH", probabilities, value)

    results = assert_both_equal(definition, "attention", heads, mask, drop, dtype=dtype)
    for _, _, key_gradient, value_gradient in results if is_padding_mask else ():
        assert not key_gradient[0, :, -2:].any()
        assert not value_gradient[0, :, -2:].any()


def test_the_target_is_the_device_of_the_strategy_and_not_what_the_host_has(monkeypatch):
    gpu = tf.config.LogicalDevice("/device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [gpu])
    assert device.target_device() == "GPU"
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert device.target_device() == "CPU"
        with device.compiled_for("TPU"):
            assert device.target_device() == "TPU"
