"""Folders of the sentence-transformers library: a Hugging Face folder with the modules that make a text's vector."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import hugging_face
from albert_tf.formats.description import CONFIG, TOKENIZER_SETTINGS
from albert_tf.formats.weights import Weights
from albert_tf.model.config import POOLINGS, AlbertConfig
from albert_tf.model.heads import AlbertForEmbedding

MODULES, SETTINGS = "modules.json", "sentence_bert_config.json"
_ABOUT = "config_sentence_transformers.json"
# Patterns of the files that are read, besides those of the Hugging Face layout.
FILES = (MODULES, SETTINGS, _ABOUT, "*_Pooling/config.json", "*_Dense/*")
_PREFIX = "sentence_transformers.models."  # the names of all versions; version 6 writes others, and reads these
_ACTIVATIONS = {
    "identity": hugging_face.IDENTITY,
    "tanh": "torch.nn.modules.activation.Tanh",
}
# Pooling -> the key of versions before 6; version 6 reads it, too, and writes the name under "pooling_mode".
_POOLING_KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
}
_PROJECTION = AlbertForEmbedding.head_prefix


def recognizes(folder: str) -> bool:
    """Whether a folder has the modules of sentence embeddings; a CrossEncoder of the library is a plain classifier."""
    return files.exists(os.path.join(folder, MODULES)) and len(_modules(folder)) > 1


def _modules(folder: str) -> list[tuple[str, str]]:
    """The kind and the folder of each module."""
    path = os.path.join(folder, MODULES)
    entries = files.read_json(path, list)
    modules = []
    for entry in entries:
        values = entry if isinstance(entry, dict) else {}
        kind, place = values.get("type"), values.get("path")
        # Otherwise a file could name any folder of the machine.
        is_name = isinstance(place, str) and re.fullmatch(r"[\w-]*", place)
        if not isinstance(kind, str) or not isinstance(place, str) or not is_name:
            raise UserError(f"{path}: expected modules with type and path, got {shortened(entry)}")
        modules.append((kind.rpartition(".")[2], os.path.join(folder, place) if place else folder))
    return modules


def read(folder: str) -> Weights:
    """The model in a Hugging Face folder; with modules beside it, their settings and arrays belong to the model."""
    if recognizes(folder):
        return _read_modules(folder)
    weights, path = hugging_face.read(folder), os.path.join(folder, _ABOUT)
    activation = files.read_json(path).get("activation_fn") if files.exists(path) else None
    if not activation:
        return weights
    # A CrossEncoder of version 6; older versions have the same entry in config.json.
    foreign = {**weights.config.foreign, "sentence_transformers": {"activation_fn": activation}}
    return dataclasses.replace(weights, config=weights.config.replace(foreign=foreign))


def _read_modules(folder: str) -> Weights:
    (first, encoder), *others = _modules(folder)
    kinds = [kind for kind, _ in others]
    if first != "Transformer" or kinds not in (
        ["Pooling", *dense, *normalize]
        for dense in ([], ["Dense"])
        for normalize in ([], ["Normalize"])
    ):
        expected = "Transformer, Pooling, and perhaps Dense and Normalize"
        raise UserError(
            f"{folder}: has the modules {', '.join([first, *kinds])}, expected {expected}"
        )
    weights = hugging_face.read(encoder)
    places = dict(others)
    how: dict[str, Any] = {
        "pooling": _pooling(os.path.join(places["Pooling"], CONFIG)),
        "normalize": "Normalize" in places,
    }
    arrays = {name: array for name, array in weights.arrays.items() if name.startswith("bert/")}
    if "Dense" in places:
        projection, own = _projection(places["Dense"], weights.config)
        arrays.update(projection)
        how |= own
    foreign = {name: value for name, value in weights.config.foreign.items() if "label" not in name}
    config = weights.config.replace(foreign={**foreign, "sentence_embedding": how})
    length = _max_seq_length(encoder, config.max_position_embeddings)
    known = ("pooling", "normalize", "projection_size")
    task = {"max_seq_length": length, **{name: how[name] for name in known if name in how}}
    own_class = {"source": folder, "model_class": AlbertForEmbedding.__name__}
    return dataclasses.replace(
        weights, config=config, arrays=arrays, task_settings=task, **own_class
    )


def _pooling(path: str) -> str:
    values = files.read_json(path)
    names = {key: name for name, key in _POOLING_KEYS.items()} | {name: name for name in POOLINGS}
    # The name, or in older folders a switch for each kind, of which several may be on.
    switches = [name for name in values if name.startswith("pooling_mode_") and values[name]]
    chosen = [values["pooling_mode"]] if "pooling_mode" in values else switches
    if len(chosen) != 1 or not isinstance(chosen[0], str) or chosen[0] not in names:
        raise UserError(
            f"{path}: expected one pooling of {', '.join(POOLINGS)}; got {shortened(chosen)}"
        )
    return names[chosen[0]]


def _projection(folder: str, config: AlbertConfig) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a Dense module under our names, and its settings."""
    path = os.path.join(folder, CONFIG)
    name = files.read_json(path).get("activation_function", "")
    activation = next((ours for ours, theirs in _ACTIVATIONS.items() if theirs == name), None)
    if activation is None:
        known = ", ".join(_ACTIVATIONS.values())
        raise UserError(
            f"{path}: activation_function is {shortened(name)}, expected one of {known}"
        )
    tensors, _ = hugging_face.read_tensors(folder)
    weight = tensors.get("linear.weight")
    if weight is None or weight.ndim != 2 or weight.shape[1] != config.hidden_size:
        shape = "none" if weight is None else list(weight.shape)
        expected = f"[values, {config.hidden_size}]"
        raise UserError(f"{folder}: expected linear.weight {expected}, got {shape}")
    bias = tensors.get("linear.bias", np.zeros(len(weight)))
    arrays = {f"{_PROJECTION}kernel": weight.T, f"{_PROJECTION}bias": bias}
    how = {"projection_size": len(weight), "projection_activation": activation}
    return {key: array.astype(np.float32) for key, array in arrays.items()}, how


