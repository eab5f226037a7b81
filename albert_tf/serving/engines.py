"""What computes a model: ONNX Runtime or OpenVINO, from a graph made in memory without TensorFlow, or TensorFlow."""

import os
from collections.abc import Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.formats.load_remarks import remark_on_load
from albert_tf.formats.weights import POOLER, Weights, report_of
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.head_names import ARCHITECTURES, needs_pooler
from albert_tf.serving import graph_engines
from albert_tf.serving.exports.onnx import ONNX
from albert_tf.tasks.predictor import Compute

AUTO = "auto"
TENSORFLOW = "tensorflow"
ENGINES = (AUTO, *graph_engines.BY_NAME, TENSORFLOW)
_GPU = "/dev/nvidiactl"  # exists where the driver of NVIDIA is loaded

# A model with its `config`, what computes its outputs, and the released names of its untrained variables.
Computed = tuple[Any, Compute, Sequence[str]]


def computed(weights: Weights, engine: str = AUTO) -> Computed:
    """A model that an engine computes; "auto" is ONNX Runtime where it can, which saves the import of TensorFlow.

    Raises:
      UserError: the engine cannot compute the model, or the model lacks values.
    """
    check_name(engine)
    if engine == TENSORFLOW:
        return _in_tensorflow(weights)

    obstacle = obstacle_of(weights)
    if engine != AUTO:
        if obstacle:
            raise UserError(f"{weights.source}: engine={engine}: {obstacle}")
        return _from_graph(weights, graph_engines.BY_NAME[engine])
    prefers_gpu = os.path.exists(_GPU) and graph_engines.is_installed(TENSORFLOW)
    if obstacle or prefers_gpu:
        return _in_tensorflow(weights)
    return _from_graph(weights, graph_engines.PLAIN)


def check_name(engine: str) -> None:
    """Checks that there is an engine of this name."""
    if engine not in ENGINES:
        raise UserError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")


def obstacle_of(weights: Weights) -> str:
    """Why a model cannot become a graph of ONNX here; "" if it can."""
    package = ONNX.missing_package()
    if package:
        return f"needs the package {package}: pip install {' '.join(ONNX.packages)}"
    if weights.model_class not in ARCHITECTURES:
        return f"{weights.model_class} is no model of this library"
    has_pooler = set(POOLER) <= weights.arrays.keys()
    if needs_pooler(weights.model_class, weights.config) and not has_pooler:
        return "the model has no values for its pooler"
    if not ACTIVATIONS[weights.config.hidden_act].onnx:
        return f"hidden_act is {weights.config.hidden_act}, which has no operation of ONNX here"
    return ""


def _from_graph(weights: Weights, engine: graph_engines.GraphEngine) -> Computed:
    from albert_tf.serving import onnx_files, onnx_model

    report = report_of(weights)
    remark_on_load(weights, unused=report.ignored)
    contents = onnx_files.in_memory(weights, report.initialized)
    model = onnx_model.OnnxModel(contents, weights.config, weights.model_class, engine)
    return model, model, report.initialized


def _in_tensorflow(weights: Weights) -> Computed:
    from albert_tf.formats import pretrained  # TensorFlow
    from albert_tf.tasks.compiled import Compiled

    model, report = pretrained.build_model(weights)
    remark_on_load(weights, unused=report.ignored)
    return model, Compiled(model), report.initialized
