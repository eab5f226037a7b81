"""Presets of keras-hub, read and written (only backbones).

Files: `config.json`, `model.weights.h5`, `assets/tokenizer/vocabulary.spm`; with a head, `task.json`.
"""

import io
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from absl import logging

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.formats.torch_file import float32_of_bfloat16
from albert_tf.formats.weights import Weights, as_matrix, check_identity_projection, if_exists
from albert_tf.model.config import AlbertConfig
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.weights.h5", "assets/tokenizer/vocabulary.spm"
TASK, TASK_WEIGHTS = "task.json", "task.weights.h5"

# Their field -> ours.
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "embedding_dim": "embedding_size",
    "hidden_dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
    "num_heads": "num_attention_heads",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}

# A layer, by its name and by its class with a number (both occur in files) -> its parts -> a prefix, and the names of
# its variables in the released checkpoints, in the order of the file.
_Layers = Mapping[tuple[str, str], Mapping[str, tuple[str, tuple[str, ...]]]]
_DENSE, _NORM, _EMBEDDINGS = ("kernel", "bias"), ("gamma", "beta"), "bert/embeddings/"
_BACKBONE: _Layers = {
    ("token_embedding", "reversible_embedding"): {"": (_EMBEDDINGS, ("word_embeddings",))},
    ("segment_embedding", "embedding"): {"": (_EMBEDDINGS, ("token_type_embeddings",))},
    ("position_embedding", "position_embedding"): {"": (_EMBEDDINGS, ("position_embeddings",))},
    ("embeddings_layer_norm", "layer_normalization"): {"": (_EMBEDDINGS + "LayerNorm/", _NORM)},
    ("embedding_projection", "dense"): {"": ("bert/encoder/embedding_hidden_mapping_in/", _DENSE)},
    ("pooled_dense", "dense_1"): {"": ("bert/pooler/dense/", _DENSE)},
}
_BLOCK = {
    "_self_attention_layer/query_dense": ("attention_1/self/query/", _DENSE),
    "_self_attention_layer/key_dense": ("attention_1/self/key/", _DENSE),
    "_self_attention_layer/value_dense": ("attention_1/self/value/", _DENSE),
    "_self_attention_layer/output_dense": ("attention_1/output/dense/", _DENSE),
    "_self_attention_layer_norm": ("LayerNorm/", _NORM),
    "_feedforward_intermediate_dense": ("ffn_1/intermediate/dense/", _DENSE),
    "_feedforward_output_dense": ("ffn_1/intermediate/output/dense/", _DENSE),
    "_feedforward_layer_norm": ("LayerNorm_1/", _NORM),
}
_MASKED_LM_HEAD: _Layers = {
    ("mlm_head", "masked_lm_head"): {
        "": ("cls/predictions/", ("output_bias",)),
        "_intermediate_dense": ("cls/predictions/transform/dense/", _DENSE),
        "_intermediate_layer_norm": ("cls/predictions/transform/LayerNorm/", _NORM),
    }
}
_CLASSIFIER_HEAD: _Layers = {("logits", "dense"): {"": ("", ("output_weights", "output_bias"))}}

_MOST_EXPANSION = 4  # limit for a compressed file; real weights shrink by only a tenth

# Of the masked-LM head only (their layers/modeling/masked_lm_head.py); all other LayerNorms have 1e-12, as here.
_MASKED_LM_EPSILON = 1e-5


def recognizes(folder: str) -> bool:
    """Whether a folder contains a keras-hub preset of any model."""
    return all(files.exists(os.path.join(folder, name)) for name in (CONFIG, WEIGHTS))


def read(folder: str) -> Weights:
    """The model of a preset: its backbone, with the head of an AlbertMaskedLM or AlbertTextClassifier if it has one.

    A preset does not say whether text is lower-cased. Its tokenizer never does it, although the released models need
    it.
    """
    path = os.path.join(folder, CONFIG)
    config = _config(path)
    path = os.path.join(folder, WEIGHTS)
    arrays = _arrays(path, {**_BACKBONE, **_blocks(config)})
    heads = config.num_attention_heads
    for name, array in arrays.items():
        if name.endswith("/self/query/kernel") and array.shape[1:2] != (heads,):
            reason = f"has shape {list(array.shape)}, but num_heads in {CONFIG} is {heads}"
            raise UserError(f"{path}: {name} {reason}")
    arrays = {name: as_matrix(name, array) for name, array in arrays.items()}
    check_identity_projection(arrays, config, path, "embedding_projection")
    model_class, config, head = _head(folder, config)
    vocabulary = if_exists(os.path.join(folder, VOCABULARY))
    return Weights(folder, config, {**arrays, **head}, model_class, vocabulary)


