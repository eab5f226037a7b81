"""Folders and whole files, here or on a remote file system.

TensorFlow is imported for paths with :// only.
"""

import json
import os
import uuid
from collections.abc import Callable
from typing import Any

from albert_tf.core.errors import UserError, first_line

HUB_PREFIX = "hf:"  # of a model's name on the Hugging Face hub, where a path could stand


def read_bytes(path: str) -> bytes:
    """The content of a file; a path with :// is read through TensorFlow.

    Raises:
      UserError: it cannot be read.
    """
    if "://" in path:
        import tensorflow as tf

        try:
            return tf.io.read_file(path).numpy()
        except tf.errors.OpError as error:
            raise UserError(f"{path}: cannot be read ({error.message.splitlines()[0]})") from error
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: str) -> dict:
    """The object in a JSON file.

    Raises:
      UserError: it cannot be read, is not JSON, or holds something else than an object.
    """
    content = read_bytes(path)
    try:
        values = json.loads(content)
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({first_line(error)})") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(values).__name__}")
    return values


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file and the folders above it; under its name it is whole at any time, or not there.

    Raises:
      OSError: it cannot be written.
    """
    partial_path = f"{path}.{uuid.uuid4().hex}.tmp"  # another process may write the same file
    if "://" in path:
        remote(lambda gfile: _write_remote(gfile, path, partial_path, content))
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        with open(partial_path, "wb") as file:
            file.write(content)
        os.replace(partial_path, path)
    finally:
        if os.path.exists(partial_path):
            os.remove(partial_path)


def names_in(folder: str) -> list[str]:
    """The names in a folder, sorted; hidden ones are left out.

    Raises:
      OSError: it does not exist or cannot be read.
    """
    if "://" in folder:
        names = [name.rstrip("/") for name in remote(lambda gfile: gfile.listdir(folder))]
    else:
        names = os.listdir(folder)
    return sorted(name for name in names if not name.startswith("."))


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    if "://" not in path:
        return os.path.isdir(path)
    return remote(lambda gfile: gfile.isdir(path))


def exists(path: str) -> bool:
    """Whether there is a file or folder of this name."""
    if "://" not in path:
        return os.path.exists(path)
    return remote(lambda gfile: gfile.exists(path))


def _write_remote(gfile, path: str, partial_path: str, content: bytes) -> None:
    gfile.makedirs(os.path.dirname(path))
    with gfile.GFile(partial_path, "wb") as file:
        file.write(content)
    gfile.rename(partial_path, path, overwrite=True)


def remote(function: Callable[[Any], Any]) -> Any:
    """`function(tf.io.gfile)`, whose errors become OSErrors."""
    import tensorflow as tf

    try:
        return function(tf.io.gfile)
    except tf.errors.OpError as error:
        raise OSError(None, error.message.splitlines()[0]) from error
