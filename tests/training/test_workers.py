"""Several workers on this machine: they train as one process does, end together, and continue exactly when restarted.

A worker is a process with `TF_CONFIG`; all of them are on the loopback interface.
"""

import json
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from tests import helpers
from tests.training.test_interruption import start

STEPS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("workers")
    for index in range(4):
        features = helpers.random_features(30, seed=index)
        helpers.write_records(path / "records" / f"{index}.tfrecord", features)
    config = helpers.TINY.replace(num_hidden_layers=1, hidden_dropout_prob=0.1)
    (path / "config.json").write_text(config.to_json_string())
    return path


def free_addresses(number: int) -> list[str]:
    sockets = [socket.socket() for _ in range(number)]
    for free in sockets:
        free.bind(("localhost", 0))
    addresses = [f"localhost:{free.getsockname()[1]}" for free in sockets]
    for free in sockets:
        free.close()
    return addresses


def start_worker(index: int, addresses: list[str], *command: object) -> subprocess.Popen:
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    strategy = "--distribution_strategy=multi_worker_mirrored"
    return start(*command, strategy, TF_CONFIG=json.dumps(config))


def start_workers(number: int, *command: object) -> list[subprocess.Popen]:
    addresses = free_addresses(number)
    return [start_worker(index, addresses, *command) for index in range(number)]


def start_pair(folder, name) -> list[subprocess.Popen]:
    return start_workers(
        2,
        "run_pretraining.py",
        f"--input_file={folder / 'records'}",
        f"--eval_file={folder / 'records'}",
        f"--albert_config_file={folder / 'config.json'}",
        "--train_batch_size=12",
        f"--num_train_steps={STEPS}",
        "--num_warmup_steps=2",
        "--learning_rate=0.01",
        "--log_every_steps=5",
        "--save_checkpoints_steps=7",
        "--eval_every_steps=15",
        "--eval_batch_size=14",
        "--max_eval_steps=0",
        "--deterministic",
        f"--output_dir={folder / name}",
    )


def finish(workers) -> tuple[list[int], list[str]]:
    """Waits for all, and leaves none running, which would take the time of all later tests."""
    try:
        errors = [worker.communicate(timeout=600)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [worker.returncode for worker in workers], errors


@pytest.fixture(scope="module")
def whole(folder):
    statuses, errors = finish(start_pair(folder, "whole"))
    assert statuses == [0, 0], errors
    return folder / "whole"


@pytest.mark.slow
def test_two_workers_finish_a_run_together(whole, folder, tmp_path):
    steps = [line["step"] for line in helpers.lines(whole / "metrics.jsonl")]
    assert steps == list(range(5, STEPS + 1, 5))
    evaluation = helpers.lines(whole / "eval_metrics.jsonl")[-1]
    single = helpers.pretrain_here(
        f"--init_checkpoint={whole}",
        f"--eval_file={folder / 'records'}",
        f"--output_dir={tmp_path / 'check'}",
        "--do_train=false",
        "--eval_batch_size=5",
        "--max_eval_steps=0",
    )
    for name, value in single["eval"].items():
        assert evaluation[name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1], ids=["chief", "other"])
def test_both_workers_end_when_one_does_and_continue_exactly(whole, folder, index):
    run = folder / f"interrupted_{index}"
    kill_one(run, index)
    statuses, errors = finish(start_pair(folder, run.name))
    assert statuses == [0, 0], errors
    helpers.assert_same_run(run, whole)


def kill_one(run, index: int) -> None:
    """Starts both workers, kills one when some steps are logged, and checks how the other ends."""
    log = run / "metrics.jsonl"

    def num_lines() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    pair = start_pair(run.parent, run.name)
    deadline = time.monotonic() + 200
    while num_lines() < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    pair[index].send_signal(signal.SIGKILL)
    statuses, errors = finish(pair)
    other = 1 - index
    assert num_lines() < STEPS / 5, "the run had ended before the signal"
    assert statuses[index] == -signal.SIGKILL
    assert statuses[other] == 1, errors
    (line,) = [line for line in errors[other].splitlines() if line.startswith("run_pretraining")]
    assert "Traceback" not in errors[other], errors
    assert "another worker has ended or cannot be reached" in line


