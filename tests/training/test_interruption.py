"""Signals: training ends after a whole step with a checkpoint, other programs at once, and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers import ROOT, TINY, eagerly, pretrain_here


@pytest.fixture
def flags(records_file, tmp_path):
    """Flags of a long pretraining with evaluations, without --output_dir."""
    config = TINY.replace(num_hidden_layers=1, hidden_dropout_prob=0.1)
    (tmp_path / "config.json").write_text(config.to_json_string())
    return [
        f"--input_file={records_file}",
        f"--eval_file={records_file}",
        "--deterministic",
        f"--albert_config_file={tmp_path / 'config.json'}",
        "--train_batch_size=6",
        "--num_train_steps=100000",
        "--num_warmup_steps=1",
        "--eval_batch_size=6",
        "--max_eval_steps=2",
        "--log_every_steps=2",
        "--learning_rate=0.01",
    ]


def with_default_signals() -> None:
    """Undoes what a shell does to processes in its background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(*arguments, **environment) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=with_default_signals,
    )


def wait_for(condition, process) -> None:
    deadline = time.monotonic() + 200
    while not condition() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    assert condition() and process.poll() is None, process.communicate()


def is_training(folder):
    """A condition: the run has logged some steps."""
    log = folder / "metrics.jsonl"
    return lambda: log.exists() and log.read_text().count("\n") >= 5


def test_a_signal_ends_training_with_a_checkpoint_from_which_it_continues(flags, tmp_path):
    flags += ["--save_checkpoints_steps=50000", "--eval_every_steps=13"]
    folder = tmp_path / "run"
    process = start("run_pretraining.py", *flags, f"--output_dir={folder}")
    wait_for(is_training(folder), process)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    first, error = process.communicate(timeout=60)[1].splitlines()
    assert first.startswith("interrupted: ends after this step")
    assert time.monotonic() - sent < 20
    assert process.returncode == 128 + signal.SIGTERM
    pattern = (
        r"run_pretraining.py: interrupted at step ([\d,]+), whose checkpoint is .*/step-\d+; .*"
    )
    match = re.fullmatch(pattern, error)
    assert match, error
    step = int(match[1].replace(",", ""))
    with eagerly():
        results = pretrain_here(*flags, f"--stop_after_steps={step + 2}", f"--output_dir={folder}")
    assert (results["step"], results["steps_in_this_process"]) == (step + 2, 2)


def test_loops_on_the_device_are_short_however_long_the_interval(flags, tmp_path, monkeypatch):
    """The signal comes while a loop runs that would otherwise take all steps."""
    from albert_tf.training import loop

    monkeypatch.setattr(loop, "_LOOP_SECONDS", 0.2)
    steps = []
    after_steps = loop.TrainingLoop._after_steps

    def record(self, outputs):
        steps.append(self._state.step)
        after_steps(self, outputs)

    monkeypatch.setattr(loop.TrainingLoop, "_after_steps", record)
    flags += ["--log_every_steps=50000", "--save_checkpoints_steps=50000"]
    flags += ["--do_eval=false", "--eval_file=", "--stop_after_steps=20"]
    with eagerly():
        pretrain_here(*flags, f"--output_dir={tmp_path / 'run'}")
    assert steps[0] == 1 and steps[-1] == 20 and len(steps) > 3


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    program = (
        "import sys, time; from albert_tf.training.interruption import Interruption\n"
        "with Interruption().watched():\n"
        "    print('watched', flush=True)\n"
        "    while True: time.sleep(0.1)\n"
    )
    process = start("-c", program)
    assert process.stdout.readline() == "watched\n"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # a scheduler's, at the same moment
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    process.communicate()


WATCHED_ONCE = """
import os, signal, time
from albert_tf.core.errors import Interrupted
from albert_tf.training.interruption import Interruption

numbers = (signal.SIGINT, signal.SIGTERM)
before = [signal.getsignal(number) for number in numbers]
interruption = Interruption()
with interruption.watched():
    os.kill(os.getpid(), signal.SIGINT)
    while not interruption.number:
        time.sleep(0.01)
assert [signal.getsignal(number) for number in numbers] == before
try:
    interruption.check()
except Interrupted as error:
    print("interrupted by", error.number)
"""


def test_watching_ends_with_the_block():
    """In a process of its own: a signal that goes astray would end the process of all other tests."""
    process = start("-c", WATCHED_ONCE)
    output, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert output == f"interrupted by {signal.SIGINT:d}\n"


def test_other_programs_end_in_one_line_without_leftovers_or_orphans(tmp_path):
    text = tmp_path / "text.txt"
    output = tmp_path / "output"
    words = ["one two three four five six seven eight nine ten"] * 20
    text.write_text("\n\n".join("\n".join(words) for _ in range(30_000)))
    process = start(
        "-m",
        "data_prep.split_sentences",
        f"--input_file={text}",
        f"--output_file={output / 'out.txt'}",
        "--num_workers=2",
        "--min_sentences=1",
    )

    def workers():
        path = f"/proc/{process.pid}/task/{process.pid}/children"
        with open(path) as file:
            return [int(child) for child in file.read().split()]

    wait_for(lambda: len(workers()) == 2, process)
    children = workers()
    time.sleep(0.2)  # Python ignores an interruption inside the hooks of a fork
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 128 + signal.SIGINT, error
    *progress, line = filter(None, error)
    assert all(line.startswith("split_sentences: ") for line in progress), error
    assert line == "split_sentences.py: interrupted"
    assert not output.exists() or os.listdir(output) == []  # made with the first file
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{pid}") for pid in children):
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in children)
