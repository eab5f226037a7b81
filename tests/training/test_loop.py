"""The loop: results do not depend on devices, accumulation, resumption and workers; a run writes all its files."""

import json
import os
import pathlib
import shutil
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.core import flags as cli
from albert_tf.formats.pretrained import read_weights
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training import loop, optimizers
from albert_tf.training.devices import make_strategy
from albert_tf.training.losses import Ratio
from albert_tf.training.optimizers import WarmupPolynomialDecay
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.state import start_run
from tests import helpers

# Building graphs is what takes the time here; two layers share their weights.
CONFIG = helpers.TINY.replace(num_hidden_layers=2)
DROPOUT = ("--hidden_dropout_prob=0.1", "--attention_probs_dropout_prob=0.1")

EVALUATED = ("--eval_batch_size=7", "--eval_every_steps=2", "--max_eval_steps=0")
EVALUATED += ("--save_checkpoints_steps=2", "--keep_checkpoint_max=2")


@pytest.fixture(scope="module")
def records_file(tmp_path_factory):
    return helpers.write_records(
        tmp_path_factory.mktemp("records") / "a.tfrecord", helpers.random_features(60)
    )


@pytest.fixture(scope="module")
def common_flags(records_file, tmp_path_factory):
    """The flags of a run of six steps, without --output_dir."""
    config = tmp_path_factory.mktemp("config") / "albert_config.json"
    config.write_text(CONFIG.to_json_string())
    return [
        f"--input_file={records_file}",
        f"--albert_config_file={config}",
        "--train_batch_size=12",
        "--num_train_steps=6",
        "--num_warmup_steps=2",
        "--learning_rate=0.01",
        "--log_every_steps=1",
    ]


@pytest.fixture
def pretrain(common_flags, tmp_path):
    """A function that pretrains on tiny records, in this process, and returns the run's folder."""

    def run(*flags, name="run"):
        helpers.pretrain_here(*common_flags, *flags, f"--output_dir={tmp_path / name}")
        return tmp_path / name

    return run


