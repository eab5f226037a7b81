"""The loop: results do not depend on devices, accumulation, resumption and workers; a run writes all its files.

Covers: accumulators.py, devices.py, evaluation.py, settings.py, state.py, step.py, task.py,
tasks/pretraining/definition.py, tasks/pretraining/settings.py, tasks/pretraining/task.py.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import UserError, load_pretrained, save_pretrained
from albert_tf.formats.pretrained import read_weights
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.devices import make_strategy
from albert_tf.training.results import describe
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.state import start_run
from tests.helpers import ROOT, TINY, pretrain_here, settings_here

DROPOUT = ("--hidden_dropout_prob=0.1", "--attention_probs_dropout_prob=0.1")


@pytest.fixture
def pretrain(records_file, config_file, tmp_path):
    """A function that pretrains on tiny records, in this process, and returns the run's folder."""

    def run(*flags, name="run"):
        pretrain_here(*common_flags(flags), f"--output_dir={tmp_path / name}")
        return tmp_path / name

    def common_flags(flags):
        return [
            f"--input_file={records_file}",
            f"--albert_config_file={config_file}",
            *("--train_batch_size=12", "--num_train_steps=6", "--num_warmup_steps=2"),
            *("--learning_rate=0.01", "--log_every_steps=1", *flags),
        ]

    run.flags = common_flags
    return run


def log(folder, name="metrics.jsonl"):
    """The lines of a log, without timings."""
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "examples_per_second"} for line in lines]


def weights(folder):
    return safetensors.numpy.load_file(folder / "model" / "model.safetensors")


def test_a_run_writes_logs_checkpoints_results_and_model(pretrain, records_file):
    folder = pretrain(
        f"--eval_file={records_file}",
        *("--eval_batch_size=7", "--eval_every_steps=2", "--max_eval_steps=0"),
        *("--save_checkpoints_steps=2", "--keep_checkpoint_max=2"),
    )
    lines = log(folder)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        parts = line["masked_lm_loss"] + line["sentence_order_loss"]
        assert line["loss"] == pytest.approx(parts)
    assert lines[0]["learning_rate"] == pytest.approx(0.005)
    assert lines[5]["learning_rate"] == 0.0
    config = json.loads((folder / "config.json").read_text())
    assert config["run"]["train_batch_size"] == 12
    assert config["model"]["hidden_size"] == TINY.hidden_size
    names = sorted(path.name for path in (folder / "checkpoints").glob("step-*.index"))
    assert names == ["step-4.index", "step-6.index"]
    evaluations = log(folder, "eval_metrics.jsonl")
    assert [line["step"] for line in evaluations] == [2, 4, 6]
    results = json.loads((folder / "results.json").read_text())
    assert results["step"] == 6
    assert results["eval"]["masked_lm_accuracy"] == evaluations[-1]["masked_lm_accuracy"]
    best = max(evaluations, key=lambda line: line["masked_lm_accuracy"])
    assert results["best"]["value"] == best["masked_lm_accuracy"]
    assert (folder / "checkpoints" / "best" / f"step-{results['best']['step']}.index").exists()
    assert list((folder / "train").glob("events*")) and list((folder / "eval").glob("events*"))
    assert load_pretrained(folder).config.hidden_size == TINY.hidden_size


def test_evaluation_does_not_depend_on_the_batch(pretrain, records_file):
    folder = pretrain("--stop_after_steps=1")
    results = []
    for size in (4, 7, 60):
        evaluated = pretrain_here(
            f"--init_checkpoint={folder}",
            f"--eval_file={records_file}",
            f"--output_dir={folder.parent / f'eval-{size}'}",
            *("--do_train=false", f"--eval_batch_size={size}", "--max_eval_steps=0"),
        )
        results.append(evaluated["eval"])
    for other in results[1:]:
        assert other == pytest.approx(results[0], rel=1e-5)
    assert results[0]["masked_lm_loss"] > 1


