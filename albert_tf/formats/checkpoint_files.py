"""Opens TensorFlow's checkpoints (`prefix.index`, `prefix.data-*`), which may be damaged."""

import contextlib
import glob
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

# Exceptions that TensorFlow and its Python wrappers have been seen to raise for damaged files.
_ERRORS = (tf.errors.OpError, AssertionError, DecodeError, RuntimeError, ValueError, LookupError)


@contextlib.contextmanager
def opened(prefix: str, kind: str) -> Iterator[Any]:
    """A checkpoint's reader; errors in the block become `UserError`s."""
    for ending in ("index", "data-*"):
        for path in files.matching(f"{glob.escape(prefix)}.{ending}"):
            files.check_content(path)
    try:
        yield tf.train.load_checkpoint(prefix)
    except UserError:
        raise
    except _ERRORS as error:
        raise UserError(f"{prefix}: damaged {kind} checkpoint ({first_line(error)})") from None
