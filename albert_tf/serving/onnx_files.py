"""Writes models as ONNX files, operation by operation, so that weights shared by layers are stored once.

The graphs mirror `model/encoder.py` and `model/heads.py`, and use their shape legend. They are made of `Weights` under
their released names, without TensorFlow. docs/project/architecture.md explains why no converter is used.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from onnx import TensorProto

from albert_tf.core.errors import UserError
from albert_tf.formats.weights import Weights
from albert_tf.model import head_names
from albert_tf.model.config import AlbertConfig
from albert_tf.model.numbers import NOT_ATTENDED, NUM_ENDS, NUM_STARTS
from albert_tf.model.pooling import parts_of
from albert_tf.model.vector_modules import DENSE, LAYER_NORM_EPSILON, NORMALIZE
from albert_tf.serving import onnx_embedding, onnx_quantized
from albert_tf.serving.exports.form import BLOCK_SIZE
from albert_tf.serving.onnx_graph import Graph
from albert_tf.serving.onnx_model import INPUTS, MASKED_LM, MODEL
from albert_tf.serving.parts import parts_without
from albert_tf.serving.quantization import Rounding

Inputs = Mapping[str, Sequence[str]]  # names of inputs -> their dimensions
Graphs = dict[str, tuple[Graph, Inputs]]  # name of a file -> its graph and inputs

_HIDDEN_STATES = "hidden states"  # a part of an embedder for programs that pool by themselves
_WORDS = "bert/embeddings/word_embeddings"
_INPUTS: Inputs = dict.fromkeys(INPUTS, ["batch", "length"])
_INPUTS_OF: Mapping[str, Inputs] = {  # of models that have others
    head_names.MULTIPLE_CHOICE: dict.fromkeys(INPUTS, ["batch", "choices", "length"]),
    head_names.SPAN_OR_NONE: {**_INPUTS, "p_mask": ["batch", "length"]},
}


def convert(
    weights: Weights,
    missing: Collection[str] = (),
    quantization: str = "none",
    block_size: int = BLOCK_SIZE,
    *,
    has_hidden_states: bool = False,
) -> dict[str, bytes]:
    """The contents of a model's ONNX files by name.

    Args:
      missing: released names of variables without trained values; outputs that need them are left out.
      quantization: a key of `onnx_quantized.GRAPHS`, where each is explained.
      block_size: the number of weights that share a scale in "int4".
      has_hidden_states: whether an embedder's outputs are those of others' exports: `last_hidden_state` [B, L, D] and,
        instead of `embedding`, `sentence_embedding`.

    Returns:
      `model.onnx` maps `INPUTS`, int64 [B, L] (multiple choice: [B, C, L]), and for an `AlbertForSpanOrNone` also
      `p_mask`, to the outputs of the model's class. For an `AlbertForPreTraining` the outputs are `last_hidden_state`
      [B, L, D], `pooler_output` [B, D] and `sop_logits` [B, 2], and there is also `masked_lm.onnx`, with `logits` [B,
      L, V] for every position.
    """
    make_graph = onnx_quantized.GRAPHS[quantization]
    parts = parts_without(missing)
    if has_hidden_states:
        parts.add(_HIDDEN_STATES)
    return _contents(graphs_of(weights, parts, lambda: make_graph(weights, block_size)))


def calibrated(
    weights: Weights, missing: Collection[str], roundings: Sequence[Rounding]
) -> dict[str, bytes]:
    """`convert` for "int8_calibrated", with what `calibration.roundings_of` has measured."""

    def make() -> Graph:
        return onnx_quantized.ProductsByScale(weights, roundings)

    return _contents(graphs_of(weights, parts_without(missing), make))


def _contents(graphs: Graphs) -> dict[str, bytes]:
    return {name: graph.content(inputs) for name, (graph, inputs) in graphs.items()}


def in_memory(weights: Weights, missing: Collection[str]) -> dict[str, bytes]:
    """`convert` for this process: in float32, without the checks of a file that others read."""
    graphs = graphs_of(weights, parts_without(missing), lambda: Graph(weights, BLOCK_SIZE))
    return {
        name: graph.model(inputs).SerializeToString() for name, (graph, inputs) in graphs.items()
    }


def graphs_of(weights: Weights, parts: set[str], make_graph: Callable[[], Graph]) -> Graphs:
    """The graph of each file with its inputs; `parts` are those of the model that become outputs."""
    add = _MODELS.get(weights.model_class)
    if not add:
        kind = f"the models of this library, not for an {weights.model_class}"
        raise UserError(f"--format=onnx is for {kind}; export --format=saved_model")

    graph = make_graph()
    add(graph, parts)
    graphs = {MODEL: (graph, _INPUTS_OF.get(weights.model_class, _INPUTS))}
    if weights.model_class == head_names.PRETRAINING and "mlm" in parts:
        graph = make_graph()
        _add_masked_lm(graph)
        graphs[MASKED_LM] = graph, _INPUTS
    return graphs


def _encoded(graph: Graph, ids: str, mask: str, segments: str) -> str:
    """`sequence_output` [B, L, D] of int64 [B, L]."""
    config = graph.config
    hidden = _embedded(graph, ids, segments)
    if config.embedding_size != config.hidden_size:
        hidden = graph.dense("bert/encoder/embedding_hidden_mapping_in", hidden)
    is_padding = graph.op("Sub", graph.number(1), graph.op("Cast", mask, to=TensorProto.FLOAT))
    bias_BM = graph.op("Mul", is_padding, graph.number(NOT_ATTENDED))
    bias_B11M = graph.op("Unsqueeze", bias_BM, graph.integers(1, 2))
    for attention, feed_forward in _blocks_in_order(config):
        attended = _attended(graph, attention, hidden, bias_B11M)
        hidden = _fed_forward(graph, feed_forward, attended)
    return hidden


def _blocks_in_order(config: AlbertConfig) -> Iterator[tuple[str, str]]:
    """The beginnings of the names of the weights of each attention and feed-forward block, in their order."""
    for layer in range(config.num_hidden_layers):
        attention_group = config.attention_group_of_layer(layer)
        ffn_group = config.ffn_group_of_layer(layer)
        for inner in range(config.inner_group_num):
            yield (
                f"bert/encoder/transformer/group_{attention_group}/inner_group_{inner}/",
                f"bert/encoder/transformer/group_{ffn_group}/inner_group_{inner}/",
            )


def _embedded(graph: Graph, ids: str, segments: str) -> str:
    words_BLE = graph.rows(_WORDS, ids)
    types_BLE = graph.op("Gather", graph.weight("bert/embeddings/token_type_embeddings"), segments)
    zero = graph.integers(0)
    length = graph.op("Shape", ids, start=1)
    table = graph.weight("bert/embeddings/position_embeddings")
    positions_LE = graph.op("Slice", table, zero, length, zero)
    summed_BLE = graph.op("Add", graph.op("Add", words_BLE, types_BLE), positions_LE)
    return graph.layer_norm("bert/embeddings/LayerNorm", summed_BLE)


def _attended(graph: Graph, block: str, hidden_BLD: str, bias_B11M: str) -> str:
    config = graph.config
    heads_shape = graph.integers(0, 0, config.num_attention_heads, config.head_size)

    def split(name: str, *order: int) -> str:
        projected_BLD = graph.dense(f"{block}attention_1/self/{name}", hidden_BLD)
        parts_BLNH = graph.op("Reshape", projected_BLD, heads_shape)
        return graph.op("Transpose", parts_BLNH, perm=order)

    # [2, 4, 8, 8] x [2, 4, 8, 8] -> [2, 4, 8, 8]: 4 heads of 8 values, 8 tokens
    query_BNLH = split("query", 0, 2, 1, 3)
    key_BNHM = split("key", 0, 2, 3, 1)
    scaled_BNLH = graph.op("Mul", query_BNLH, graph.number(config.head_size**-0.5))
    scores_BNLM = graph.op("Add", graph.op("MatMul", scaled_BNLH, key_BNHM), bias_B11M)
    probabilities_BNLM = graph.op("Softmax", scores_BNLM, axis=-1)

    # [2, 4, 8, 8] -> [2, 8, 4, 8] -> [2, 8, 32]: the heads of a token side by side
    context_BNLH = graph.op("MatMul", probabilities_BNLM, split("value", 0, 2, 1, 3))
    context_BLNH = graph.op("Transpose", context_BNLH, perm=[0, 2, 1, 3])
    context_BLD = graph.op("Reshape", context_BLNH, graph.integers(0, 0, config.hidden_size))
    update_BLD = graph.dense(f"{block}attention_1/output/dense", context_BLD)
    return graph.layer_norm(f"{block}LayerNorm", graph.op("Add", update_BLD, hidden_BLD))


def _fed_forward(graph: Graph, block: str, hidden_BLD: str) -> str:
    inner_BLF = graph.activation(graph.dense(f"{block}ffn_1/intermediate/dense", hidden_BLD))
    update_BLD = graph.dense(f"{block}ffn_1/intermediate/output/dense", inner_BLF)
    return graph.layer_norm(f"{block}LayerNorm_1", graph.op("Add", update_BLD, hidden_BLD))


def _add_masked_lm(graph: Graph) -> None:
    """`logits` [B, L, V] for every position."""
    config = graph.config
    hidden_BLD = _encoded(graph, *INPUTS)
    transformed_BLE = graph.activation(graph.dense("cls/predictions/transform/dense", hidden_BLD))
    normed_BLE = graph.layer_norm("cls/predictions/transform/LayerNorm", transformed_BLE)
    rows_XE = graph.op("Reshape", normed_BLE, graph.integers(-1, config.embedding_size))
    logits_XV = graph.products_with_rows(rows_XE, _WORDS, "cls/predictions/output_bias")
    length = graph.op("Shape", INPUTS[0], start=1)
    width = graph.integers(config.vocab_size)
    shape = graph.op("Concat", graph.integers(-1), length, width, axis=0)
    logits_BLV = graph.op("Reshape", logits_XV, shape)
    graph.output("logits", logits_BLV, "batch", "length", config.vocab_size)


def _pooled(graph: Graph, hidden_BLD: str) -> str:
    """`pooled_output` [B, D]."""
    return graph.op("Tanh", graph.dense("bert/pooler/dense", graph.first(hidden_BLD)))


def _add_pretrained(graph: Graph, parts: set[str]) -> None:
    hidden_BLD = _encoded(graph, *INPUTS)
    width = graph.config.hidden_size
    graph.output("last_hidden_state", hidden_BLD, "batch", "length", width)
    if "pooler" in parts:
        pooled_BD = _pooled(graph, hidden_BLD)
        graph.output("pooler_output", pooled_BD, "batch", width)
        if "sop" in parts:
            logits_B2 = graph.scores("cls/seq_relationship/", pooled_BD)
            graph.output("sop_logits", logits_B2, "batch", 2)


def _add_sequence_scores(graph: Graph, parts: set[str]) -> None:
    """`logits` [B, C] of texts and pairs."""
    hidden_BLD = _encoded(graph, *INPUTS)
    how = graph.config.classifier_vector
    vectors_BD = _pooled(graph, hidden_BLD) if how is None else _vectors(graph, how, hidden_BLD)
    graph.output("logits", graph.scores("", vectors_BD), "batch", len(graph.config.labels))


def _add_token_scores(graph: Graph, parts: set[str]) -> None:
    """`logits` [B, L, C] of every token."""
    logits_BLC = graph.scores("", _encoded(graph, *INPUTS))
    graph.output("logits", logits_BLC, "batch", "length", len(graph.config.labels))


def _add_span(graph: Graph, parts: set[str]) -> None:
    """`start_logits` and `end_logits` [B, L]."""
    scores_BL2 = graph.scores("cls/squad/", _encoded(graph, *INPUTS))
    halves = graph.several(2, "Split", scores_BL2, num_outputs=2, axis=-1)
    for name, part_BL1 in zip(("start_logits", "end_logits"), halves, strict=True):
        graph.output(name, graph.without_last(part_BL1), "batch", "length")


def _add_embedding(graph: Graph, parts: set[str]) -> None:
    """See `heads.AlbertForEmbedding.call`."""
    hidden_BLD = _encoded(graph, *INPUTS)
    vectors_BD = _vectors(graph, graph.config.sentence_embedding, hidden_BLD)
    name = "sentence_embedding" if _HIDDEN_STATES in parts else "embedding"
    graph.output(name, vectors_BD, "batch", graph.config.vector_size)
    if _HIDDEN_STATES in parts:
        width = graph.config.hidden_size
        graph.output("last_hidden_state", hidden_BLD, "batch", "length", width)


def _vectors(graph: Graph, how: Mapping[str, Any], hidden_BLD: str) -> str:
    """The vectors of texts, made as `AlbertConfig.sentence_embedding` describes it."""
    mask_BL = graph.op("Cast", INPUTS[1], to=TensorProto.FLOAT)
    mask_BL1 = graph.op("Unsqueeze", mask_BL, graph.integers(2))
    names = parts_of(how["pooling"])
    pooled = [onnx_embedding.POOLINGS[name](graph, hidden_BLD, mask_BL1) for name in names]
    vectors_BD = graph.op("Concat", *pooled, axis=-1) if len(pooled) > 1 else pooled[0]
    for number, module in enumerate(how["modules"]):
        layer = f"{head_names.EMBEDDING_MODULES}{number}"
        if module["kind"] == NORMALIZE:
            vectors_BD = _unit_length(graph, vectors_BD)
        elif module["kind"] == DENSE:
            vectors_BD = _activated(graph, module["activation"], graph.dense(layer, vectors_BD))
        else:
            vectors_BD = graph.layer_norm(layer, vectors_BD, LAYER_NORM_EPSILON)
    if how["projection_size"]:
        projected_BD = graph.dense(head_names.EMBEDDING_PROJECTION.rstrip("/"), vectors_BD)
        vectors_BD = _activated(graph, how["projection_activation"], projected_BD)
    return _unit_length(graph, vectors_BD) if how["normalize"] else vectors_BD


def _activated(graph: Graph, activation: str, vectors_BD: str) -> str:
    return onnx_embedding.VECTOR_ACTIVATIONS[activation](graph, vectors_BD)


def _unit_length(graph: Graph, vectors_BD: str) -> str:
    norm_B1 = graph.op("ReduceL2", vectors_BD, graph.integers(1), keepdims=1)
    return graph.op("Div", vectors_BD, graph.op("Max", norm_B1, graph.number(1e-12)))


def _add_choices(graph: Graph, parts: set[str]) -> None:
    """`logits` [B, C] of inputs [B, C, L]."""
    length = graph.op("Shape", INPUTS[0], start=2)
    shape = graph.op("Concat", graph.integers(-1), length, axis=0)
    flat = [graph.op("Reshape", name, shape) for name in INPUTS]
    scores_X1 = graph.scores("", _pooled(graph, _encoded(graph, *flat)))
    logits_BC = graph.op("Reshape", scores_X1, graph.op("Shape", INPUTS[0], end=2))
    graph.output("logits", logits_BC, "batch", "choices")


# --- Spans or no answer: example shapes of B = 2 texts, L = 8 tokens, D = 32, K = 5 starts with 5 ends each ---


class _Allowed(NamedTuple):
    """Keeps positions outside of the passage from being chosen: score x factor + penalty.

    Both are [2, 8]: 1 and 0 where a position is allowed, 0 and -1e30 elsewhere.
    """

    factor_BL: str
    penalty_BL: str


def _add_span_or_none(graph: Graph, parts: set[str]) -> None:
    """See `heads.AlbertForSpanOrNone.call`."""
    hidden_BLD = _encoded(graph, *INPUTS)
    mask_BL = graph.op("Cast", "p_mask", to=TensorProto.FLOAT)
    factor_BL = graph.op("Sub", graph.number(1), mask_BL)
    penalty_BL = graph.op("Mul", mask_BL, graph.number(-1e30))
    allowed = _Allowed(factor_BL, penalty_BL)

    start_BL = graph.without_last(graph.dense("start_logits/dense", hidden_BLD))
    start_BL = graph.op("Add", graph.op("Mul", start_BL, factor_BL), penalty_BL)
    starts_BK = _add_starts(graph, start_BL)
    _add_answer_class(graph, start_BL, hidden_BLD)
    _add_ends(graph, starts_BK, hidden_BLD, allowed)


def _add_starts(graph: Graph, start_BL: str) -> str:
    """Scores [2, 8] of starts -> their logarithms of probabilities, and of the K best ones; returns these, [2, 5]."""
    log_probs_BL = graph.op("LogSoftmax", start_BL, axis=-1)
    graph.output("start_log_probs", log_probs_BL, "batch", "length")

    best_BK, starts_BK = graph.several(2, "TopK", log_probs_BL, graph.integers(NUM_STARTS))
    graph.output("start_top_log_probs", best_BK, "batch", NUM_STARTS)
    graph.output("start_top_index", starts_BK, "batch", NUM_STARTS, is_float=False)
    return starts_BK


def _add_answer_class(graph: Graph, start_BL: str, hidden_BLD: str) -> None:
    """`cls_logits` [2], whether there is no answer: from the state of the expected start and of [CLS]."""
    second_axis = graph.integers(1)
    # [2, 1, 8] x [2, 8, 32] -> [2, 1, 32] -> [2, 32]: the mean of all states by the probability of a start.
    probabilities_BL = graph.op("Softmax", start_BL, axis=-1)
    probabilities_B1L = graph.op("Unsqueeze", probabilities_BL, second_axis)
    start_B1D = graph.op("MatMul", probabilities_B1L, hidden_BLD)
    start_BD = graph.op("Squeeze", start_B1D, second_axis)

    # [2, 64] -> [2, 32] -> [2, 1] -> [2]
    start_and_cls = graph.op("Concat", start_BD, graph.first(hidden_BLD), axis=-1)
    joined_BD = graph.op("Tanh", graph.dense("answer_class/dense_0", start_and_cls))
    answer_B1 = graph.product(joined_BD, "answer_class/dense_1/kernel")
    graph.output("cls_logits", graph.without_last(answer_B1), "batch")


def _add_ends(graph: Graph, starts_BK: str, hidden_BLD: str, allowed: _Allowed) -> None:
    """The best ends of each of the best starts, [2, 25], and the logarithms of their probabilities."""
    second_axis = graph.integers(1)
    # The states at the starts, [2, 5, 32]
    indices_BK1 = graph.op("Unsqueeze", starts_BK, graph.integers(-1))
    starts_BKD = graph.op("GatherND", hidden_BLD, indices_BK1, batch_dims=1)

    # A dense layer of the states of position and start, [2, 5, 8, 64] -> [2, 5, 8, 32]. The kernel [64, 32] is split,
    # so that each half is multiplied once per position or start instead of once per pair of both.
    kernel = graph.weight("end_logits/dense_0/kernel")
    of_positions, of_starts = graph.several(2, "Split", kernel, num_outputs=2, axis=0)
    position_BLD = graph.op("MatMul", hidden_BLD, of_positions)
    position_B1LD = graph.op("Unsqueeze", position_BLD, second_axis)
    start_BKD = graph.op("MatMul", starts_BKD, of_starts)
    start_BK1D = graph.op("Unsqueeze", start_BKD, graph.integers(2))
    summed_BKLD = graph.op("Add", position_B1LD, start_BK1D)
    biased_BKLD = graph.op("Add", summed_BKLD, graph.weight("end_logits/dense_0/bias"))

    # [2, 5, 8, 32] -> [2, 5, 8]: a score of each end for each start
    normed_BKLD = graph.layer_norm("end_logits/LayerNorm", graph.op("Tanh", biased_BKLD))
    end_BKL = graph.without_last(graph.dense("end_logits/dense_1", normed_BKLD))
    factor_B1L = graph.op("Unsqueeze", allowed.factor_BL, second_axis)
    penalty_B1L = graph.op("Unsqueeze", allowed.penalty_BL, second_axis)
    end_BKL = graph.op("Add", graph.op("Mul", end_BKL, factor_B1L), penalty_B1L)

    # [2, 5, 5] -> [2, 25]
    log_probs_BKL = graph.op("LogSoftmax", end_BKL, axis=-1)
    best, ends = graph.several(2, "TopK", log_probs_BKL, graph.integers(NUM_ENDS))
    total = NUM_STARTS * NUM_ENDS
    flat = graph.integers(0, total)
    graph.output("end_top_log_probs", graph.op("Reshape", best, flat), "batch", total)
    ends = graph.op("Reshape", ends, flat)
    graph.output("end_top_index", ends, "batch", total, is_float=False)


# Class of a model -> what adds it to a graph, with those of its parts that become outputs.
_MODELS: Mapping[str, Callable[[Graph, set[str]], None]] = {
    head_names.PRETRAINING: _add_pretrained,
    head_names.SEQUENCE_CLASSIFICATION: _add_sequence_scores,
    head_names.TOKEN_CLASSIFICATION: _add_token_scores,
    head_names.MULTIPLE_CHOICE: _add_choices,
    head_names.SPAN: _add_span,
    head_names.SPAN_OR_NONE: _add_span_or_none,
    head_names.EMBEDDING: _add_embedding,
}
