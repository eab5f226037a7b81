"""TF1 checkpoints in the original's layout: `albert_config.json`, `model.ckpt-best.*`, vocabulary."""

import dataclasses
import json
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import bert, checkpoint_files, description
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import TF1_CONFIG, TF1_OWN_KEY
from albert_tf.formats.weights import Weights, check_complete, only_vocabulary
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.config import AlbertConfig
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead

CHECKPOINT = "model.ckpt-best"
_VOCABULARY_NAMES = {"spiece.model": "30k-clean.model"}  # our name -> the original's
# The fields of `Weights` that are written under `TF1_OWN_KEY`.
_OWN_FIELDS = ("model_class", "do_lower_case", "keep_accents", "left_out")


def recognizes(path: str) -> bool:
    """Whether a path is that of a checkpoint, or of a folder with one."""
    return checkpoint_files.prefix_of(path) != ""


def describe(path: str) -> Description:
    """The length, task and settings in the configuration beside a checkpoint."""
    sizes = files.read_json(_config_beside(checkpoint_files.prefix_of(path)))
    return description.of_model(sizes, sizes.get(TF1_OWN_KEY))


def read_without_arrays(path: str) -> Weights:
    """The configuration, the settings and the vocabulary beside a checkpoint."""
    prefix = checkpoint_files.prefix_of(path)
    folder = os.path.dirname(prefix)
    config_path = _config_beside(prefix)
    sizes = files.read_json(config_path)
    if _is_bert(config_path):
        sizes = bert.with_albert_sizes(sizes, config_path)

    own = sizes.pop(TF1_OWN_KEY, {})
    if not isinstance(own, dict):
        expected = f"expected an object under {TF1_OWN_KEY}"
        raise UserError(f"{config_path}: {expected}, got {shortened(own)}")
    settings = {name: own[name] for name in _OWN_FIELDS if name in own}
    if _is_bert(config_path) and _is_named_cased(folder):
        settings["do_lower_case"] = False

    check_complete(sizes, config_path)
    return Weights(
        prefix,
        AlbertConfig.from_dict(sizes, source=config_path),
        {},
        vocabulary=only_vocabulary(folder),
        task_settings=own.get("task", {}),
        rules=TokenizerRules.from_dict(own.get("rules"), config_path),
        **settings,
    )


def read(path: str) -> Weights:
    """The model of a checkpoint; its configuration and vocabulary are in the same folder."""
    weights = read_without_arrays(path)
    arrays = read_arrays(weights.source)
    if _is_bert(_config_beside(weights.source)):
        arrays = {bert.from_tf1(name): array for name, array in arrays.items()}
    return dataclasses.replace(weights, arrays=arrays)


def _is_bert(config_path: str) -> bool:
    """Whether a configuration is that of google-research/bert."""
    return os.path.basename(config_path) == bert.TF1_CONFIG


def _config_beside(prefix: str) -> str:
    """The path of the configuration in the folder of a checkpoint; an error if there is none."""
    for name in (TF1_CONFIG, bert.TF1_CONFIG):
        path = os.path.join(os.path.dirname(prefix), name)
        if files.exists(path):
            return path
    expected = f"expected {TF1_CONFIG} or {bert.TF1_CONFIG} beside the checkpoint"
    raise UserError(f"{prefix}: {expected}, found none")


def _is_named_cased(folder: str) -> bool:
    """Whether a folder has the name of a released cased BERT, such as "cased_L-12_H-768_A-12".

    No file of such a model says that it is cased (google-research/bert, tokenization.py:28-74).
    """
    name = os.path.basename(os.path.abspath(folder))
    return re.search(r"(?<!un)cased_L-\d+", name) is not None


def read_arrays(prefix: str) -> dict[str, np.ndarray]:
    """The float variables of a checkpoint by name, as float32, without those of the optimizer."""
    with checkpoint_files.opened(prefix, "TF1") as reader:
        return {
            name: reader.get_tensor(name).astype(np.float32, copy=False)
            for name, dtype in reader.get_variable_to_dtype_map().items()
            if dtype.is_floating and not name.endswith(("/adam_m", "/adam_v"))
        }


def write(
    model: "ModelWithHead",
    folder: str,
    task: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    cleaning: Mapping[str, bool],
    untrained: Collection[str] = (),
) -> None:
    """Writes a model's variables under the original's names, its configuration and vocabulary."""
    import tensorflow as tf

    if model.reads_vectors:
        reason = "the original's classifier reads the pooler, and this one the vector of the text"
        raise UserError(f"{folder}: not written, as {reason}; write --format=hf")
    activation = model.config.hidden_act
    if not ACTIVATIONS[activation].is_original:
        reason = f"the original does not have hidden_act {activation}; write --format=hf"
        raise UserError(f"{folder}: not written, as {reason}")

    own: dict[str, Any] = {"model_class": type(model).__name__, **cleaning, "task": dict(task)}
    if untrained:
        own["left_out"] = sorted(untrained)
    if tokenizer and tokenizer.rules.to_dict():
        own["rules"] = tokenizer.rules.to_dict()

    config = {**model.config.to_dict(), TF1_OWN_KEY: own}
    contents = {TF1_CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    if tokenizer:
        name = _VOCABULARY_NAMES.get(tokenizer.file_name, tokenizer.file_name)
        contents[name] = tokenizer.content

    variables = model.named_variables()
    variables = {name: variable for name, variable in variables.items() if name not in untrained}
    with files.staged(folder) as staging:
        tf.raw_ops.SaveV2(
            prefix=os.path.join(staging, CHECKPOINT),
            tensor_names=list(variables),
            shape_and_slices=[""] * len(variables),
            tensors=[tf.convert_to_tensor(variable) for variable in variables.values()],
        )
        files.write_files(staging, contents)
