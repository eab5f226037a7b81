"""Opens TensorFlow's checkpoints (`prefix.index`, `prefix.data-*`), which may be damaged or malicious."""

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

# Exceptions that TensorFlow and its Python wrappers have been seen to raise for damaged files.
ERRORS = (
    *(tf.errors.OpError, AssertionError, DecodeError),
    *(RuntimeError, ValueError, TypeError, LookupError, MemoryError),
)


@contextlib.contextmanager
def opened(prefix: str, kind: str) -> Iterator[Any]:
    """A checkpoint's reader; errors in the block, such as variables larger than its files, become `UserError`s."""
    try:
        yield _reader(prefix)
    except UserError:
        raise
    except ERRORS as error:
        raise UserError(f"{prefix}: damaged {kind} checkpoint ({first_line(error)})") from None


def _reader(prefix: str) -> Any:
    folder, name = os.path.split(prefix)
    parts = [part for part in files.names_in(folder or ".") if part.startswith(f"{name}.")]
    paths = [os.path.join(folder, part) for part in parts]
    for path in paths:
        files.check_regular(path)
    reader = tf.train.load_checkpoint(prefix)
    # TensorFlow would allocate memory for a variable before it notices that the values are missing.
    dtypes, claimed = reader.get_variable_to_dtype_map(), 0
    for name, shape in reader.get_variable_to_shape_map().items():
        if min(shape, default=0) < 0:
            raise ValueError(f"{name} has the shape {shape}")
        claimed += math.prod(shape) * dtypes[name].size
    if claimed > sum(tf.io.gfile.stat(path).length for path in paths):
        raise ValueError("its variables are larger than its files")
    return reader
