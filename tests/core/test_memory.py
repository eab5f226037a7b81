"""Memory that is left is read from the system, and memory that is missing is an error of one line."""

import errno
import re
import resource
import subprocess
import sys

import pytest

from albert_tf.core import memory
from albert_tf.core.errors import UserError
from tests.helpers import ROOT

MACHINE = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  8000 kB\nSwapFree: 500 kB\n"}
VERSION_2 = {
    "proc/self/cgroup": "0::/pod/main\n",
    "sys/fs/cgroup/pod/main/memory.max": "max\n",
    "sys/fs/cgroup/pod/main/memory.current": "1000000\n",
    "sys/fs/cgroup/pod/memory.max": "3000000\n",
    "sys/fs/cgroup/pod/memory.current": "2900000\n",
    "sys/fs/cgroup/pod/memory.stat": "anon 5\nfile 600000\n",
}
VERSION_1 = {
    "proc/self/cgroup": "5:devices:/x\n4:cpu,memory:/docker/1\n0::/\n",
    # Inside the container, its own group is the top.
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000000\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "3500000\n",
    "sys/fs/cgroup/memory/memory.stat": "cache 7\ntotal_cache 200000\n",
}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, {}),
        (MACHINE, {"the machine": 8_704_000}),
        (VERSION_2, {"the container (its control group)": 700_000}),
        (VERSION_1, {"the container (its control group)": 700_000}),
        (
            {**MACHINE, **VERSION_2},
            {"the machine": 8_704_000, "the container (its control group)": 700_000 + 512_000},
        ),
    ],
)
def test_the_memory_that_is_left_is_that_of_machine_and_container(files, left, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert dict(memory.limits(str(tmp_path))) == left


def test_what_needs_more_than_there_is_is_an_error_that_says_what_to_change():
    memory.require(1e6, "a step", "lower --batch_size")
    error = (
        r"^a step needs at least .* GB of memory, the machine has .* GB left: lower --batch_size$"
    )
    with pytest.raises(UserError, match=error):
        memory.require(1e15, "a step", "lower --batch_size", processes=2)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (ImportError("x.so: failed to map segment from shared object"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ValueError("memory of a story"), False),
    ],
)
def test_errors_about_memory_are_recognized(error, is_memory):
    assert memory.is_exhausted(error) == is_memory


PROGRAM = """
import dataclasses
from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting

@dataclasses.dataclass(frozen=True, kw_only=True)
class Some(Settings):
    size: int = setting(1, "Bytes.", maximum=2**40, less_memory="lower")

flags.run(lambda some: bytes(some.size), Some)
"""


def test_a_program_without_memory_ends_with_a_line_that_names_the_flag():
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    command = [sys.executable, "-c", PROGRAM, f"--size={2**31}"]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "-c: out of memory (no more can be allocated): lower --size\n"


@pytest.mark.parametrize(
    ("limit", "left", "needed"),
    [
        ("the container (its control group)", 0.1e9, "0.20"),
        ("the process (ulimit -v)", 1.7e9, "1.80"),
    ],
)
def test_tensorflow_is_not_imported_without_memory_for_it(limit, left, needed, monkeypatch):
    monkeypatch.setattr(memory, "limits", lambda: [("the machine", 9e9), (limit, left)])
    check = memory.ImportCheck()
    error = rf"^TensorFlow needs at least {needed} GB of memory, {re.escape(limit)} has .* left: "
    with pytest.raises(UserError, match=error):
        check.find_spec("tensorflow", None)
    assert check.find_spec("numpy", None) is None


def test_a_program_without_memory_for_tensorflow_ends_with_a_line():
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1800 * 2**20,) * 2)

    command = [sys.executable, "-m", "albert_tf.predict", ROOT / "models" / "albert-tiny-docs"]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, input="a\n")
    error = r"predict\.py: TensorFlow needs at least 1\.80 GB of memory, the process .*\n"
    assert ended.returncode == 1 and re.fullmatch(error, ended.stderr), ended.stderr
