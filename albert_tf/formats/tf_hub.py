"""TF-Hub modules: the TF1 format (google/albert_base), TF2 SavedModels (tensorflow/albert_en_base), our own exports.

A module is never executed: its variables are read as a checkpoint. Its configuration is in `albert_config.json`, in its
folder or among its assets; without one, it must be a released size.
"""

import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import model_garden, tf1
from albert_tf.formats.description import ASSETS, EXPORT
from albert_tf.formats.weights import Weights, only_vocabulary, read_config, read_export
from albert_tf.model.config import MODEL_SIZES, AlbertConfig

GRAPH, VARIABLES = "saved_model.pb", "variables/variables"

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
_RELEASED = ("embedding_size", "hidden_size", "intermediate_size")  # which tell the sizes apart


def recognizes(folder: str) -> bool:
    """Whether a folder contains a SavedModel of any model."""
    return files.exists(os.path.join(folder, GRAPH))


def read(folder: str) -> Weights:
    """The model of an unpacked module."""
    prefix, assets = os.path.join(folder, VARIABLES), os.path.join(folder, ASSETS)
    if not files.exists(prefix + ".index"):
        raise UserError(f"{folder}: expected a module's {VARIABLES}.index, found none")
    if files.exists(os.path.join(assets, EXPORT)):
        return _read_own(folder, prefix)
    graph = files.read_bytes(os.path.join(folder, GRAPH))
    is_garden = model_garden.recognizes(prefix)
    if is_garden:
        arrays = model_garden.read_arrays(prefix)
    else:
        variables = tf1.read_arrays(prefix)
        arrays = {name.removeprefix("module/"): array for name, array in variables.items()}
    config = _config(folder, arrays)
    # Modules of the Garden with a SentencePiece model lower-case (lab/tools/export_tfhub_lib.py).
    do_lower_case = True if is_garden else _do_lower_case(graph, folder)
    vocabulary = only_vocabulary(assets)
    return Weights(folder, config, arrays, vocabulary=vocabulary, do_lower_case=do_lower_case)


def _config(folder: str, arrays: Mapping[str, np.ndarray]) -> AlbertConfig:
    for path in (os.path.join(folder, tf1.CONFIG), os.path.join(folder, ASSETS, tf1.CONFIG)):
        if files.exists(path):
            return read_config(path)
    if missing := [name for name, _ in _SIZES.values() if name not in arrays]:
        raise UserError(f"{folder}: is not an ALBERT: it has no variable {missing[0]}")
    seen = {field: arrays[name].shape[axis] for field, (name, axis) in _SIZES.items()}
    for size in MODEL_SIZES.values():
        if all(size[name] == seen[name] for name in _RELEASED):
            dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
            return AlbertConfig(**{**size, **seen, **dropout})
    raise UserError(f"{folder}: is not a released size; put its {tf1.CONFIG} into the folder")


def _do_lower_case(graph: bytes, folder: str) -> bool | None:
    """The value in the signature `tokenization_info` of the TF1 format; None if there is none."""
    try:
        meta_graph = saved_model_pb2.SavedModel.FromString(graph).meta_graphs[0]
    except (DecodeError, IndexError):
        raise UserError(f"{folder}: damaged SavedModel") from None
    # A signature that does not exist is treated as one without outputs.
    output = meta_graph.signature_def["tokenization_info"].outputs["do_lower_case"]
    name = output.name.removesuffix(":0")
    values = [node.attr["value"].tensor for node in meta_graph.graph_def.node if node.name == name]
    return bool(tf.make_ndarray(values[0])) if values else None


def _read_own(folder: str, prefix: str) -> Weights:
    """The model of our own export: variables under their released names, and settings as assets."""
    assets = os.path.join(folder, ASSETS)
    settings = read_export(os.path.join(assets, EXPORT))
    arrays = model_garden.read_dictionary(prefix, "weights")
    left_out = settings["left_out"]
    arrays = {name: array for name, array in arrays.items() if name not in left_out}
    config = read_config(os.path.join(assets, tf1.CONFIG))
    return Weights(folder, config, arrays, vocabulary=only_vocabulary(assets), **settings)
