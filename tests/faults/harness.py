"""Runs a program, and shows what a kill would leave before each of its changes to files, or makes its disk fail at one.

A kill before the n-th change leaves what is on the disk then. So one run gives all states that kills can leave: before
each change (`system_calls.py`) the folder is copied, and before a write also with half of the bytes written. States
that differ only in names and contents that no program reads are copied once.
"""

import dataclasses
import errno
import functools
import hashlib
import multiprocessing
import os
import pathlib
import re
import runpy
import select
import shutil
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Sequence

from tests.faults import system_calls
from tests.faults.system_calls import Change
from tests.helpers import ROOT

NO_SPACE, INPUT_OUTPUT = errno.ENOSPC, errno.EIO
NEED_SPACE = {"open", "write", "mkdir", "link"}
TIMEOUT = 300  # seconds that a program may take without a change

# Names that differ from run to run: temporary ones, and those that TensorFlow gives.
_RANDOM_NAMES = re.compile(
    r"(?<=\.albert-tmp-)\d+-\w+|(?<=\.tempstate)\d+|(?<=checkpoint\.tmp)\w+|(?<=tfevents\.).*|(?<=_temp/).+"
)
# In names of files whose content no program reads, or is random (the UUID of a SavedModel).
_UNREAD = ("tfevents.", ".tempstate", "checkpoint.tmp", "_temp/", "/fingerprint.pb")
# What two runs of the same command may differ in: times, speeds, and size and checksum of the log that has speeds.
_TIMES = re.compile(
    rb'"[\w ]*((examples_)?(per_)?seconds?|minutes|created|date|run_id|checksum|steps_in_this_process)'
    rb'[\w ]*": [^,}\n]*|.*_timestamps?: .*|"metrics.jsonl": \{[^}]*\}|.*fingerprint\.pb\n'
)
_WITH_TIMES = ("checkpoint", ".json", ".jsonl", ".md", "SHA256SUMS")

# Programs run in copies of a process that has loaded TensorFlow, but has not used it.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.harness", "orbit", "tensorflow_text", "numba"])


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens, and at which change.

    Attributes:
      at: number of the change, from 0.
      error: ENOSPC fails this change and all later ones that need space, EIO fails this one; 0 kills the process.
    """

    at: int
    error: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
      status: exit status; -9 if it was killed.
      changes: its changes to files, in order.
      output: what it printed on standard output.
      errors: what it printed on standard error, without lines of progress.
    """

    status: int
    changes: list[Change]
    output: str
    errors: list[str]


def run_program(
    arguments: Sequence[object],
    folder: pathlib.Path,
    fault: Fault | None = None,
    *,
    before_change: Callable[[Change], None] = lambda change: None,
    eagerly: bool = False,
) -> Outcome:
    """Runs a program in a new process.

    Args:
      arguments: "-m" and a module, or a script's path from the project's root; then its flags.
      folder: changes inside it count.
      fault: what happens when.
      before_change: called before each change.
      eagerly: whether TensorFlow runs its functions operation by operation, which saves the time of tracing.
    """
    logs = [folder.with_suffix(suffix) for suffix in (".stdout", ".stderr")]
    ours, theirs = socket.socketpair()
    process = _context.Process(
        target=_run, args=([*map(str, arguments)], theirs, [*map(str, logs)], eagerly)
    )
    process.start()
    theirs.close()
    changes = []

    def decide(change: Change) -> int:
        number = len(changes)
        changes.append(change)
        before_change(change)
        if fault is None or number < fault.at:
            return 0
        if number == fault.at:
            if not fault.error:
                os.kill(process.pid, signal.SIGKILL)
                return -1
            return fault.error
        is_full = fault.error == NO_SPACE and change.operation in NEED_SPACE
        return fault.error if is_full else 0

    with ours:
        _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
    try:
        _answer_until_end(process, system_calls.Listener(descriptor, str(folder)), decide)
    finally:
        os.close(descriptor)  # calls of child processes that live on fail
    process.join()
    output, errors = (log.read_text(errors="replace") for log in logs)
    lines = [line for line in errors.splitlines() if line and not line.endswith(" left")]
    return Outcome(process.exitcode, changes, output, lines)


