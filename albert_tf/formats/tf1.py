"""TF1 checkpoints in the original's layout: `albert_config.json`, `model.ckpt-best.*`, vocabulary."""

import dataclasses
import json
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import bert, checkpoint_files, description
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import TF1_CONFIG, TF1_OWN_KEY
from albert_tf.formats.tokenizer_files import vocabulary_alone
from albert_tf.formats.weights import Weights, check_complete, only_vocabulary
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import (
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
    SPAN,
    SPAN_OR_NONE,
    TOKEN_CLASSIFICATION,
)
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead

CHECKPOINT = "model.ckpt-best"
_VOCABULARY_NAMES = {"spiece.model": "30k-clean.model"}  # our name -> the original's
# The fields of `Weights` that are written under `TF1_OWN_KEY`.
_OWN_FIELDS = ("model_class", "do_lower_case", "keep_accents", "left_out")
# The head of a model that others fine-tuned -> a variable that only it has. Source: run_classifier.py, run_squad.py
# (create_model) of google-research/bert; classifier_utils.py, squad_utils.py, race_utils.py of the original.
_SCORES = "output_weights"  # [C, D], of the pooler's output
_VARIABLE_OF_HEAD = {
    SPAN: "cls/squad/output_weights",
    SPAN_OR_NONE: "start_logits/dense/kernel",
    SEQUENCE_CLASSIFICATION: _SCORES,
}
# Variables of optimizers: how their names end, of those of the original and of tf.train.
_OF_OPTIMIZERS = (
    "/adam_m",
    "/adam_v",
    "/Adam",
    "/Adam_1",
    "/Momentum",
    "/Adagrad",
    "/RMSProp",
    "/RMSProp_1",
    "/ExponentialMovingAverage",
    "beta1_power",
    "beta2_power",
)


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

    our_section = sizes.pop(TF1_OWN_KEY, {})
    if not isinstance(our_section, dict):
        expected = f"expected an object under {TF1_OWN_KEY}"
        raise UserError(f"{config_path}: {expected}, got {shortened(our_section)}")
    settings = {name: our_section[name] for name in _OWN_FIELDS if name in our_section}
    vocabulary = only_vocabulary(folder)
    if _is_bert(config_path) and (_is_named_cased(folder) or _has_capitals(vocabulary)):
        settings.setdefault("do_lower_case", False)

    check_complete(sizes, config_path)
    return Weights(
        prefix,
        AlbertConfig.from_dict(sizes, source=config_path),
        {},
        vocabulary=vocabulary,
        task_settings=our_section.get("task", {}),
        rules=TokenizerRules.from_dict(our_section.get("rules"), config_path),
        **settings,
    )


def read(path: str) -> Weights:
    """The model of a checkpoint; its configuration and vocabulary are in the same folder."""
    weights = read_without_arrays(path)
    arrays = read_arrays(weights.source)
    config_path = _config_beside(weights.source)
    if _is_bert(config_path):
        arrays = {bert.from_tf1(name): array for name, array in arrays.items()}
    weights = dataclasses.replace(weights, arrays=arrays)

    names_class = "model_class" in files.read_json(config_path).get(TF1_OWN_KEY, {})
    if not names_class:
        weights = dataclasses.replace(weights, model_class=_class_by_variables(arrays))
        _remark_on_head(weights, config_path)
    return _with_number_of_labels(weights)


def _class_by_variables(names: Collection[str]) -> str:
    """The class of a checkpoint of others, whose files do not name it."""
    for model_class, variable in _VARIABLE_OF_HEAD.items():
        if variable in names:
            return model_class
    return PRETRAINING


def _number_of_scores(weights: Weights) -> int:
    """The number of scores of a head, the rows of its matrix; 0 if it has none."""
    scores = weights.arrays.get(_SCORES)
    return len(scores) if scores is not None and scores.ndim == 2 else 0


def _with_number_of_labels(weights: Weights) -> Weights:
    """The same weights with a label for each score, if the configuration has no names of labels.

    As in a classifier of transformers, no task is named, so that it is a head for any table with these labels.
    """
    config = weights.config
    number = _number_of_scores(weights)
    has_labels = weights.model_class in (SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION)
    if not has_labels or not number or config.foreign.get("id2label"):
        return weights
    labels = {str(label): f"LABEL_{label}" for label in range(number)}
    numbers = {name: int(label) for label, name in labels.items()}
    foreign = {**config.foreign, "id2label": labels, "label2id": numbers}
    return dataclasses.replace(weights, config=config.replace(foreign=foreign))


def _remark_on_head(weights: Weights, config_path: str) -> None:
    """Says how the head of a classifier of others is read, as no file of it names its labels."""
    if weights.model_class != SEQUENCE_CLASSIFICATION or weights.config.foreign.get("id2label"):
        return
    number = _number_of_scores(weights)
    if not number:  # an error follows, which names the shape
        return
    if number == 1:
        is_read_as = "as a regression, one score for each text"
    else:
        is_read_as = f"as a classifier with the labels LABEL_0 to LABEL_{number - 1}"
    logging.warning(
        "%s: has %s, read %s; docs/reference/models.md#fine-tuned-checkpoints-of-tensorflow-1 says how"
        " %s gives names to labels, or another kind to the head",
        weights.source,
        _SCORES,
        is_read_as,
        os.path.basename(config_path),
    )


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


def _has_capitals(vocabulary: str) -> bool:
    """Whether a WordPiece vocabulary has tokens with capitals, which no text has after it was lower-cased.

    A fine-tuned cased BERT may be in a folder of any name. A cased vocabulary has capitals in many tokens; special
    ones, such as "[CLS]", are not counted, and a stray capital is no sign.
    """
    if not vocabulary.endswith(".txt"):
        return False
    tokens = files.read_bytes(vocabulary).decode("utf-8", errors="replace").split()
    capitals = [token for token in tokens if token != token.lower() and not token.startswith("[")]
    return len(capitals) > len(tokens) / 100


def read_arrays(prefix: str) -> dict[str, np.ndarray]:
    """The float variables of a checkpoint by name, as float32, without those of the optimizer."""
    with checkpoint_files.opened(prefix, "TF1") as reader:
        return {
            name: reader.get_tensor(name).astype(np.float32, copy=False)
            for name, dtype in reader.get_variable_to_dtype_map().items()
            if dtype.is_floating and not name.endswith(_OF_OPTIMIZERS)
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

    our_section: dict[str, Any] = {
        "model_class": type(model).__name__,
        **cleaning,
        "task": dict(task),
    }
    if untrained:
        our_section["left_out"] = sorted(untrained)
    if tokenizer and tokenizer.rules.to_dict():
        our_section["rules"] = tokenizer.rules.to_dict()

    config = {**model.config.to_dict(), TF1_OWN_KEY: our_section}
    contents = {TF1_CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    if tokenizer:
        name = _VOCABULARY_NAMES.get(tokenizer.file_name, tokenizer.file_name)
        contents |= vocabulary_alone(tokenizer, name)

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
