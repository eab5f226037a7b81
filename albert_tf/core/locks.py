"""A lock on a folder: one process holds it, and a kill releases it."""

import contextlib
import datetime
import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import IO

from albert_tf.core.errors import UserError

LOCK_FILE = ".lock"


@contextlib.contextmanager
def locked(folder: str, flag: str = "output_dir", *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a folder, which is made if it does not exist.

    The system releases the lock when the process ends, however it ends. A remote folder (a path with ://) is not
    locked, because object stores have no locks.

    Args:
      folder: the folder.
      flag: the flag that names it, for the error.
      wait: whether to wait for the lock; otherwise a lock that is taken is an error.

    Raises:
      UserError: another process holds the lock; says which one and since when.
      OSError: the folder cannot be written.
    """
    if "://" in folder:
        yield
        return
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, LOCK_FILE)
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (closed below, or by the next line's error)
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                hint = "wait until it ends, or choose another folder"
                raise UserError(f"--{flag}={folder} is in use by {_holder(file)}: {hint}") from None
        if _is_current(file, path):
            break
        file.close()  # the former holder has just removed this file
    with file:
        holder = {
            "program": os.path.basename(sys.argv[0]),
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.datetime.now().isoformat(" ", "seconds"),
        }
        file.truncate(0)
        json.dump(holder, file)
        file.flush()
        try:
            yield
        finally:
            os.remove(path)


def _is_current(file: IO, path: str) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(file: IO) -> str:
    """The process that a lock file names, in words."""
    file.seek(0)
    try:
        return "{program} (process {process} on {host}, since {since})".format(**json.load(file))
    except (ValueError, KeyError):  # it has the lock, and has not written yet
        return "another process"
