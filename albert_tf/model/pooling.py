"""The kinds of pooling: how the hidden states of a text become one vector.

This file imports no TensorFlow: the sizes of a model are checked before TensorFlow is loaded. Shape legend:
`encoder.py`; a mask has 1 for a token and 0 for padding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Pooling(NamedTuple):
    """One kind of pooling."""

    help: str  # what it is, for the flag
    pool: Callable[..., Any]  # (tensorflow, hidden_BLD, mask_BL1) -> vectors [B, D]; all float32
    add_onnx: Callable[..., str]  # the same with a graph of `serving/onnx_files.py`, by names
    sentence_transformers: str  # its key in files of version 5 and older; version 6 reads it, too


def _mean(tf, hidden_BLD, mask_BL1):
    count_B1 = tf.maximum(tf.reduce_sum(mask_BL1, axis=1), 1.0)
    return tf.reduce_sum(hidden_BLD * mask_BL1, axis=1) / count_B1


def _onnx_mean(graph, hidden_BLD, mask_BL1):
    one, masked_BLD = graph.integers(1), graph.op("Mul", hidden_BLD, mask_BL1)
    count_B1 = graph.op("ReduceSum", mask_BL1, one, keepdims=0)
    total_BD = graph.op("ReduceSum", masked_BLD, one, keepdims=0)
    return graph.op("Div", total_BD, graph.op("Max", count_B1, graph.number(1)))


def _max(tf, hidden_BLD, mask_BL1):
    return tf.reduce_max(hidden_BLD * mask_BL1 - 1e9 * (1.0 - mask_BL1), axis=1)


def _onnx_max(graph, hidden_BLD, mask_BL1):
    padding_BL1 = graph.op("Sub", graph.number(1), mask_BL1)
    penalty_BL1 = graph.op("Mul", padding_BL1, graph.number(-1e9))
    masked_BLD = graph.op("Add", graph.op("Mul", hidden_BLD, mask_BL1), penalty_BL1)
    return graph.op("ReduceMax", masked_BLD, graph.integers(1), keepdims=0)


POOLINGS = {
    "mean": Pooling("their mean", _mean, _onnx_mean, "pooling_mode_mean_tokens"),
    "cls": Pooling(
        "that of [CLS]",
        lambda tf, hidden_BLD, mask_BL1: hidden_BLD[:, 0],
        lambda graph, hidden_BLD, mask_BL1: graph.first(hidden_BLD),
        "pooling_mode_cls_token",
    ),
    "max": Pooling("the maximum of each value", _max, _onnx_max, "pooling_mode_max_tokens"),
}
