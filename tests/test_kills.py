"""Random SIGKILLs: the same command finishes the work, with the values of a run that was not killed.

ALBERT_TEST_KILLS is the number of kills of each program. A program is started and killed again and again, each time
after a random part of the time that it needs, until it ends by itself; then its files are compared, and it starts anew.
"""

import json
import multiprocessing
import os
import pathlib
import random
import runpy
import sys
import time
import warnings

import pytest

from albert_tf.core.locks import locked
from tests.helpers import ROOT, TINY, assert_same_run, made_up_text, train_spm

KILLS = int(os.environ.get("ALBERT_TEST_KILLS", "3"))
SEED = int(os.environ.get("ALBERT_TEST_SEED", "0")) or time.time_ns()

# Programs run in copies of a process that has loaded TensorFlow, but has not used it.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "tests.test_kills",
        "orbit",
        "tensorflow_text",
        "numba",
        "albert_tf.training.loop",
        "albert_tf.tasks.pretraining.task",
        "albert_tf.tasks.classification.task",
        "albert_tf.tasks.repeated_runs",
    ]
)


def run_program(arguments: list[str], log: str, eagerly: bool) -> None:
    """Runs a script, or "-m" and a module, as a command line would; TensorFlow without the time of tracing."""
    os.chdir(ROOT)
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    if eagerly:
        import tensorflow as tf

        warnings.simplefilter("ignore")  # tf.data says that it goes on tracing
        tf.config.run_functions_eagerly(True)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


class Program:
    """A command line without its --output_dir, and how the files of two of its runs are compared."""

    def __init__(self, arguments, assert_same, *, eagerly=True):
        self.arguments = arguments
        self.assert_same = assert_same
        self._eagerly = eagerly

    def run(self, folder: pathlib.Path, seconds: float | None = None) -> bool:
        """Runs it, and kills it after some seconds; returns whether it has ended by itself."""
        log = folder.with_suffix(".txt")
        arguments = [*map(str, self.arguments), f"--output_dir={folder}"]
        process = _context.Process(target=run_program, args=(arguments, str(log), self._eagerly))
        process.start()
        process.join(seconds)
        if has_ended := process.exitcode is not None:
            assert process.exitcode == 0, log.read_text()
        process.kill()
        process.join()
        return has_ended


def same_records(folder: pathlib.Path, expected: pathlib.Path) -> None:
    """Checks that two folders of records are equal, byte for byte."""
    found, wanted = (
        {path.name: path.read_bytes() for path in one.iterdir()} for one in (folder, expected)
    )
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with text, a vocabulary and a configuration."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "text.txt").write_text(made_up_text(300, seed=3))
    train_spm(folder / "spiece.model", made_up_text(100, seed=1).splitlines(), vocab_size=200)
    config = TINY.replace(
        vocab_size=200, num_hidden_layers=1, hidden_dropout_prob=0.1, max_position_embeddings=40
    )
    (folder / "config.json").write_text(config.to_json_string())
    return folder


@pytest.fixture(scope="module")
def programs(inputs, task_flags):
    """The programs by name; pretraining reads the records of the preparation that was not killed."""
    vocabulary = f"--spm_model_file={inputs / 'spiece.model'}"
    preparation = [
        "-m",
        "data_prep.create_pretraining_data",
        vocabulary,
        "--num_shards=6",
        f"--input_file={inputs / 'text.txt'}",
        "--max_seq_length=40",
        "--num_workers=2",
    ]
    pretraining = [
        "run_pretraining.py",
        f"--input_file={inputs / 'records'}",
        vocabulary,
        f"--eval_file={inputs / 'records'}",
        f"--albert_config_file={inputs / 'config.json'}",
        "--train_batch_size=6",
        "--num_train_steps=60",
        "--num_warmup_steps=5",
        "--eval_batch_size=8",
        "--max_eval_steps=2",
        "--eval_every_steps=10",
        "--log_every_steps=3",
        "--save_checkpoints_steps=4",
        "--deterministic",
    ]
    runner, flags = task_flags["mrpc"]
    finetuning = [f"run_{runner}.py", *flags, "--deterministic", "--hidden_dropout_prob=0.1"]
    return {
        "preparation": Program(preparation, same_records, eagerly=False),
        "pretraining": Program(pretraining, assert_same_run),
        "fine-tuning": Program(finetuning, assert_same_run),
    }


@pytest.fixture(scope="module")
def whole(programs, inputs):
    """A function that runs a program once without a kill; returns its folder and its seconds."""
    made = {}

    def run(name):
        if name == "pretraining":
            run("preparation")
        if name not in made:
            folder = inputs / ("records" if name == "preparation" else name)
            started = time.monotonic()
            assert programs[name].run(folder)
            made[name] = folder, time.monotonic() - started
        return made[name]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["preparation", "pretraining", "fine-tuning"])
def test_the_same_command_finishes_what_random_kills_interrupted(name, programs, whole, tmp_path):
    program = programs[name]
    expected, seconds = whole(name)

    rng = random.Random(SEED)
    kills = 0
    finished = 0
    while kills < KILLS or not finished:
        folder = tmp_path / f"{finished}"
        limit = None if kills >= KILLS else rng.uniform(0.1, 0.9) * seconds
        if not program.run(folder, limit):
            kills += 1
            with locked(str(folder), wait=True):  # its worker processes may still be ending
                pass
            continue
        program.assert_same(folder, expected)
        left = [path for path in folder.rglob(".*") if path.name != "."]
        assert not left, left
        finished += 1
    print(json.dumps({"program": name, "kills": kills, "finished": finished, "seed": SEED}))
