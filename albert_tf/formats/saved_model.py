"""Our own exports as SavedModels (`albert_tf/export.py`): variables under their released names, settings as assets."""

import dataclasses
import os

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import description, model_garden
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import ASSETS, EXPORT, TF1_CONFIG
from albert_tf.formats.weights import Weights, only_vocabulary, read_config, read_export

VARIABLES = "variables/variables"  # the prefix of a SavedModel's checkpoint


def recognizes(path: str) -> bool:
    """Whether a folder is a SavedModel that this project exported."""
    return files.exists(os.path.join(path, ASSETS, EXPORT))


def describe(path: str) -> Description:
    """The length, task and settings of the exported model."""
    assets = os.path.join(path, ASSETS)
    sizes = files.read_json(os.path.join(assets, TF1_CONFIG))
    about = files.read_json(os.path.join(assets, EXPORT))
    return description.of_model(sizes, about)


def read_without_arrays(path: str) -> Weights:
    """The configuration, the settings and the vocabulary among the assets."""
    assets = os.path.join(path, ASSETS)
    settings = read_export(os.path.join(assets, EXPORT))
    config = read_config(os.path.join(assets, TF1_CONFIG))
    return Weights(path, config, {}, vocabulary=only_vocabulary(assets), **settings)


def read(path: str) -> Weights:
    """The exported model; nothing in the SavedModel is executed."""
    prefix = variables_of(path)
    weights = read_without_arrays(path)
    arrays = model_garden.read_dictionary(prefix, "weights")
    with_values = {name: arrays[name] for name in arrays if name not in weights.left_out}
    return dataclasses.replace(weights, arrays=with_values)


def variables_of(folder: str) -> str:
    """The prefix of the checkpoint in a SavedModel; an error if it is missing."""
    prefix = os.path.join(folder, VARIABLES)
    if not files.exists(f"{prefix}.index"):
        raise UserError(f"{folder}: expected a module's {VARIABLES}.index, found none")
    return prefix
