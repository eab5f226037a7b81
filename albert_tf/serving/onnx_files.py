"""Writes models as ONNX files, operation by operation, so that weights shared by layers are stored once.

The graphs mirror `model/encoder.py` and `model/heads.py`, and use their shape legend. docs/architecture.md explains why
no converter is used.
"""

from collections.abc import Collection, Sequence

from onnx import TensorProto

from albert_tf.core.errors import UserError
from albert_tf.model import encoder as layers
from albert_tf.model import heads, plain_ops
from albert_tf.model.heads import ModelWithHead
from albert_tf.model.pooling import parts_of
from albert_tf.model.vector_modules import DENSE, NORMALIZE
from albert_tf.serving import onnx_embedding, onnx_quantized
from albert_tf.serving.exports.form import BLOCK_SIZE
from albert_tf.serving.onnx_graph import Graph
from albert_tf.serving.onnx_model import INPUTS, MASKED_LM, MODEL
from albert_tf.serving.parts import parts_without


def convert(
    model: ModelWithHead,
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
    parts = parts_without(missing)
    make_graph = onnx_quantized.GRAPHS[quantization]
    graph = make_graph(model, block_size)
    contents = {MODEL: _model_file(graph, model, parts, has_hidden_states=has_hidden_states)}
    if isinstance(model, heads.AlbertForPreTraining) and "mlm" in parts:
        contents[MASKED_LM] = _masked_lm_file(make_graph(model, block_size), model)
    return contents


def _encoded(
    graph: Graph, encoder: layers.AlbertEncoder, ids: str, mask: str, segments: str
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


def _embedded(graph: Graph, layer: layers.Embeddings, ids: str, segments: str) -> str:
    words_BLE = graph.rows(layer.word_embeddings, ids)
    types_BLE = graph.op("Gather", graph.weight(layer.token_type_embeddings), segments)
    zero, length = graph.integers(0), graph.op("Shape", ids, start=1)
    table = graph.weight(layer.position_embeddings)
    positions_LE = graph.op("Slice", table, zero, length, zero)
    summed_BLE = graph.op("Add", graph.op("Add", words_BLE, types_BLE), positions_LE)
    return graph.layer_norm(layer.layer_norm, summed_BLE)


def _attended(graph: Graph, block: layers.AttentionBlock, hidden_BLD: str, bias_B11M: str) -> str:
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


def _fed_forward(graph: Graph, block: layers.FeedForwardBlock, hidden_BLD: str) -> str:
    inner_BLF = graph.activation(graph.dense(block.intermediate, hidden_BLD))
    update_BLD = graph.dense(block.output_dense, inner_BLF)
    return graph.layer_norm(block.layer_norm, graph.op("Add", update_BLD, hidden_BLD))


def _model_file(
    graph: Graph, model: ModelWithHead, parts: set[str], *, has_hidden_states: bool
) -> bytes:
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
            _add_embedding(graph, model, has_hidden_states=has_hidden_states)
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


def _masked_lm_file(graph: Graph, model: heads.AlbertForPreTraining) -> bytes:
    config, head = model.config, model.masked_lm_head
    hidden_BLD = _encoded(graph, model.encoder, *INPUTS)
    transformed_BLE = graph.activation(graph.dense(head.transform, hidden_BLD))
    normed_BLE = graph.layer_norm(head.layer_norm, transformed_BLE)
    rows_XE = graph.op("Reshape", normed_BLE, graph.integers(-1, config.embedding_size))
    table_VE = model.encoder.embeddings.word_embeddings
    logits_XV = graph.products_with_rows(rows_XE, table_VE, head.output_bias)
    length, width = graph.op("Shape", INPUTS[0], start=1), graph.integers(config.vocab_size)
    shape = graph.op("Concat", graph.integers(-1), length, width, axis=0)
    logits_BLV = graph.op("Reshape", logits_XV, shape)
    graph.output("logits", logits_BLV, "batch", "length", config.vocab_size)
    return graph.content(dict.fromkeys(INPUTS, ["batch", "length"]))


def _pooled(graph: Graph, encoder: layers.AlbertEncoder, ids: Sequence[str]) -> str:
    """`pooled_output` [B, D] of the three inputs."""
    return _pooled_of(graph, encoder, _encoded(graph, encoder, *ids))


def _pooled_of(graph: Graph, encoder: layers.AlbertEncoder, hidden_BLD: str) -> str:
    return graph.op("Tanh", graph.dense(encoder.pooler, graph.first(hidden_BLD)))


def _add_pretrained(graph: Graph, model: heads.AlbertForPreTraining, parts: set[str]) -> None:
    hidden_BLD, width = _encoded(graph, model.encoder, *INPUTS), model.config.hidden_size
    graph.output("last_hidden_state", hidden_BLD, "batch", "length", width)
    if "pooler" in parts:
        pooled_BD = _pooled_of(graph, model.encoder, hidden_BLD)
        graph.output("pooler_output", pooled_BD, "batch", width)
        if "sop" in parts:
            logits_B2 = graph.scores(model.sentence_order_head, pooled_BD)
            graph.output("sop_logits", logits_B2, "batch", 2)


def _add_embedding(
    graph: Graph, model: heads.AlbertForEmbedding, *, has_hidden_states: bool
) -> None:
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
    name = "sentence_embedding" if has_hidden_states else "embedding"
    graph.output(name, vectors_BD, "batch", model.config.vector_size)
    if has_hidden_states:
        width = model.config.hidden_size
        graph.output("last_hidden_state", hidden_BLD, "batch", "length", width)


def _activated(graph: Graph, activation: str, vectors_BD: str) -> str:
    return onnx_embedding.VECTOR_ACTIVATIONS[activation](graph, vectors_BD)


def _unit_length(graph: Graph, vectors_BD: str) -> str:
    norm_B1 = graph.op("ReduceL2", vectors_BD, graph.integers(1), keepdims=1)
    return graph.op("Div", vectors_BD, graph.op("Max", norm_B1, graph.number(1e-12)))


def _add_choices(graph: Graph, model: heads.AlbertForMultipleChoice) -> None:
    length = graph.op("Shape", INPUTS[0], start=2)
    shape = graph.op("Concat", graph.integers(-1), length, axis=0)
    flat = [graph.op("Reshape", name, shape) for name in INPUTS]
    scores_X1 = graph.scores(model.head, _pooled(graph, model.encoder, flat))
    logits_BC = graph.op("Reshape", scores_X1, graph.op("Shape", INPUTS[0], end=2))
    graph.output("logits", logits_BC, "batch", "choices")


def _add_span_or_none(graph: Graph, model: heads.AlbertForSpanOrNone) -> None:
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
