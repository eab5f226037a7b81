"""Two processes of the same program on the same folder: one works undisturbed, the other is refused and told by whom.

Programs that write single files are not refused: both finish, and leave a complete file. `make test` tries a sample of
the programs and of the times between both starts; ALBERT_TEST_FAULTS=all tries all.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.faults import test_faults
from tests.faults.test_faults import TRIES_ALL, command, contents
from tests.helpers import ROOT

inputs = test_faults.inputs  # the fixture

# Seconds between both starts: together, or while the first one works.
DELAYS = (0.0, 0.5, 2.0) if TRIES_ALL else (0.0,)
WRITE_FILES = ("sentences", "vocabulary")  # the others write folders
FOLDERS = ("records", "features", "conversion", "conversion_to_tf1", "pretraining")
SAMPLE = ("sentences", "records")
PROGRAMS = (*WRITE_FILES, *FOLDERS) if TRIES_ALL else SAMPLE


def start(name, inputs, output) -> subprocess.Popen:
    arguments = list(map(str, command(name, inputs, output)))
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process) -> tuple[int, list[str]]:
    """The exit status and the lines of errors of a process."""
    errors = process.communicate(timeout=300)[1].splitlines()
    return process.returncode, [
        line for line in errors if " is in use by " in line or "Trace" in line
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_two_processes_on_one_folder_none_disturbs_the_other(name, inputs, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    assert finish(start(name, inputs, alone))[0] == 0
    expected = contents(alone)
    num_refused = 0
    for number, delay in enumerate(DELAYS):
        output = tmp_path / f"pair-{number}"
        output.mkdir()
        processes = []
        for _ in range(2):
            processes.append(start(name, inputs, output))
            time.sleep(delay)
        outcomes = [finish(process) for process in processes]
        assert any(status == 0 for status, _ in outcomes), outcomes
        for (status, lines), other in zip(outcomes, reversed(processes), strict=True):
            assert not any("Traceback" in line for line in lines), lines
            if lines:
                num_refused += 1
                assert status == 1 and len(lines) == 1
                assert re.search(rf"is in use by .* \(process {other.pid} on ", lines[0]), lines
        if name in WRITE_FILES:
            assert [status for status, _ in outcomes] == [0, 0]
        assert contents(output) == expected
        shutil.rmtree(output)
    assert (num_refused > 0) == (name in FOLDERS)


def test_a_run_can_go_on_when_the_process_that_had_its_folder_is_killed(inputs, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    first = start("records", inputs, output)
    deadline = time.monotonic() + 60
    while not (output / "records" / ".lock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert finish(start("records", inputs, output)) == (0, [])
    assert os.listdir(output) == ["records"] and not (output / "records" / ".lock").exists()
