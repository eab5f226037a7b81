"""Reading exports: checked with their SHA256SUMS, then loaded."""

import os
from typing import Any

import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations tokenize)

from albert_tf.core import checksums, files
from albert_tf.core.errors import UserError, first_line


def sum_files(folder: str) -> None:
    """Writes SHA256SUMS of all files below a folder."""
    checksums.write_sums(folder, [os.path.relpath(path, folder) for path in _files_below(folder)])


def _files_below(folder: str) -> list[str]:
    walk = tf.io.gfile.walk(folder)
    return [os.path.join(parent, name) for parent, _, names in walk for name in names]


def load(folder: str) -> Any:
    """The SavedModel of an export, in the folder of one version.

    Raises:
      UserError: there is none, or a file of it is missing or damaged; names it.
    """
    for path in _files_below(folder):
        files.check_regular(path)
    checksums.verify(folder)
    try:
        return tf.saved_model.load(folder)
    except Exception as error:  # a damaged graph without SHA256SUMS may raise any
        raise UserError(f"{folder}: no usable SavedModel ({first_line(error)})") from None


def read_tflite(path: str) -> bytes:
    """The content of a TFLite file of an export.

    Raises:
      UserError: it cannot be read, or a file in its folder is damaged; names it.
    """
    checksums.verify(os.path.dirname(path))
    return files.read_bytes(path)