# --- Equal to one device.


def run_workers(number: int, *command: object) -> None:
    """Runs a command on so many workers, or without `TF_CONFIG` on one device."""
    processes = start_workers(number, *command) if number > 1 else [start(*command)]
    statuses, errors = finish(processes)
    assert statuses == [0] * number, errors


def pretraining(folder, name: str, *flags: str) -> list[object]:
    """A command without dropout, whose masks depend on the number of devices."""
    return [
        "run_pretraining.py",
        f"--input_file={folder / 'records'}",
        f"--albert_config_file={folder / 'config.json'}",
        "--hidden_dropout_prob=0",
        "--train_batch_size=12",
        "--num_train_steps=12",
        "--num_warmup_steps=2",
        "--learning_rate=0.01",
        "--log_every_steps=1",
        "--deterministic",
        f"--output_dir={folder / name}",
        *flags,
    ]


def assert_close(run, expected) -> None:
    """Checks that the logs and weights of two runs are equal but for rounding."""
    lines = helpers.lines(run / "metrics.jsonl")
    wanted_lines = helpers.lines(expected / "metrics.jsonl")
    for line, wanted_line in zip(lines, wanted_lines, strict=True):
        assert line == pytest.approx(wanted_line, rel=1e-6)
    weights = helpers.weights(run)
    for name, value in helpers.weights(expected).items():
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def one_device(folder):
    run_workers(1, *pretraining(folder, "one_device"))
    return folder / "one_device"


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_pretraining_on_workers_is_that_on_one_device(folder, one_device, number):
    run_workers(number, *pretraining(folder, f"workers_{number}"))
    assert_close(folder / f"workers_{number}", one_device)


@pytest.mark.slow
def test_a_run_continues_with_another_number_of_workers(folder, one_device):
    run_workers(4, *pretraining(folder, "changing", "--stop_after_steps=4"))
    run_workers(2, *pretraining(folder, "changing", "--stop_after_steps=8"))
    run_workers(1, *pretraining(folder, "changing"))
    assert_close(folder / "changing", one_device)


@pytest.fixture(scope="module")
def fine_tune_on(task_flags, tmp_path_factory):
    """A function that fine-tunes on so many workers; returns the folder of the run."""
    runner, flags = task_flags["mrpc"]
    command = [f"run_{runner}.py", *flags, "--deterministic"]
    command += ["--hidden_dropout_prob=0", "--classifier_dropout_prob=0"]
    command += ["--train_batch_size=12", "--eval_batch_size=12"]
    command += ["--learning_rate=1e-4"]  # 0.01 enlarges rounding to 1e-5 in twelve steps

    def run(number: int):
        folder = tmp_path_factory.mktemp("fine_tuning") / "run"
        run_workers(number, *command, f"--output_dir={folder}")
        return folder

    return run


@pytest.fixture(scope="module")
def fine_tuned_on_one_device(fine_tune_on):
    return fine_tune_on(1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_fine_tuning_on_workers_is_that_on_one_device(
    fine_tune_on, fine_tuned_on_one_device, number
):
    assert_close(fine_tune_on(number), fine_tuned_on_one_device)


@pytest.mark.parametrize("index", [0, 1], ids=["chief", "other"])
@pytest.mark.slow
def test_a_worker_that_never_comes_is_one_line(folder, index):
    addresses = free_addresses(2)
    command = pretraining(folder, f"alone_{index}", "--worker_timeout_seconds=3")
    worker = start_worker(index, addresses, *command)
    (status,), (errors,) = finish([worker])
    assert status == 1, errors
    (line,) = [line for line in errors.splitlines() if line.startswith("run_pretraining")]
    silent = f"{addresses[1 - index]} of TF_CONFIG did not answer in this time"
    assert f"--worker_timeout_seconds=3: {silent}" in line
    assert "Traceback" not in errors
