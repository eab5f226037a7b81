"""Runs a program, and shows what a kill would leave before each of its changes to files, or makes its disk fail at one.

A kill before the n-th change leaves what is on the disk then. So one run gives all states that kills can leave: before
each change (`system_calls.py`) the folder is copied, and before a write also with half of the bytes written. States
that differ only in names and contents that no program reads are copied once.
"""

import dataclasses
import functools
import gc
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import resource
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence, Set

import psutil

from tests.faults import system_calls
from tests.faults.system_calls import Change
from tests.helpers import ROOT

NEED_SPACE = {"open", "write", "mkdir", "link"}
ALL_CHANGES = NEED_SPACE | {"sync", "truncate", "rename", "remove"}
TIMEOUT = 300  # seconds that a program may take without a change

# Names that differ from run to run: temporary ones, and those that TensorFlow gives.
RANDOM_NAMES = re.compile(
    r"(?<=\.albert-tmp-)\d+-\w+|(?<=\.tempstate)\d+|(?<=checkpoint\.tmp)\w+|(?<=tfevents\.).*|(?<=_temp/).+"
)
# In names of files whose content no program reads, or is random (the UUID of a SavedModel).
_UNREAD = ("tfevents.", ".tempstate", "checkpoint.tmp", "_temp/", "/fingerprint.pb")
# What two runs of the same command may differ in: times, speeds, and size and checksum of the log that has speeds.
_TIMES = re.compile(
    rb'"minutes": \{[^}]*\}|'
    rb'"[\w ]*((examples_)?(per_)?seconds?|minutes|created|date|run_id|checksum|steps_in_this_process)'
    rb'[\w ]*": [^,}\n]*|(?m:^.*_timestamps?: .*)|"metrics.jsonl": \{[^}]*\}|(?m:^.*fingerprint\.pb\n)'
)
_WITH_TIMES = ("checkpoint", ".json", ".jsonl", ".md", "SHA256SUMS")

