"""The activations: what computes each, and its names in other formats; without TensorFlow, as the sizes of models."""

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple


class Activation(NamedTuple):
    """One activation, which acts on each value separately."""

    select: Callable[[ModuleType], Callable]  # its function, from the module `tensorflow`
    transformers: tuple[str, ...] = ()  # other names there, that of the written files first
    onnx: tuple[str, Mapping[str, Any]] | None = None  # operation and attributes
    is_original: bool = False  # same name in the original (modeling.py:315-352, get_activation)


ACTIVATIONS = {
    "gelu": Activation(
        lambda tf: functools.partial(tf.nn.gelu, approximate=True),  # original modeling.py:299-312
        transformers=("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
        onnx=("Gelu", {"approximate": "tanh"}),
        is_original=True,
    ),
    "gelu_exact": Activation(
        lambda tf: functools.partial(tf.nn.gelu, approximate=False),
        transformers=("gelu", "gelu_python"),
        onnx=("Gelu", {}),
    ),
    "relu": Activation(lambda tf: tf.nn.relu, onnx=("Relu", {}), is_original=True),
    "tanh": Activation(lambda tf: tf.tanh, onnx=("Tanh", {}), is_original=True),
    "linear": Activation(lambda tf: tf.identity, onnx=("Identity", {}), is_original=True),
}
# Name in transformers -> name here. In configurations of other formats, `gelu` is the tanh form.
OF_TRANSFORMERS = {
    theirs: ours
    for ours, activation in ACTIVATIONS.items()
    for theirs in activation.transformers or (ours,)
}


@functools.cache  # `cpu_ops.py` keeps a compiled kernel for each object
def function_of(name: str) -> Callable:
    """The function of a tensor that computes an activation."""
    import tensorflow as tf

    return ACTIVATIONS[name].select(tf)
