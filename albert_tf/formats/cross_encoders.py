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

IDENTITY, SIGMOID = (VECTOR_ACTIVATIONS[name].torch for name in ("identity", "sigmoid"))
_SECTION, _KEY = "sentence_transformers", "activation_fn"
_OLD_KEY = "sbert_ce_default_activation_function"  # of versions 2 and 3


def with_activation(config: AlbertConfig, folder: str, about: Mapping[str, Any]) -> AlbertConfig:
    """The configuration of a classifier in a folder, with the activation of its one score under the key of version 4.

    Versions 4 to 6 write it into `config.json`, or into `config_sentence_transformers.json`, whose values are `about`.
    Without an entry, CrossEncoder takes the sigmoid for a model of others. Only one score has an activation here: that
    of several labels makes no probabilities.

    Source: sentence-transformers 6.2, `CrossEncoder.get_default_activation_fn`.
    """
    own = config.foreign.get(_SECTION)
    of_section = own.get(_KEY) if isinstance(own, dict) else None
    path, name = os.path.join(folder, CONFIG), f"{_SECTION}.{_KEY}"
    activation = of_section
    if activation is None and config.foreign.get(_OLD_KEY) is not None:
        activation, name = config.foreign[_OLD_KEY], _OLD_KEY
    if activation is None and about.get(_KEY) is not None:
        path, name, activation = os.path.join(folder, ABOUT), _KEY, about[_KEY]
    if len(config.labels) > 1:
        return config
    if activation is None:
        is_ours = OWN_SECTION in files.read_json(os.path.join(folder, CONFIG))
        activation = IDENTITY if is_ours else SIGMOID
    kind = activation_of_torch(activation) if isinstance(activation, str) else ""
    known = {"identity": IDENTITY, "sigmoid": SIGMOID}
    if kind not in known:
        expected = f"{SIGMOID} or {IDENTITY}"
        raise UserError(f"{path}: {name} is {shortened(activation)}, expected {expected}")
    others = {key: value for key, value in config.foreign.items() if key != _OLD_KEY}
    return config.replace(foreign={**others, _SECTION: {_KEY: known[kind]}})
