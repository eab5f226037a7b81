"""Reads exports."""

from typing import Any

import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations tokenize)

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line


def load(folder: str) -> Any:
    """Loads the SavedModel in the folder of a version; an error names it."""
    try:
        return tf.saved_model.load(folder)
    except Exception as error:  # a damaged graph may raise any error
        raise UserError(f"{folder}: no usable SavedModel ({first_line(error)})") from None


def read_tflite(path: str) -> bytes:
    """The content of an export's TFLite file."""
    return files.read_bytes(path)