def test_devices_and_accumulation_reach_the_same_weights(pretrain):
    plain = pretrain("--stop_after_steps=3", name="plain")
    options = ["--distribution_strategy=mirrored", "--num_devices=2"]
    replicas = pretrain("--stop_after_steps=3", *options, name="replicas")
    accumulated = pretrain(
        "--stop_after_steps=3", "--gradient_accumulation_steps=3", name="accumulated"
    )
    start = AlbertForPreTraining(TINY, seed=12345)
    save_pretrained(start, plain.parent / "start" / "model")
    for name, value in weights(plain).items():
        np.testing.assert_allclose(weights(replicas)[name], value, atol=2e-6, err_msg=name)
        np.testing.assert_allclose(weights(accumulated)[name], value, atol=2e-6, err_msg=name)
    moved = (
        weights(plain.parent / "start")["albert.pooler.weight"]
        - weights(plain)["albert.pooler.weight"]
    )
    assert np.abs(moved).max() > 1e-4
    for line, other in zip(log(plain), log(replicas), strict=True):
        assert other == pytest.approx(line, rel=1e-5)
    for line, other in zip(log(plain), log(accumulated), strict=True):
        assert other == pytest.approx(line, rel=1e-5)


def test_steps_per_loop_changes_nothing(pretrain):
    runs = [
        pretrain("--log_every_steps=3", f"--steps_per_loop={steps}", *DROPOUT, name=f"loop-{steps}")
        for steps in (2, 100)
    ]
    assert log(runs[0]) == log(runs[1])


@pytest.mark.parametrize("shuffle", ["true", pytest.param("false", marks=pytest.mark.rare)])
def test_a_killed_run_is_resumed_bit_for_bit(pretrain, tmp_path, shuffle):
    flags = ["--num_train_steps=40", "--save_checkpoints_steps=3", "--deterministic", *DROPOUT]
    flags += ["--log_every_steps=2", f"--shuffle={shuffle}"]  # logs and checkpoints out of step
    whole = pretrain(*flags, name="whole")
    folder = tmp_path / "killed"
    command = [sys.executable, "run_pretraining.py", *pretrain.flags(flags)]
    process = subprocess.Popen(
        [*command, f"--output_dir={folder}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= 5:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 5 <= len(metrics.read_text().splitlines()) < 20, "the run had ended before the kill"
    pretrain(*flags, name="killed")
    assert log(folder) == log(whole)
    for name, value in weights(whole).items():
        np.testing.assert_array_equal(weights(folder)[name], value, err_msg=name)


def test_warm_start_from_a_shallower_model(pretrain, config_file, tmp_path):
    save_pretrained(
        AlbertForPreTraining(TINY.replace(num_hidden_layers=1), seed=3), tmp_path / "shallow"
    )
    options = [f"--init_checkpoint={tmp_path / 'shallow'}", "--stop_after_steps=1"]
    message = "its num_hidden_layers is 1, the model's configuration says 3"
    with pytest.raises(UserError, match=message):
        pretrain(*options)
    folder = pretrain(*options, "--warm_start_from_shallower", "--learning_rate=0")
    shallow = safetensors.numpy.load_file(tmp_path / "shallow" / "model.safetensors")
    for name, value in shallow.items():
        np.testing.assert_array_equal(weights(folder)[name], value, err_msg=name)


def test_a_checkpoint_of_an_unfinished_run_comes_with_its_vocabulary(
    pretrain, tiny_pretrained, tmp_path
):
    vocabulary = tiny_pretrained / "spiece.model"
    state = started(pretrain.flags([f"--spm_model_file={vocabulary}"]), tmp_path / "run")
    state.checkpoints.save(0)
    weights = read_weights(tmp_path / "run" / "checkpoints" / "step-0")
    assert os.path.samefile(weights.vocabulary, tmp_path / "run" / "model" / "spiece.model")
    assert pathlib.Path(weights.vocabulary).read_bytes() == vocabulary.read_bytes()


def started(flags, folder):
    """The state of a run that has begun, in this process."""
    classes = (RunConfig, OptimizerConfig, PretrainingConfig)
    flags = [*flags, f"--output_dir={folder}"]
    run, optimizer, pretraining = settings_here("run_pretraining.py", classes, flags)
    with make_strategy(run).scope():
        return start_run(PretrainingTask(pretraining, run), run, optimizer)


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (["--num_train_steps=1", "--num_warmup_steps=1"], "--num_train_steps (now 1)"),
        (["--learning_rate=0", "--stop_after_steps=1"], "--learning_rate"),
        (["--num_train_steps=2", "--num_warmup_steps=0", "--stop_after_steps=1"], ""),
    ],
)
def test_a_schedule_without_any_learning_rate_is_warned_of(pretrain, tmp_path, flags, advice):
    state = started(pretrain.flags(flags), tmp_path / "run")
    assert "NOTE      nothing is evaluated: there is no evaluation data (--eval_file)" in describe(
        state
    )
    warnings = [line for line in describe(state).splitlines() if "WARNING" in line]
    nothing = "WARNING   every step has learning rate 0, so nothing is learned: raise "
    assert warnings == ([nothing + advice] if advice else [])


