"""Writes models as ONNX files, operation by operation, so that weights shared by layers are stored once.

The graphs mirror `model/encoder.py` and `model/heads.py`, and use their shape legend. docs/architecture.md explains why
no converter is used.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from albert_tf.core.errors import UserError
from albert_tf.model import encoder as layers
from albert_tf.model import heads, plain_ops
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.heads import ModelWithHead, ScoreHead
from albert_tf.model.pooling import parts_of
from albert_tf.model.vector_modules import DENSE, NORMALIZE
from albert_tf.serving import onnx_embedding, quantization
from albert_tf.serving.onnx_model import INPUTS, MASKED_LM, MODEL
from albert_tf.serving.parts import parts_without

OPSET, IR_VERSION = 20, 9  # the first opset with Gelu, and the version of the format from its time
_IN_BYTES = ("kernel", "word_embeddings")  # names of the weights that can be stored as bytes


def convert(
    model: ModelWithHead, missing: Collection[str] = (), quantization: str = "none"
) -> dict[str, bytes]:
    """The contents of a model's ONNX files by name.

    Args:
      missing: released names of variables without trained values; outputs that need them are left out.
      quantization: "none"; "int8_weights" for weights of one byte, which an engine converts to float32 when it loads
        the file; or "int8" for products of bytes in the encoder, and other weights as in int8_weights.

    Returns:
      `model.onnx` maps `INPUTS`, int64 [B, L] (multiple choice: [B, C, L]), and for an `AlbertForSpanOrNone` also
      `p_mask`, to the outputs of the model's class. For an `AlbertForPreTraining` the outputs are `last_hidden_state`
      [B, L, D], `pooler_output` [B, D] and `sop_logits` [B, 2], and there is also `masked_lm.onnx`, with `logits` [B,
      L, V] for every position.
    """
    parts = parts_without(missing)
    contents = {MODEL: _model_file(_Graph(model, quantization), model, parts)}
    if isinstance(model, heads.AlbertForPreTraining) and "mlm" in parts:
        contents[MASKED_LM] = _masked_lm_file(_Graph(model, quantization), model)
    return contents


class _Graph:
    """Nodes, weights and outputs of a graph that is being built; values are identified by name."""

    def __init__(self, model: ModelWithHead, quantization: str):
        self.config = model.config
        self._quantization = quantization
        self._floats: dict[str, str] = {}  # weight stored in bytes -> its value in float32
        self._rounded: dict[str, list[str]] = {}  # value -> its bytes, their scale and zero point
        self._names = {variable.ref(): name for name, variable in model.named_variables().items()}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._outputs: list[onnx.ValueInfoProto] = []
        self._renamed: dict[str, str] = {}  # values that are outputs

    def op(self, operation: str, *inputs: str, **attributes) -> str:
        """The output of a new node."""
        name = f"{operation}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, inputs, [name], name=name, **attributes))
        return name

    def several(self, number: int, operation: str, *inputs: str, **attributes) -> list[str]:
        """The outputs of a new node that has several."""
        name = f"{operation}_{len(self._nodes)}"
        outputs = [f"{name}_{index}" for index in range(number)]
        self._nodes.append(helper.make_node(operation, inputs, outputs, name=name, **attributes))
        return outputs

    def weight(self, variable: tf.Variable) -> str:
        """The name of a variable's value, float32; the variable is stored at its first use only."""
        name = self._names[variable.ref()]
        if self._quantization == "none" or not name.endswith(_IN_BYTES):
            return self._constant(name, variable.numpy())
        if name not in self._floats:
            as_float = self.op("Cast", self._in_bytes(variable), to=TensorProto.FLOAT)
            self._floats[name] = self.op("Mul", as_float, f"{name}_scale")
        return self._floats[name]

    def _in_bytes(self, variable: tf.Variable) -> str:
        """The released name of a weight stored as int8; its scales have the name with "_scale"."""
        name = self._names[variable.ref()]
        if name not in self._constants:
            is_kernel = name.endswith("kernel")
            make = quantization.of_columns if is_kernel else quantization.of_rows
            for suffix, array in zip(("", "_scale"), make(variable.numpy()), strict=True):
                self._constant(name + suffix, array)
        return name

    def rows(self, table: tf.Variable, ids: str) -> str:
        """Rows of a table, float32."""
        if self._quantization == "none":
            return self.op("Gather", self.weight(table), ids)
        name = self._in_bytes(table)
        taken = self.op("Cast", self.op("Gather", name, ids), to=TensorProto.FLOAT)
        return self.op("Mul", taken, self.op("Gather", f"{name}_scale", ids))

    def product(self, value: str, kernel: tf.Variable) -> str:
        """[..., I] x [I, O] -> [..., O]; in the encoder, of bytes with int8."""
        name = self._names[kernel.ref()]
        if self._quantization != "int8" or not name.startswith("bert/encoder/"):
            return self.op("MatMul", value, self.weight(kernel))
        if value not in self._rounded:
            self._rounded[value] = self.several(3, "DynamicQuantizeLinear", value)
        in_bytes, scale, zero = self._rounded[value]
        sums = self.op("MatMulInteger", in_bytes, self._in_bytes(kernel), zero)
        scales = self.op("Mul", scale, f"{name}_scale")
        return self.op("Mul", self.op("Cast", sums, to=TensorProto.FLOAT), scales)

    def number(self, value: float) -> str:
        """A constant, float32."""
        return self._constant(f"number_{value:g}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """A constant vector, int64."""
        return self._constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _constant(self, name: str, array: np.ndarray) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def output(self, name: str, value: str, *dimensions: str | int, is_float: bool = True) -> None:
        """Makes a value an output of this name, float32 or int64."""
        self._renamed[value] = name
        kind = TensorProto.FLOAT if is_float else TensorProto.INT64
        self._outputs.append(helper.make_tensor_value_info(name, kind, dimensions))

    def content(self, inputs: Mapping[str, Sequence[str]]) -> bytes:
        """The file of this graph."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        infos = [
            helper.make_tensor_value_info(name, TensorProto.INT64, dimensions)
            for name, dimensions in inputs.items()
        ]
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, "albert", infos, self._outputs, constants)
        model = helper.make_model(
            graph,
            producer_name="albert-tf",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()

    def dense(self, layer: layers.Dense, value: str) -> str:
        """[..., I] -> [..., O]; the layer without its activation."""
        product = self.product(value, layer.kernel)
        return self.op("Add", product, self.weight(layer.bias)) if layer.use_bias else product

    def layer_norm(self, layer: layers.LayerNorm, value: str) -> str:
        """LayerNorm over the last axis."""
        weights = self.weight(layer.gamma), self.weight(layer.beta)
        return self.op("LayerNormalization", value, *weights, epsilon=layer.epsilon)

    def activation(self, value: str) -> str:
        """The activation of the configuration."""
        name = self.config.hidden_act
        operation = ACTIVATIONS[name].onnx
        if not operation:
            reason = f"hidden_act is {name}, which has no operation of ONNX here"
            raise UserError(f"--format=onnx: {reason}; export --format=saved_model")
        return self.op(operation[0], value, **operation[1])

    def scores(self, head: ScoreHead, value: str) -> str:
        """[..., D] -> [..., C]."""
        weights_DC = self.op("Transpose", self.weight(head.output_weights), perm=[1, 0])
        return self.op("Add", self.op("MatMul", value, weights_DC), self.weight(head.output_bias))

    def without_last(self, value: str) -> str:
        """[..., 1] -> [...]."""
        return self.op("Squeeze", value, self.integers(-1))

    def first(self, value_BLD: str) -> str:
        """The vector of [CLS], [B, D]."""
        index = self._constant("first", np.array(0, np.int64))
        return self.op("Gather", value_BLD, index, axis=1)


def _encoded(
    graph: _Graph, encoder: layers.AlbertEncoder, ids: str, mask: str, segments: str
) -> str:
    """`sequence_output` [B, L, D] of int64 [B, L]."""
    hidden = _embedded(graph, encoder.embeddings, ids, segments)
    if encoder.projection is not None:
        hidden = graph.dense(encoder.projection, hidden)
    is_padding = graph.op("Sub", graph.number(1), graph.op("Cast", mask, to=TensorProto.FLOAT))
    bias_BM = graph.op("Mul", is_padding, graph.number(plain_ops.NOT_ATTENDED))
    bias_B11M = graph.op("Unsqueeze", bias_BM, graph.integers(1, 2))
    for attention, ffn in zip(*encoder.blocks_in_order(), strict=True):
        hidden = _fed_forward(graph, ffn, _attended(graph, attention, hidden, bias_B11M))
    return hidden


def _embedded(graph: _Graph, layer: layers.Embeddings, ids: str, segments: str) -> str:
    words_BLE = graph.rows(layer.word_embeddings, ids)
    types_BLE = graph.op("Gather", graph.weight(layer.token_type_embeddings), segments)
    zero, length = graph.integers(0), graph.op("Shape", ids, start=1)
    table = graph.weight(layer.position_embeddings)
    positions_LE = graph.op("Slice", table, zero, length, zero)
    summed_BLE = graph.op("Add", graph.op("Add", words_BLE, types_BLE), positions_LE)
    return graph.layer_norm(layer.layer_norm, summed_BLE)


def _attended(graph: _Graph, block: layers.AttentionBlock, hidden_BLD: str, bias_B11M: str) -> str:
    config = graph.config
    heads_shape = graph.integers(0, 0, config.num_attention_heads, config.head_size)

    def split(layer: layers.Dense, *order: int) -> str:
        parts_BLNH = graph.op("Reshape", graph.dense(layer, hidden_BLD), heads_shape)
        return graph.op("Transpose", parts_BLNH, perm=order)

    query_BNLH, key_BNHM = split(block.query, 0, 2, 1, 3), split(block.key, 0, 2, 3, 1)
    scaled_BNLH = graph.op("Mul", query_BNLH, graph.number(config.head_size**-0.5))
    scores_BNLM = graph.op("Add", graph.op("MatMul", scaled_BNLH, key_BNHM), bias_B11M)
    probabilities_BNLM = graph.op("Softmax", scores_BNLM, axis=-1)
    context_BNLH = graph.op("MatMul", probabilities_BNLM, split(block.value, 0, 2, 1, 3))
    context_BLNH = graph.op("Transpose", context_BNLH, perm=[0, 2, 1, 3])
    context_BLD = graph.op("Reshape", context_BLNH, graph.integers(0, 0, config.hidden_size))
    update_BLD = graph.dense(block.output_dense, context_BLD)
    return graph.layer_norm(block.layer_norm, graph.op("Add", update_BLD, hidden_BLD))


def _fed_forward(graph: _Graph, block: layers.FeedForwardBlock, hidden_BLD: str) -> str:
    inner_BLF = graph.activation(graph.dense(block.intermediate, hidden_BLD))
    update_BLD = graph.dense(block.output_dense, inner_BLF)
    return graph.layer_norm(block.layer_norm, graph.op("Add", update_BLD, hidden_BLD))


def _model_file(graph: _Graph, model: ModelWithHead, parts: set[str]) -> bytes:
    inputs = dict.fromkeys(INPUTS, ["batch", "length"])
    match model:
        case heads.AlbertForPreTraining():
            _add_pretrained(graph, model, parts)
        case heads.AlbertForSequenceClassification():
            logits_BC = graph.scores(model.head, _pooled(graph, model.encoder, INPUTS))
            graph.output("logits", logits_BC, "batch", len(model.config.labels))
        case heads.AlbertForTokenClassification():
            logits_BLC = graph.scores(model.head, _encoded(graph, model.encoder, *INPUTS))
            graph.output("logits", logits_BLC, "batch", "length", len(model.config.labels))
        case heads.AlbertForEmbedding():
            _add_embedding(graph, model)
        case heads.AlbertForMultipleChoice():
            inputs = dict.fromkeys(INPUTS, ["batch", "choices", "length"])
            _add_choices(graph, model)
        case heads.AlbertForSpan():
            scores_BL2 = graph.scores(model.head, _encoded(graph, model.encoder, *INPUTS))
            halves = graph.several(2, "Split", scores_BL2, num_outputs=2, axis=-1)
            for name, part_BL1 in zip(("start_logits", "end_logits"), halves, strict=True):
                graph.output(name, graph.without_last(part_BL1), "batch", "length")
        case heads.AlbertForSpanOrNone():
            inputs["p_mask"] = ["batch", "length"]
            _add_span_or_none(graph, model)
        case _:
            kind = f"the models of this library, not for an {type(model).__name__}"
            raise UserError(f"--format=onnx is for {kind}; export --format=saved_model")
    return graph.content(inputs)


def _masked_lm_file(graph: _Graph, model: heads.AlbertForPreTraining) -> bytes:
    config, head = model.config, model.masked_lm_head
    hidden_BLD = _encoded(graph, model.encoder, *INPUTS)
    transformed_BLE = graph.activation(graph.dense(head.transform, hidden_BLD))
    normed_BLE = graph.layer_norm(head.layer_norm, transformed_BLE)
    # Unlike MatMul, Gemm accepts the table without a transposition, but it works on matrices only.
    rows_XE = graph.op("Reshape", normed_BLE, graph.integers(-1, config.embedding_size))
    table_VE = graph.weight(model.encoder.embeddings.word_embeddings)
    logits_XV = graph.op("Gemm", rows_XE, table_VE, graph.weight(head.output_bias), transB=1)
    length, width = graph.op("Shape", INPUTS[0], start=1), graph.integers(config.vocab_size)
    shape = graph.op("Concat", graph.integers(-1), length, width, axis=0)
    logits_BLV = graph.op("Reshape", logits_XV, shape)
    graph.output("logits", logits_BLV, "batch", "length", config.vocab_size)
    return graph.content(dict.fromkeys(INPUTS, ["batch", "length"]))


def _pooled(graph: _Graph, encoder: layers.AlbertEncoder, ids: Sequence[str]) -> str:
    """`pooled_output` [B, D] of the three inputs."""
    return _pooled_of(graph, encoder, _encoded(graph, encoder, *ids))


def _pooled_of(graph: _Graph, encoder: layers.AlbertEncoder, hidden_BLD: str) -> str:
    return graph.op("Tanh", graph.dense(encoder.pooler, graph.first(hidden_BLD)))


def _add_pretrained(graph: _Graph, model: heads.AlbertForPreTraining, parts: set[str]) -> None:
    hidden_BLD, width = _encoded(graph, model.encoder, *INPUTS), model.config.hidden_size
    graph.output("last_hidden_state", hidden_BLD, "batch", "length", width)
    if "pooler" in parts:
        pooled_BD = _pooled_of(graph, model.encoder, hidden_BLD)
        graph.output("pooler_output", pooled_BD, "batch", width)
        if "sop" in parts:
            logits_B2 = graph.scores(model.sentence_order_head, pooled_BD)
            graph.output("sop_logits", logits_B2, "batch", 2)


def _add_embedding(graph: _Graph, model: heads.AlbertForEmbedding) -> None:
    """See `heads.AlbertForEmbedding.call`."""
    how = model.config.sentence_embedding
    hidden_BLD = _encoded(graph, model.encoder, *INPUTS)
    mask_BL = graph.op("Cast", INPUTS[1], to=TensorProto.FLOAT)
    mask_BL1 = graph.op("Unsqueeze", mask_BL, graph.integers(2))
    names = parts_of(how["pooling"])
    pooled = [onnx_embedding.POOLINGS[name](graph, hidden_BLD, mask_BL1) for name in names]
    vectors_BD = graph.op("Concat", *pooled, axis=-1) if len(pooled) > 1 else pooled[0]
    for number, module in enumerate(how["modules"]):
        layer = model.module_layers.get(str(number))
        if module["kind"] == NORMALIZE:
            vectors_BD = _unit_length(graph, vectors_BD)
        elif module["kind"] == DENSE:
            vectors_BD = _activated(graph, module["activation"], graph.dense(layer, vectors_BD))
        else:
            vectors_BD = graph.layer_norm(layer, vectors_BD)
    if model.projection:
        projected_BD = graph.dense(model.projection, vectors_BD)
        vectors_BD = _activated(graph, how["projection_activation"], projected_BD)
    if how["normalize"]:
        vectors_BD = _unit_length(graph, vectors_BD)
    graph.output("embedding", vectors_BD, "batch", model.config.vector_size)


def _activated(graph: _Graph, activation: str, vectors_BD: str) -> str:
    return onnx_embedding.VECTOR_ACTIVATIONS[activation](graph, vectors_BD)


def _unit_length(graph: _Graph, vectors_BD: str) -> str:
    norm_B1 = graph.op("ReduceL2", vectors_BD, graph.integers(1), keepdims=1)
    return graph.op("Div", vectors_BD, graph.op("Max", norm_B1, graph.number(1e-12)))


def _add_choices(graph: _Graph, model: heads.AlbertForMultipleChoice) -> None:
    length = graph.op("Shape", INPUTS[0], start=2)
    shape = graph.op("Concat", graph.integers(-1), length, axis=0)
    flat = [graph.op("Reshape", name, shape) for name in INPUTS]
    scores_X1 = graph.scores(model.head, _pooled(graph, model.encoder, flat))
    logits_BC = graph.op("Reshape", scores_X1, graph.op("Shape", INPUTS[0], end=2))
    graph.output("logits", logits_BC, "batch", "choices")


def _add_span_or_none(graph: _Graph, model: heads.AlbertForSpanOrNone) -> None:
    """See `heads.AlbertForSpanOrNone.call`."""
    hidden_BLD = _encoded(graph, model.encoder, *INPUTS)
    mask_BL = graph.op("Cast", "p_mask", to=TensorProto.FLOAT)
    allowed_BL = graph.op("Sub", graph.number(1), mask_BL)
    penalty_BL = graph.op("Mul", mask_BL, graph.number(-1e30))

    start_BL = graph.without_last(graph.dense(model.start, hidden_BLD))
    start_BL = graph.op("Add", graph.op("Mul", start_BL, allowed_BL), penalty_BL)
    start_log_probs_BL = graph.op("LogSoftmax", start_BL, axis=-1)
    graph.output("start_log_probs", start_log_probs_BL, "batch", "length")

    one = graph.integers(1)
    probabilities_B1L = graph.op("Unsqueeze", graph.op("Softmax", start_BL, axis=-1), one)
    start_BD = graph.op("Squeeze", graph.op("MatMul", probabilities_B1L, hidden_BLD), one)
    both = graph.op("Concat", start_BD, graph.first(hidden_BLD), axis=-1)
    joined_BD = graph.op("Tanh", graph.dense(model.answer_hidden, both))
    graph.output("cls_logits", graph.without_last(graph.dense(model.answer, joined_BD)), "batch")

    num_starts, num_ends = model.num_starts, model.num_ends
    values, starts_BK = graph.several(2, "TopK", start_log_probs_BL, graph.integers(num_starts))
    graph.output("start_top_log_probs", values, "batch", num_starts)
    graph.output("start_top_index", starts_BK, "batch", num_starts, is_float=False)

    halves = graph.several(2, "Split", graph.weight(model.end_hidden.kernel), num_outputs=2, axis=0)
    indices = graph.op("Unsqueeze", starts_BK, graph.integers(-1))
    starts_BKD = graph.op("GatherND", hidden_BLD, indices, batch_dims=1)
    of_position_B1LD = graph.op("Unsqueeze", graph.op("MatMul", hidden_BLD, halves[0]), one)
    of_start_BKD = graph.op("MatMul", starts_BKD, halves[1])
    of_start_BK1D = graph.op("Unsqueeze", of_start_BKD, graph.integers(2))
    summed_BKLD = graph.op("Add", of_position_B1LD, of_start_BK1D)
    biased_BKLD = graph.op("Add", summed_BKLD, graph.weight(model.end_hidden.bias))
    normed_BKLD = graph.layer_norm(model.end_norm, graph.op("Tanh", biased_BKLD))
    end_BKL = graph.without_last(graph.dense(model.end, normed_BKLD))
    allowed_B1L, penalty_B1L = (graph.op("Unsqueeze", x, one) for x in (allowed_BL, penalty_BL))
    end_BKL = graph.op("Add", graph.op("Mul", end_BKL, allowed_B1L), penalty_B1L)
    ends = graph.op("LogSoftmax", end_BKL, axis=-1)
    best = graph.several(2, "TopK", ends, graph.integers(num_ends))
    flat, total = graph.integers(0, num_starts * num_ends), num_starts * num_ends
    for name, value in zip(("end_top_log_probs", "end_top_index"), best, strict=True):
        is_float = name == "end_top_log_probs"
        value = graph.op("Reshape", value, flat)
        graph.output(name, value, "batch", total, is_float=is_float)
