"""Memory stays flat however long a program runs and however much it reads.

`make test-all` tries small sizes; ALBERT_TEST_FAULTS=all tries those of docs/reliability.md.
ALBERT_TEST_MEGABYTES=10,600 gives other sizes of text to `create_pretraining_data`, which takes a minute for 600.

What counts is anonymous memory (`Pss_Anon` of Linux), heap and stacks; a page that processes share counts once. Not
counted are the code of libraries, which other programs may share, and cached files.
"""

import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence

import numpy as np
import psutil
import pytest

from tests.helpers import ROOT, TRIES_ALL, made_up_text, sentence, train_spm

MEGABYTES = os.environ.get("ALBERT_TEST_MEGABYTES") or ("10,60" if TRIES_ALL else "1,12")
ONLY_ALL = pytest.mark.skipif(not TRIES_ALL, reason="takes a minute; ALBERT_TEST_FAULTS=all")

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/smaps_rollup").exists(), reason="Linux reports this memory"
)


def memory_of(process: psutil.Process) -> int:
    """Anonymous bytes of a process and of all that it started."""
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            rollup = pathlib.Path(f"/proc/{member.pid}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        (kilobytes,) = re.findall(r"^Pss_Anon: *(\d+)", rollup, re.MULTILINE)
        total += 1024 * int(kilobytes)
    return total


def memory_by_line(
    arguments: Sequence[object], mark: str, lines: Iterable[str] = (), every: int = 1
) -> list[float]:
    """Memory of a program, in 10^6 bytes, at every n-th line of its output that starts with `mark`."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def feed() -> None:
        with process.stdin:
            process.stdin.writelines(lines)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    values, number = [], 0
    with process.stdout:
        for line in process.stdout:
            number += line.startswith(mark)
            if line.startswith(mark) and number % every == 0:
                values.append(memory_of(psutil.Process(process.pid)) / 1e6)
    feeder.join()
    assert process.wait() == 0
    return values


def growth(values: Sequence[float]) -> float:
    """The median of the last third less that of the second, in 10^6 bytes."""
    print("memory in MB:", *(round(value) for value in values[:: max(1, len(values) // 24)]))
    third = len(values) // 3
    return float(np.median(values[2 * third :]) - np.median(values[third : 2 * third]))


def peak_of(arguments: Sequence[object]) -> float:
    """Runs a program; returns the largest memory of all its processes together, in 10^6 bytes."""
    largest = 0
    process = psutil.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None:
        largest = max(largest, memory_of(process))
        time.sleep(0.05)
    assert process.returncode == 0
    return largest / 1e6


# --- Record creation ---


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> str:
    text = made_up_text(40, seed=2).lower().splitlines()
    return train_spm(tmp_path_factory.mktemp("vocabulary") / "words.model", text, vocab_size=60)


def write_text(path: pathlib.Path, megabytes: float) -> None:
    rng = np.random.default_rng(1)
    with open(path, "w") as file:
        number = 0
        while file.tell() < 1e6 * megabytes:
            words = rng.integers(0, 50_000 + 100 * number, (40, 20))
            words = np.char.add("w", words.astype(str))
            file.write("\n".join(" ".join(row) + "." for row in words) + "\n\n")
            number += 1


@pytest.mark.rare
def test_records_of_more_text_take_no_more_memory(vocabulary, tmp_path):
    peaks = {}
    for megabytes in map(float, ["0.1", *MEGABYTES.split(",")]):  # the first fills numba's cache
        write_text(tmp_path / "text.txt", megabytes)
        peaks[megabytes] = peak_of(
            [
                *("-m", "data_prep.create_pretraining_data"),
                f"--input_file={tmp_path / 'text.txt'}",
                f"--output_dir={tmp_path / str(megabytes)}",
                f"--spm_model_file={vocabulary}",
                *("--dupe_factor=1", "--num_workers=2", "--record_format=full"),
            ]
        )
    print("MB of text, of memory:", peaks)
    _, first, *others = peaks.values()
    # Until 60 MB of text, tables of words and malloc's free blocks grow by 80 MB. If the workers held the tokens of all
    # of the text, as they did, it would be 100 MB for 12 MB.
    assert max(others) < first + 100


# --- Training, answering ---


@ONLY_ALL
def test_training_takes_no_more_memory_with_its_steps(records_file, config_file, tmp_path):
    values = memory_by_line(
        [
            "run_pretraining.py",
            f"--input_file={records_file}",
            f"--eval_file={records_file}",
            f"--albert_config_file={config_file}",
            f"--output_dir={tmp_path / 'run'}",
            *("--train_batch_size=6", "--num_train_steps=1910", "--num_warmup_steps=1"),
            *("--save_checkpoints_steps=50", "--eval_every_steps=50", "--log_every_steps=10"),
            "--max_eval_steps=1",
        ],
        "training ",
    )
    assert len(values) >= 191  # at the first step, too
    assert growth(values) < 15


@ONLY_ALL
def test_predict_takes_no_more_memory_with_its_lines(tiny_pretrained):
    rng = np.random.default_rng(0)
    texts = [sentence(rng, 1, 20) for _ in range(1000)]
    lines = (f"{texts[number % 1000]} {number}\n" for number in range(200_000))
    arguments = ["-m", "albert_tf.predict", tiny_pretrained, "--batch_size=256"]
    values = memory_by_line(arguments, "{", lines, every=2000)
    assert len(values) == 100
    assert growth(values) < 15


@ONLY_ALL
def test_several_runs_in_a_process_take_no_more_memory(task_flags, tmp_path):
    _, flags = task_flags["mrpc"]
    arguments = ["run_classifier.py", *flags, "--num_runs=9", f"--output_dir={tmp_path / 'runs'}"]
    values = memory_by_line(arguments, "--- run")[1:]  # at the beginning of each run but the first
    assert len(values) == 8
    print("memory in MB:", *map(round, values))
    # A run that kept its graphs took 25 MB more; with albert-base it would keep the variables, 140 MB.
    assert np.median(values[-3:]) - np.median(values[:3]) < 30
