"""Checkpoints of TF Model Garden's `AlbertEncoder`, alone or in a pretraining model, with a configuration next to them.

Keys of these checkpoints (`tf.train.Checkpoint`) depend on the program that saved them; the names of the variables,
which are in the checkpoint's object graph, do not.
"""

import dataclasses
import os
import re
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import checkpoint_files, description
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import TF1_CONFIG
from albert_tf.formats.weights import Weights, as_matrix, only_vocabulary, read_config, variables_of

_OF_OPTIMIZER = re.compile(r"^optimizer/|/\.OPTIMIZER_SLOT/")  # in keys

# The Garden's layer -> released name.
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0/"
_LAYERS = {
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
    "transformer/self_attention/query": _BLOCK + "attention_1/self/query",
    "transformer/self_attention/key": _BLOCK + "attention_1/self/key",
    "transformer/self_attention/value": _BLOCK + "attention_1/self/value",
    "transformer/self_attention/attention_output": _BLOCK + "attention_1/output/dense",
    "transformer/self_attention_layer_norm": _BLOCK + "LayerNorm",
    "transformer/intermediate": _BLOCK + "ffn_1/intermediate/dense",
    "transformer/output": _BLOCK + "ffn_1/intermediate/output/dense",
    "transformer/output_layer_norm": _BLOCK + "LayerNorm_1",
    "pooler_transform": "bert/pooler/dense",
    "cls/predictions/transform/dense": "cls/predictions/transform/dense",
    "cls/predictions/transform/LayerNorm": "cls/predictions/transform/LayerNorm",
}
_NAMES = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
    **{
        f"{theirs}/{variable}": f"{ours}/{variable}"
        for theirs, ours in _LAYERS.items()
        for variable in variables_of(ours)
    },
}
_QUERY = "transformer/self_attention/query/kernel"


def recognizes(path: str) -> bool:
    """Whether a path is that of a checkpoint of objects, or of a folder with one."""
    prefix = checkpoint_files.prefix_of(path)
    return prefix != "" and checkpoint_files.has_objects(prefix)


def describe(path: str) -> Description:
    """The length in the configuration beside a checkpoint."""
    config = _config_beside(checkpoint_files.prefix_of(path))
    return description.of_model(files.read_json(config), None)


def read_without_arrays(path: str) -> Weights:
    """The configuration beside a checkpoint, and the vocabulary if there is one."""
    prefix = checkpoint_files.prefix_of(path)
    config = read_config(_config_beside(prefix))
    vocabulary = only_vocabulary(os.path.dirname(prefix))
    return Weights(prefix, config, {}, vocabulary=vocabulary)


def read(path: str) -> Weights:
    """The encoder of a checkpoint, and the masked-LM head if it was saved; arrays of other heads keep their keys.

    Its folder also contains `albert_config.json` or `bert_config.json`, and possibly one vocabulary.
    """
    weights = read_without_arrays(path)
    arrays = read_arrays(weights.source, weights.config.num_attention_heads)
    if _NAMES["word_embeddings/embeddings"] not in arrays:
        reason = "is not an AlbertEncoder of the TF Model Garden: it has no word embeddings"
        raise UserError(f"{weights.source}: {reason}")
    return dataclasses.replace(weights, arrays=arrays)


def _config_beside(prefix: str) -> str:
    """The path of the configuration in the folder of a checkpoint; an error if there is none."""
    for name in (TF1_CONFIG, "bert_config.json"):
        path = os.path.join(os.path.dirname(prefix), name)
        if files.exists(path):
            return path
    raise UserError(f"{prefix}: expected {TF1_CONFIG} beside the checkpoint, found none")


def read_arrays(prefix: str, num_heads: int | None = None) -> dict[str, np.ndarray]:
    """Variables as float32 under the released names, or their keys without one; attention kernels are matrices."""
    arrays: dict[str, np.ndarray] = {}
    with checkpoint_files.opened(prefix, "TF2") as reader:
        variables = [variable for node in _nodes(reader) for variable in node.attributes]
        for variable in variables:
            key = variable.checkpoint_key
            if _OF_OPTIMIZER.search(key):
                continue
            array = reader.get_tensor(key)
            if array.dtype.kind != "f":
                continue

            their_name = _without_scope(variable.full_name)
            # [D, N, H]: a wrong number of heads would make a matrix of the right shape.
            if num_heads and their_name == _QUERY and array.shape[1:2] != (num_heads,):
                reason = (
                    f"num_attention_heads is {num_heads}, but {their_name} is {list(array.shape)}"
                )
                raise UserError(f"{prefix}: {reason}")
            name = _NAMES.get(their_name, key.removeprefix("bert/"))
            arrays[name] = as_matrix(name, array.astype(np.float32))
    return arrays


def read_dictionary(prefix: str, attribute: str) -> dict[str, np.ndarray]:
    """The variables in a dictionary that is an attribute of the saved object, by their keys."""
    with checkpoint_files.opened(prefix, "TF2") as reader:
        nodes = _nodes(reader)
        [number] = [child.node_id for child in nodes[0].children if child.local_name == attribute]
        return {
            child.local_name: reader.get_tensor(variable.checkpoint_key).astype(np.float32)
            for child in nodes[number].children
            for variable in nodes[child.node_id].attributes
        }


def _nodes(reader: Any) -> Any:
    """The nodes of a checkpoint's graph of objects."""
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    graph = reader.get_tensor(checkpoint_files.OBJECT_GRAPH)
    return TrackableObjectGraph.FromString(graph).nodes


def _without_scope(name: str) -> str:
    """The Garden's name of a variable, without the scope of another model as in "bert/cls/predictions/..."."""
    parts = name.split("/")
    endings = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((ending for ending in endings if ending in _NAMES), name)
