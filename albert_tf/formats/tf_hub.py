"""TF-Hub modules: the TF1 format (google/albert_base) and SavedModels of TensorFlow 2 (tensorflow/albert_en_base).

A module is never executed: its variables are read as a checkpoint. Its configuration is in `albert_config.json`, in its
folder or among its assets; without one, it must be a released size.
"""

import dataclasses
import os
from collections.abc import Mapping

import numpy as np
from google.protobuf.message import DecodeError

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import checkpoint_files, description, model_garden, saved_model, tf1
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import ASSETS, GRAPH, TF1_CONFIG
from albert_tf.formats.weights import Weights, only_vocabulary, read_config
from albert_tf.model.config import MODEL_SIZES, AlbertConfig

# Field -> the variable, and the axis of it, that have this size.
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0/"
_SIZES = {
    "vocab_size": ("bert/embeddings/word_embeddings", 0),
    "max_position_embeddings": ("bert/embeddings/position_embeddings", 0),
    "type_vocab_size": ("bert/embeddings/token_type_embeddings", 0),
    "embedding_size": ("bert/embeddings/word_embeddings", 1),
    "hidden_size": ("bert/pooler/dense/kernel", 0),
    "intermediate_size": (_BLOCK + "ffn_1/intermediate/dense/kernel", 1),
}
_NO_ALBERT = (
    "is a SavedModel that is neither an export of this project nor an ALBERT of TF-Hub, so it cannot be read;"
    " give the folder or checkpoint that it was made from (docs/reference/models.md)"
)
_RELEASED = ("embedding_size", "hidden_size", "intermediate_size")  # which tell the sizes apart


def recognizes(path: str) -> bool:
    """Whether a folder contains a SavedModel of any model."""
    return files.exists(os.path.join(path, GRAPH))


def describe(path: str) -> Description:
    """The length in the configuration that was put into the folder, if there is one."""
    config = _config_in(path)
    return description.of_model(files.read_json(config), None) if config else Description()


def read_without_arrays(path: str) -> Weights:
    """The same without arrays, which are read nevertheless: sizes that no file contains are those of variables."""
    return dataclasses.replace(read(path), arrays={})


def read(path: str) -> Weights:
    """The model of an unpacked module."""
    prefix = saved_model.variables_of(path)
    graph = files.read_bytes(os.path.join(path, GRAPH))
    if checkpoint_files.has_objects(prefix):
        arrays = model_garden.read_arrays(prefix)
        # Modules of the Garden with a SentencePiece model lower-case (its tools/export_tfhub_lib.py).
        do_lower_case: bool | None = True
    else:
        variables = tf1.read_arrays(prefix)
        arrays = {name.removeprefix("module/"): array for name, array in variables.items()}
        do_lower_case = _do_lower_case(graph, path)
    if "bert/embeddings/word_embeddings" not in arrays:
        raise UserError(f"{path}: {_NO_ALBERT}")
    config = _config(path, arrays)
    vocabulary = only_vocabulary(os.path.join(path, ASSETS))
    return Weights(path, config, arrays, vocabulary=vocabulary, do_lower_case=do_lower_case)


def _config_in(folder: str) -> str:
    """The path of the configuration in a module's folder or among its assets; "" if there is none."""
    for path in (os.path.join(folder, TF1_CONFIG), os.path.join(folder, ASSETS, TF1_CONFIG)):
        if files.exists(path):
            return path
    return ""


def _config(folder: str, arrays: Mapping[str, np.ndarray]) -> AlbertConfig:
    """The configuration in a module's files or, without one, that of the released model with the same sizes."""
    path = _config_in(folder)
    if path:
        return read_config(path)

    if any(name not in arrays for name, _ in _SIZES.values()):
        raise UserError(f"{folder}: {_NO_ALBERT}")
    sizes_of_arrays = {field: arrays[name].shape[axis] for field, (name, axis) in _SIZES.items()}
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for size in MODEL_SIZES.values():
        if all(size[name] == sizes_of_arrays[name] for name in _RELEASED):
            return AlbertConfig(**{**size, **sizes_of_arrays, **without_dropout})
    raise UserError(f"{folder}: is not a released size; put its {TF1_CONFIG} into the folder")


def _do_lower_case(graph: bytes, folder: str) -> bool | None:
    """The value in the signature `tokenization_info` of the TF1 format; None if there is none."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        meta_graph = saved_model_pb2.SavedModel.FromString(graph).meta_graphs[0]
    except (DecodeError, IndexError):
        raise UserError(f"{folder}: damaged SavedModel") from None
    # A signature that does not exist is treated as one without outputs.
    output = meta_graph.signature_def["tokenization_info"].outputs["do_lower_case"]
    name = output.name.removesuffix(":0")
    values = [node.attr["value"].tensor for node in meta_graph.graph_def.node if node.name == name]
    return bool(tf.make_ndarray(values[0])) if values else None
