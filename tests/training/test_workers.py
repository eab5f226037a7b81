"""Two workers on this machine: they train as one process does, end together, and continue exactly when restarted."""

import json
import signal
import socket
import subprocess
import time

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


def start_pair(folder, name) -> list[subprocess.Popen]:
    sockets = [socket.socket() for _ in range(2)]
    for free in sockets:
        free.bind(("localhost", 0))
    hosts = [f"localhost:{free.getsockname()[1]}" for free in sockets]
    for free in sockets:
        free.close()
    command = [
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
        "--distribution_strategy=multi_worker_mirrored",
        f"--output_dir={folder / name}",
    ]

    def start_worker(index: int) -> subprocess.Popen:
        config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
        return start(*command, TF_CONFIG=json.dumps(config))

    return [start_worker(index) for index in range(2)]


def finish(pair) -> tuple[list[int], list[str]]:
    errors = [worker.communicate(timeout=200)[1] for worker in pair]
    return [worker.returncode for worker in pair], errors


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
def test_both_workers_end_when_one_does_and_continue_exactly(whole, folder):
    run = folder / "interrupted"
    kill_one(run)
    statuses, errors = finish(start_pair(folder, run.name))
    assert statuses == [0, 0], errors
    helpers.assert_same_run(run, whole)


def kill_one(run) -> None:
    """Starts both workers, kills the second when some steps are logged, and checks how the first ends."""
    log = run / "metrics.jsonl"

    def num_lines() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    pair = start_pair(run.parent, run.name)
    deadline = time.monotonic() + 200
    while num_lines() < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    pair[1].send_signal(signal.SIGKILL)
    statuses, errors = finish(pair)
    assert num_lines() < STEPS / 5, "the run had ended before the signal"
    assert statuses == [1, -signal.SIGKILL], errors
    (line,) = [line for line in errors[0].splitlines() if line.startswith("run_pretraining")]
    assert "Traceback" not in errors[0], errors
    assert "another worker has ended or cannot be reached" in line
