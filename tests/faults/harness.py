"""Runs a program, and kills it or makes its disk fail at its n-th change to files.

Python reports every file that is opened for writing, renamed, removed or made to its audit hooks, before it happens
(PEP 578). The hook counts those inside one folder. At the n-th it kills the process, or raises the OSError of a disk
that fails. TensorFlow's own writes are not reported; they lie between two counted changes.
"""

import dataclasses
import errno
import multiprocessing
import os
import pathlib
import runpy
import signal
import sys
from collections.abc import Sequence

from tests.helpers import ROOT

DISK_ERRORS = (errno.ENOSPC, errno.EIO)
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}

# Programs run in copies of a process that has loaded TensorFlow, but has not used it.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.harness", "orbit", "tensorflow_text", "numba"])


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens, and at which change.

    Attributes:
      at: number of the change, from 0; -1 for never.
      error: errno of the disk's failure; 0 kills the process.
    """

    at: int = -1
    error: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
      status: exit status; -9 if it was killed.
      changes: number of its changes to files.
      output: what it printed, both streams.
    """

    status: int
    changes: int
    output: str


def run_program(
    arguments: Sequence[object], folder: pathlib.Path, fault: Fault = Fault()
) -> Outcome:
    """Runs a program in a new process.

    Args:
      arguments: "-m" and a module, or a script's path from the project's root; then its flags.
      folder: changes inside it count.
      fault: what happens when.
    """
    log = folder.with_suffix(".log")
    counter = _context.Value("i", 0, lock=False)
    process = _context.Process(
        target=_run, args=([*map(str, arguments)], str(folder), fault, counter, str(log))
    )
    process.start()
    process.join()
    return Outcome(process.exitcode, counter.value, log.read_text(errors="replace"))


def _run(arguments: list[str], folder: str, fault: Fault, counter, log: str) -> None:
    """The work of the new process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(ROOT)
    _count_changes(folder, fault, counter)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def _count_changes(folder: str, fault: Fault, counter) -> None:
    first_process = os.getpid()

    def change(path: str) -> None:
        if os.getpid() != first_process or not os.path.abspath(path).startswith(folder):
            return
        number = counter.value
        counter.value += 1
        if number == fault.at and not fault.error:
            os.kill(first_process, signal.SIGKILL)
        if number == fault.at:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def hook(event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR):
                change(os.fsdecode(path))
        elif event in _CHANGES:
            change(os.fsdecode(arguments[0]))

    sys.addaudithook(hook)
