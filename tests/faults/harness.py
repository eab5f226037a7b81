"""Runs a program in a child process, and kills it or makes its disk fail at its n-th change to files.

Python reports every file that is opened for writing, renamed, removed or made to its audit hooks, before it happens
(PEP 578). The hook counts those inside one folder. At the n-th it ends the process as SIGKILL does, or raises the
OSError of a disk that fails. TensorFlow's own writes are not reported; they lie between two counted changes, and
`tf.io.gfile` is counted through wrappers.
"""

import dataclasses
import errno
import multiprocessing
import os
import pathlib
import signal
import sys
from collections.abc import Callable

_CHANGES = (
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.link",
    "os.symlink",
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens at which change.

    Attributes:
      at: number of the change, from 0; -1 for never.
      error: errno of the failure; 0 kills the process.
    """

    at: int = -1
    error: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
      status: exit status; -9 if it was killed.
      changes: number of changes that it made to files.
      output: what it printed, both streams.
    """

    status: int
    changes: int
    output: str


def _install(folder: str, fault: Fault, counter) -> None:
    """Counts the changes inside a folder from now on, and lets the fault happen."""
    first_process = os.getpid()

    def change(path) -> None:
        if os.getpid() != first_process or not str(path).startswith(folder):
            return
        number, counter.value = counter.value, counter.value + 1
        if number == fault.at and not fault.error:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == fault.at:
            raise OSError(fault.error, os.strerror(fault.error), str(path))

    def hook(event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR):
                change(os.path.abspath(os.fsdecode(path)))
        elif event in _CHANGES:
            change(os.path.abspath(os.fsdecode(arguments[0])))

    sys.addaudithook(hook)


def _child(run: Callable[[], None], folder: str, fault: Fault, counter, log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    _install(folder, fault, counter)
    run()


def run_with(run: Callable[[], None], folder: pathlib.Path, fault: Fault = Fault()) -> Outcome:
    """Runs a function in a new process that is a copy of this one.

    Args:
      run: the program; ends with SystemExit as a program does.
      folder: changes inside it count.
      fault: what happens when.
    """
    context = multiprocessing.get_context("fork")
    counter = context.Value("i", 0, lock=False)
    log = f"{folder}.log"
    process = context.Process(target=_child, args=(run, str(folder), fault, counter, log))
    process.start()
    process.join()
    return Outcome(process.exitcode, counter.value, pathlib.Path(log).read_text(errors="replace"))


DISK_ERRORS = (errno.ENOSPC, errno.EIO)


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Every file in a folder by its path, hidden ones too."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
