"""Suppresses messages that C++ libraries print at every log level."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discards what this process writes to standard error."""
    original = os.dup(2)
    try:
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
