"""Losses of other layers: those of the same model cut at these layers, with declared weights."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.devices import make_strategy
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.state import start_run
from albert_tf.training.step import Trainer
from tests import helpers
from tests.model.test_packed_rows import MOST_EXAMPLES, ROW_LENGTH, ROWS, SLOTS, packed

CONFIG = helpers.TINY.replace(num_hidden_layers=4, inner_group_num=2)
INDICES = tf.constant([2, 0])


def cut_at(model, folder, num_layers):
    """The same model with fewer layers."""
    save_pretrained(model, folder)
    return load_pretrained(folder, num_hidden_layers=num_layers)


@pytest.mark.parametrize("is_packed", [False, True])
def test_other_layers_have_the_outputs_of_models_cut_there(tmp_path, is_packed):
    features = helpers.random_features(helpers.BATCH)
    if is_packed:
        features = packed(features, ROWS, ROW_LENGTH, SLOTS, MOST_EXAMPLES)
    model = helpers.noisy(AlbertForPreTraining(CONFIG.replace(max_position_embeddings=40)))
    outputs = model({**features, "other_layers": INDICES})
    assert len(outputs["other_layers"]) == 2
    for index, found in zip(INDICES, outputs["other_layers"], strict=True):
        expected = cut_at(model, tmp_path / str(index), int(index) + 1)(features)
        for name in ("masked_lm_logits", "sentence_order_logits"):
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
            assert not np.allclose(found[name], outputs[name], atol=1e-3)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_gradient_is_that_of_both_weighted_losses(
    records_file, config_file, tmp_path, recompute
):
    run = RunConfig(
        output_dir=str(tmp_path / "run"), train_batch_size=12, recompute_activations=recompute
    )
    settings = PretrainingConfig(
        input_file=str(records_file), albert_config_file=str(config_file), depth_losses=0.3
    )
    with make_strategy(run).scope():
        task = PretrainingTask(settings, run)
        trainer = Trainer(start_run(task, run, OptimizerConfig()))
    model = helpers.noisy(trainer.model)
    features = {name: tf.constant(value) for name, value in helpers.random_features(12).items()}
    counts, seed = task.loss_counts(features), tf.constant([1, 2])
    shared = {"other_layers": tf.constant([0])}
    gradients, _, pairs = trainer._micro_batch_gradients(features, shared, counts, seed)

    expected = dict.fromkeys(model.named_variables(), 0.0)
    for weight, member in ((0.7, model), (0.3, cut_at(model, tmp_path / "cut", 1))):
        with tf.GradientTape() as tape:
            losses = task.losses(member(features, training=True, seed=seed), features)
            loss = tf.add_n([loss.sum / counts[name] for name, loss in losses.items()])
        named = member.named_variables()
        for name, gradient in tape.gradient(loss, named).items():
            expected[name] += weight * tf.convert_to_tensor(gradient)
    by_variable = zip(model.trainable_variables, gradients, strict=True)
    found = {variable.ref(): gradient for variable, gradient in by_variable}
    for name, variable in model.named_variables().items():
        np.testing.assert_allclose(
            found[variable.ref()], expected[name], rtol=2e-4, atol=2e-5, err_msg=name
        )
    # The log has the losses of the last layer.
    last = task.losses(model(features), features)["masked_lm_loss"]
    np.testing.assert_allclose(pairs["masked_lm_loss"], tf.stack(last), rtol=1e-5)


@pytest.fixture
def pretrain(records_file, config_file, tmp_path):
    """A function that pretrains with a loss of another layer, and returns the run's folder."""

    def run(name, *flags):
        helpers.pretrain_here(
            *(f"--input_file={records_file}", f"--output_dir={tmp_path / name}"),
            *(f"--albert_config_file={config_file}", "--train_batch_size=12"),
            *("--num_train_steps=6", "--num_warmup_steps=0", "--learning_rate=0.01"),
            *("--depth_losses=0.4", "--log_every_steps=1", *flags),
        )
        return tmp_path / name

    return run


@pytest.mark.slow
def test_the_layer_of_a_step_depends_on_neither_devices_nor_micro_batches(pretrain):
    with helpers.eagerly():
        plain = pretrain("plain")
    found = helpers.weights(
        pretrain("other", "--distribution_strategy=mirrored", "--gradient_accumulation_steps=3")
    )
    for name, value in helpers.weights(plain).items():
        np.testing.assert_allclose(found[name], value, atol=5e-6, err_msg=name)


