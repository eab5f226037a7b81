"""Files in memory: the data that a caller in Python gives where a program reads a file.

The path of such a file begins with `PREFIX`, and has the hash of the content in its name: the settings that a run
records say which data it used. `files.py` reads these paths as it reads others.
"""

import collections
import contextlib
import errno
import hashlib
import io
import os
import threading
import types
from collections.abc import Iterator, Mapping

PREFIX = "memory://"
_DIGITS_OF_HASH = 12

_contents: dict[str, bytes] = {}
_num_holders: collections.Counter[str] = collections.Counter()  # calls that use a path
_lock = threading.Lock()


def path_of(name: str, ending: str, content: bytes) -> str:
    """The path of a file: ("train", ".jsonl", b"...") -> "memory://train-3f9a2b1c0d4e.jsonl"."""
    digits = hashlib.sha256(content).hexdigest()[:_DIGITS_OF_HASH]
    return f"{PREFIX}{name}-{digits}{ending}"


@contextlib.contextmanager
def held(files: Mapping[str, bytes]) -> Iterator[None]:
    """Lets the files, contents by their paths, be read inside the block; several threads may hold the same file."""
    with _lock:
        _contents.update(files)
        _num_holders.update(files.keys())
    try:
        yield
    finally:
        with _lock:
            _num_holders.subtract(files.keys())
            for path in files:
                if not _num_holders[path]:
                    del _num_holders[path], _contents[path]


def all_held() -> dict[str, bytes]:
    """The files that can be read now, for worker processes, which have their own memory."""
    return dict(_contents)


def hold_all(files: Mapping[str, bytes]) -> None:
    """Lets the files be read until the process ends; for worker processes."""
    _contents.update(files)


def _opened(path: str, mode: str) -> io.BytesIO:
    if path not in _contents or mode != "rb":
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return io.BytesIO(_contents[path])


def _stat(path: str) -> types.SimpleNamespace:
    return types.SimpleNamespace(length=len(_opened(path, "rb").getbuffer()), mtime_nsec=0)


# The functions of `tf.io.gfile` that reading needs.
SYSTEM = types.SimpleNamespace(
    GFile=_opened,
    exists=_contents.__contains__,
    glob=lambda pattern: [pattern] if pattern in _contents else [],
    isdir=lambda path: False,
    stat=_stat,
)
