"""Two processes of the same program on the same folder: one works undisturbed, the other is refused and told by whom.

Programs that write single files are not refused: both finish, and leave complete files. `make test` tries a sample of
the programs; ALBERT_TEST_FAULTS=all tries all, with several times between both starts.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.core.locks import locked
from tests.faults import test_faults
from tests.faults.harness import contents
from tests.faults.test_faults import PROGRAMS
from tests.helpers import ROOT, TRIES_ALL

inputs = test_faults.inputs  # the fixture

DELAYS = (0.0, 1.0) if TRIES_ALL else (0.0,)  # seconds between both starts
WRITE_FILES = ("sentences", "sample corpus", "vocabulary")  # the others write folders
# Those of Beam may be missing; processes of experiments wait for each other.
LEFT_OUT = {"records with Beam", "experiments"}
NAMES = sorted(PROGRAMS.keys() - LEFT_OUT) if TRIES_ALL else ("sentences", "records")


def start(name, inputs, output) -> subprocess.Popen:
    arguments = list(map(str, PROGRAMS[name].command(inputs, output)))
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process) -> tuple[int, str]:
    """The exit status and the errors of a process."""
    errors = process.communicate(timeout=300)[1]
    return process.returncode, errors


@pytest.mark.parametrize("name", NAMES)
def test_of_two_processes_none_disturbs_the_other(name, inputs, tmp_path):
    output = tmp_path / "output"
    empty(name, inputs, output)
    assert finish(start(name, inputs, output))[0] == 0
    alone = contents(output)
    for delay in DELAYS:
        empty(name, inputs, output)
        first = start(name, inputs, output)
        time.sleep(delay)
        second = start(name, inputs, output)
        outcomes = {first: finish(first), second: finish(second)}
        assert 0 in [status for status, _ in outcomes.values()], outcomes
        check_refusal(name, *outcomes[first], other=second)
        check_refusal(name, *outcomes[second], other=first)
        assert contents(output) == alone


def empty(name, inputs, output) -> None:
    """Leaves only what the program needs in its folder."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    PROGRAMS[name].prepare(inputs, output)


def check_refusal(name: str, status: int, errors: str, *, other: subprocess.Popen) -> None:
    """Checks that a process succeeded, or was refused because of the other one."""
    assert "Traceback" not in errors
    if status:
        assert status == 1 and name not in WRITE_FILES
        # It may come when the other one has finished.
        finished = "holds a model already|holds records|is there already"
        assert re.search(rf"is in use by .* \(process {other.pid} on |{finished}", errors), errors


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WRITE_FILES])
def test_a_folder_in_use_is_refused_and_stays_as_it_is(name, inputs, tmp_path):
    (folder,) = [
        str(argument).partition("=")[2]
        for argument in PROGRAMS[name].command(inputs, tmp_path)
        if str(argument).startswith("--output_dir=")
    ]
    with locked(folder):
        status, errors = finish(start(name, inputs, tmp_path))
        assert os.listdir(folder) == [".lock"]
    assert status == 1
    line = errors.splitlines()[-1]
    assert f"--output_dir={folder} is in use by " in line and f"(process {os.getpid()} on" in line
    assert "Traceback" not in errors


def test_a_run_can_go_on_when_the_process_that_had_its_folder_is_killed(inputs, tmp_path):
    first = start("records", inputs, tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "records" / ".lock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert finish(first)[0] == -9
    status, errors = finish(start("records", inputs, tmp_path))
    assert status == 0, errors
    assert ".lock" not in os.listdir(tmp_path / "records")
