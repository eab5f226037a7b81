"""The activation of a cross-encoder of sentence-transformers, which makes scores of its logits."""

import os
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats.embedding_modules import ABOUT
from albert_tf.formats.file_names import CONFIG
from albert_tf.model.config import OWN_SECTION, AlbertConfig
from albert_tf.model.vector_modules import VECTOR_ACTIVATIONS, activation_of_torch

IDENTITY = VECTOR_ACTIVATIONS["identity"].torch
SIGMOID = VECTOR_ACTIVATIONS["sigmoid"].torch
_SECTION = "sentence_transformers"
_KEY = "activation_fn"
_OLD_KEY = "sbert_ce_default_activation_function"  # of versions 2 and 3


def with_activation(config: AlbertConfig, folder: str, about: Mapping[str, Any]) -> AlbertConfig:
    """The configuration of a classifier in a folder, with the activation of its one score under the key of version 4.

    Versions 4 to 6 write it into `config.json`, or into `config_sentence_transformers.json`, whose values are `about`.
    Without an entry, CrossEncoder takes the sigmoid for a model of others. Only one score has an activation here: that
    of several labels makes no probabilities.

    Source: sentence-transformers 6.2, `CrossEncoder.get_default_activation_fn`.
    """
    if len(config.labels) > 1:
        return config
    place, activation = _named_activation(config, folder, about)
    if activation is None:
        is_ours = OWN_SECTION in files.read_json(os.path.join(folder, CONFIG))
        activation = IDENTITY if is_ours else SIGMOID

    kind = activation_of_torch(activation) if isinstance(activation, str) else ""
    readable = {"identity": IDENTITY, "sigmoid": SIGMOID}
    if kind not in readable:
        expected = f"{SIGMOID} or {IDENTITY}"
        raise UserError(f"{place} is {shortened(activation)}, expected {expected}")
    others = {key: value for key, value in config.foreign.items() if key != _OLD_KEY}
    return config.replace(foreign={**others, _SECTION: {_KEY: readable[kind]}})


def _named_activation(
    config: AlbertConfig, folder: str, about: Mapping[str, Any]
) -> tuple[str, Any]:
    """The first activation that a file names, with the file and the key, for messages; None if no file names one."""
    config_path = os.path.join(folder, CONFIG)
    section = config.foreign.get(_SECTION)
    of_section = section.get(_KEY) if isinstance(section, dict) else None
    if of_section is not None:
        return f"{config_path}: {_SECTION}.{_KEY}", of_section
    if config.foreign.get(_OLD_KEY) is not None:
        return f"{config_path}: {_OLD_KEY}", config.foreign[_OLD_KEY]
    return f"{os.path.join(folder, ABOUT)}: {_KEY}", about.get(_KEY)
