"""A lock on a folder: only one process can hold it, and it is released when the process ends or is killed."""

import contextlib
import datetime
import fcntl
import functools
import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from albert_tf.core import files
from albert_tf.core.errors import UserError

LOCK_FILE = ".lock"
_MOST_TRIES = 1000  # to create it while other processes remove its folder

_held: dict[tuple[str, int], IO] = {}  # the lock files of this process, by path and thread


def _release_in_child() -> None:
    """Closes the locks in a forked process, which shares them: it must not hold them after its parent was killed."""
    while _held:
        _held.popitem()[1].close()


os.register_at_fork(after_in_child=_release_in_child)


def locks_output_dir(function: Callable) -> Callable:
    """Decorates a function that takes settings and writes to their `output_dir`: it holds the lock of this folder."""

    @functools.wraps(function)
    def with_lock(settings: Any, *arguments: Any) -> Any:
        with locked(settings.output_dir):
            return function(settings, *arguments)

    return with_lock


@contextlib.contextmanager
def locked(folder: str, flag: str = "output_dir", *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a folder. The folder is created if it does not exist, and removed if it is empty at the end.

    The system releases the lock when the process ends, however it ends. A remote folder (a path with ://) is not
    locked, because object stores have no locks; nor is a folder on a file system without locks. A lock that another
    process holds is a `UserError` that names this process and `flag`, unless the caller waits.
    """
    if "://" in folder:
        yield
        return
    if os.path.isfile(folder):
        raise UserError(f"--{flag}={folder} is a file: choose a new or empty folder")
    path = os.path.join(os.path.realpath(folder), LOCK_FILE)
    key = (path, threading.get_ident())
    if key in _held:  # a caller in this thread holds it
        yield
        return
    is_new = not os.path.exists(folder)
    try:
        file = _locked_file(path, wait)
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): make room or choose another folder"
        raise UserError(f"--{flag}={folder} {reason}") from None
    if isinstance(file, str):
        hint = "wait until it ends, or choose another folder"
        raise UserError(f"--{flag}={folder} is in use by {file}: {hint}")
    _held[key] = file
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
            if is_new:
                os.rmdir(folder)  # succeeds only if nothing was written
        _held.pop(key, None)
        file.close()


def _locked_file(path: str, wait: bool) -> IO | str:
    """The lock file, open and locked; if another process holds the lock, its description."""
    # The previous holder may remove the empty folder at the same time. Other folders always look removed, as in /proc.
    for number in itertools.count(1):
        try:
            files.make_folder(os.path.dirname(path))
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (open as long as the lock is held)
        except FileNotFoundError:
            if number == _MOST_TRIES:
                raise
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                return _holder(file)
        except OSError:
            return file  # no locks on this file system
        except BaseException:  # Ctrl-C
            file.close()
            raise
        if _is_current(file, path):
            break
        file.close()  # the previous holder has just removed this file
    holder = {
        "program": os.path.basename(sys.argv[0]),
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.datetime.now().isoformat(" ", "seconds"),
    }
    # If the disk is full, the lock works, but its file does not name the process.
    with contextlib.suppress(OSError):
        os.truncate(file.fileno(), 0)
        os.write(file.fileno(), json.dumps(holder).encode())
    return file


def _is_current(file: IO, path: str) -> bool:
    """Whether an open file is still the file of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(file: IO) -> str:
    """A description of the process that a lock file names."""
    for _ in range(100):
        file.seek(0)
        try:
            return "{program} (process {process} on {host}, since {since})".format(
                **json.load(file)
            )
        except (ValueError, KeyError, TypeError):  # the holder has not written it yet
            time.sleep(0.01)
    return "another process"
