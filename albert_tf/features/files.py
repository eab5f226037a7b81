"""Folders and whole files, here or on a remote file system.

TensorFlow is imported for paths with :// only. (`tokenization.read_bytes` reads.)
"""

import os
import uuid


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file and the folders above it; under its name it is whole at any time, or not there.

    Raises:
      OSError: it cannot be written.
    """
    partial_path = f"{path}.{uuid.uuid4().hex}.tmp"  # another process may write the same file
    if "://" in path:
        _remote(lambda gfile: _write_remote(gfile, path, partial_path, content))
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
        names = [name.rstrip("/") for name in _remote(lambda gfile: gfile.listdir(folder))]
    else:
        names = os.listdir(folder)
    return sorted(name for name in names if not name.startswith("."))


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    if "://" not in path:
        return os.path.isdir(path)
    return _remote(lambda gfile: gfile.isdir(path))


def exists(path: str) -> bool:
    """Whether there is a file or folder of this name."""
    if "://" not in path:
        return os.path.exists(path)
    return _remote(lambda gfile: gfile.exists(path))


def _write_remote(gfile, path: str, partial_path: str, content: bytes) -> None:
    gfile.makedirs(os.path.dirname(path))
    with gfile.GFile(partial_path, "wb") as file:
        file.write(content)
    gfile.rename(partial_path, path, overwrite=True)


def _remote(function):
    """`function(tf.io.gfile)`, whose errors become OSErrors."""
    import tensorflow as tf

    try:
        return function(tf.io.gfile)
    except tf.errors.OpError as error:
        raise OSError(None, error.message.splitlines()[0]) from error
