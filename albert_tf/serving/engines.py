"""What computes a model: ONNX Runtime, from a graph that is made in memory without TensorFlow, or TensorFlow."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.formats.weights import (
    POOLER,
    Weights,
    check_head,
    encoder_shapes,
    head_shapes,
    match,
)
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.head_names import ARCHITECTURES, PRETRAINING, USES_POOLER
from albert_tf.serving.exports.onnx import ONNX
from albert_tf.tasks.predictor import Compute

AUTO, ONNX_RUNTIME, TENSORFLOW = "auto", "onnxruntime", "tensorflow"
ENGINES = (AUTO, ONNX_RUNTIME, TENSORFLOW)
_GPU = "/dev/nvidiactl"  # exists where the driver of NVIDIA is loaded

# A model with its `config`, what computes its outputs, and the released names of its untrained variables.
Computed = tuple[Any, Compute, Sequence[str]]


def computed(weights: Weights, engine: str = AUTO) -> Computed:
    """A model that an engine computes; "auto" is ONNX Runtime where it can, which saves the import of TensorFlow.

    Raises:
      UserError: the engine cannot compute the model, or the model lacks values.
    """
    if engine not in ENGINES:
        raise UserError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    if engine == TENSORFLOW:
        return _in_tensorflow(weights)

    obstacle = _obstacle(weights)
    if engine == ONNX_RUNTIME and obstacle:
        raise UserError(f"{weights.source}: engine={ONNX_RUNTIME}: {obstacle}")
    prefers_gpu = engine == AUTO and os.path.exists(_GPU) and find_spec("tensorflow") is not None
    return _in_tensorflow(weights) if obstacle or prefers_gpu else _in_onnx_runtime(weights)


def _obstacle(weights: Weights) -> str:
    """Why ONNX Runtime cannot compute a model here; "" if it can."""
    package = ONNX.missing_package()
    if package:
        return f"needs the package {package}: pip install {' '.join(ONNX.packages)}"
    if weights.model_class not in ARCHITECTURES:
        return f"{weights.model_class} is no model of this library"
    # A pretrained model may lack its pooler; it then answers without.
    needs_pooler = weights.model_class != PRETRAINING and USES_POOLER[weights.model_class]
    if needs_pooler and not set(POOLER) <= weights.arrays.keys():
        return "the model has no values for its pooler"
    if not ACTIVATIONS[weights.config.hidden_act].onnx:
        return f"hidden_act is {weights.config.hidden_act}, which has no operation of ONNX here"
    return ""


def _in_onnx_runtime(weights: Weights) -> Computed:
    from albert_tf.serving import onnx_files, onnx_model

    config = weights.config
    shapes = {**encoder_shapes(config), **head_shapes(weights.model_class, config)}
    report = match(shapes, weights)
    check_head(report, weights)
    contents = onnx_files.in_memory(weights, report.initialized)
    model = onnx_model.OnnxModel(contents, config, weights.model_class)
    return model, model, report.initialized


def _in_tensorflow(weights: Weights) -> Computed:
    from albert_tf.formats import pretrained  # TensorFlow
    from albert_tf.tasks.compiled import Compiled

    model, report = pretrained.build_model(weights)
    return model, Compiled(model), report.initialized
