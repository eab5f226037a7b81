"""In bfloat16 and float16, gradients that are sums over many tokens are those of float32."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import cpu_ops, plain_ops
from albert_tf.model.activations import function_of
from albert_tf.model.encoder import Dense, Initializers, linear
from albert_tf.model.heads import MODEL_CLASSES
from tests import helpers

# A sum in bfloat16 stops growing at 256 times the size of a term, one in float16 at 2,048 times.
ROWS, LENGTH, WIDTH = 7, 600, 6


def half_dropped(tensor):
    return tf.nn.experimental.stateless_dropout(tensor, 0.5, [1, 2])


def with_norm(module, drop=None):
    """`residual_norm` of a bias, with other arguments that do not change with it."""
    residual = tf.constant(np.random.default_rng(3).normal(size=[ROWS, LENGTH, WIDTH]), tf.float32)
    gamma = tf.ones(WIDTH)
    beta = tf.zeros(WIDTH)
    return lambda tensor, bias: module.residual_norm(
        tensor, bias, residual, gamma, beta, 1e-6, drop
    )


def with_heads(module):
    return lambda tensor, bias: tf.stack(module.split_heads(tensor, bias, 2))


def with_activation(module):
    return lambda tensor, bias: module.bias_activation(tensor, bias, function_of("gelu"))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        plain_ops.bias_add,
        with_activation(plain_ops),
        with_activation(cpu_ops),
        with_heads(plain_ops),
        with_heads(cpu_ops),
        with_norm(plain_ops),
        with_norm(cpu_ops),
        with_norm(plain_ops, half_dropped),
        with_norm(cpu_ops, half_dropped),
    ],
)
def test_the_gradient_of_a_bias_is_its_sum_over_all_tokens(function, dtype):
    rng = np.random.default_rng(5)
    tensor = tf.cast(rng.normal(size=[ROWS, LENGTH, WIDTH]), dtype)
    bias = tf.cast(rng.normal(size=[WIDTH]), dtype)
    with tf.GradientTape() as tape:
        tape.watch([tensor, bias])
        result = tf.cast(function(tensor, bias), tf.float32)
        # All terms have the same sign, as those of a bias that has far to go.
        weights = tf.constant(1.0 + rng.random(result.shape), tf.float32)
        loss = tf.reduce_sum(result**2 * weights)
    terms, found = tape.gradient(loss, [tensor, bias])
    expected = np.sum(np.float64(terms), axis=(0, 1))
    size = np.sum(np.abs(np.float64(terms)), axis=(0, 1))
    np.testing.assert_allclose(np.float64(found) / size, expected / size, atol=0.01)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_dense_layer_sums_the_gradient_of_its_bias_in_float32(policy):
    layer = Dense(5, WIDTH, Initializers(helpers.TINY, 1), policy, tf.tanh)
    inputs = tf.zeros([ROWS, LENGTH, 5])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(inputs), tf.float32))
    gradient = tape.gradient(loss, layer.bias)
    np.testing.assert_allclose(gradient, np.full(WIDTH, ROWS * LENGTH), rtol=0.005)


def test_linear_takes_a_kernel_in_either_form():
    rng = np.random.default_rng(2)
    tensor = rng.normal(size=(2, 3, 4))
    kernel = rng.normal(size=(4, 5))
    expected = tensor @ kernel
    np.testing.assert_allclose(linear(tf.constant(tensor), tf.constant(kernel)), expected)
    found = linear(tf.constant(tensor), tf.constant(kernel.T), is_transposed=True)
    np.testing.assert_allclose(found, expected)


def inputs_of(name: str, rows: int, length: int) -> dict[str, tf.Tensor]:
    """Random inputs of a head; for multiple choice with two choices for each example."""
    rng = np.random.default_rng(0)
    shape = (rows // 2, 2, length) if name == "AlbertForMultipleChoice" else (rows, length)
    inputs = {
        "input_ids": rng.integers(5, helpers.TINY.vocab_size, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.zeros(shape),
        "p_mask": np.zeros(shape),
        "start_positions": rng.integers(0, length, (rows, 1)),
        "masked_lm_positions": rng.integers(0, length, (rows, length // 8)),
    }
    return {name: tf.constant(value, tf.int32) for name, value in inputs.items()}


def loss_of(outputs) -> tf.Tensor:
    """A loss that pushes every output in one direction, so that the terms of the gradients have the same sign."""
    total = 0.0
    for name in ("masked_lm_logits", "sentence_order_logits", "logits"):
        if name in outputs:
            total -= tf.reduce_mean(tf.nn.log_softmax(outputs[name])[..., 1])
    if "choice_logits" in outputs:
        total += tf.reduce_mean(outputs["choice_logits"])
    for name in ("start_logits", "end_logits", "start_log_probs", "end_log_probs"):
        if name in outputs:
            total -= tf.reduce_mean(tf.nn.log_softmax(outputs[name])[:, 3])
    if "cls_logits" in outputs:
        total += tf.reduce_mean(outputs["cls_logits"])
    if "embedding" in outputs:
        total += tf.reduce_mean(outputs["embedding"][:, :5])
    return total


def gradients_of(name: str, policy: str, inputs, is_compiled: bool) -> dict[str, np.ndarray]:
    """The gradient of every variable of a head, by its released name."""
    embedding = {
        **helpers.TINY.sentence_embedding,
        **{"projection_size": 9, "projection_activation": "tanh"},
    }
    config = helpers.TINY.replace(
        max_position_embeddings=inputs["input_ids"].shape[-1],
        num_hidden_layers=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        foreign={"sentence_embedding": embedding} if name == "AlbertForEmbedding" else {},
    )
    model = helpers.noisy(MODEL_CLASSES[name](config, dtype=policy, seed=3), deviation=0.05)
    variables = model.named_variables()

    @tf.function(autograph=False, jit_compile=is_compiled)
    def compute():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True, seed=tf.constant([1, 2]))
            if name == "AlbertForMultipleChoice":
                # One head scores all choices, so in their softmax the terms of two random choices cancel but for
                # rounding: 4 to 5 % more or less, by the random inputs.
                outputs = {"choice_logits": outputs["logits"]}
            loss = 1000.0 * loss_of(outputs)
        gradients = tape.gradient(loss, [*variables.values()], unconnected_gradients="zero")
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    return dict(zip(variables, map(np.float64, compute()), strict=True))


def assert_same_gradients(name: str, policy: str, rows: int, length: int, is_compiled=False):
    inputs = inputs_of(name, rows, length)
    expected = gradients_of(name, "float32", inputs, is_compiled)
    found = gradients_of(name, policy, inputs, is_compiled)
    largest = max(np.linalg.norm(gradient) for gradient in expected.values())
    for variable, gradient in expected.items():
        size = np.linalg.norm(gradient)
        if size > 1e-3 * largest:  # smaller ones are differences of what almost cancels
            share = np.sum(gradient * found[variable]) / size**2
            assert share == pytest.approx(1.0, abs=0.03), variable


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["AlbertForPreTraining", "AlbertForTokenClassification"])
def test_every_variable_has_the_gradient_of_float32(name):
    assert_same_gradients(name, "mixed_bfloat16", rows=8, length=256)


@pytest.mark.slow
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", MODEL_CLASSES)
def test_every_variable_of_every_head_has_the_gradient_of_float32(name, policy, is_compiled):
    assert_same_gradients(name, policy, rows=16, length=512, is_compiled=is_compiled)
