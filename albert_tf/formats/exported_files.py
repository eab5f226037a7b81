"""Exports as ONNX and TFLite files (`albert_tf/export.py`): what the files beside them say about the model.

Such an export has no weights to read. `serving/exports/` computes with ONNX files.
"""

import os

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import description
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import EXPORT, TF1_CONFIG
from albert_tf.formats.weights import Weights, check_settings, only_vocabulary, read_export
from albert_tf.model.config import AlbertConfig

_ONNX = ".onnx"
_TFLITE = ".tflite"
_REASONS = {
    _ONNX: "an ONNX file has no weights to read",
    _TFLITE: "only LiteRT and TensorFlow read a TFLite file",
}
_ADVICE = {
    _ONNX: "predict and serve compute with it; for other uses, give the model that was exported",
    _TFLITE: "give the model that was exported, or export --format=onnx",
}


def recognizes(path: str) -> bool:
    """Whether a path is that of an ONNX or TFLite file, or of a folder with one."""
    return _kind_of(path) != ""


def _kind_of(path: str) -> str:
    """The ending of the file, or of the first such file in a folder; "" if there is none."""
    if files.is_folder(path):
        names = files.names_in(path)
    elif files.exists(path):
        names = [path]
    else:
        names = []
    for kind in (_ONNX, _TFLITE):
        if any(name.endswith(kind) for name in names):
            return kind
    return ""


def folder_of(path: str) -> str:
    """The folder of an export, which is given as a folder or as a file in it."""
    if files.is_folder(path):
        return path
    return os.path.dirname(path) or os.curdir


def describe(path: str) -> Description:
    """The length, task and settings of the exported model."""
    folder = folder_of(path)
    sizes = files.read_json(os.path.join(folder, TF1_CONFIG))
    about = files.read_json(os.path.join(folder, EXPORT))
    return description.of_model(sizes, about)


def read(path: str) -> Weights:
    """An error that says what to use instead."""
    kind = _kind_of(path)
    raise UserError(f"{path}: {_REASONS[kind]}; {_ADVICE[kind]}")


def read_without_arrays(path: str) -> Weights:
    """What the files beside an export say about the model: its configuration, vocabulary and settings."""
    folder = folder_of(path)
    settings = read_export(os.path.join(folder, EXPORT))
    config_path = os.path.join(folder, TF1_CONFIG)
    config = AlbertConfig.from_dict(files.read_json(config_path), source=config_path)
    weights = Weights(folder, config, {}, vocabulary=only_vocabulary(folder), **settings)
    check_settings(weights)
    return weights