# Programs run in copies of a process that has loaded TensorFlow, but has not used it.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        *("tests.faults.harness", "orbit", "tensorflow_text", "numba", "albert_tf.training.loop"),
        *("albert_tf.tasks.pretraining.task", "albert_tf.tasks.race.task"),
        *("albert_tf.tasks.squad.task", "albert_tf.tasks.classification.task"),
    ]
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens, and at which change, counted from 0."""

    at: int
    error: int = 0  # of this change
    lasts_for: Set[str] = frozenset()  # operations that fail later, too
    signal: int = signal.SIGKILL  # where there is no error, the process gets it


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    process: int
    status: int  # -9 if it was killed
    changes: list[Change]
    output: str
    errors: list[str]  # without lines of progress


class Process:
    """A new process, which runs one program or several, one after the other.

    TensorFlow is slow where it does something for the first time in a process, so that a second run is several times as
    fast. To a run, what an earlier one left in memory is that of a new process, but for TensorFlow's own state.
    With `eagerly`, TensorFlow runs its functions operation by operation, which saves the time of tracing.
    """

    def __init__(self, *, eagerly: bool = False):
        self._socket, theirs = socket.socketpair()
        self._process = _context.Process(target=_serve, args=(theirs, eagerly))
        self._process.start()
        theirs.close()
        _, (self._descriptor,), _, _ = socket.recv_fds(self._socket, 1, 1)

    @property
    def has_ended(self) -> bool:
        return not self._process.is_alive()

    def run(
        self,
        arguments: Sequence[object],
        folder: pathlib.Path,
        fault: Fault | None = None,
        *,
        watch: Callable[[Change], None] = lambda change: None,
        before_change: Callable[[Change], None] = lambda change: None,
        ignored: str = "",
        is_last: bool = False,
        most_bytes: int = resource.RLIM_INFINITY,
        seconds_back: int = 0,
    ) -> Outcome:
        """Runs a program; changes inside the folder count, but for those of files whose path matches `ignored`.

        `watch` sees all changes in the folder, `before_change` those that count. With `is_last`, the process ends as
        the program does. A file may have `most_bytes`, and the clock goes back by so many seconds whenever the program
        reads it.
        """
        logs = [folder.with_suffix(f".{self._process.pid}.{name}") for name in ("out", "err")]
        for log in logs:
            log.write_bytes(b"")
        message = [[*map(str, arguments)], [*map(str, logs)], is_last, most_bytes, seconds_back]
        self._socket.send(json.dumps(message).encode())
        changes = []

        def decide(change: Change) -> int:
            watch(change)
            if ignored and re.search(ignored, change.path):
                return 0
            number = len(changes)
            changes.append(change)
            before_change(change)
            if fault is None or number < fault.at:
                return 0
            if number == fault.at:
                if not fault.error:
                    os.kill(self._process.pid, fault.signal)
                    return -1 if fault.signal == signal.SIGKILL else 0
                return fault.error
            return fault.error if change.operation in fault.lasts_for else 0

        status = self._answer_until_end(decide, folder)
        output, errors = (log.read_text(errors="replace") for log in logs)
        for log in logs:
            log.unlink()
        lines = [line for line in errors.splitlines() if line and not line.endswith(" left")]
        return Outcome(self._process.pid, status, changes, output, lines)

    def _answer_until_end(self, decide: Callable[[Change], int], folder: pathlib.Path) -> int:
        """Answers the changes of a program until it ends; returns its status."""
        listener = system_calls.Listener(self._descriptor, str(folder))
        poll = select.poll()
        for waited in (self._descriptor, self._socket, self._process.sentinel):
            poll.register(waited, select.POLLIN)
        while True:
            ready = dict(poll.poll(TIMEOUT * 1000))
            if not ready:
                self._process.kill()
                raise TimeoutError(f"the program has changed nothing for {TIMEOUT} seconds")
            if ready.get(self._descriptor, 0) & select.POLLIN:
                listener.answer(decide)
            elif self._process.sentinel in ready:
                self._process.join()
                return self._process.exitcode
            elif status := self._socket.recv(8) if self._socket.fileno() in ready else b"":
                return int(status)
            else:  # the filter's last process has ended, or the other side of the socket is closed
                for waited in ready:
                    poll.unregister(waited)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._socket.close()
        os.close(self._descriptor)  # calls of child processes that live on fail


def run_program(
    arguments: Sequence[object], folder: pathlib.Path, *others, eagerly: bool = False, **options
) -> Outcome:
    process = Process(eagerly=eagerly)
    try:
        return process.run(arguments, folder, *others, is_last=True, **options)
    finally:
        process.end()


def processor_seconds() -> float:
    """Seconds that this process and the programs have computed."""
    own = psutil.Process()
    processes = [own, *own.children(recursive=True)]
    # The server of new processes has waited for those that ended.
    return sum(sum(process.cpu_times()[:4]) for process in processes)


def _serve(parent: socket.socket, eagerly: bool) -> None:
    from absl import app, flags

    from albert_tf.core import files

    os.chdir(ROOT)
    if eagerly:
        import tensorflow as tf

        os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
        warnings.simplefilter("ignore")  # tf.data says that it goes on tracing
        tf.config.run_functions_eagerly(True)
    app.define_help_flags()
    known_flags = set(flags.FLAGS)
    gc.freeze()
    clock = time.time
    listener = system_calls.install_filter()
    socket.send_fds(parent, [b"0"], [listener])
    os.close(listener)
    while message := parent.recv(1 << 16):
        arguments, logs, is_last, most_bytes, seconds_back = json.loads(message)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
        times = itertools.count(clock(), -seconds_back)
        time.time = times.__next__ if seconds_back else clock
        for stream, log in enumerate(logs, 1):
            descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
            os.dup2(descriptor, stream)
            os.close(descriptor)
        if is_last:
            return _run(arguments)
        status = 0
        try:
            _run(arguments)
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
        # What a new process does not have.
        for name in set(flags.FLAGS) - known_flags:
            delattr(flags.FLAGS, name)
        files._folders_without_leftovers.clear()
        gc.collect()
        gc.freeze()  # collections of the next run need not look at what stays
        sys.stdout.flush()
        sys.stderr.flush()
        parent.send(str(status).encode())


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


# --- States of a folder ---


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """What can be compared of the files in a folder, see `visible`."""
    tree = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        about = (status.st_ino, status.st_size, status.st_mtime_ns)
        tree[str(path.relative_to(folder))] = None if path.is_dir() else _read(path, about)
    return visible(tree)


@functools.lru_cache(maxsize=10_000)
def _read(path: pathlib.Path, about: tuple[int, ...]) -> bytes:
    """The content of a file, read again if `about` has changed."""
    return path.read_bytes()


def visible(tree: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Files by their paths, without what differs from run to run; and hidden folders that are empty."""
    values = {}
    parents = {os.path.dirname(path) for path in tree}
    for path, content in tree.items():
        name = RANDOM_NAMES.sub("", path)
        if content is None:
            if os.path.basename(path).startswith(".") and path not in parents:
                values[name + "/"] = b""
        elif os.path.basename(path) != ".lock":
            is_read = not any(part in name for part in _UNREAD)
            values[name] = _without_times(name.endswith(_WITH_TIMES), content) if is_read else b""
    return values


@functools.lru_cache(maxsize=10_000)
def _without_times(has_times: bool, content: bytes) -> bytes:
    return _TIMES.sub(b"", content) if has_times else content


def state_of(folder: pathlib.Path) -> str:
    """A hash of what a program can find in a folder."""
    return hash_of(contents(folder))


def hash_of(found: Mapping[str, bytes]) -> str:
    """A hash of what a program can find among the files of `visible`."""
    values = set()
    for name, content in found.items():
        temporary = re.match(r"(.*?\.albert-tmp-)/", name)
        # What is in a temporary folder is read only if it is complete.
        if temporary and not any(other.startswith(f"{temporary[0]}.replaced") for other in found):
            name, content = temporary[0], b""
        values.add((name, _hash(content)))
    return _hash(repr(sorted(values)).encode())


@functools.lru_cache(maxsize=10_000)
def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class States:
    """The different states of a folder that kills leave, as copies; give `before_change` to `run_program`.

    Only kills before changes of paths that match `own` are tried.
    """

    def __init__(self, folder: pathlib.Path, copies: pathlib.Path, own: str = ""):
        self._folder, self._copies, self._own = folder, copies, own
        self.found: dict[str, pathlib.Path] = {}  # hash of the state -> its copy
        self.kills = 0  # that lead to them

    def before_change(self, change: Change) -> None:
        """Copies the states before a change and in the middle of it, if they are new."""
        if not re.search(self._own, change.path):
            return
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
