"""TF-Hub modules: the TF1 format (google/albert_base), TF2 SavedModels (tensorflow/albert_en_base), our own exports.

A module is never executed: its graph is parsed as a protocol buffer, and its variables are read as a checkpoint. If a
module has no configuration, its sizes are inferred from the shapes of its variables; the number of layers and of heads,
the activation and epsilon are inferred from its graph.
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.formats import model_garden, tf1
from albert_tf.formats.description import ASSETS, EXPORT
from albert_tf.formats.weights import Weights, only_vocabulary
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining

GRAPH, VARIABLES = "saved_model.pb", "variables/variables"

_TANH_FORM = np.float32(0.044715)  # of gelu; no other part of a graph contains this number
_EXACT_FORM = {"Erf", "Erfc"}  # operations of the exact gelu
# Operations of activations that this project does not have.
_OTHER_OPS = {"Elu", "Selu", "Sigmoid", "Softplus", "Softsign", "Relu6", "LeakyRelu"}
_Nodes = Iterable[node_def_pb2.NodeDef]
_MOST_NODES = 100_000  # run by a call of a model: functions of a malicious graph may call each other endlessly

# Field -> the variable, and the axis of it, that have this size.
_BLOCK = "bert/encoder/transformer/group_0/inner_group_0/"
_SIZES = {
    "vocab_size": ("bert/embeddings/word_embeddings", 0),
    "embedding_size": ("bert/embeddings/word_embeddings", 1),
    "max_position_embeddings": ("bert/embeddings/position_embeddings", 0),
    "type_vocab_size": ("bert/embeddings/token_type_embeddings", 0),
    "intermediate_size": (_BLOCK + "ffn_1/intermediate/dense/kernel", 1),
    "hidden_size": ("bert/pooler/dense/kernel", 0),
}
_NOT_IN_SHAPES = ("num_hidden_layers", "num_attention_heads", "hidden_act", "layer_norm_eps")


def recognizes(folder: str) -> bool:
    """Whether a folder contains a SavedModel of any model."""
    return files.exists(os.path.join(folder, GRAPH))


def read(folder: str) -> Weights:
    """The model of an unpacked module.

    If there is an `albert_config.json` in the folder or among its assets, it must agree with the variables and the
    graph; otherwise the sizes are inferred from these, and dropout rates are 0.
    """
    meta_graph = _meta_graph(os.path.join(folder, GRAPH))
    prefix = os.path.join(folder, VARIABLES)
    if not files.exists(prefix + ".index"):
        raise UserError(f"{folder}: expected a module's {VARIABLES}.index, found none")
    if files.exists(os.path.join(folder, ASSETS, EXPORT)):
        return _read_own(folder, prefix, meta_graph)
    if model_garden.recognizes(prefix):
        variables = model_garden.read_variables(prefix)
        arrays = model_garden.released_arrays(variables, folder)
        seen = _seen_in_shapes(arrays, folder)
        seen |= _seen_in_functions(meta_graph, model_garden.num_heads_of(variables), folder)
        # No variable contains this; the Garden's modules with a SentencePiece model lower-case
        # (lab/tools/export_tfhub_lib.py).
        do_lower_case: bool | None = True
    else:
        variables = tf1.read_arrays(prefix)
        arrays = {name.removeprefix("module/"): array for name, array in variables.items()}
        seen = _seen_in_shapes(arrays, folder)
        seen |= _seen_in_graph(meta_graph.graph_def.node, seen["hidden_size"], folder)
        do_lower_case = _do_lower_case(meta_graph)
    config = _config(folder, seen)
    vocabulary = only_vocabulary(os.path.join(folder, ASSETS))
    return Weights(folder, config, arrays, vocabulary=vocabulary, do_lower_case=do_lower_case)


def _meta_graph(path: str) -> meta_graph_pb2.MetaGraphDef:
    """The graph of a module; the TF1 format has two, and the one for inference is returned."""
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(files.read_bytes(path))
    except DecodeError as error:
        raise UserError(f"{path}: damaged SavedModel ({first_line(error)})") from None
    graphs = sorted(saved_model.meta_graphs, key=lambda graph: "train" in graph.meta_info_def.tags)
    if not graphs:
        raise UserError(f"{path}: damaged SavedModel (it contains no graph)")
    return graphs[0]


def _read_own(folder: str, prefix: str, meta_graph: meta_graph_pb2.MetaGraphDef) -> Weights:
    """The model of our own export: variables under their released names, and settings as assets."""
    assets = os.path.join(folder, ASSETS)
    about = files.read_json(os.path.join(assets, EXPORT))
    path = os.path.join(assets, tf1.CONFIG)
    config = AlbertConfig.from_dict(files.read_json(path), source=path)
    model_class = about.get("model_class")
    if not isinstance(model_class, str) or not isinstance(about.get("task"), dict):
        raise UserError(f"{os.path.join(assets, EXPORT)}: expected the settings of an export")
    without = _parts_without_values(meta_graph, model_class)
    arrays = model_garden.read_dictionary(prefix, "weights")
    left_out = tuple(name for name in arrays if name.startswith(without))
    arrays = {name: array for name, array in arrays.items() if name not in left_out}
    vocabulary = only_vocabulary(assets)
    settings = {name: about.get(name) for name in ("do_lower_case", "keep_accents")}
    return Weights(
        folder,
        config,
        arrays,
        model_class,
        vocabulary,
        task_settings=about["task"],
        left_out=left_out,
        **settings,
    )


def _parts_without_values(
    meta_graph: meta_graph_pb2.MetaGraphDef, model_class: str
) -> tuple[str, ...]:
    """Prefixes of variables that have only initial values: no signature of the export uses them."""
    signatures = meta_graph.signature_def
    heads = {"cls/predictions/": "mlm", "cls/seq_relationship/": "sop"}
    is_pretraining = model_class == AlbertForPreTraining.__name__
    prefixes = [start for start, head in heads.items() if is_pretraining and head not in signatures]
    if "tokens" in signatures and "pooled_output" not in signatures["tokens"].outputs:
        prefixes.append("bert/pooler/")
    return tuple(prefixes)


def _do_lower_case(meta_graph: meta_graph_pb2.MetaGraphDef) -> bool | None:
    """The value in the signature `tokenization_info` of the TF1 format; None if there is none."""
    # A signature that does not exist is treated as one without outputs.
    outputs = meta_graph.signature_def["tokenization_info"].outputs
    if "do_lower_case" not in outputs:
        return None
    name = outputs["do_lower_case"].name.removesuffix(":0")
    values = [value for other, value in _constants(meta_graph.graph_def.node) if other == name]
    return bool(values[0].item()) if values and values[0].size == 1 else None


# --- The sizes of a module ---


def _config(folder: str, seen: Mapping[str, Any]) -> AlbertConfig:
    """The configuration of a module, which must agree with the inferred values; without one, the inferred values."""
    for path in (os.path.join(folder, tf1.CONFIG), os.path.join(folder, ASSETS, tf1.CONFIG)):
        if files.exists(path):
            config = AlbertConfig.from_dict(files.read_json(path), source=path)
            for field, value in seen.items():
                if (ours := getattr(config, field)) != value:
                    raise UserError(f"{path}: {field} is {ours!r}, but the module has {value!r}")
            return config
    if unseen := [field for field in _NOT_IN_SHAPES if field not in seen]:
        hint = f"put the model's {tf1.CONFIG} into the folder"
        raise UserError(f"{folder}: its graph does not show {unseen[0]}; {hint}")
    return AlbertConfig.from_dict(dict(seen), source=folder)


def _seen_in_shapes(arrays: Mapping[str, np.ndarray], source: str) -> dict[str, int]:
    """The sizes inferred from the shapes and names of the variables."""
    seen = {}
    for field, (name, axis) in _SIZES.items():
        if name not in arrays or arrays[name].ndim != 2:
            examples = ", ".join(["", *sorted(arrays)[:3]])
            reason = f"it has no matrix {name}, but {len(arrays)} variables{examples}"
            raise UserError(f"{source}: is not an ALBERT: {reason}")
        seen[field] = arrays[name].shape[axis]
    for field, part in (("num_hidden_groups", "/group_"), ("inner_group_num", "/inner_group_")):
        matches = [re.search(part + r"(\d+)/", name) for name in arrays]
        seen[field] = len({match[1] for match in matches if match})
    return seen


def _seen_in_graph(nodes: _Nodes, hidden_size: int, source: str) -> dict[str, Any]:
    """Sizes inferred from the graph of the original, whose nodes are named after the scopes in its modeling.py."""
    layers = {re.search(r"/transformer/.*/layer_(\d+)/", node.name) for node in nodes}
    num_layers = len({match[1] for match in layers if match})
    # The query's kernel, a matrix [D, D], is reshaped to [D, N, H].
    num_heads = {
        int(value[1])
        for name, value in _constants(nodes)
        if "/attention_1/self/query/" in name and value.shape == (3,)
        if value[0] == value[1] * value[2] == hidden_size
    }
    ffn = [node for node in nodes if "/ffn_1/intermediate/dense/" in node.name]
    seen = _seen_epsilon(nodes, source) | _seen_activation(ffn, source)
    return seen | _known(num_layers, num_heads.pop() if len(num_heads) == 1 else 0)


def _seen_in_functions(
    meta_graph: meta_graph_pb2.MetaGraphDef, num_heads: int, source: str
) -> dict[str, Any]:
    """Sizes inferred from the graph of a call of the Garden's encoder."""
    nodes, num_layers = [], 0
    for node, variable in _executed(meta_graph, source):
        nodes.append(node)
        # Each layer reads each of the shared variables once.
        is_query = model_garden.without_scope(variable) == model_garden.QUERY
        num_layers += is_query and node.op == "ReadVariableOp"
    # The pooler always has a tanh.
    pooler = next((node for node in nodes if node.op == "Tanh"), None)
    activation = _seen_activation([node for node in nodes if node is not pooler], source)
    return {**_seen_epsilon(nodes, source), **activation, **_known(num_layers, num_heads)}


