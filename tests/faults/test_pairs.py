"""Two processes of the same program on the same folder: one works undisturbed, the other is rejected and told by whom.

Programs that write single files are not rejected: both finish, and leave complete files. `make test` tries a sample of
the programs; ALBERT_TEST_FAULTS=all tries all, with several times between both starts.
"""

import concurrent.futures
import os
import re
import shutil
import signal
import time

import pytest

from albert_tf.core.locks import locked
from tests.faults import test_faults
from tests.faults.harness import Fault, Outcome, Process, contents, run_program
from tests.faults.test_faults import PROGRAMS
from tests.helpers import TRIES_ALL

pytestmark = test_faults.pytestmark
inputs = test_faults.inputs  # the fixture

DELAYS = (0.0, 0.5) if TRIES_ALL else (0.0,)  # seconds between both starts
WRITE_FILES = ("sentences", "sample corpus", "vocabulary")  # the others write folders
# Those of Beam may be missing; processes of experiments wait for each other.
LEFT_OUT = {"records with Beam", "experiments"}
NAMES = sorted(PROGRAMS.keys() - LEFT_OUT) if TRIES_ALL else ("sentences", "records")


def run(name, inputs, output, *others) -> Outcome:
    program = PROGRAMS[name]
    command = program.command(inputs, output)
    return run_program(command, output, *others, eagerly=program.eagerly)


def run_two(name, inputs, output, delay: float) -> list[Outcome]:
    command, outcomes = PROGRAMS[name].command(inputs, output), []
    processes = [Process(eagerly=PROGRAMS[name].eagerly) for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor() as threads:
        for process in processes:
            outcomes.append(threads.submit(process.run, command, output, is_last=True))
            time.sleep(delay)
    for process in processes:
        process.end()
    return [outcome.result() for outcome in outcomes]


@pytest.mark.parametrize("name", NAMES)
def test_of_two_processes_none_disturbs_the_other(name, inputs, tmp_path):
    output = tmp_path / "output"
    empty(name, inputs, output)
    assert run(name, inputs, output).status == 0
    alone = contents(output)
    for delay in DELAYS:
        empty(name, inputs, output)
        outcomes = run_two(name, inputs, output, delay)
        assert 0 in [outcome.status for outcome in outcomes], outcomes
        for outcome, other in zip(outcomes, outcomes[::-1], strict=True):
            check_refusal(name, outcome, other)
        assert contents(output) == alone


def empty(name, inputs, output) -> None:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    PROGRAMS[name].prepare(inputs, output)


def check_refusal(name: str, outcome: Outcome, other: Outcome) -> None:
    """Checks that a process succeeded, or was rejected because of the other one."""
    if outcome.status:
        (line,) = outcome.errors
        assert outcome.status == 1 and name not in WRITE_FILES
        # It may come when the other one has finished.
        in_use = rf"is in use by .* \(process {other.process} on "
        assert re.search(f"{in_use}|{test_faults.FINISHED}", line), line


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WRITE_FILES])
def test_a_folder_in_use_is_rejected_and_stays_as_it_is(name, inputs, tmp_path):
    words = map(str, PROGRAMS[name].command(inputs, tmp_path))
    (flag,) = [word for word in words if word.startswith("--output_dir=")]
    folder = flag.partition("=")[2]
    with locked(folder):
        outcome = run(name, inputs, tmp_path)
        assert os.listdir(folder) == [".lock"]
    assert outcome.status == 1
    (line,) = outcome.errors
    assert f"{flag} is in use by " in line and f"(process {os.getpid()} on" in line


def test_a_run_can_go_on_when_the_process_that_had_its_folder_is_killed(inputs, tmp_path):
    assert run("records", inputs, tmp_path, Fault(9)).status == -signal.SIGKILL
    assert ".lock" in os.listdir(tmp_path / "records")
    outcome = run("records", inputs, tmp_path)
    assert outcome.status == 0, outcome
    assert ".lock" not in os.listdir(tmp_path / "records")