@pytest.mark.slow
def test_a_run_without_these_losses_is_continued_with_them(pretrain, eager):
    start = pretrain("start", "--depth_losses=0", "--stop_after_steps=2")
    checkpoint = (f"--init_checkpoint={start}", "--deterministic")
    with_them = pretrain("with", *checkpoint)
    without = pretrain("without", *checkpoint, "--depth_losses=0")
    first, other = (helpers.lines(folder / "metrics.jsonl") for folder in (with_them, without))
    # Before the first update, the last layer is the same.
    assert first[0]["loss"] == other[0]["loss"] and first[1]["loss"] != other[1]["loss"]
    # The layer of a step does not depend on when the run was stopped.
    pretrain("resumed", *checkpoint, "--stop_after_steps=2", "--save_checkpoints_steps=2")
    resumed = pretrain("resumed", *checkpoint, "--save_checkpoints_steps=2")
    assert helpers.lines(resumed / "metrics.jsonl") == first


def test_every_other_layer_is_drawn(records_file, config_file, tmp_path):
    run = RunConfig(output_dir=str(tmp_path))
    options = {"input_file": str(records_file), "albert_config_file": str(config_file)}
    task = PretrainingTask(PretrainingConfig(**options, depth_losses=0.5), run)
    drawn = [int(task.step_inputs(tf.constant([7, step]))["other_layers"][0]) for step in range(40)]
    assert set(drawn) == {0, 1}  # the last of three layers has its loss in every step
    with pytest.raises(UserError, match="^--depth_losses needs a model with more than one layer"):
        PretrainingTask(PretrainingConfig(**options, depth_losses=0.5, num_hidden_layers=1), run)


@pytest.mark.usefixtures("eager")
def test_the_teacher_runs_once_for_the_losses_of_all_layers(task_flags, finished, tmp_path):
    runner, flags = task_flags["mrpc"]
    flags = [*flags, "--num_hidden_layers=5", "--depth_losses=all", f"--output_dir={tmp_path}"]
    teacher = f"--teacher={finished('mrpc').folder / 'model'}"
    run, optimizer, config = helpers.fine_tuning_settings(runner, *flags, teacher)
    with make_strategy(run).scope():
        task = helpers.RUNNERS[runner].task(config, run)
        trainer = Trainer(start_run(task, run, optimizer))
    features = helpers.batch_of(task, "train", range(4))
    counts, seed = task.loss_counts(features), tf.constant([1, 2])
    shared = task.step_inputs(seed)
    with mock.patch.object(task, "_teacher", wraps=task._teacher) as called:
        _, _, pairs = trainer._micro_batch_gradients(features, shared, counts, seed)
    assert called.call_count == 1
    # The log has the loss of the last layer, and half of it is the divergence.
    outputs = trainer.model(features, training=True, seed=seed)
    expected = task.losses(outputs, {**features, **task.targets(features)})["label_loss"]
    np.testing.assert_allclose(pairs["label_loss"], tf.stack(expected), rtol=1e-5)
    alone = task.losses(outputs, features)["label_loss"]
    assert float(alone.sum) != pytest.approx(float(expected.sum), rel=1e-3)


@pytest.mark.parametrize("task", ["labels", "race"])
def test_fine_tuning_weighs_layers_by_their_numbers(task_flags, tmp_path, task):
    runner, flags = task_flags[task]
    flags = [*flags, "--num_hidden_layers=4"]
    made = helpers.make_task(runner, *flags, "--depth_losses=1,3", f"--output_dir={tmp_path}")
    assert made.layer_weights == pytest.approx([1 / 8, 3 / 8])
    model = made.build_model(dtype="float32", recompute_activations=False, seed=1)
    features = helpers.batch_of(made, "train", range(5), 48)
    outputs = model({**features, **made.step_inputs(tf.constant([1, 2]))})
    for num_layers, found in zip((1, 3), outputs["other_layers"], strict=True):
        cut = cut_at(model, tmp_path / str(num_layers), num_layers)
        np.testing.assert_array_equal(found["logits"], cut(features)["logits"])
        assert made.losses(found, features).keys() == made.loss_counts(features).keys()
    all_layers = helpers.make_task(runner, *flags, "--depth_losses=all", f"--output_dir={tmp_path}")
    assert all_layers.layer_weights == pytest.approx([0.1, 0.2, 0.3])
    with pytest.raises(UserError, match="^--depth_losses=2,4 must be below .* layers, 4"):
        helpers.make_task(runner, *flags, "--depth_losses=2,4", f"--output_dir={tmp_path}")
