"""Hugging Face folders: `config.json`, `model.safetensors`, `spiece.model`."""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, first_line
from albert_tf.formats.weights import Weights, belongs_to_ffn, check_identity_projection
from albert_tf.heads import MODEL_CLASSES, AlbertForPreTraining, AlbertModel

WEIGHTS, CONFIG, VOCABULARY = "model.safetensors", "config.json", "spiece.model"

# Released name inside a block -> Hugging Face's. "kernel" matrices are transposed there.
_BLOCK_NAMES = {
    "attention_1/self/query/kernel": "attention.query.weight",
    "attention_1/self/query/bias": "attention.query.bias",
    "attention_1/self/key/kernel": "attention.key.weight",
    "attention_1/self/key/bias": "attention.key.bias",
    "attention_1/self/value/kernel": "attention.value.weight",
    "attention_1/self/value/bias": "attention.value.bias",
    "attention_1/output/dense/kernel": "attention.dense.weight",
    "attention_1/output/dense/bias": "attention.dense.bias",
    "LayerNorm/gamma": "attention.LayerNorm.weight",
    "LayerNorm/beta": "attention.LayerNorm.bias",
    "ffn_1/intermediate/dense/kernel": "ffn.weight",
    "ffn_1/intermediate/dense/bias": "ffn.bias",
    "ffn_1/intermediate/output/dense/kernel": "ffn_output.weight",
    "ffn_1/intermediate/output/dense/bias": "ffn_output.bias",
    "LayerNorm_1/gamma": "full_layer_layer_norm.weight",
    "LayerNorm_1/beta": "full_layer_layer_norm.bias",
}
_NAMES = {
    "bert/embeddings/word_embeddings": "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "bert/embeddings/LayerNorm/gamma": "albert.embeddings.LayerNorm.weight",
    "bert/embeddings/LayerNorm/beta": "albert.embeddings.LayerNorm.bias",
    "bert/encoder/embedding_hidden_mapping_in/kernel": "albert.encoder.embedding_hidden_mapping_in.weight",
    "bert/encoder/embedding_hidden_mapping_in/bias": "albert.encoder.embedding_hidden_mapping_in.bias",
    "bert/pooler/dense/kernel": "albert.pooler.weight",
    "bert/pooler/dense/bias": "albert.pooler.bias",
    "cls/predictions/transform/dense/kernel": "predictions.dense.weight",
    "cls/predictions/transform/dense/bias": "predictions.dense.bias",
    "cls/predictions/transform/LayerNorm/gamma": "predictions.LayerNorm.weight",
    "cls/predictions/transform/LayerNorm/beta": "predictions.LayerNorm.bias",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
}
_HEAD_NAMES = {
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
_OWN_PREFIX = "albert_tf."  # of tensors that no model of theirs has
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"


def _num_groups(config: AlbertConfig) -> int:
    """Groups of the Hugging Face model that computes the same: ours, or one a layer where theirs cannot follow."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    theirs = [int(layer / (layers / groups)) for layer in range(layers)]
    for group_of_layer in (config.attention_group_of_layer, config.ffn_group_of_layer):
        if theirs != [group_of_layer(layer) for layer in range(layers)]:
            return layers
    return groups


def _released_names(config: AlbertConfig) -> dict[str, str]:
    """Hugging Face name -> released name, for every tensor that their model of this configuration has."""
    names = {theirs: ours for ours, theirs in (_NAMES | _HEAD_NAMES).items()}
    num_groups = _num_groups(config)
    for group in range(num_groups):
        # The first layer of a group of theirs tells which of our copies it holds.
        layer = next(
            layer
            for layer in range(config.num_hidden_layers)
            if int(layer / (config.num_hidden_layers / num_groups)) == group
        )
        attention_group = config.attention_group_of_layer(layer)
        ffn_group = config.ffn_group_of_layer(layer)
        for inner in range(config.inner_group_num):
            for ours, theirs in _BLOCK_NAMES.items():
                own_group = ffn_group if belongs_to_ffn("/" + ours) else attention_group
                hf_name = (
                    f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}.{theirs}"
                )
                names[hf_name] = (
                    f"bert/encoder/transformer/group_{own_group}/inner_group_{inner}/{ours}"
                )
    return names


def read(folder: str) -> Weights:
    """The model in a folder.

    Raises:
      UserError: a file is missing, damaged or of another kind of model; names it.
    """
    path = os.path.join(folder, CONFIG)
    values = files.read_json(path)
    own = values.pop("albert_tf", {})
    if values.get("model_type", "albert") != "albert":
        raise UserError(f"{path}: model_type is {values['model_type']!r}, expected 'albert'")
    sizes = {name: own[name] for name in ("share_parameters", "num_hidden_groups") if name in own}
    config = AlbertConfig.from_dict({**values, **sizes}, source=path)
    path, tensors = _read_tensors(folder)
    arrays = _released_arrays(tensors, config)
    if config.embedding_size == config.hidden_size:
        check_identity_projection(arrays, path, _PROJECTION)
    vocabulary = os.path.join(folder, VOCABULARY)
    return Weights(
        folder,
        config,
        arrays,
        own.get("model_class") or _class_of(values),
        vocabulary if files.exists(vocabulary) else "",
        task=own.get("task", {}),
    )


def _read_tensors(folder: str) -> tuple[str, dict[str, np.ndarray]]:
    """The path of the file with the tensors, and the tensors by Hugging Face name."""
    path = os.path.join(folder, WEIGHTS)
    try:
        return path, safetensors.numpy.load(files.read_bytes(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: damaged safetensors file ({first_line(error)})") from None


def _released_arrays(
    tensors: Mapping[str, np.ndarray], config: AlbertConfig
) -> dict[str, np.ndarray]:
    """Float32 arrays under the released names; a tensor that has none keeps its own."""
    released = _released_names(config)
    arrays = {}
    for hf_name, tensor in tensors.items():
        name = released.get(hf_name, hf_name).removeprefix(_OWN_PREFIX)
        array = tensor.astype(np.float32)
        arrays[name] = array.T if name.endswith("/kernel") and hf_name in released else array
    return arrays


def _class_of(hf_config: Mapping) -> str:
    """Name of our class for a model of theirs."""
    theirs = (hf_config.get("architectures") or [""])[0]
    ours = [name for name, cls in MODEL_CLASSES.items() if cls.hf_architecture == theirs]
    return ours[0] if ours and theirs else AlbertForPreTraining.__name__


def write(model: AlbertModel, folder: str, task: Mapping[str, Any]) -> None:
    """Writes a model's configuration and tensors.

    Args:
      model: what to write.
      folder: exists; files of the same names are replaced once the new ones are whole.
      task: settings of the task that it was fine-tuned for; empty for none.

    Raises:
      OSError: a file cannot be written.
    """
    config, variables = model.config, model.named_variables()
    tensors, written = {}, set()
    for hf_name, name in _released_names(config).items():
        if name in variables:
            array = variables[name].numpy()
            tensors[hf_name] = np.ascontiguousarray(array.T if name.endswith("/kernel") else array)
            written.add(name)
    for name in variables.keys() - written:
        tensors[_OWN_PREFIX + name] = variables[name].numpy()
    if config.embedding_size == config.hidden_size:
        tensors[f"{_PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{_PROJECTION}.bias"] = np.zeros([config.hidden_size], np.float32)
    data = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    files.write_bytes(os.path.join(folder, WEIGHTS), data)
    values = {
        **config.to_dict(),
        "architectures": [model.hf_architecture] if model.hf_architecture else [],
        "model_type": "albert",
        "hidden_act": {"gelu": "gelu_new"}.get(config.hidden_act, config.hidden_act),
        "num_hidden_groups": _num_groups(config),
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        # What their configuration cannot say.
        "albert_tf": {
            "share_parameters": config.share_parameters,
            "num_hidden_groups": config.num_hidden_groups,
            "model_class": type(model).__name__,
            **({"task": dict(task)} if task else {}),
        },
    }
    del values["share_parameters"]
    files.write_bytes(os.path.join(folder, CONFIG), json.dumps(values, indent=2).encode() + b"\n")
