"""Checkpoints of TF Model Garden's `AlbertEncoder`, alone or in a pretraining model, with a configuration next to them.

These checkpoints are object-based (`tf.train.Checkpoint`): their keys are paths through the saved objects, which depend
on the program that saved them. The names of the variables do not depend on it, and the checkpoint's object graph
contains them; the Garden's own converter also uses them
(official/nlp/tools/tf2_albert_encoder_checkpoint_converter.py).
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import yaml
from tensorflow.core.protobuf import trackable_object_graph_pb2

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats import checkpoint_files, tf1
from albert_tf.formats.weights import Weights, as_matrix, only_vocabulary, variables_of
from albert_tf.model.config import AlbertConfig

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"

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
QUERY = "transformer/self_attention/query/kernel"
_OPTIONAL = ("embedding_projection/", "cls/")  # missing if E = D, or if there is no head

# Their field (official/nlp/configs/encoders.py, AlbertEncoderConfig) -> ours.
_FIELDS = {
    "embedding_width": "embedding_size",
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}


_LONGEST_PARAMETERS = 1 << 20  # bytes; PyYAML takes about 10 seconds for this size


def recognizes(prefix: str) -> bool:
    """Whether a prefix is that of an object-based checkpoint; false if the checkpoint is damaged."""
    try:
        with checkpoint_files.opened(prefix, "TF2") as reader:
            return reader.has_tensor(OBJECT_GRAPH)
    except UserError:
        return False


def read(prefix: str) -> Weights:
    """The model of a checkpoint.

    Args:
      prefix: path of the checkpoint without ".index". Its folder also contains the configuration (`albert_config.json`,
        `bert_config.json`, or a YAML or JSON file with the parameters of an experiment or an encoder) and possibly one
        SentencePiece model.

    Returns:
      The encoder, and the masked-LM head if it was saved; arrays of other heads keep their keys.
    """
    variables = read_variables(prefix)
    arrays = released_arrays(variables, prefix)
    path, config = _config_beside(prefix)
    of_encoder = ("an AlbertEncoder", 1)
    sizes = {"num_hidden_groups": of_encoder, "inner_group_num": of_encoder}
    sizes["num_attention_heads"] = (prefix, num_heads_of(variables))
    for field, (owner, size) in sizes.items():
        if getattr(config, field) != size:
            raise UserError(f"{path}: {field} is {getattr(config, field)}, but {owner} has {size}")
    return Weights(prefix, config, arrays, vocabulary=only_vocabulary(os.path.dirname(prefix)))


def read_variables(prefix: str) -> dict[str, np.ndarray]:
    """The float variables of an object-based checkpoint as float32, without those of optimizers.

    They are named as in the model, or by their keys if several variables have the same name.
    """
    with _opened(prefix) as (reader, graph):
        keys: dict[str, list[str]] = {}
        names = {
            value.checkpoint_key: value.full_name
            for node in graph.nodes
            for value in node.attributes
        }
        for key, name in names.items():
            if not key.startswith("optimizer/") and "/.OPTIMIZER_SLOT/" not in key:
                keys.setdefault(name, []).append(key)
        unique = {
            name if len(same) == 1 else key.removesuffix(_VALUE): key
            for name, same in keys.items()
            for key in same
        }
        return _arrays(reader, unique)


def read_dictionary(prefix: str, attribute: str) -> dict[str, np.ndarray]:
    """The float variables in a dictionary that is an attribute of the saved object, as float32, by their keys."""
    with _opened(prefix) as (reader, graph):
        children = {child.local_name: child.node_id for child in graph.nodes[0].children}
        if attribute not in children:
            raise ValueError(f"its object has no {attribute}")
        keys: dict[str, str] = {}
        for child in graph.nodes[children[attribute]].children:
            for value in graph.nodes[child.node_id].attributes:
                keys[child.local_name] = value.checkpoint_key
        return _arrays(reader, keys)


@contextlib.contextmanager
def _opened(prefix: str) -> Iterator[tuple[Any, trackable_object_graph_pb2.TrackableObjectGraph]]:
    """A checkpoint's reader and the graph of its objects; errors in the block become `UserError`s."""
    with checkpoint_files.opened(prefix, "TF2") as reader:
        content = reader.get_tensor(OBJECT_GRAPH)
        yield reader, trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)