def _max_seq_length(folder: str, most: int) -> int:
    """The maximum length in the module's settings, or since version 6 in the tokenizer's; otherwise the model's."""
    for name, key in ((SETTINGS, "max_seq_length"), (TOKENIZER_SETTINGS, "model_max_length")):
        path = os.path.join(folder, name)
        value = files.read_json(path).get(key) if files.exists(path) else None
        if isinstance(value, int) and value > 2:
            return min(value, most)
    return most


def module_files(model: AlbertForEmbedding, task: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a folder that the Hugging Face layout does not have."""
    how, width = model.config.sentence_embedding, model.config.hidden_size
    pooling: dict[str, Any] = {"word_embedding_dimension": width}
    pooling |= {key: name == how["pooling"] for name, key in _POOLING_KEYS.items()}
    contents = {"1_Pooling": {CONFIG: _json(pooling)}}
    length = task.get("max_seq_length", model.config.max_position_embeddings)
    if model.projection:
        dense = {
            "in_features": width,
            "out_features": how["projection_size"],
            "bias": True,
            "activation_function": _ACTIVATIONS[how["projection_activation"]],
        }
        kernel, bias = model.projection.kernel.numpy(), model.projection.bias.numpy()
        tensors = {"linear.weight": np.ascontiguousarray(kernel.T), "linear.bias": bias}
        values = safetensors.numpy.save(tensors, metadata={"format": "pt"})
        contents["2_Dense"] = {CONFIG: _json(dense), hugging_face.WEIGHTS: values}
    if how["normalize"]:
        contents[f"{1 + len(contents)}_Normalize"] = {CONFIG: _json({})}
    places = ["", *contents]
    names = ["Transformer", *(place.partition("_")[2] for place in contents)]
    modules = [
        {"idx": number, "name": str(number), "path": place, "type": _PREFIX + name}
        for number, (place, name) in enumerate(zip(places, names, strict=True))
    ]
    about: dict[str, Any] = {
        "similarity_fn_name": "cosine",
        "prompts": {},
        "default_prompt_name": None,
    }
    return {
        MODULES: _json(modules),
        SETTINGS: _json({"max_seq_length": length, "do_lower_case": False}),
        _ABOUT: _json({"__version__": {}, **about}),
        **{
            f"{place}/{name}": content
            for place, own in contents.items()
            for name, content in own.items()
        },
    }


def _json(values: Any) -> bytes:
    return json.dumps(values, indent=2).encode() + b"\n"
