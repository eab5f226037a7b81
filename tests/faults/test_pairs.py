"""Two processes of the same program on the same folder: one works undisturbed, the other is refused and told by whom.

Programs that write single files are not refused: both finish, and leave complete files. `make test` tries a sample of
the programs; ALBERT_TEST_FAULTS=all tries all, with several times between both starts.
"""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.core.locks import locked
from tests.faults import test_faults
from tests.faults.test_faults import TRIES_ALL, command, contents
from tests.helpers import ROOT

inputs = test_faults.inputs  # the fixture

DELAYS = (0.0, 0.5, 2.0) if TRIES_ALL else (0.0,)  # seconds between both starts
WRITE_FILES = ("sentences", "vocabulary")  # the others write folders
SAMPLE = ("sentences", "records")
PROGRAMS = sorted(test_faults.PROGRAMS) if TRIES_ALL else SAMPLE


def start(name, inputs, output) -> subprocess.Popen:
    arguments = list(map(str, command(name, inputs, output)))
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


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_two_processes_none_disturbs_the_other(name, delay, inputs, tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    assert finish(start(name, inputs, alone))[0] == 0
    first = start(name, inputs, together)
    time.sleep(delay)
    second = start(name, inputs, together)
    outcomes = {first: finish(first), second: finish(second)}
    assert 0 in [status for status, _ in outcomes.values()], outcomes
    for process, other in ((first, second), (second, first)):
        status, errors = outcomes[process]
        assert "Traceback" not in errors
        if status:
            assert status == 1 and name not in WRITE_FILES
            holder = rf"is in use by .* \(process {other.pid} on "
            # It may come when the first one has finished.
            assert re.search(f"{holder}|holds a model already|holds records", errors), errors
    assert contents(together) == contents(alone)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WRITE_FILES])
def test_a_folder_in_use_is_refused_and_stays_as_it_is(name, inputs, tmp_path):
    (folder,) = [
        str(argument).partition("=")[2]
        for argument in command(name, inputs, tmp_path)
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
