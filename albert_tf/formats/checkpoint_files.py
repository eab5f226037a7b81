"""Finds and opens TensorFlow's checkpoints (`prefix.index`, `prefix.data-*`), which may be damaged."""

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

_INDEX = ".index"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the key of the description of the saved objects


def prefix_of(path: str) -> str:
    """The prefix of the checkpoint that a path names, or of the only one in a folder; "" if there is none.

    Examples: "albert/model.ckpt-best", "albert/model.ckpt-best.index", "albert" -> "albert/model.ckpt-best"
    """
    prefix = path.removesuffix(_INDEX)
    if files.exists(prefix + _INDEX):
        return prefix
    if not files.is_folder(path):
        return ""
    indexes = [name for name in files.names_in(path) if name.endswith(_INDEX)]
    if len(indexes) != 1:
        return ""
    return os.path.join(path, indexes[0].removesuffix(_INDEX))


def has_objects(prefix: str) -> bool:
    """Whether a checkpoint is one of objects (TensorFlow 2), and not one of variables by their names.

    The index is a table of keys without compression, so the key can be found without TensorFlow.
    """
    return OBJECT_GRAPH.encode() in files.read_bytes(prefix + _INDEX)


@contextlib.contextmanager
def opened(prefix: str, kind: str) -> Iterator[Any]:
    """A checkpoint's reader; errors in the block become `UserError`s."""
    import tensorflow as tf

    # Exceptions that TensorFlow and its Python wrappers have been seen to raise for damaged files.
    of_damaged_files = (
        tf.errors.OpError,
        AssertionError,
        DecodeError,
        RuntimeError,
        ValueError,
        LookupError,
    )
    for ending in ("index", "data-*"):
        for path in files.matching(f"{glob.escape(prefix)}.{ending}"):
            files.check_content(path)
    try:
        yield tf.train.load_checkpoint(prefix)
    except UserError:
        raise
    except of_damaged_files as error:
        raise UserError(f"{prefix}: damaged {kind} checkpoint ({first_line(error)})") from None
