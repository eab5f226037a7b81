"""A step of training: gradients of micro-batches; a step of evaluation: sums over batches, outputs in their order."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core import flags as cli
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.devices import make_strategy
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.state import start_run
from albert_tf.training.step import EXAMPLE_INDEX, Evaluator, Trainer, in_example_order
from tests.helpers import noisy, random_features


@pytest.fixture
def start(records_file, config_file, tmp_path, eager):
    """A function that starts a run of pretraining without dropout; some flags more."""

    def run(*flags):
        common = [f"--input_file={records_file}", f"--eval_file={records_file}"]
        common += [f"--albert_config_file={config_file}", f"--output_dir={tmp_path / 'run'}"]
        common += ["--train_batch_size=6", "--num_train_steps=2", "--num_warmup_steps=1"]
        common += ["--hidden_dropout_prob=0", "--attention_probs_dropout_prob=0"]
        classes = (RunConfig, OptimizerConfig, PretrainingConfig)
        config, optimizer, pretraining = cli.parse(classes, ["pretrain", *common, *flags])
        with make_strategy(config).scope():
            return start_run(PretrainingTask(pretraining, config), config, optimizer)

    return run


@pytest.mark.parametrize("num_micro_batches", [1, 3])
def test_a_loss_is_divided_by_its_count_over_all_micro_batches(start, num_micro_batches):
    state = start(f"--gradient_accumulation_steps={num_micro_batches}")
    trainer = Trainer(state)
    model = noisy(state.model)
    features = {name: tf.constant(value) for name, value in random_features(6, seed=4).items()}
    # Examples have different numbers of predictions: a mean of means would be another value.
    counts = state.task.loss_counts(features)
    gradients, _, pairs = trainer._batch_gradients(features, counts, tf.constant([1, 2]))

    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        losses = state.task.losses(outputs, features, training=True)
        loss = tf.add_n([ratio.sum / ratio.count for ratio in losses.values()])
    expected = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
    for variable, gradient, wanted in zip(
        model.trainable_variables, gradients, expected, strict=True
    ):
        wanted = tf.convert_to_tensor(wanted)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-5, err_msg=variable.name)
    for name, ratio in losses.items():
        np.testing.assert_allclose(pairs[name], tf.stack(ratio), rtol=1e-5)


@pytest.mark.parametrize("num_micro_batches", [1, 3])
def test_a_loss_without_a_count_has_gradients_of_0(start, num_micro_batches):
    state = start(f"--gradient_accumulation_steps={num_micro_batches}")
    state.task.loss_epsilons = {}
    trainer = Trainer(state)
    noisy(state.model)
    features = {name: tf.constant(value) for name, value in random_features(6, seed=4).items()}
    features["masked_lm_weights"] = tf.zeros_like(features["masked_lm_weights"])
    counts = state.task.loss_counts(features)
    gradients, _, _ = trainer._batch_gradients(features, counts, tf.constant([1, 2]))

    by_name = {
        variable.ref(): tf.convert_to_tensor(gradient).numpy()
        for variable, gradient in zip(state.model.trainable_variables, gradients, strict=True)
    }
    variables = state.model.named_variables()
    assert not by_name[variables["cls/predictions/transform/dense/kernel"].ref()].any()
    of_sentence_order = by_name[variables["cls/seq_relationship/output_weights"].ref()]
    assert np.all(np.isfinite(of_sentence_order)) and of_sentence_order.any()


def test_an_evaluation_does_not_depend_on_the_size_of_its_batches(start):
    results = []
    for size in (60, 7):  # 60 records: the last batch of 7 has 4 records and 3 that only pad it
        state = start(f"--eval_batch_size={size}", "--do_train=false")
        noisy(state.model)
        results.append(Evaluator(state, state.task.eval_data).results())
    assert results[0]["masked_lm_loss"] > 1
    assert results[1] == pytest.approx(results[0], rel=1e-5)


def test_outputs_keep_their_order_so_that_equal_runs_write_equal_files():
    names = [f"output_{number}" for number in range(12)]
    step = {name: np.zeros([2, 3]) for name in names[:5]}
    step[EXAMPLE_INDEX] = np.array([1, 0])
    step |= {name: np.zeros(2) for name in names[5:]}
    assert list(in_example_order([step], 2)) == names


def test_examples_are_in_their_own_order_and_padding_is_left_out():
    first = {"score": np.array([2.5, 0.5]), EXAMPLE_INDEX: np.array([2, 0])}
    second = {"score": np.array([1.5, 9.0]), EXAMPLE_INDEX: np.array([1, -1])}
    assert in_example_order([first, second], 3)["score"].tolist() == [0.5, 1.5, 2.5]


def test_rows_of_shorter_batches_are_filled_with_nan():
    first = {"logits": np.ones([1, 2]), EXAMPLE_INDEX: np.array([0])}
    second = {"logits": np.ones([1, 3]), EXAMPLE_INDEX: np.array([1])}
    rows = in_example_order([first, second], 2)["logits"]
    np.testing.assert_array_equal(rows, [[1, 1, np.nan], [1, 1, 1]])
