"""Locks on folders and files: only one process can hold one, and it is released when the process ends or is killed."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import filelock

from albert_tf.core.errors import UserError, first_line

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
    name = f"--output_dir={folder}"
    in_use = f"{name} is in use by another process: wait, or choose another folder"
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(holding(path, in_use, wait=wait))
        except OSError as error:
            reason = error.strerror or first_line(error)
            advice = "choose another folder"
            raise UserError(f"{name}: cannot be written ({reason}): {advice}") from error
        yield


@contextlib.contextmanager
def holding(path: str, in_use: str, *, wait: bool = False) -> Iterator[None]:
    """Holds a lock file, which is removed at the end, together with folders above it that were created for nothing.

    A lock that another process holds is a `UserError` with the message `in_use`, unless the caller waits; the same
    thread may hold it again.
    """
    lock = filelock.FileLock(path, is_singleton=True)
    if lock.is_locked:
        yield
        return
    folder = os.path.dirname(path)
    new_folders = _missing_folders(folder)
    # Between opening a file and locking it, its holder may end and remove it. Such a lock holds nobody back, so it is
    # released, and the loop locks a new file.
    while not os.path.exists(path) or not lock.is_locked:
        lock.release()
        os.makedirs(folder, exist_ok=True)
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except filelock.Timeout:
            raise UserError(in_use) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
            for new_folder in new_folders:
                os.rmdir(new_folder)  # succeeds only if nothing was written
        lock.release()


def _missing_folders(folder: str) -> list[str]:
    """The folder and those above it that do not exist, the lowest first."""
    missing = []
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing
