"""Folders of the sentence-transformers library: a Hugging Face folder with the modules that make a text's vector."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import embedding_modules, hugging_face, setfit
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import CONFIG, WEIGHTS
from albert_tf.formats.hugging_face.read import read_model
from albert_tf.formats.hugging_face.tensor_files import read_tensors
from albert_tf.formats.weights import Weights
from albert_tf.model.head_names import EMBEDDING, EMBEDDING_MODULES, EMBEDDING_PROJECTION
from albert_tf.model.pooling import ORDER_OF_SWITCHES, POOLINGS, parts_of
from albert_tf.model.vector_modules import (
    DENSE,
    LAYER_NORM,
    NORMALIZE,
    VECTOR_ACTIVATIONS,
    activation_of_torch,
)

if TYPE_CHECKING:
    from albert_tf.model.heads import AlbertForEmbedding

_PREFIX = "sentence_transformers.models."  # version 6 writes other names, and reads these, too


def recognizes(path: str) -> bool:
    """Whether a path is that of a folder with the modules of sentence embeddings."""
    return embedding_modules.recognizes(path)


def describe(path: str) -> Description:
    """The length and text cleaning of a folder's model, and the settings with which its vectors are made."""
    transformer, _ = embedding_modules.modules(path)
    model = hugging_face.describe(transformer)
    if model.task_name:  # trained here
        return model
    of_modules = embedding_modules.settings(path, model.max_position_embeddings or 0)
    cleaning = embedding_modules.cleaning(transformer, model.settings)
    settings = {**model.settings, **of_modules, **cleaning}
    return model._replace(task_name="embedding", settings=settings)


def read_without_arrays(path: str) -> Weights:
    """The encoder's configuration and vocabulary; the module Transformer may lower-case texts."""
    transformer, _ = embedding_modules.modules(path)
    weights = hugging_face.read_without_arrays(transformer)
    cleaning = embedding_modules.cleaning(transformer, vars(weights))
    return dataclasses.replace(weights, source=path, **cleaning)


def read(path: str) -> Weights:
    """The model in a folder: the encoder, and the settings and arrays of the modules after it."""
    setfit.remark_on_head(path)
    transformer, _ = embedding_modules.modules(path)
    weights = read_model(transformer)
    config = weights.config
    task = embedding_modules.settings(path, config.max_position_embeddings)
    embedding_modules.check_width(path, config.hidden_size)

    about = embedding_modules.about(path)
    about_path = os.path.join(path, embedding_modules.ABOUT)
    how: dict[str, Any] = {
        "pooling": task["pooling"],
        "normalize": task["normalize"],
        "similarity": embedding_modules.similarity(about, about_path),
    }

    arrays = {name: array for name, array in weights.arrays.items() if name.startswith("bert/")}
    width = config.hidden_size * len(parts_of(how["pooling"]))  # of the pooled vectors
    if embedding_modules.is_usual(path):
        for module in embedding_modules.layers(path):
            if module.kind == embedding_modules.DENSE:
                arrays_of_dense, activation = _dense(module.folder, width)
                for name, array in arrays_of_dense.items():
                    arrays[EMBEDDING_PROJECTION + name] = array
                size = len(arrays_of_dense["bias"])
                how["projection_size"] = size
                how["projection_activation"] = activation
                task["projection_size"] = size
    else:
        modules, arrays_of_modules = _further_modules(path, width)
        how["modules"] = modules
        arrays |= arrays_of_modules

    return dataclasses.replace(
        weights,
        **embedding_modules.cleaning(transformer, vars(weights)),
        source=path,
        config=config.replace(foreign={**config.foreign, "sentence_embedding": how}),
        arrays=arrays,
        model_class=EMBEDDING,
        task_settings={**weights.task_settings, **task},
    )