def _config(path: str) -> AlbertConfig:
    """The sizes in a preset's configuration."""
    class_name, values = _class_and_values(path)
    if class_name != "AlbertBackbone":
        raise UserError(f"{path}: class_name is {class_name!r}, expected 'AlbertBackbone'")
    if missing := [field for field in _FIELDS if field not in values]:
        raise UserError(f"{path}: expected the sizes of a backbone, {missing[0]} is missing")
    rate = values.get("dropout", 0.0)
    rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    sizes = {ours: values[theirs] for theirs, ours in _FIELDS.items()}
    config = AlbertConfig.from_dict({**sizes, **rates}, source=path)
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    # keras-hub divides the layers into equal groups; the original rounds differently, for example with 44 layers.
    if any(config.group_of_layer(layer) != layer * groups // layers for layer in range(layers)):
        hint = "groups in another way here; use fewer groups"
        raise UserError(f"{path}: {layers} layers are divided into {groups} {hint}")
    return config


def _class_and_values(path: str) -> tuple[Any, dict[str, Any]]:
    """The class that Keras saved, and its arguments."""
    values = files.read_json(path)
    if not isinstance(values.get("config"), dict):
        raise UserError(f"{path}: expected the class_name and config of a keras-hub object")
    return values.get("class_name"), values["config"]


def _blocks(config: AlbertConfig) -> _Layers:
    """The blocks of every group."""
    layers: dict[tuple[str, str], Mapping[str, tuple[str, tuple[str, ...]]]] = {}
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            number = f"_{len(layers)}" if layers else ""
            prefix = f"bert/encoder/transformer/group_{group}/inner_group_{inner}/"
            layers[f"group_{group}_inner_layer_{inner}", f"transformer_encoder{number}"] = {
                part: (prefix + ours, variables) for part, (ours, variables) in _BLOCK.items()
            }
    return layers


# --- Heads ---


def _head(folder: str, config: AlbertConfig) -> tuple[str, AlbertConfig, dict[str, np.ndarray]]:
    """The class of a preset's model, its configuration with the head's settings, and the head's arrays."""
    path, weights_path = os.path.join(folder, TASK), os.path.join(folder, TASK_WEIGHTS)
    if not files.exists(path):
        return "AlbertForPreTraining", config, {}
    class_name, values = _class_and_values(path)
    if class_name == "AlbertMaskedLM":
        logging.warning(
            "%s: the masked-LM head of keras-hub normalizes with epsilon %g, here it is %g; its logits differ a little",
            path,
            _MASKED_LM_EPSILON,
            config.layer_norm_eps,
        )
        return "AlbertForPreTraining", config, _arrays(weights_path, _MASKED_LM_HEAD)
    if class_name not in ("AlbertTextClassifier", "AlbertClassifier"):
        expected = (
            f"AlbertTextClassifier or AlbertMaskedLM; without {TASK}, the backbone alone is read"
        )
        raise UserError(f"{path}: class_name is {class_name!r}, expected {expected}")
    # With softmax, the preset outputs probabilities; here predictions always apply a softmax.
    activation = values.get("activation", "linear")
    if activation not in ("linear", "softmax"):
        expected = "expected linear or softmax; the classifiers here have no other"
        raise UserError(f"{path}: activation is {activation!r}, {expected}")
    arrays = _arrays(weights_path, _CLASSIFIER_HEAD)
    if arrays["output_bias"].ndim != 1:
        raise UserError(f"{weights_path}: damaged (the bias of its classifier is no vector)")
    arrays["output_weights"] = arrays["output_weights"].T
    labels = {str(index): f"LABEL_{index}" for index in range(len(arrays["output_bias"]))}
    values = {
        **config.to_dict(),
        "classifier_dropout_prob": values.get("dropout", config.classifier_dropout_prob),
        "id2label": labels,
    }
    config = AlbertConfig.from_dict(values, source=path)
    return "AlbertForSequenceClassification", config, arrays


# --- Writing ---


def write(model: Any, folder: str, tokenizer: Tokenizer | None = None) -> None:
    """Writes the encoder of a model, without its head, as the preset of a backbone; with its SentencePiece model."""
    config, content = model.config, io.BytesIO()
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    is_even = layers % groups == 0 and all(
        config.group_of_layer(layer) == layer * groups // layers for layer in range(layers)
    )
    is_usual = config.hidden_act in ("gelu", "gelu_new") and config.layer_norm_eps == 1e-12
    if config.share_parameters != "all" or not is_usual or not is_even:
        expected = "has equal groups of layers that share all parameters, hidden_act gelu and layer_norm_eps 1e-12"
        raise UserError(f"{folder}: not written, as keras-hub only {expected}; write --format=hf")
    arrays = {name: value.numpy() for name, value in model.encoder.named_variables().items()}
    prefix = "bert/encoder/embedding_hidden_mapping_in/"
    arrays.setdefault(f"{prefix}kernel", np.eye(config.hidden_size, dtype=np.float32))
    arrays.setdefault(f"{prefix}bias", np.zeros(config.hidden_size, np.float32))
    with h5py.File(content, "w") as file:
        for (name, kind), parts in {**_BACKBONE, **_blocks(config)}.items():
            file.create_group(f"layers/{kind}/vars").attrs["name"] = name
            for part, (prefix, variables) in parts.items():
                group = file.require_group(f"layers/{kind}/{part}/vars")
                for number, name in enumerate(variables):
                    array = _with_heads(prefix + name, arrays[prefix + name], config)
                    group[str(number)] = array
    sizes = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    sizes["dropout"] = config.hidden_dropout_prob
    contents = {
        CONFIG: _saved_object("AlbertBackbone", sizes),
        "metadata.json": json.dumps({"keras_version": "3.0.0", "tasks": []}).encode(),
        WEIGHTS: content.getvalue(),
    }
    if isinstance(tokenizer, SentencePieceTokenizer):
        contents[VOCABULARY] = tokenizer.content
        contents["tokenizer.json"] = _saved_object(
            "AlbertTokenizer", {"dtype": "int32", "proto": None}
        )
    files.write_files(folder, contents)


def _saved_object(class_name: str, values: Mapping[str, Any]) -> bytes:
    """A keras-hub object as Keras saves it."""
    module = re.sub("(?<=[a-z])(?=[A-Z])", "_", class_name).lower()
    content = {
        "module": f"keras_hub.src.models.albert.{module}",
        "class_name": class_name,
        "config": {"name": module, "trainable": True, **values},
        "registered_name": f"keras_hub>{class_name}",
    }
    return (json.dumps(content, indent=2) + "\n").encode()


def _with_heads(name: str, array: np.ndarray, config: AlbertConfig) -> np.ndarray:
    """Attention kernels [D, D] -> [D, N, H] and [N, H, D], biases [D] -> [N, H]; other arrays are unchanged."""
    heads = config.num_attention_heads, config.head_size
    if "/attention_1/self/" in name:
        return array.reshape(*array.shape[:-1], *heads)
    if name.endswith("/attention_1/output/dense/kernel"):
        return array.reshape(*heads, -1)
    return array


# --- The files of Keras 3 ---


def _arrays(path: str, layers: _Layers) -> dict[str, np.ndarray]:
    """Float32 arrays of the given layers in a weights file, under the released names."""
    arrays = {}
    content = files.read_bytes(path)
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            # The second name is used by Keras 2.13.
            root = _member(file, "layers" if "layers" in file else "_layer_checkpoint_dependencies")
            datasets, names = {}, _own_names(root)
            for (name, kind), parts in layers.items():
                layer = _layer(root, names, name, kind)
                for part, (prefix, variables) in parts.items():
                    group = _member(layer, f"{part}/vars".removeprefix("/"))
                    if len(group) != len(variables):
                        raise ValueError(f"{group.name} has {len(group)} variables")
                    for number, variable in enumerate(variables):
                        datasets[prefix + variable] = _member(group, str(number))
            arrays = _read_datasets(datasets, _MOST_EXPANSION * len(content))
    except Exception as error:  # h5py may raise any exception, depending on the content
        reason = f"damaged, or not the weights of a keras-hub ALBERT ({first_line(error)})"
        raise UserError(f"{path}: {reason}") from None
    return arrays


def _own_names(root: h5py.Group) -> dict[str, Any]:
    """The names that layers have in the file, by the names of their groups."""
    if not isinstance(root, h5py.Group):
        raise ValueError(f"{root.name} is no group")
    layers = [child for child in root if "vars" in _member(root, child)]
    return {child: _member(root, f"{child}/vars").attrs.get("name") for child in layers}


def _layer(root: h5py.Group, names: Mapping[str, Any], name: str, kind: str) -> h5py.Group:
    """A layer, found by its own name or, in files without names, by its class and number."""
    if any(names.values()):
        matches = [child for child, own_name in names.items() if own_name == name]
        if len(matches) != 1:
            raise ValueError(f"{len(matches)} layers of the name {name}")
        kind = matches[0]
    return _member(root, kind)


def _member(group: h5py.Group, path: str) -> h5py.Group | h5py.Dataset:
    """The group or array at a path; links are an error, because they could lead to another file."""
    for name in path.split("/"):
        is_group = isinstance(group, h5py.Group)
        if not is_group or not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{group.name} has no {name}")
        group = group[name]
    return group


def _read_datasets(datasets: Mapping[str, Any], most_bytes: int) -> dict[str, np.ndarray]:
    """Float32 arrays; an error before anything is read if they are larger than `most_bytes`."""
    for dataset in datasets.values():
        if not isinstance(dataset, h5py.Dataset):
            raise ValueError(f"{dataset.name} is no array")
    # HDF5 can return values that are not in the file: of compressed arrays, and of arrays that were never written.
    if sum(dataset.nbytes for dataset in datasets.values()) > most_bytes:
        raise ValueError("its arrays are much larger than the file")
    return {name: _array(dataset) for name, dataset in datasets.items()}


def _array(dataset: h5py.Dataset) -> np.ndarray:
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{dataset.name} lies in another file")
    if dataset.attrs.get("dtype") == "bfloat16":
        return float32_of_bfloat16(dataset[()].view(np.uint16))
    if dataset.dtype.kind != "f":
        raise ValueError(f"{dataset.name} is {dataset.dtype}, expected floats")
    return dataset[()].astype(np.float32)