def _known(num_layers: int, num_heads: int) -> dict[str, int]:
    """The numbers of layers and heads that are not 0."""
    numbers = {"num_hidden_layers": num_layers, "num_attention_heads": num_heads}
    return {field: number for field, number in numbers.items() if number}


def _executed(
    meta_graph: meta_graph_pb2.MetaGraphDef, source: str
) -> Iterator[tuple[node_def_pb2.NodeDef, str]]:
    """The nodes that a call of the default signature runs; for each the variable of its first input, if it has one."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    functions = {f.signature.name: f for f in meta_graph.graph_def.library.function}
    variables = {
        name: node.attr["shared_name"].s.decode(errors="replace") or name
        for name, node in nodes.items()
        if node.op == "VarHandleOp"
    }

    def run(calls: _Nodes, bound: Mapping[str, str]):
        for node in calls:
            yield node, bound.get(node.input[0], "") if node.input else ""
            function = functions.get(node.attr["f"].func.name) if "f" in node.attr else None
            if function:
                arguments = zip(function.signature.input_arg, node.input, strict=False)
                inside = {arg.name: bound[name] for arg, name in arguments if name in bound}
                yield from run(function.node_def, inside)

    outputs = meta_graph.signature_def["serving_default"].outputs.values()
    starts = {output.name.split(":")[0] for output in outputs}
    executed = run([nodes[name] for name in sorted(starts) if name in nodes], variables)
    try:
        yield from itertools.islice(executed, _MOST_NODES)
        is_endless = next(executed, None) is not None
    except RecursionError:
        is_endless = True
    if is_endless:
        raise UserError(f"{source}: damaged SavedModel (its functions call each other without end)")


def _seen_activation(nodes: _Nodes, source: str) -> dict[str, str]:
    """The activation that the nodes compute; empty if there are no nodes."""
    counts = Counter(node.op for node in nodes)
    if unknown := sorted(_OTHER_OPS & counts.keys()):
        ours = "both forms of gelu, relu, tanh and linear"
        reason = f"its activation has the operation {unknown[0]}, but those here are {ours}"
        raise UserError(f"{source}: {reason}")
    if any(value.size == 1 and value.item() == _TANH_FORM for _, value in _constants(nodes)):
        return {"hidden_act": "gelu"}
    if _EXACT_FORM & counts.keys():
        return {"hidden_act": "gelu_exact"}
    name = "relu" if counts["Relu"] else "tanh" if counts["Tanh"] else "linear"
    return {"hidden_act": name} if counts else {}


def _seen_epsilon(nodes: _Nodes, source: str) -> dict[str, float]:
    """The epsilon of the LayerNorms; empty if there are none."""
    values = {
        value.item()
        for name, value in _constants(nodes)
        if re.search(r"/batchnorm(_\d+)?/add/y$", name) and value.size == 1
    }
    if len(values) > 1:
        epsilons = f"the epsilons {sorted(values)}, those here have one"
        raise UserError(f"{source}: its LayerNorms have {epsilons}")
    # Converted to decimal numbers: 1e-12, not the nearest float32.
    decimals = [float(np.format_float_scientific(np.float32(value))) for value in values]
    return {"layer_norm_eps": decimals[0]} if decimals else {}


def _constants(nodes: _Nodes) -> Iterator[tuple[str, np.ndarray]]:
    """The constants with up to three numbers, by the names of their nodes."""
    for node in nodes:
        if node.op != "Const":
            continue
        tensor = node.attr["value"].tensor
        size = np.prod([dim.size for dim in tensor.tensor_shape.dim] or [1])
        if 1 <= size <= 3 and tensor.dtype != tf.string.as_datatype_enum:
            try:
                yield node.name, tf.make_ndarray(tensor)
            except (TypeError, ValueError):
                continue  # damaged; its value is not needed in most cases