def _answer_until_end(process, listener, decide) -> None:
    poll = select.poll()
    poll.register(listener.descriptor, select.POLLIN)
    poll.register(process.sentinel, select.POLLIN)
    while True:
        ready = dict(poll.poll(TIMEOUT * 1000))
        if not ready:
            process.kill()
            raise TimeoutError(f"the program has changed nothing for {TIMEOUT} seconds")
        if ready.get(listener.descriptor, 0) & select.POLLIN:
            listener.answer(decide)
        elif process.sentinel in ready:
            return
        else:  # the filter's last process has ended
            poll.unregister(listener.descriptor)


def _run(arguments: list[str], parent: socket.socket, logs: list[str], eagerly: bool) -> None:
    """The work of the new process."""
    for stream, log in enumerate(logs, 1):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.chdir(ROOT)
    if eagerly:
        import tensorflow as tf

        os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
        warnings.simplefilter("ignore")  # tf.data says that it goes on tracing
        tf.config.run_functions_eagerly(True)
    with parent:
        listener = system_calls.install_filter()
        socket.send_fds(parent, [b"0"], [listener])
    os.close(listener)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


# --- States of a folder ---


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """The files in a folder by their paths, without what differs from run to run; and hidden folders that are empty."""
    values = {}
    for path in sorted(folder.rglob("*")):
        name = _RANDOM_NAMES.sub("", str(path.relative_to(folder)))
        if path.is_dir():
            if path.name.startswith(".") and not any(path.iterdir()):
                values[name + "/"] = b""
        elif path.name != ".lock":
            is_read = not any(part in name for part in _UNREAD)
            status = path.stat()
            about = (status.st_ino, status.st_size, status.st_mtime_ns)
            values[name] = _without_times(path, about) if is_read else b""
    return values


@functools.lru_cache(maxsize=10_000)
def _without_times(path: pathlib.Path, about: tuple[int, ...]) -> bytes:
    """The content of a file, read again if `about` has changed."""
    content = path.read_bytes()
    return _TIMES.sub(b"", content) if path.name.endswith(_WITH_TIMES) else content


def state_of(folder: pathlib.Path) -> str:
    """A hash of what a program can find in a folder."""
    hash = hashlib.blake2b(digest_size=16)
    found = contents(folder)
    for name, content in found.items():
        temporary = re.match(r"(.*?\.albert-tmp-)/", name)
        # What is in a temporary folder is read only if it is complete.
        if temporary and not any(other.startswith(f"{temporary[0]}.replaced") for other in found):
            name, content = temporary[0], b""
        hash.update(repr((name, content)).encode())
    return hash.hexdigest()


class States:
    """The different states of a folder that kills leave; give `before_change` to `run_program`.

    Args:
      folder: what is watched.
      copies: folder for the copies; they are named by their number.

    Attributes:
      found: hash of the state -> its copy.
      kills: number of kills that lead to them.
    """

    def __init__(self, folder: pathlib.Path, copies: pathlib.Path):
        self._folder, self._copies = folder, copies
        self.found: dict[str, pathlib.Path] = {}
        self.kills = 0

    def before_change(self, change: Change) -> None:
        """Copies the states before a change and in the middle of it, if they are new."""
        self.kills += 1
        self._add(self._folder)
        if half := change.half_written():
            self.kills += 1
            position, written = half
            torn = self._copies / "torn"
            shutil.copytree(self._folder, torn, symlinks=True)
            with open(torn / pathlib.Path(change.path).relative_to(self._folder), "r+b") as file:
                file.seek(position)
                file.write(written)
            self._add(torn)
            shutil.rmtree(torn)

    def _add(self, folder: pathlib.Path) -> None:
        state = state_of(folder)
        if state not in self.found:
            self.found[state] = self._copies / f"{len(self.found):04}"
            shutil.copytree(folder, self.found[state], symlinks=True)
