"""TF1 checkpoints in the original's layout: `albert_config.json`, `model.ckpt-best.*`, vocabulary."""

import json
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import bert, checkpoint_files
from albert_tf.formats.description import TF1_CONFIG as CONFIG
from albert_tf.formats.description import TF1_OWN_KEY
from albert_tf.formats.weights import Weights, check_complete, only_vocabulary
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import ModelWithHead
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.tokenizer import Tokenizer

CHECKPOINT = "model.ckpt-best"
_VOCABULARY_NAMES = {"spiece.model": "30k-clean.model"}  # our name -> the original's


def read(prefix: str) -> Weights:
    """The model of a checkpoint with the prefix `prefix`; its configuration and vocabulary are in the same folder."""
    folder = os.path.dirname(prefix)
    path, vocabulary = os.path.join(folder, CONFIG), only_vocabulary(folder)
    if is_bert := not files.exists(path):
        path = os.path.join(folder, bert.TF1_CONFIG)
    if not files.exists(path):
        found = f"expected {CONFIG} or {bert.TF1_CONFIG} beside the checkpoint, found none"
        raise UserError(f"{prefix}: {found}")
    values, arrays = files.read_json(path), read_arrays(prefix)
    if is_bert:
        values = bert.with_albert_sizes(values, path)
        arrays = {bert.from_tf1(name): array for name, array in arrays.items()}
    own = values.pop(TF1_OWN_KEY, {})
    if not isinstance(own, dict):
        raise UserError(f"{path}: expected an object under {TF1_OWN_KEY}, got {shortened(own)}")
    names = ("model_class", "do_lower_case", "keep_accents", "left_out")
    settings = {name: own[name] for name in names if name in own}
    settings |= {"vocabulary": vocabulary, "task_settings": own.get("task", {})}
    settings["rules"] = TokenizerRules.from_dict(own.get("rules"), path)
    # No file of a released cased model says so, but the name of its folder (tokenization.py:28-74).
    if is_bert and re.search(r"(?<!un)cased_L-\d+", os.path.basename(os.path.abspath(folder))):
        settings["do_lower_case"] = False
    check_complete(values, path)
    return Weights(prefix, AlbertConfig.from_dict(values, source=path), arrays, **settings)


def read_arrays(prefix: str) -> dict[str, np.ndarray]:
    """The float variables of a checkpoint by name, as float32, without those of the optimizer."""
    with checkpoint_files.opened(prefix, "TF1") as reader:
        return {
            name: reader.get_tensor(name).astype(np.float32, copy=False)
            for name, dtype in reader.get_variable_to_dtype_map().items()
            if dtype.is_floating and not name.endswith(("/adam_m", "/adam_v"))
        }


def write(
    model: ModelWithHead,
    folder: str,
    task: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    cleaning: Mapping[str, bool],
    untrained: Collection[str] = (),
) -> None:
    """Writes a model's variables under the original's names, its configuration and vocabulary."""
    activation = model.config.hidden_act
    if not ACTIVATIONS[activation].is_original:
        reason = f"the original does not have hidden_act {activation}; write --format=hf"
        raise UserError(f"{folder}: not written, as {reason}")
    variables = model.named_variables()
    variables = {name: value for name, value in variables.items() if name not in untrained}
    own = {"model_class": type(model).__name__, **cleaning, "task": dict(task)}
    own |= {"left_out": sorted(untrained)} if untrained else {}
    rules = tokenizer.rules.to_dict() if tokenizer else {}
    own |= {"rules": rules} if rules else {}
    values = {**model.config.to_dict(), TF1_OWN_KEY: own}
    contents = {CONFIG: (json.dumps(values, indent=2) + "\n").encode()}
    if tokenizer:
        name = _VOCABULARY_NAMES.get(tokenizer.file_name, tokenizer.file_name)
        contents[name] = tokenizer.content
    with files.staged(folder) as staging:
        tf.raw_ops.SaveV2(
            prefix=os.path.join(staging, CHECKPOINT),
            tensor_names=list(variables),
            shape_and_slices=[""] * len(variables),
            tensors=[tf.convert_to_tensor(variable) for variable in variables.values()],
        )
        files.write_files(staging, contents)