@pytest.fixture(scope="module")
def finished_run(common_flags, records_file, tmp_path_factory):
    """The folder of a finished run with evaluations; change nothing in it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    evaluated = [f"--eval_file={records_file}", *EVALUATED]
    helpers.pretrain_here(*common_flags, *evaluated, f"--output_dir={folder}")
    return folder


def logged(folder):
    return helpers.lines(folder / "metrics.jsonl")


def test_a_run_writes_logs_checkpoints_results_and_model(finished_run):
    folder = finished_run
    steps = logged(folder)
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    for line in steps:
        parts = line["masked_lm_loss"] + line["sentence_order_loss"]
        assert line["loss"] == pytest.approx(parts)
        assert line["gradient_norm"] > 0
    assert steps[0]["learning_rate"] == pytest.approx(0.005)
    assert steps[5]["learning_rate"] == 0.0
    config = json.loads((folder / "config.json").read_text())
    assert config["run"]["train_batch_size"] == 12
    assert config["model"]["hidden_size"] == helpers.TINY.hidden_size
    names = sorted(path.name for path in (folder / "checkpoints").glob("step-*.index"))
    assert names == ["step-4.index", "step-6.index"]
    evaluations = helpers.lines(folder / "eval_metrics.jsonl")
    assert [line["step"] for line in evaluations] == [2, 4, 6]
    assert "gradient_norm" not in evaluations[0]
    results = json.loads((folder / "results.json").read_text())
    assert results["step"] == 6
    assert results["eval"]["masked_lm_accuracy"] == evaluations[-1]["masked_lm_accuracy"]
    best = max(evaluations, key=lambda line: line["masked_lm_accuracy"])
    assert results["best"]["value"] == best["masked_lm_accuracy"]
    assert (folder / "checkpoints" / "best" / f"step-{results['best']['step']}.index").exists()
    assert list((folder / "train").glob("events*")) and list((folder / "eval").glob("events*"))
    assert load_pretrained(folder).config.hidden_size == helpers.TINY.hidden_size


def test_a_seed_of_0_is_a_seed(pretrain, eager):
    assert (pretrain("--stop_after_steps=1", "--seed=0") / "checkpoints").exists()


def test_the_vocabulary_of_the_start_goes_along(pretrain, eager, tmp_path):
    spm = helpers.train_spm(tmp_path / "spm.model", [helpers.WORDS] * 9, vocab_size=50)
    save_pretrained(AlbertForPreTraining(CONFIG, seed=1), tmp_path / "start", spm_model_file=spm)
    run = pretrain(f"--init_checkpoint={tmp_path / 'start'}", "--stop_after_steps=6")
    written = run / "model" / "spiece.model"
    assert written.read_bytes() == (tmp_path / "start" / "spiece.model").read_bytes()


def test_a_part_moves_by_its_factor_and_not_at_all_if_it_is_frozen(pretrain, eager, monkeypatch):
    monkeypatch.setattr(optimizers, "MAX_GRADIENT_NORM", 0)
    flags = ["--optimizer=adamw", "--num_warmup_steps=0"]
    flags += ["--save_checkpoints_steps=1"]
    start = AlbertForPreTraining(CONFIG, seed=12345).named_variables()
    plain = pretrain(*flags, "--stop_after_steps=1", name="plain")
    flags.append("--learning_rate_factors=embeddings:0,group_0:0.5,head:2")
    folder = pretrain(*flags, "--stop_after_steps=1", name="factors")
    moved, expected = (
        {
            name: variable - start[name]
            for name, variable in load_pretrained(run).named_variables().items()
        }
        for run in (folder, plain)
    )
    factors = {
        "bert/embeddings/": 0,
        "bert/encoder/embedding": 0,
        "bert/encoder/tr": 0.5,
        "bert/pooler": 1,
        "cls/": 2,
    }
    for name, step in moved.items():
        (factor,) = (factor for prefix, factor in factors.items() if name.startswith(prefix))
        np.testing.assert_allclose(
            step, factor * expected[name], rtol=2e-3, atol=1e-7, err_msg=name
        )
    pretrain(*flags, name="factors")  # continues
    assert len(logged(folder)) == 6
    wrong = "--learning_rate_factors names group_1, but the model has embeddings, encoder, group_0, head"
    with pytest.raises(UserError, match=wrong):
        pretrain("--learning_rate_factors=group_1:0", name="wrong")
    with pytest.raises(UserError, match="freezes the whole model"):
        pretrain("--learning_rate_factors=embeddings:0,encoder:0,head:0", name="frozen")


def test_a_killed_run_is_resumed_bit_for_bit(pretrain, common_flags, tmp_path):
    flags = ["--num_train_steps=40", "--save_checkpoints_steps=3", "--deterministic", *DROPOUT]
    flags += ["--log_every_steps=2", "--shuffle_buffer_examples=10"]  # logs are out of step
    whole = pretrain(*flags, name="whole")
    folder = tmp_path / "killed"
    helpers.run_until_logged(folder, 5, "run_pretraining.py", *common_flags, *flags)
    assert 5 <= len(logged(folder)) < 20, "the run had ended before the kill"
    pretrain(*flags, name="killed")
    helpers.assert_same_run(folder, whole)


def test_the_schedule_follows_the_clock_and_the_used_time_is_resumed(
    pretrain, eager, monkeypatch, capfd
):
    add = loop.TrainingLoop._add_time
    monkeypatch.setattr(loop.TrainingLoop, "_add_time", lambda self, _: add(self, 6.0))
    whole = pretrain("--train_minutes=1", name="whole")
    assert (
        "warm-up to 0.01 over 33.3 % of the time, decay to 0 after 1 minutes"
        in capfd.readouterr().out
    )
    updates = [0.6 * step for step in range(10)]  # of the 6 of --num_train_steps
    config = OptimizerConfig(learning_rate=0.01, num_train_steps=6, num_warmup_steps=2)
    expected = WarmupPolynomialDecay(config, 0.01).at(np.float32(updates))
    assert [line["learning_rate"] for line in logged(whole)] == pytest.approx(
        expected.numpy(), rel=1e-5
    )
    pretrain("--train_minutes=1", "--stop_after_steps=4", name="parts")
    parts = pretrain("--train_minutes=1", name="parts")
    assert [line["masked_lm_loss"] for line in logged(parts)] == pytest.approx(
        [line["masked_lm_loss"] for line in logged(whole)]
    )
    pretrain("--train_minutes=1", name="parts")
    assert "at step 10, the last one: nothing is left to train" in capfd.readouterr().out


def test_a_budget_of_time_ends_a_training(pretrain, eager):
    folder = pretrain("--train_minutes=0.01", "--num_train_steps=1000000000")
    assert 0 < json.loads((folder / "results.json").read_text())["step"] < 1_000_000
    assert load_pretrained(folder)


def test_warm_start_from_a_shallower_model(pretrain, common_flags, eager, tmp_path):
    shallow = AlbertForPreTraining(helpers.TINY.replace(num_hidden_layers=1), seed=3)
    save_pretrained(shallow, tmp_path / "shallow")
    options = [f"--init_checkpoint={tmp_path / 'shallow'}", "--stop_after_steps=1"]
    message = "its num_hidden_layers is 1, that of --model or --albert_config_file 2"
    with pytest.raises(UserError, match=message):
        pretrain(*options)
    flags = [*common_flags, *options, "--warm_start_from_shallower"]
    found = started(flags, tmp_path / "deeper").model.named_variables()
    for name, value in shallow.named_variables().items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_checkpoint_of_an_unfinished_run_comes_with_its_vocabulary(
    common_flags, tiny_pretrained, tmp_path
):
    vocabulary = tiny_pretrained / "spiece.model"
    state = started([*common_flags, f"--spm_model_file={vocabulary}"], tmp_path / "run")
    state.checkpoints.save(0)
    weights = read_weights(tmp_path / "run" / "checkpoints" / "step-0")
    assert os.path.samefile(weights.vocabulary, tmp_path / "run" / "model" / "spiece.model")
    assert pathlib.Path(weights.vocabulary).read_bytes() == vocabulary.read_bytes()


def started(flags, folder):
    classes = (RunConfig, OptimizerConfig, PretrainingConfig)
    flags = [*flags, f"--output_dir={folder}"]
    run, optimizer, pretraining = cli.parse(classes, ["run_pretraining.py", *map(str, flags)])
    with make_strategy(run).scope():
        return start_run(PretrainingTask(pretraining, run), run, optimizer)


@pytest.mark.slow
def test_mixed_precision_trains(pretrain, finished_run, eager):
    for policy in ("mixed_bfloat16", "mixed_float16"):
        mixed = pretrain(f"--mixed_precision={policy}", name=policy)
        for line, other in zip(logged(finished_run), logged(mixed), strict=True):
            assert other["loss"] == pytest.approx(line["loss"], rel=0.02)
        assert logged(finished_run)[-1]["loss"] != logged(mixed)[-1]["loss"]


def test_a_loss_that_is_not_finite_stops_the_run(pretrain, eager, tmp_path):
    with pytest.raises(UserError, match="the loss is nan between steps .* lower --learning_rate"):
        pretrain("--learning_rate=1e30", "--save_checkpoints_steps=1", "--optimizer=adamw")
    assert os.path.exists(tmp_path / "run" / "checkpoints" / "step-1.index")


def test_a_model_that_has_diverged_takes_the_place_of_no_checkpoint(pretrain, eager, tmp_path):
    flags = ["--learning_rate=1e30", "--optimizer=adamw", "--log_every_steps=9"]
    with pytest.raises(UserError, match="the loss is nan .* newest checkpoint is .*/step-1:"):
        pretrain(*flags, "--save_checkpoints_steps=1", "--keep_checkpoint_max=1")
    checkpoints = tmp_path / "run" / "checkpoints"
    assert [path.name for path in checkpoints.glob("*.index")] == ["step-1.index"]


def test_a_gradient_that_is_not_finite_stops_the_run_before_its_model_is_written(
    pretrain, eager, monkeypatch, tmp_path
):
    losses = PretrainingTask.losses

    def losses_without_slope(self, outputs, features, training):
        ratios = dict(losses(self, outputs, features, training))
        masked_lm = ratios["masked_lm_loss"]
        # The root has the value 0, and no derivative there.
        root = tf.sqrt(0.0 * masked_lm.sum)
        return {**ratios, "masked_lm_loss": masked_lm._replace(sum=masked_lm.sum + root)}

    monkeypatch.setattr(PretrainingTask, "losses", losses_without_slope)
    with pytest.raises(UserError, match="the gradient_norm is nan between steps 0 and 1"):
        pretrain("--num_train_steps=1", "--num_warmup_steps=0")
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_metric_that_is_not_finite_is_named(pretrain, eager, monkeypatch):
    nan = Ratio(tf.constant(np.nan), tf.constant(1.0))
    monkeypatch.setattr(PretrainingTask, "metrics", lambda *_: {"own_accuracy": nan})
    message = "the own_accuracy is nan between steps 0 and 1; .* the task computes this metric"
    with pytest.raises(UserError, match=message):
        pretrain()


def test_a_metric_that_is_not_finite_is_named_if_a_batch_has_no_loss(pretrain, eager, monkeypatch):
    nothing = tf.zeros([])
    nan = tf.constant(np.nan)
    names = ("masked_lm_loss", "sentence_order_loss")
    monkeypatch.setattr(
        PretrainingTask, "losses", lambda *_, **__: dict.fromkeys(names, Ratio(nothing, nothing))
    )
    monkeypatch.setattr(
        PretrainingTask, "metrics", lambda *_: {"own": Ratio(nan, tf.constant(1.0))}
    )
    with pytest.raises(UserError, match="the own is nan between steps"):
        pretrain()


def test_what_a_killed_process_left_of_its_checkpoints_is_removed(common_flags, tmp_path):
    folder = tmp_path / "run"
    state = started(common_flags, folder)
    for step in range(2):
        state.checkpoints.save(step)
    state.checkpoints.save_if_best(1, "masked_lm_accuracy", 0.5)
    helpers.write_files(folder / "checkpoints", {"notes.txt": "mine", "step-0-copy.index": "mine"})
    kept = {path for path in folder.rglob("*") if path.is_file()}
    left = {
        "step-2_temp/part-00000-of-00001.data-00000-of-00001.tempstate123": "",
        "step-3.data-00000-of-00001": "",  # without its index
        "step-4.data-00000-of-00001": "",  # complete, but not in the list
        "step-4.index": "",
        "checkpoint.tmp0123abcd": "",
        "best/step-2_temp/part-00000-of-00001.index": "",
    }
    helpers.write_files(folder / "checkpoints", left)
    resumed = started(common_flags, folder)
    assert {path for path in folder.rglob("*") if path.is_file()} == kept
    assert not (folder / "checkpoints" / "step-2_temp").exists()
    assert resumed.checkpoints.latest.endswith("step-1")


def test_complete_checkpoints_without_their_list_are_kept(common_flags, tmp_path):
    folder = tmp_path / "run"
    started(common_flags, folder).checkpoints.save(1)
    (folder / "checkpoints" / "checkpoint").unlink()
    helpers.write_files(folder / "checkpoints", {"step-2.data-00000-of-00001": ""})
    started(common_flags, folder)
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {"step-1.index", "step-1.data-00000-of-00001"}


def test_a_worker_that_is_not_the_chief_leaves_no_files(common_flags, tmp_path, monkeypatch):
    state = started(common_flags, tmp_path / "run")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(state.folder, "is_chief", False)
    before = sorted(tmp_path.rglob("*"))
    for step in range(3):
        state.checkpoints.save(step)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_model_says_which_sentence_task_it_learned(pretrain, eager, records_file, tmp_path):
    shutil.copy(records_file, tmp_path)
    lengths = helpers.LENGTH, helpers.PREDICTIONS
    facts = {"max_seq_length": lengths[0], "max_predictions_per_seq": lengths[1]}
    (tmp_path / "metadata.json").write_text(json.dumps({**facts, "sentence_task": "nsp"}))
    short = "--num_train_steps=1", "--num_warmup_steps=0"
    folder = pretrain(f"--input_file={tmp_path / records_file.name}", *short)
    assert load_pretrained(folder).config.sentence_task == "nsp"
    start = f"--init_checkpoint={folder}", "--albert_config_file="
    again = pretrain(*start, *short, name="again")
    assert load_pretrained(again).config.sentence_task == "nsp"  # records that say nothing


def test_an_unfinished_run_can_be_loaded_and_a_line_says_so(pretrain, eager, capfd):
    folder = pretrain("--stop_after_steps=2")
    finished = load_pretrained(folder / "model")
    load_pretrained(folder)
    assert "not finished" not in capfd.readouterr().err
    shutil.rmtree(folder / "model")
    loaded = load_pretrained(folder)
    line = f"NOTE: {folder}: this run has not finished; the model is that of step 2 of 6\n"
    assert line in capfd.readouterr().err
    assert loaded.config.hidden_size == helpers.TINY.hidden_size
    for a, b in zip(finished.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_resumed_run_repeats_only_an_evaluation_that_a_kill_lost(pretrain, eager, records_file):
    flags = [f"--eval_file={records_file}", "--eval_every_steps=3", "--save_checkpoints_steps=3"]
    folder = pretrain(*flags, "--stop_after_steps=3")
    before = (folder / "eval_metrics.jsonl").read_text()
    (folder / "eval_metrics.jsonl").unlink()  # as if killed just before it
    pretrain(*flags, "--stop_after_steps=3")
    assert (folder / "eval_metrics.jsonl").read_text() == before
    pretrain(*flags)
    pretrain(*flags)
    assert [line["step"] for line in helpers.lines(folder / "eval_metrics.jsonl")] == [3, 6]
    results = json.loads((folder / "results.json").read_text())
    assert {"step": 6, **results["eval"]} == helpers.lines(folder / "eval_metrics.jsonl")[-1]


def test_the_same_command_on_a_finished_run_keeps_its_times_and_says_that_nothing_is_left(
    pretrain, finished_run, records_file, tmp_path, capfd
):
    shutil.copytree(finished_run, tmp_path / "run")
    records = shutil.copy(records_file, tmp_path)  # which has another time
    folder = pretrain(f"--eval_file={records}", *EVALUATED)
    before, after = (
        json.loads((run / "results.json").read_text()) for run in (finished_run, folder)
    )
    for name in ("seconds", "steps_in_this_process"):
        assert before[name] == after[name] > 0
    assert "the last one: nothing is left to train" in capfd.readouterr().out