def _further_modules(folder: str, width: int) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The modules after the pooling, whose vectors have `width` values, as `vector_modules.py`; and their arrays."""
    modules: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for number, module in enumerate(embedding_modules.layers(folder)):
        arrays_of_module: dict[str, np.ndarray] = {}
        if module.kind == embedding_modules.DENSE:
            arrays_of_module, activation = _dense(module.folder, width)
            width = len(arrays_of_module["bias"])
            modules.append({"kind": DENSE, "size": width, "activation": activation})
        elif module.kind == embedding_modules.LAYER_NORM:
            arrays_of_module = _layer_norm(module.folder, width)
            modules.append({"kind": LAYER_NORM})
        else:
            modules.append({"kind": NORMALIZE})
        prefix = f"{EMBEDDING_MODULES}{number}/"
        arrays |= {prefix + name: array for name, array in arrays_of_module.items()}
    return modules, arrays


def _dense(folder: str, width: int) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a Dense module for vectors of `width` values under our names, and its activation."""
    path = os.path.join(folder, CONFIG)
    settings = files.read_json(path)
    # sentence-transformers makes a Dense without an entry with Tanh.
    name = settings.get("activation_function", VECTOR_ACTIVATIONS["tanh"].torch)
    activation = activation_of_torch(name) if isinstance(name, str) else ""
    if not activation:
        classes = [
            vector_activation.torch.rpartition(".")[2]
            for vector_activation in VECTOR_ACTIVATIONS.values()
        ]
        expected = f"expected a class of torch.nn: {', '.join(classes)}"
        raise UserError(f"{path}: activation_function is {shortened(name)}, {expected}")

    tensors, weights_path = read_tensors(folder)
    weight = tensors.get("linear.weight", np.zeros(0))
    if weight.shape[1:] != (width,):
        expected = f"linear.weight [values, {width}]"
        raise UserError(f"{weights_path}: expected {expected}, got {list(weight.shape)}")
    for key, size in (("in_features", width), ("out_features", len(weight))):
        if settings.get(key, size) != size:
            expected = f"linear.weight has {size}"
            raise UserError(f"{path}: {key} is {shortened(settings[key])}, but {expected}")
    bias = tensors.get("linear.bias", np.zeros(len(weight)))
    if bias.shape != (len(weight),):
        expected = f"linear.bias [{len(weight)}]"
        raise UserError(f"{weights_path}: expected {expected}, got {list(bias.shape)}")
    arrays = {"kernel": weight.T, "bias": bias}
    return {name: array.astype(np.float32) for name, array in arrays.items()}, activation


def _layer_norm(folder: str, width: int) -> dict[str, np.ndarray]:
    """The arrays of a LayerNorm module for vectors of `width` values under our names."""
    tensors, path = read_tensors(folder)
    arrays = {}
    for ours, theirs in (("gamma", "norm.weight"), ("beta", "norm.bias")):
        array = tensors.get(theirs, np.zeros(0))
        if array.shape != (width,):
            raise UserError(f"{path}: expected {theirs} [{width}], got {list(array.shape)}")
        arrays[ours] = array.astype(np.float32)
    return arrays


def module_files(model: "AlbertForEmbedding", task: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a folder that the Hugging Face layout does not have, by their paths."""
    how = model.config.sentence_embedding
    written = [_pooling_module(model)]
    for number, module in enumerate(how["modules"]):
        written.append(_further_module(module, model.module_layers.get(str(number))))
    if model.projection:
        written.append(_dense_module(model.projection, how["projection_activation"]))
    if how["normalize"]:
        written.append((embedding_modules.NORMALIZE, {}, {}))
    contents: dict[str, Any] = {}
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{_PREFIX}Transformer"}]
    for number, (kind, settings, tensors) in enumerate(written, start=1):
        place = f"{number}_{kind}"
        modules.append({"idx": number, "name": str(number), "path": place, "type": _PREFIX + kind})
        contents[f"{place}/{CONFIG}"] = files.json_bytes(settings)
        if tensors:
            content = safetensors.numpy.save(tensors, metadata={"format": "pt"})
            contents[f"{place}/{WEIGHTS}"] = content
    length = task.get("max_seq_length", model.config.max_position_embeddings)
    about = {"__version__": {}, "similarity_fn_name": how["similarity"], "prompts": {}}
    of_library = {
        embedding_modules.MODULES: modules,
        embedding_modules.SETTINGS: {"max_seq_length": length, "do_lower_case": False},
        embedding_modules.ABOUT: about,
    }
    return contents | {name: files.json_bytes(value) for name, value in of_library.items()}


# The kind of a module, the values of its `config.json`, and its tensors.
_Written = tuple[str, dict[str, Any], dict[str, np.ndarray]]


def _pooling_module(model: "AlbertForEmbedding") -> _Written:
    names = parts_of(model.config.sentence_embedding["pooling"])
    settings: dict[str, Any] = {"word_embedding_dimension": model.config.hidden_size}
    if names == [name for name in ORDER_OF_SWITCHES if name in names]:
        for name, pooling in POOLINGS.items():
            settings[pooling.sentence_transformers] = name in names
    else:  # only since version 6, poolings are in another order than that of the switches
        settings["pooling_mode"] = names
    return "Pooling", settings, {}


def _further_module(module: Mapping[str, Any], layer: Any) -> _Written:
    if module["kind"] == DENSE:
        return _dense_module(layer, module["activation"])
    if module["kind"] == NORMALIZE:
        return embedding_modules.NORMALIZE, {}, {}
    tensors = {"norm.weight": layer.gamma.numpy(), "norm.bias": layer.beta.numpy()}
    return embedding_modules.LAYER_NORM, {"dimension": len(tensors["norm.bias"])}, tensors


def _dense_module(layer: Any, activation: str) -> _Written:
    kernel = layer.kernel.numpy()
    bias = layer.bias.numpy()
    sizes = {"in_features": kernel.shape[0], "out_features": kernel.shape[1], "bias": True}
    settings = {**sizes, "activation_function": VECTOR_ACTIVATIONS[activation].torch}
    tensors = {"linear.weight": np.ascontiguousarray(kernel.T), "linear.bias": bias}
    return embedding_modules.DENSE, settings, tensors
