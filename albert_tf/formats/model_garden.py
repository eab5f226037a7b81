"""Checkpoints of TF Model Garden's `AlbertEncoder`, alone or in a pretraining model, with a configuration next to them.

Keys of these checkpoints (`tf.train.Checkpoint`) depend on the program that saved them; the names of the variables,
which are in the checkpoint's object graph, do not.
"""

import os
import re
from typing import Any

import numpy as np
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import checkpoint_files, tf1
from albert_tf.formats.weights import Weights, as_matrix, only_vocabulary, read_config, variables_of

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
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


def recognizes(prefix: str) -> bool:
    """Whether a prefix is that of an object-based checkpoint; false if the checkpoint is damaged."""
    try:
        with checkpoint_files.opened(prefix, "TF2") as reader:
            return reader.has_tensor(_OBJECT_GRAPH)
    except UserError:
        return False


def read(prefix: str) -> Weights:
    """The encoder of a checkpoint, and the masked-LM head if it was saved; arrays of other heads keep their keys.

    Its folder also contains `albert_config.json` or `bert_config.json`, and possibly one vocabulary.
    """
    folder = os.path.dirname(prefix)
    paths = [os.path.join(folder, name) for name in (tf1.CONFIG, "bert_config.json")]
    path = next(filter(files.exists, paths), "")
    if not path:
        raise UserError(f"{prefix}: expected {tf1.CONFIG} beside the checkpoint, found none")
    config = read_config(path)
    arrays = read_arrays(prefix, config.num_attention_heads)
    return Weights(prefix, config, arrays, vocabulary=only_vocabulary(folder))


def read_arrays(prefix: str, num_heads: int | None = None) -> dict[str, np.ndarray]:
    """Variables as float32 under the released names, or their keys without one; attention kernels are matrices."""
    arrays: dict[str, np.ndarray] = {}
    with checkpoint_files.opened(prefix, "TF2") as reader:
        for value in (value for node in _nodes(reader) for value in node.attributes):
            key, known = value.checkpoint_key, _without_scope(value.full_name)
            if _OF_OPTIMIZER.search(key) or (array := reader.get_tensor(key)).dtype.kind != "f":
                continue
            if num_heads and known == _QUERY and array.shape[1:2] != (num_heads,):
                reason = f"num_attention_heads is {num_heads}, but {known} is {list(array.shape)}"
                raise UserError(f"{prefix}: {reason}")
            name = _NAMES.get(known, key.removeprefix("bert/"))
            arrays[name] = as_matrix(name, array.astype(np.float32))
    if _NAMES["word_embeddings/embeddings"] not in arrays:
        reason = "is not an AlbertEncoder of the TF Model Garden: it has no word embeddings"
        raise UserError(f"{prefix}: {reason}")
    return arrays


def read_dictionary(prefix: str, attribute: str) -> dict[str, np.ndarray]:
    """The variables in a dictionary that is an attribute of the saved object, by their keys."""
    with checkpoint_files.opened(prefix, "TF2") as reader:
        nodes = _nodes(reader)
        [number] = [one.node_id for one in nodes[0].children if one.local_name == attribute]
        return {
            child.local_name: reader.get_tensor(value.checkpoint_key).astype(np.float32)
            for child in nodes[number].children
            for value in nodes[child.node_id].attributes
        }


def _nodes(reader: Any) -> Any:
    return TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH)).nodes


def _without_scope(name: str) -> str:
    """The Garden's name of a variable, without the scope of another model as in "bert/cls/predictions/..."."""
    parts = name.split("/")
    endings = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((ending for ending in endings if ending in _NAMES), name)