def _arrays(reader: Any, keys: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Float32 arrays of the variables that contain floats; `keys` maps their keys to the names to use."""
    types = reader.get_variable_to_dtype_map()
    return {
        name: reader.get_tensor(key).astype(np.float32)
        for name, key in keys.items()
        if key not in types or types[key].is_floating
    }


def released_arrays(variables: Mapping[str, np.ndarray], source: str) -> dict[str, np.ndarray]:
    """An encoder's variables under the released names, as float32, with the attention kernels as matrices.

    The names of `variables` may have a scope before them. A variable without a released name keeps its own.
    """
    arrays = {}
    for name, array in variables.items():
        known = without_scope(name)
        # Unknown variables belong to other heads; the prefix "bert/" belongs to the encoder.
        released = _NAMES.get(known, known.removeprefix("bert/"))
        if released in arrays:
            reason = f"contains more than one variable {known}: which model is meant?"
            raise UserError(f"{source}: {reason}")
        arrays[released] = as_matrix(released, array)
    required = {name: ours for name, ours in _NAMES.items() if not name.startswith(_OPTIONAL)}
    if missing := [name for name, ours in required.items() if ours not in arrays]:
        examples = ", ".join(["", *sorted(variables)[:3]])
        reason = f"it has no variable {missing[0]}, but {len(variables)} others{examples}"
        raise UserError(f"{source}: is not an AlbertEncoder of the TF Model Garden: {reason}")
    return arrays


def num_heads_of(variables: Mapping[str, np.ndarray]) -> int:
    """The number of attention heads, N, in the shape of the query's kernel [D, N, H]; 0 if the shape is another one."""
    kernels = (array for name, array in variables.items() if without_scope(name) == QUERY)
    return next((kernel.shape[1] for kernel in kernels if kernel.ndim == 3), 0)


def without_scope(name: str) -> str:
    """The Garden's name of a variable, without the scope of another model as in "bert/cls/predictions/..."."""
    parts = name.split("/")
    endings = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((ending for ending in endings if ending in _NAMES), name)


def _config_beside(prefix: str) -> tuple[str, AlbertConfig]:
    """The configuration of a checkpoint, and the path of its file."""
    folder = os.path.dirname(prefix)
    for name in (tf1.CONFIG, "bert_config.json"):
        path = os.path.join(folder, name)
        if files.exists(path):
            return path, _config(files.read_json(path), path)
    for name in files.names_in(folder or "."):
        path = os.path.join(folder, name)
        for section in _encoder_sections(path):
            renamed = {_FIELDS.get(field, field): value for field, value in section.items()}
            return path, _config(renamed, path)
    expected = f"{tf1.CONFIG} or the YAML file of an ALBERT encoder beside the checkpoint"
    raise UserError(f"{prefix}: expected {expected}, found none")


def _encoder_sections(path: str) -> Iterator[Mapping[str, Any]]:
    """The parameters of ALBERT encoders in a YAML or JSON file, at any depth."""
    kind = path.rpartition(".")[2]
    if kind not in ("json", "yaml", "yml"):
        return
    try:
        content = files.read_bytes(path)
        if len(content) > _LONGEST_PARAMETERS:
            return
        is_json = kind == "json"
        value = files.parse_json(content, path) if is_json else yaml.load(content, _Loader)
    except Exception:  # PyYAML may raise any exception for another program's file
        return
    levels = [value]
    visited = set()  # a YAML file may contain the same level in many places
    while levels:
        level = levels.pop()
        if isinstance(level, Mapping) and id(level) not in visited:
            visited.add(id(level))
            if level.get("type") == "albert" and isinstance(level.get("albert"), Mapping):
                yield level["albert"]
            levels.extend(level.values())


class _Loader(yaml.SafeLoader):
    """A YAML loader without merge keys (<<): they copy levels, so that a short file could expand without limit."""

    def flatten_mapping(self, node):
        """Raises an error for merge keys, instead of inserting the levels that they name."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.constructor.ConstructorError(problem="has merge keys")


def _config(values: Mapping[str, Any], path: str) -> AlbertConfig:
    if "num_hidden_layers" not in values:
        change = "rename num_layers" if "num_layers" in values else "add it"
        reason = "the number of layers, which no variable's shape shows"
        raise UserError(f"{path}: has no num_hidden_layers, {reason}; {change}")
    return AlbertConfig.from_dict(dict(values), source=path)