def test_mixed_precision_trains(pretrain):
    exact = pretrain(name="exact")
    for policy in ("mixed_bfloat16", "mixed_float16"):
        mixed = pretrain(f"--mixed_precision={policy}", name=policy)
        for line, other in zip(log(exact), log(mixed), strict=True):
            assert other["loss"] == pytest.approx(line["loss"], rel=0.02)
        assert log(exact)[-1]["loss"] != log(mixed)[-1]["loss"]


def test_a_loss_that_is_not_finite_stops_the_run(pretrain, tmp_path):
    with pytest.raises(UserError, match="the loss is nan between steps .* lower --learning_rate"):
        pretrain("--learning_rate=1e30", "--save_checkpoints_steps=1", "--optimizer=adamw")
    assert os.path.exists(tmp_path / "run" / "checkpoints" / "step-1.index")


def test_an_unfinished_run_can_be_loaded(pretrain):
    folder = pretrain("--stop_after_steps=2")
    finished = load_pretrained(folder / "model")
    shutil.rmtree(folder / "model")
    loaded = load_pretrained(folder)
    assert loaded.config.hidden_size == TINY.hidden_size
    for a, b in zip(finished.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.rare
def test_a_resumed_run_repeats_only_an_evaluation_that_a_kill_lost(pretrain, records_file):
    flags = [f"--eval_file={records_file}", "--eval_every_steps=3", "--save_checkpoints_steps=3"]
    folder = pretrain(*flags, "--stop_after_steps=3")
    before = (folder / "eval_metrics.jsonl").read_text()
    (folder / "eval_metrics.jsonl").unlink()  # as if killed just before it
    pretrain(*flags, "--stop_after_steps=3")
    assert (folder / "eval_metrics.jsonl").read_text() == before
    pretrain(*flags)
    pretrain(*flags)
    assert [line["step"] for line in log(folder, "eval_metrics.jsonl")] == [3, 6]
    results = json.loads((folder / "results.json").read_text())
    assert results["eval"] == {
        name: value
        for name, value in log(folder, "eval_metrics.jsonl")[-1].items()
        if name != "step"
    }


def test_the_same_command_on_a_finished_run_keeps_its_times_and_says_that_nothing_is_left(
    pretrain, capfd
):
    times = []
    for _ in range(2):
        results = json.loads((pretrain() / "results.json").read_text())
        times.append((results["seconds"], results["steps_in_this_process"]))
    assert times[0] == times[1] and times[0][1] > 0
    assert "the last one: nothing is left to train" in capfd.readouterr().out


def test_a_run_of_an_older_version_is_resumed(pretrain):
    whole = pretrain(name="whole")
    folder = pretrain("--stop_after_steps=3", name="older")
    path = folder / "config.json"
    recorded = json.loads(path.read_text())
    recorded["run"].update({"num_devices": 0, "stop_after_steps": 3, "hidden_dropout_prob": -1.0})
    recorded["task"].update({"max_seq_length": 0, "max_predictions_per_seq": 0, "old_setting": 5})
    del recorded["run"]["classifier_dropout_prob"], recorded["optimizer"]["bias_correction"]
    del recorded["checksum"], recorded["run_id"]
    path.write_text(json.dumps(recorded))
    with pytest.raises(UserError, match="contains a run with bias_correction=False, not True"):
        pretrain("--bias_correction", name="older")
    pretrain("--stop_after_steps=0", "--hidden_dropout_prob=-1", name="older")
    assert log(folder) == log(whole)
