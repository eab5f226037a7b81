"""BERTs of others: an ALBERT with E = D whose layers share nothing, under other names of sizes and tensors.

The tensors of a Hugging Face folder are renamed to those of its ALBERT classes, and back when a model is written.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.model.config import AlbertConfig

MODEL_TYPE = "bert"
# Values of its configuration that have another meaning than here; anything else is another architecture.
_EXPECTED = {"is_decoder": False, "add_cross_attention": False}
# Those of BertConfig in transformers, where an ALBERT has others.
_DEFAULTS = {"type_vocab_size": 2, "sentence_task": "nsp"} | dict.fromkeys(
    ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1
)
# Sizes that no BERT's file has.
_OWN_SIZES = ("embedding_size", "num_hidden_groups", "inner_group_num", "share_parameters")

# Their name of a part of a layer -> the name in Hugging Face's ALBERT.
_LAYER_PARTS = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.dense",
    "attention.output.LayerNorm": "attention.LayerNorm",
    "intermediate.dense": "ffn",
    "output.dense": "ffn_output",
    "output.LayerNorm": "full_layer_layer_norm",
}
_PARTS = {
    "bert.embeddings": "albert.embeddings",
    "bert.pooler.dense": "albert.pooler",
    "cls.predictions.transform.dense": "predictions.dense",
    "cls.predictions.transform.LayerNorm": "predictions.LayerNorm",
    "cls.predictions": "predictions",
    "cls.seq_relationship": "sop_classifier.classifier",
}
_LAYER = re.compile(r"bert\.encoder\.layer\.(\d+)\.(.+)\.(\w+)")
_ALBERT_LAYER = re.compile(
    r"albert\.encoder\.albert_layer_groups\.(\d+)\.albert_layers\.0\.(.+)\.(\w+)"
)

# A part of a layer in google-research/bert -> the name in the original.
_TF1_PARTS = {
    "attention/self/query": "attention_1/self/query",
    "attention/self/key": "attention_1/self/key",
    "attention/self/value": "attention_1/self/value",
    "attention/output/dense": "attention_1/output/dense",
    "attention/output/LayerNorm": "LayerNorm",
    "intermediate/dense": "ffn_1/intermediate/dense",
    "output/dense": "ffn_1/intermediate/output/dense",
    "output/LayerNorm": "LayerNorm_1",
}
_TF1_LAYER = re.compile(rf"bert/encoder/layer_(\d+)/({'|'.join(_TF1_PARTS)})/(\w+)")
TF1_CONFIG = "bert_config.json"


def is_bert(config: AlbertConfig) -> bool:
    """Whether a model has the shape of a BERT: E = D, and each layer has its own parameters."""
    groups = 1 + config.group_of_layer(config.num_hidden_layers - 1)
    is_unshared = config.share_parameters == "none" or groups == config.num_hidden_layers
    is_wide = config.embedding_size == config.hidden_size
    return is_wide and is_unshared and config.inner_group_num == 1 and config.num_hidden_layers > 1


def with_albert_sizes(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of a BERT's configuration file, as those of an ALBERT's."""
    for name, expected in _EXPECTED.items():
        value = values.get(name, expected)
        if value != expected:
            reason = f"expected {expected}: it is no encoder"
            raise UserError(f"{source}: {name} is {shortened(value)}, {reason}")
    layers = values.get("num_hidden_layers")
    values = {**_DEFAULTS, **values}
    rate = values.get("classifier_dropout")
    if rate is None:
        rate = values["hidden_dropout_prob"]
    return {
        "classifier_dropout_prob": rate,
        **values,
        "embedding_size": values.get("hidden_size"),
        "num_hidden_groups": layers,
        "inner_group_num": 1,
        "share_parameters": "none",
    }


def without_albert_sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration file for the same model as a BERT."""
    kept = {name: value for name, value in values.items() if name not in _OWN_SIZES}
    architectures = [name.replace("Albert", "Bert") for name in values["architectures"]]
    settings = {"sentence_task": "sop", **kept}  # a BERT's would be the next sentence, if not said
    settings["classifier_dropout"] = settings.pop("classifier_dropout_prob")
    return {**settings, "architectures": architectures, "model_type": MODEL_TYPE}


def to_albert(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors of a BERT's classes under the names of the ALBERT classes; other names stay."""
    return {_to_albert(name): tensor for name, tensor in tensors.items()}


def _to_albert(name: str) -> str:
    if name.startswith(("embeddings.", "encoder.", "pooler.")):  # a saved BertModel
        name = f"bert.{name}"
    if match := _LAYER.fullmatch(name):
        layer, part, variable = match.groups()
        group = f"albert.encoder.albert_layer_groups.{layer}.albert_layers.0"
        return f"{group}.{_LAYER_PARTS.get(part, part)}.{variable}"
    return _renamed(name, _PARTS)


def to_bert(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `to_albert`, without the projection of the embeddings, the identity."""
    return {
        _to_bert(name): tensor
        for name, tensor in tensors.items()
        if not name.startswith("albert.encoder.embedding_hidden_mapping_in")
    }


def _to_bert(name: str) -> str:
    if match := _ALBERT_LAYER.fullmatch(name):
        layer, part, variable = match.groups()
        theirs = {ours: theirs for theirs, ours in _LAYER_PARTS.items()}
        return f"bert.encoder.layer.{layer}.{theirs[part]}.{variable}"
    return _renamed(name, {ours: theirs for theirs, ours in _PARTS.items()})


def from_tf1(name: str) -> str:
    """The released name of a variable of google-research/bert."""
    if match := _TF1_LAYER.fullmatch(name):
        layer, part, variable = match.groups()
        return f"bert/encoder/transformer/group_{layer}/inner_group_0/{_TF1_PARTS[part]}/{variable}"
    return name


def _renamed(name: str, parts: Mapping[str, str]) -> str:
    for theirs, ours in parts.items():
        if name.startswith(f"{theirs}."):
            return ours + name.removeprefix(theirs)
    return name
