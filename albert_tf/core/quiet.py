"""What C++ code prints and no log level reaches."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Takes away what this process prints on standard error."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
