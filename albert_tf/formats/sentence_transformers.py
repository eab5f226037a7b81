"""Folders of the sentence-transformers library: a Hugging Face folder with the modules that make a text's vector."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import embedding_modules, hugging_face
from albert_tf.formats.description import CONFIG
from albert_tf.formats.weights import Weights
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForEmbedding
from albert_tf.model.pooling import POOLINGS

_PREFIX = "sentence_transformers.models."  # version 6 writes other names, and reads these, too
_ACTIVATIONS = {"identity": hugging_face.IDENTITY, "tanh": "torch.nn.modules.activation.Tanh"}
_PROJECTION = AlbertForEmbedding.head_prefix


def read(folder: str) -> Weights:
    """The model in a Hugging Face folder; with modules beside it, their settings and arrays belong to the model."""
    if embedding_modules.recognizes(folder):
        return _read_modules(folder)
    weights = hugging_face.read(folder)
    activation = embedding_modules.about(folder).get("activation_fn")
    if not activation:
        return weights
    # A CrossEncoder of version 6; older versions have the same entry in config.json.
    own = {"sentence_transformers": {"activation_fn": activation}}
    config = weights.config.replace(foreign={**weights.config.foreign, **own})
    return dataclasses.replace(weights, config=config)


def _read_modules(folder: str) -> Weights:
    places = embedding_modules.modules(folder)
    weights = hugging_face.read(places["Transformer"])
    config = weights.config
    task = embedding_modules.settings(folder, config.max_position_embeddings)
    how: dict[str, Any] = {name: task[name] for name in ("pooling", "normalize")}
    arrays = {name: array for name, array in weights.arrays.items() if name.startswith("bert/")}
    if "Dense" in places:
        projection, activation = _projection(places["Dense"], config)
        arrays.update(projection)
        size = len(projection[f"{_PROJECTION}bias"])
        how |= {"projection_size": size, "projection_activation": activation}
        task["projection_size"] = size
    return dataclasses.replace(
        weights,
        **embedding_modules.cleaning(places["Transformer"], vars(weights)),
        source=folder,
        config=config.replace(foreign={**config.foreign, "sentence_embedding": how}),
        arrays=arrays,
        model_class=AlbertForEmbedding.__name__,
        task_settings={**weights.task_settings, **task},
    )


def _projection(folder: str, config: AlbertConfig) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a Dense module under our names, and its activation."""
    path = os.path.join(folder, CONFIG)
    name = files.read_json(path).get("activation_function")
    activation = next((ours for ours, theirs in _ACTIVATIONS.items() if theirs == name), "")
    if not activation:
        known = " or ".join(_ACTIVATIONS.values())
        raise UserError(f"{path}: activation_function is {shortened(name)}, expected {known}")
    tensors, path = hugging_face.read_tensors(folder)
    weight = tensors.get("linear.weight", np.zeros(0))
    if weight.shape[1:] != (config.hidden_size,):
        expected = f"linear.weight [values, {config.hidden_size}]"
        raise UserError(f"{path}: expected {expected}, got {list(weight.shape)}")
    arrays = {"kernel": weight.T, "bias": tensors.get("linear.bias", np.zeros(len(weight)))}
    named = {_PROJECTION + key: array.astype(np.float32) for key, array in arrays.items()}
    return named, activation


def module_files(model: AlbertForEmbedding, task: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a folder that the Hugging Face layout does not have, by their paths."""
    how, width = model.config.sentence_embedding, model.config.hidden_size
    keys = {own.sentence_transformers: name == how["pooling"] for name, own in POOLINGS.items()}
    settings: dict[str, Any] = {"Pooling": {"word_embedding_dimension": width, **keys}}
    if model.projection:
        activation = {"activation_function": _ACTIVATIONS[how["projection_activation"]]}
        sizes = {"in_features": width, "out_features": how["projection_size"], "bias": True}
        settings["Dense"] = {**sizes, **activation}
    if how["normalize"]:
        settings["Normalize"] = {}
    names = ["Transformer", *settings]
    places = ["", *(f"{number}_{name}" for number, name in enumerate(settings, start=1))]
    modules = [
        {"idx": number, "name": str(number), "path": place, "type": _PREFIX + name}
        for number, (place, name) in enumerate(zip(places, names, strict=True))
    ]
    length = task.get("max_seq_length", model.config.max_position_embeddings)
    values = {
        embedding_modules.MODULES: modules,
        embedding_modules.SETTINGS: {"max_seq_length": length, "do_lower_case": False},
        embedding_modules.ABOUT: {"__version__": {}, "similarity_fn_name": "cosine", "prompts": {}},
        **dict(zip((f"{place}/{CONFIG}" for place in places[1:]), settings.values(), strict=True)),
    }
    contents = {name: files.json_bytes(value) for name, value in values.items()}
    if model.projection:
        kernel, bias = model.projection.kernel.numpy(), model.projection.bias.numpy()
        tensors = {"linear.weight": np.ascontiguousarray(kernel.T), "linear.bias": bias}
        path = f"2_Dense/{hugging_face.WEIGHTS}"
        contents[path] = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    return contents
