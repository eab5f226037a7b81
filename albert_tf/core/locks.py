"""A lock on a folder: only one process can hold it, and it is released when the process ends or is killed."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import filelock

from albert_tf.core import files
from albert_tf.core.errors import UserError

LOCK_FILE = ".lock"


def locks_output_dir(function: Callable) -> Callable:
    """Decorates a function of settings: it holds the lock of their `output_dir`."""

    @functools.wraps(function)
    def with_lock(settings: Any, *arguments: Any) -> Any:
        with locked(settings.output_dir):
            return function(settings, *arguments)

    return with_lock


@contextlib.contextmanager
def locked(folder: str, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a folder. The folder is created if it does not exist, and removed if it is empty at the end.

    A remote folder (a path with ://) is not locked, because object stores have no locks. A lock that another process
    holds is a `UserError`, unless the caller waits; the same thread may lock a folder again.
    """
    if "://" in folder:
        yield
        return
    path = os.path.join(os.path.realpath(folder), LOCK_FILE)
    lock = filelock.FileLock(path, is_singleton=True)
    if lock.is_locked:
        yield
        return
    is_new = not os.path.exists(folder)
    with files.errors_named(f"--output_dir={folder}", "written", "choose another folder"):
        while not os.path.exists(path) or not lock.is_locked:
            lock.release()  # of a file that its holder has just removed
            files.make_folder(folder)
            try:
                lock.acquire(timeout=-1 if wait else 0)
            except filelock.Timeout:
                reason = "is in use by another process: wait, or choose another folder"
                raise UserError(f"--output_dir={folder} {reason}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
            if is_new:
                os.rmdir(folder)  # succeeds only if nothing was written
        lock.release()
