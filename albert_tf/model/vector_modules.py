"""What sentence-transformers can put between the pooled vector of a text and its embedding: dense layers and others.

This file imports no TensorFlow, as `pooling.py`; `serving/onnx_embedding.py` has the same activations for ONNX. Shape
legend: `encoder.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

DENSE, LAYER_NORM, NORMALIZE = "dense", "layer_norm", "normalize"  # kinds of modules
LAYER_NORM_EPSILON = 1e-5  # of torch.nn.LayerNorm
_OF_TORCH = "torch.nn.modules.activation."
LEAK = 0.01  # of torch.nn.LeakyReLU


class VectorActivation(NamedTuple):
    """An activation of a dense module, with the default arguments of its class in torch."""

    torch: str  # the path of its class, as sentence-transformers writes it
    compute: Callable[[Any, Any], Any]  # (tensorflow, values) -> values


VECTOR_ACTIVATIONS = {
    "identity": VectorActivation("torch.nn.modules.linear.Identity", lambda tf, x: x),
    "tanh": VectorActivation(f"{_OF_TORCH}Tanh", lambda tf, x: tf.tanh(x)),
    "relu": VectorActivation(f"{_OF_TORCH}ReLU", lambda tf, x: tf.nn.relu(x)),
    "gelu": VectorActivation(f"{_OF_TORCH}GELU", lambda tf, x: tf.nn.gelu(x, approximate=False)),
    "sigmoid": VectorActivation(f"{_OF_TORCH}Sigmoid", lambda tf, x: tf.sigmoid(x)),
    "silu": VectorActivation(f"{_OF_TORCH}SiLU", lambda tf, x: x * tf.sigmoid(x)),
    "mish": VectorActivation(f"{_OF_TORCH}Mish", lambda tf, x: x * tf.tanh(tf.nn.softplus(x))),
    "leaky_relu": VectorActivation(
        f"{_OF_TORCH}LeakyReLU",
        lambda tf, x: tf.nn.leaky_relu(x, alpha=LEAK),
    ),
    "elu": VectorActivation(f"{_OF_TORCH}ELU", lambda tf, x: tf.nn.elu(x)),
    "celu": VectorActivation(f"{_OF_TORCH}CELU", lambda tf, x: tf.nn.elu(x)),
    "selu": VectorActivation(f"{_OF_TORCH}SELU", lambda tf, x: tf.nn.selu(x)),
    "softplus": VectorActivation(f"{_OF_TORCH}Softplus", lambda tf, x: tf.nn.softplus(x)),
    "softsign": VectorActivation(f"{_OF_TORCH}Softsign", lambda tf, x: tf.nn.softsign(x)),
    "log_sigmoid": VectorActivation(f"{_OF_TORCH}LogSigmoid", lambda tf, x: -tf.nn.softplus(-x)),
    "tanhshrink": VectorActivation(f"{_OF_TORCH}Tanhshrink", lambda tf, x: x - tf.tanh(x)),
    "hardtanh": VectorActivation(
        f"{_OF_TORCH}Hardtanh", lambda tf, x: tf.clip_by_value(x, -1.0, 1.0)
    ),
    "relu6": VectorActivation(f"{_OF_TORCH}ReLU6", lambda tf, x: tf.clip_by_value(x, 0.0, 6.0)),
    "hardsigmoid": VectorActivation(
        f"{_OF_TORCH}Hardsigmoid",
        lambda tf, x: tf.nn.relu6(x + 3.0) / 6.0,
    ),
    "hardswish": VectorActivation(
        f"{_OF_TORCH}Hardswish",
        lambda tf, x: x * tf.nn.relu6(x + 3.0) / 6.0,
    ),
}


def activation_of_torch(path: str) -> str:
    """The name of an activation, given the path of its class in torch; "" if it is not known.

    "torch.nn.GELU" is another path of the class "torch.nn.modules.activation.GELU".
    """
    package, _, name = path.rpartition(".")
    for ours, activation in VECTOR_ACTIVATIONS.items():
        own_package, _, own_name = activation.torch.rpartition(".")
        if name == own_name and package in (own_package, "torch.nn", "torch.nn.modules"):
            return ours
    return ""


def is_module(value: Any) -> bool:
    """Whether a value of a file describes a module: {"kind": "dense", "size": 3, "activation": "tanh"}, for example."""
    if not isinstance(value, Mapping) or value.get("kind") not in (DENSE, LAYER_NORM, NORMALIZE):
        return False
    if value["kind"] != DENSE:
        return set(value) == {"kind"}
    size = value.get("size")
    has_size = type(size) is int and size > 0
    has_activation = value.get("activation") in VECTOR_ACTIVATIONS
    return set(value) == {"kind", "size", "activation"} and has_size and has_activation
