"""The layouts of models on a disk, one row for each, and the one way to read a model in any of them.

A layout is a module with four functions:

    recognizes(path)            whether it is a model in this layout: a folder, a file, the prefix of a checkpoint
    describe(path)              what files say about the model's length, task and settings (`description.py`)
    read_without_arrays(path)   the model's configuration, class and vocabulary, as `Weights`
    read(path)                  the same with arrays under the released variable names

The modules load without TensorFlow, and do without it where they read no checkpoint of TensorFlow. Another layout is
another module and its row here.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.formats import (
    depth,
    exported_files,
    hub_names,
    hugging_face,
    model_garden,
    run,
    saved_model,
    sentence_transformers,
    tf1,
    tf_hub,
)
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import GRAPH, WEIGHTS
from albert_tf.formats.weights import Weights, check, check_settings
from albert_tf.model.released_models import where_released


class Layout(Protocol):
    """What a module of a layout has; a path has no "/" at its end."""

    def recognizes(self, path: str) -> bool: ...

    def describe(self, path: str) -> Description: ...

    def read_without_arrays(self, path: str) -> Weights: ...

    def read(self, path: str) -> Weights: ...


# The first that recognizes a path reads it.
LAYOUTS: tuple[Layout, ...] = (
    hub_names,
    sentence_transformers,  # before `hugging_face`, whose files such a folder has, too
    hugging_face,
    saved_model,
    tf_hub,
    run,
    model_garden,
    tf1,
    exported_files,
)

_ADDRESSES = ("http://", "https://", "kaggle://")
# How the names of files of Keras end, those of keras-hub's presets too.
_OF_KERAS = (".keras", ".h5")
_NOT_READ = "which is not read; give the folder or checkpoint that it was made from"


def read_weights(path: files.AnyPath, num_hidden_layers: int | None = None) -> Weights:
    """Configuration, arrays and vocabulary of a model; arguments and errors as in `load_pretrained`."""
    path = str(path).rstrip("/")
    # Values that are not finite make NumPy warn; `check` finds them.
    with _errors_of_folders(path), np.errstate(over="ignore", invalid="ignore"):
        weights = layout_of(path).read(path)
    check(weights)
    return depth.with_layers(weights, num_hidden_layers)


def read_without_arrays(path: files.AnyPath) -> Weights:
    """Configuration and vocabulary of a model, whose weights are neither read nor checked."""
    path = str(path).rstrip("/")
    with _errors_of_folders(path):
        weights = layout_of(path).read_without_arrays(path)
    check_settings(weights)
    return weights


@contextlib.contextmanager
def _errors_of_folders(path: str) -> Iterator[None]:
    """Makes an error of the system, such as that of a folder that cannot be listed, one of the user."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({first_line(error)})") from None


def describe(path: files.AnyPath) -> Description:
    """The facts about a model that its files contain, found without TensorFlow.

    They are empty for models on a hub, for layouts without such files, and for wrong paths and damaged files, whose
    error is reported when the model is read.
    """
    path = str(path).rstrip("/")
    with contextlib.suppress(UserError, OSError):
        return layout_of(path).describe(path)
    return Description()


def layout_of(path: str) -> Layout:
    """The layout of the model at a path; an error says what else was found there, and what to do."""
    if path.startswith(_ADDRESSES):
        raise UserError(
            f"{path}: download it, and give the file or folder (docs/reference/models.md)"
        )
    for layout in LAYOUTS:
        if layout.recognizes(path):
            return layout
    if path.endswith(_OF_KERAS) and files.exists(path):
        raise UserError(f"{path}: a file of Keras, {_NOT_READ}")
    if not files.is_folder(path):
        expected = where_released(path) or "expected a folder, or the prefix of a checkpoint"
        raise UserError(f"{path}: no such model; {expected}")
    raise UserError(f"{path}: {_what_is_wrong_with(path)}")


def _what_is_wrong_with(folder: str) -> str:
    """Why no layout recognizes a folder."""
    names = files.names_in(folder)
    if "tf_model.h5" in names:
        return "tf_model.h5 is not read; convert it with from_pretrained(folder, from_tf=True) of transformers 4"

    versions = [name for name in names if files.exists(os.path.join(folder, name, GRAPH))]
    if versions:
        readable = "exports of this project and ALBERTs of TF-Hub are read"
        reason = f"has SavedModels in subfolders ({readable})"
        return f"{reason}; give one of them, such as {folder}/{versions[-1]}"

    of_keras = [name for name in names if name.endswith(_OF_KERAS)]
    if of_keras:
        return f"has a file of Keras, {of_keras[0]}, {_NOT_READ}"

    num_checkpoints = sum(name.endswith(".index") for name in names)
    return (
        f"expected a folder with {WEIGHTS}, {GRAPH}, a run's checkpoints or one checkpoint (*.index),"
        f" found {num_checkpoints} checkpoints"
    )
