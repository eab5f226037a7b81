"""Reads exports: checks their files against SHA256SUMS, then loads them."""

import os
from typing import Any

import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations tokenize)

from albert_tf.core import checksums, files
from albert_tf.core.errors import UserError, first_line


def sum_files(folder: str) -> None:
    """Writes the SHA256SUMS file of all files below a folder."""
    checksums.write_sums(folder, [os.path.relpath(path, folder) for path in _files_below(folder)])


def _files_below(folder: str) -> list[str]:
    walk = tf.io.gfile.walk(folder)
    return [os.path.join(parent, name) for parent, _, names in walk for name in names]


def load(folder: str) -> Any:
    """Loads the SavedModel in the folder of a version; a file that is missing or damaged is named in the error."""
    for path in _files_below(folder):
        files.check_regular(path)
    checksums.verify(folder)
    try:
        return tf.saved_model.load(folder)
    except Exception as error:  # without SHA256SUMS, a damaged graph may raise any error
        raise UserError(f"{folder}: no usable SavedModel ({first_line(error)})") from None


def read_tflite(path: str) -> bytes:
    """The content of an export's TFLite file."""
    checksums.verify(os.path.dirname(path))
    return files.read_bytes(path)
