"""What accelerators compute has the values and gradients of the plain operations, and keeps less."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertEncoder
from albert_tf.model import accelerator_ops, device, plain_ops
from albert_tf.model.encoder import Dropout
from albert_tf.model.heads import AlbertForPreTraining
from tests.helpers import TINY
from tests.model.test_cpu_ops import MASKS, assert_equal, random, values_and_gradients

BATCH, HEADS, LENGTH, HEAD = 2, 3, 7, 5
WIDTH = HEADS * HEAD
DROPOUT = Dropout(0.4, tf.constant([3, 4]))


def drop_in_blocks(block: tuple[int, int]):
    """The dropout of all blocks, of so many examples and heads each, as a function of all probabilities."""
    rows, heads = block

    def drop(probabilities_BNLM):
        number = 0
        examples = []
        for row in range(0, BATCH, rows):
            groups = []
            for head in range(0, HEADS, heads):
                part = probabilities_BNLM[row : row + rows, head : head + heads]
                groups.append(DROPOUT.of_part(number)(part))
                number += 1
            examples.append(tf.concat(groups, 1))
        return tf.concat(examples, 0)

    return drop


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "block", "has_dropout", "mask"),
    [
        ("float32", (1, 1), True, "examples"),
        ("float32", (1, HEADS), False, "examples"),
        ("bfloat16", (1, HEADS), True, "padding"),
        ("float32", (BATCH, HEADS), True, "padding"),
    ],
)
def test_self_attention_in_blocks_equals_that_of_all_heads(
    dtype, block, has_dropout, mask, monkeypatch
):
    monkeypatch.setattr(accelerator_ops, "_block_of", lambda *_: block)
    monkeypatch.setattr(device, "target_device", lambda: "GPU")
    mask = MASKS[mask][0]
    projected = random(7, BATCH, LENGTH, 3 * WIDTH, dtype=dtype)
    bias = random(8, 3 * WIDTH, dtype=dtype)
    drops = (drop_in_blocks(block), DROPOUT) if has_dropout else (None, None)
    expected, actual = (
        values_and_gradients(
            lambda *tensors, module=module, drop=drop: module.self_attention(
                *tensors, HEADS, mask, drop
            ),
            projected,
            bias,
            jit_compile=True,  # XLA draws other random numbers
        )
        for module, drop in zip((plain_ops, accelerator_ops), drops, strict=True)
    )
    assert_equal(actual, expected, dtype)


def test_batches_of_several_lengths_are_not_cut_into_blocks():
    mask = MASKS["padding"][0]
    projected = random(7, BATCH, LENGTH, 3 * WIDTH)
    bias = random(8, 3 * WIDTH)
    shape = tf.TensorSpec([BATCH, None, 3 * WIDTH])
    attend = tf.function(
        lambda tensor: accelerator_ops.self_attention(tensor, bias, HEADS, mask),
        input_signature=[shape],
    )
    expected = plain_ops.self_attention(projected, bias, HEADS, mask)
    np.testing.assert_allclose(attend(projected), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_of_a_residual_draws_the_same_mask_in_the_backward_pass(dtype):
    update, residual = (random(seed, BATCH, LENGTH, WIDTH, dtype=dtype) for seed in (3, 4))
    bias = random(10, WIDTH, dtype=dtype)
    gamma = random(5, WIDTH)
    beta = random(6, WIDTH)
    expected, actual = (
        values_and_gradients(
            lambda *tensors, module=module: module.residual_norm(*tensors, 1e-3, DROPOUT),
            update,
            bias,
            residual,
            gamma,
            beta,
        )
        for module in (plain_ops, accelerator_ops)
    )
    assert_equal(actual, expected, dtype)


def optimized_step(**settings) -> str:
    config = TINY.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = AlbertForPreTraining(config, seed=4, **settings)

    @tf.function(jit_compile=True, autograph=False)
    def gradients(ids):
        with tf.GradientTape() as tape:
            outputs = model({"input_ids": ids}, training=True, seed=tf.constant([1, 2]))
            loss = tf.reduce_sum(outputs["sequence_output"] ** 3)
        return tape.gradient(loss, model.encoder.trainable_variables[:1])

    ids = tf.constant(np.arange(BATCH * LENGTH).reshape(BATCH, LENGTH), tf.int32)
    with device.compiled_for("TPU"):
        return gradients.experimental_get_compiler_ir(ids)(stage="optimized_hlo")


@pytest.mark.slow
def test_xla_keeps_the_recomputation():
    """Without an optimization barrier it merges the second forward pass with the first one."""
    kept, recomputed = (
        optimized_step(recompute_activations=recompute).count(" dot(")
        for recompute in (False, True)
    )
    layers = TINY.num_hidden_layers
    assert recomputed >= kept + 3 * (layers - 1)  # joint projection, output, feed-forward


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_of_a_model_are_those_of_the_plain_operations(recompute):
    config = TINY.replace(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.0)
    ids = tf.constant(np.arange(BATCH * LENGTH).reshape(BATCH, LENGTH), tf.int32)
    gradients = []
    for settings in ({"plain": True}, {"recompute_activations": recompute}):
        encoder = AlbertEncoder(config, seed=4, **settings)

        @tf.function(autograph=False)
        def compute(encoder=encoder):
            with tf.GradientTape() as tape:
                outputs = encoder({"input_ids": ids}, training=True, seed=tf.constant([1, 2]))
                loss = tf.reduce_sum(tf.sin(outputs["sequence_output"]))
            variables = encoder.trainable_variables[:-2]  # the pooler's are not used
            return tape.gradient(loss, variables)

        with device.compiled_for("GPU"):
            gradients.append([tf.convert_to_tensor(gradient).numpy() for gradient in compute()])
    for plain, ours in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-3, atol=1e-4)
