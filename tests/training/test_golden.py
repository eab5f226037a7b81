"""Equality with the original code: outputs, eight training losses and the weights after them."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_pretrained, save_pretrained
from albert_tf.data.record_formats.full import parse_batch, pretraining_schema
from tests.helpers import pretrain_here

LAMB_RUN = [
    "--train_batch_size=8",
    "--learning_rate=0.00176",
    "--num_train_steps=20",
    "--num_warmup_steps=3",
    "--shuffle_buffer_examples=1",
    "--log_every_steps=1",
    "--stop_after_steps=8",
]


def test_outputs_equal_those_of_the_original(golden):
    model = load_pretrained(golden / "model.ckpt")
    expected = np.load(golden / "golden.npz")
    dataset = tf.data.TFRecordDataset(str(golden / "examples.tfrecord")).batch(8)
    outputs = model(parse_batch(next(iter(dataset)), pretraining_schema(48, 7)))
    ours = {
        "sequence_output": outputs["sequence_output"],
        "pooled_output": outputs["pooled_output"],
        "all_layers": np.stack(outputs["all_layers"]),
        "mlm_log_probs": tf.reshape(tf.nn.log_softmax(outputs["masked_lm_logits"]), [56, -1]),
        "sop_log_probs": tf.nn.log_softmax(outputs["sentence_order_logits"]),
    }
    for name, value in ours.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--distribution_strategy=mirrored", "--gradient_accumulation_steps=2"],
        ["--jit_compile=on", "--recompute_activations"],
    ],
    ids=["one device", "two devices, accumulated", "compiled, recomputed"],
)
def test_training_equals_that_of_the_original(golden, tmp_path, options):
    assert_trains_as_the_original(golden, tmp_path / "run", options)


def assert_trains_as_the_original(golden, folder, options):
    """Trains eight steps; compares losses and weights."""
    pretrain_here(
        f"--input_file={golden}/examples.tfrecord",
        f"--init_checkpoint={golden}/model.ckpt",
        f"--albert_config_file={golden}/albert_config.json",
        f"--output_dir={folder}",
        *LAMB_RUN,
        *options,
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    names = ("loss", "masked_lm_loss", "sentence_order_loss")
    losses = np.array([[line[name] for name in names] for line in lines])
    np.testing.assert_allclose(losses, np.load(golden / "golden.npz")["losses"], atol=1e-4)
    final = np.load(golden / "final_variables.npz")
    variables = load_pretrained(folder).named_variables()
    assert {name.replace("/", "|") for name in variables} == set(final)
    for name, variable in variables.items():
        np.testing.assert_allclose(variable, final[name.replace("/", "|")], atol=1e-4, err_msg=name)


def test_a_written_tf1_checkpoint_equals_the_read_one_bit_for_bit(golden, tmp_path):
    save_pretrained(load_pretrained(golden / "model.ckpt"), tmp_path, format="tf1")
    before = tf.train.load_checkpoint(str(golden / "model.ckpt"))
    after = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-best"))
    assert before.get_variable_to_shape_map() == after.get_variable_to_shape_map()
    for name in before.get_variable_to_shape_map():
        np.testing.assert_array_equal(before.get_tensor(name), after.get_tensor(name))
