"""Imports numba, chooses the folder of its compiled functions, and prints a line when it compiles.

Modules with compiled functions import numba from here. Numba keeps compiled functions next to the module or, if that
folder cannot be written, in the user's cache folder. It fails if it can write to neither; they are then kept in a
temporary folder.
"""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import numba
from numba.core import event


def _find_cache_folder() -> bool:
    """Returns whether compiled functions are kept. If not, names a folder that is removed when the process ends."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:  # "no locator available"
        folder = tempfile.mkdtemp(prefix="albert-tf-numba-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder  # for workers, too
        return False
    return True


def _probe():
    pass


_IS_KEPT = _find_cache_folder()


class _Announcement(event.Listener):
    """Prints a line at the first compilation."""

    def __init__(self, line: str):
        self._line = line

    def on_start(self, _event: event.Event) -> None:
        if self._line:
            print(self._line, file=sys.stderr, flush=True)
        self._line = ""

    def on_end(self, _event: event.Event) -> None:
        pass


@contextlib.contextmanager
def announced(label: str, what: str, seconds: int) -> Iterator[None]:
    """Prints a line if a function is compiled in the block; prints nothing if all are loaded from the cache."""
    how_often = "once" if _IS_KEPT else "each time (NUMBA_CACHE_DIR can name a folder to keep them)"
    line = f"{label}: compiling {what}, {how_often}: about {seconds} s left"
    with event.install_listener("numba:compile", _Announcement(line)):
        yield
