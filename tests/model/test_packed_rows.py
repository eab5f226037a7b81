"""Packed rows: the outputs, losses and gradients of every example are those of the same example alone."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import reading
from albert_tf.data.datasets import RecordData
from albert_tf.data.record_formats.full import parse_batch, pretraining_schema
from albert_tf.data.record_formats.packed import SENTENCE_WEIGHTS, packed_schema
from albert_tf.model.config import SHARING_STRATEGIES
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.pretraining.task import PretrainingTask
from tests.helpers import TINY, noisy, random_features
from tests.training.test_golden import assert_trains_as_the_original

ROWS = [[2, 0], [4], [1, 5, 3], []]  # which examples are in each row
ROW_LENGTH, SLOTS, MOST_EXAMPLES = 34, 23, 5


def packed(features: dict, rows: list[list[int]], length: int, slots: int, most: int) -> dict:
    """Features [B, values] of single examples as packed rows of L tokens, P slots and S examples at most."""
    schema = packed_schema(length, slots, most)
    shapes = {name: (len(rows), size) for name, (size, _) in schema.items()}
    dtypes = {tf.int64: np.int32, tf.float32: np.float32}
    values = {name: np.zeros(shape, dtypes[schema[name][1]]) for name, shape in shapes.items()}
    for row, indices in enumerate(rows):
        start = 0
        slot = 0
        for number, index in enumerate(indices):
            size = int(features["input_mask"][index].sum())
            masked = int(features["masked_lm_weights"][index].sum())
            tokens = slice(start, start + size)
            slots_used = slice(slot, slot + masked)
            for name in ("input_ids", "segment_ids"):
                values[name][row, tokens] = features[name][index, :size]
            values["example_numbers"][row, tokens] = number + 1
            values["position_ids"][row, tokens] = np.arange(size)
            values["first_positions"][row, number] = start
            positions = features["masked_lm_positions"][index, :masked]
            values["masked_lm_positions"][row, slots_used] = positions + start
            for name in ("masked_lm_ids", "masked_lm_weights"):
                values[name][row, slots_used] = features[name][index, :masked]
            values["next_sentence_labels"][row, number] = features["next_sentence_labels"][index, 0]
            values[SENTENCE_WEIGHTS][row, number] = 1
            start += size
            slot += masked
    return values


@pytest.fixture(scope="module")
def single() -> dict:
    return random_features(6, seed=4)


@pytest.fixture(scope="module")
def rows(single) -> dict:
    return packed(single, ROWS, ROW_LENGTH, SLOTS, MOST_EXAMPLES)


def model_of(**changes) -> AlbertForPreTraining:
    config = TINY.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **changes)
    config = config.replace(max_position_embeddings=ROW_LENGTH)
    return noisy(AlbertForPreTraining(config, seed=2))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "kernels"])
def test_outputs_of_an_example_do_not_depend_on_its_row(single, rows, training):
    model = model_of()
    alone, together = (model(features, training=training) for features in (single, rows))
    for row, indices in enumerate(ROWS):
        for number, index in enumerate(indices):
            size = int(single["input_mask"][index].sum())
            start = rows["first_positions"][row, number]
            found = together["sequence_output"][row, start : start + size]
            np.testing.assert_allclose(found, alone["sequence_output"][index, :size], atol=1e-5)
            for name in ("pooled_output", "sentence_order_logits"):
                found = together[name][row, number]
                np.testing.assert_allclose(found, alone[name][index], atol=1e-5)


def losses_and_gradients(model, features) -> tuple[dict, dict]:
    task = PretrainingTask.__new__(PretrainingTask)  # its losses need no data
    features = {name: tf.constant(value) for name, value in features.items()}
    counts = task.loss_counts(features)
    with tf.GradientTape() as tape:
        ratios = task.losses(model(features, training=True), features, training=True)
        losses = {name: ratio.sum / counts[name] for name, ratio in ratios.items()}
        loss = sum(losses.values())
    variables = model.named_variables()
    gradients = tape.gradient(loss, list(variables.values()))
    return losses, {
        name: tf.convert_to_tensor(gradient).numpy()
        for name, gradient in zip(variables, gradients, strict=True)
    }


@pytest.mark.parametrize(
    ("sharing", "embedding_size"),
    list(zip(SHARING_STRATEGIES, [TINY.embedding_size, TINY.hidden_size] * 2, strict=True)),
)
def test_losses_and_gradients_equal_those_of_single_examples(single, rows, sharing, embedding_size):
    model = model_of(share_parameters=sharing, embedding_size=embedding_size)
    losses, gradients = losses_and_gradients(model, single)
    packed_losses, packed_gradients = losses_and_gradients(model, rows)
    for name, loss in losses.items():
        np.testing.assert_allclose(packed_losses[name], loss, rtol=1e-6)
    assert gradients.keys() == packed_gradients.keys()
    errors = {
        name: np.linalg.norm(gradient - packed_gradients[name])
        for name, gradient in gradients.items()
    }
    sizes = {name: np.linalg.norm(gradient) for name, gradient in gradients.items()}
    # A random walk of roundings of at most 2^-24: a sum of D terms counts as D, a layer has 8 products one after the
    # other, forward and backward, and both sides of the comparison have errors.
    roundings = 2 * 2 * 8 * model.config.num_hidden_layers * model.config.hidden_size
    bound = 2**-24 * np.sqrt(roundings)
    assert np.linalg.norm([*errors.values()]) < bound * np.linalg.norm([*sizes.values()])
    for name, error in errors.items():
        # Some gradients are sums of large numbers that are nearly 0.
        assert error < 1e-7 + 2e-6 * sizes[name], name


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [[], ["--distribution_strategy=mirrored", "--recompute_activations"]],
    ids=["one device", "two devices, recomputed"],
)
def test_packed_golden_records_give_the_original_losses(golden, tmp_path, options, monkeypatch):
    """The eight golden steps, each with its eight examples in rows of 96 tokens."""
    schema = pretraining_schema(48, 7)
    batches = tf.data.TFRecordDataset(str(golden / "examples.tfrecord")).batch(8)
    golden_batches = [
        {name: value.numpy() for name, value in parse_batch(batch, schema).items()}
        for batch in batches
    ]
    # Some row is empty, and no example's place in its row is its place in the batch.
    in_rows = [[7, 0], [6], [1, 5], [4], [3, 2], []]
    packed_batches = [packed(batch, in_rows, 96, 14, 3) for batch in golden_batches]

    def dataset(_data, _batch_size, *, seed, first_step, context):
        replicas = context.num_replicas_in_sync
        parts = [
            {name: value[part::replicas] for name, value in batch.items()}
            for batch in packed_batches
            for part in range(replicas)
        ]
        stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        return reading.endless(tf.data.Dataset.from_tensor_slices(stacked).repeat())

    monkeypatch.setattr(RecordData, "training_dataset", dataset)
    config = json.loads((golden / "albert_config.json").read_text())
    assert config["max_position_embeddings"] >= 48
    assert_trains_as_the_original(golden, tmp_path / "run", options)
