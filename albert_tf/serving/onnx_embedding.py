"""The poolings and the activations of an embedding's modules, as operations of an ONNX graph.

Each function mirrors one of `model/pooling.py` or `model/vector_modules.py`. It adds operations to a graph of
`onnx_files.py`; values are identified by name. Shape legend: `model/encoder.py`; a mask has 1 for a token and 0 for
padding.
"""

from collections.abc import Callable
from typing import Any

from albert_tf.model.vector_modules import LEAK


def _mean(graph, hidden_BLD, mask_BL1):
    length_axis = graph.integers(1)
    masked_BLD = graph.op("Mul", hidden_BLD, mask_BL1)
    count_B1 = graph.op("ReduceSum", mask_BL1, length_axis, keepdims=0)
    total_BD = graph.op("ReduceSum", masked_BLD, length_axis, keepdims=0)
    return graph.op("Div", total_BD, graph.op("Max", count_B1, graph.number(1)))


def _first(graph, hidden_BLD, mask_BL1):
    return graph.first(hidden_BLD)


def _max(graph, hidden_BLD, mask_BL1):
    padding_BL1 = graph.op("Sub", graph.number(1), mask_BL1)
    penalty_BL1 = graph.op("Mul", padding_BL1, graph.number(-1e9))
    masked_BLD = graph.op("Add", graph.op("Mul", hidden_BLD, mask_BL1), penalty_BL1)
    return graph.op("ReduceMax", masked_BLD, graph.integers(1), keepdims=0)


def _mean_sqrt(graph, hidden_BLD, mask_BL1):
    length_axis = graph.integers(1)
    masked_BLD = graph.op("Mul", hidden_BLD, mask_BL1)
    count_B1 = graph.op("ReduceSum", mask_BL1, length_axis, keepdims=0)
    total_BD = graph.op("ReduceSum", masked_BLD, length_axis, keepdims=0)
    root_B1 = graph.op("Sqrt", graph.op("Max", count_B1, graph.number(1)))
    return graph.op("Div", total_BD, root_B1)


def _weighted_mean(graph, hidden_BLD, mask_BL1):
    length_axis = graph.integers(1)
    weights_BL1 = graph.op("Mul", graph.op("CumSum", mask_BL1, length_axis), mask_BL1)
    total_B1 = graph.op("ReduceSum", weights_BL1, length_axis, keepdims=0)
    weighted_BLD = graph.op("Mul", hidden_BLD, weights_BL1)
    sum_BD = graph.op("ReduceSum", weighted_BLD, length_axis, keepdims=0)
    return graph.op("Div", sum_BD, graph.op("Max", total_B1, graph.number(1)))


def _last(graph, hidden_BLD, mask_BL1):
    length_axis = graph.integers(1)
    count_B11 = graph.op("ReduceSum", mask_BL1, length_axis, keepdims=1)
    from_end_BL1 = graph.op("Sub", graph.op("CumSum", mask_BL1, length_axis), count_B11)
    reached_BL1 = graph.op("Relu", graph.op("Add", from_end_BL1, graph.number(1)))
    is_last_BL1 = graph.op("Mul", reached_BL1, mask_BL1)
    masked_BLD = graph.op("Mul", hidden_BLD, is_last_BL1)
    return graph.op("ReduceSum", masked_BLD, length_axis, keepdims=0)


# (graph, hidden_BLD, mask_BL1) -> vectors [B, D], for each of `pooling.POOLINGS`
POOLINGS: dict[str, Callable[[Any, str, str], str]] = {
    "mean": _mean,
    "cls": _first,
    "max": _max,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}


def _operation(name: str, **attributes: float) -> Callable[[Any, str], str]:
    """An activation that ONNX has."""
    return lambda graph, value: graph.op(name, value, **attributes)


def _clipped(least: float, most: float) -> Callable[[Any, str], str]:
    return lambda graph, value: graph.op("Clip", value, graph.number(least), graph.number(most))


def _identity(graph, value):
    return value


def _silu(graph, value):
    return graph.op("Mul", value, graph.op("Sigmoid", value))


def _log_sigmoid(graph, value):
    return graph.op("Neg", graph.op("Softplus", graph.op("Neg", value)))


def _tanhshrink(graph, value):
    return graph.op("Sub", value, graph.op("Tanh", value))


# (graph, value) -> value, for each of `vector_modules.VECTOR_ACTIVATIONS`
VECTOR_ACTIVATIONS: dict[str, Callable[[Any, str], str]] = {
    "identity": _identity,
    "tanh": _operation("Tanh"),
    "relu": _operation("Relu"),
    "gelu": _operation("Gelu"),
    "sigmoid": _operation("Sigmoid"),
    "silu": _silu,
    "mish": _operation("Mish"),
    "leaky_relu": _operation("LeakyRelu", alpha=LEAK),
    "elu": _operation("Elu"),
    "celu": _operation("Celu"),
    "selu": _operation("Selu"),
    "softplus": _operation("Softplus"),
    "softsign": _operation("Softsign"),
    "log_sigmoid": _log_sigmoid,
    "tanhshrink": _tanhshrink,
    "hardtanh": _clipped(-1, 1),
    "relu6": _clipped(0, 6),
    "hardsigmoid": _operation("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hardswish": _operation("HardSwish"),
}
