"""The programs that compute ONNX graphs: ONNX Runtime, and OpenVINO where it is installed."""

import dataclasses
import importlib.util
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened
from albert_tf.core.workers import num_cores
from albert_tf.tasks.predictor import Arrays

ONNX_RUNTIME = "onnxruntime"
OPENVINO = "openvino"
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}  # our names -> those of OpenVINO
LARGEST_GROUP = 1 << 16

Run = Callable[[Arrays], Arrays]  # the outputs of a graph, under its own names, for its inputs


class GraphEngine(Protocol):
    """A program that computes ONNX graphs, with its settings; `name` is also that of its package."""

    @property
    def name(self) -> str: ...

    def compile(self, content: str | bytes, threads: int) -> Run:
        """A graph, of which the file or the content is given, ready to be computed, also by several threads at once.

        With 1 thread, each call is computed on one core; with 0, on all that this process may use.

        Raises:
          UserError: the package is missing, or it cannot read the graph.
        """

    def describe(self) -> dict[str, Any]:
        """The settings from which `engine_of` makes this engine again."""


@dataclasses.dataclass(frozen=True)
class OnnxRuntime:
    """ONNX Runtime, as it is."""

    name: str = ONNX_RUNTIME

    def compile(self, content: str | bytes, threads: int) -> Run:
        """See `GraphEngine.compile`."""
        try:
            import onnxruntime
        except ImportError:
            raise UserError("an ONNX file needs onnxruntime: pip install onnxruntime") from None
        if isinstance(content, str):
            files.check_content(content)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        # By itself, ONNX Runtime has a thread for every core of the machine, also in a container with a limit.
        if threads == 0 and num_cores() < (os.cpu_count() or 1):
            options.intra_op_num_threads = num_cores()
        try:
            session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its classes have no common base
            raise _unusable(content, error) from None
        names = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))

    def describe(self) -> dict[str, Any]:
        """See `GraphEngine.describe`."""
        return {"name": self.name}


@dataclasses.dataclass(frozen=True)
class OpenVino:
    """OpenVINO.

    Args:
      precision: in which it computes, float32 or bfloat16.
      group_size: how many neighboring activations share a scale when OpenVINO rounds them to 8 bits, before products
        with weights that are stored in one byte ("int8_weights"); with 0, they are not rounded.
    """

    precision: str = "float32"
    group_size: int = 0
    name: str = OPENVINO

    def compile(self, content: str | bytes, threads: int) -> Run:
        """See `GraphEngine.compile`."""
        try:
            import openvino
        except ImportError:
            raise UserError(f"engine={OPENVINO}: pip install openvino") from None
        cores = num_cores()
        settings = {
            "INFERENCE_PRECISION_HINT": _PRECISIONS[self.precision],
            # OpenVINO's own default is 32: it would round activations before all products with weights in bytes.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(self.group_size),
            # A stream computes one call at a time; it has one core, or all.
            "NUM_STREAMS": str(cores if threads else 1),
            "INFERENCE_NUM_THREADS": str(cores),
            "ENABLE_CPU_PINNING": "NO",
        }
        try:
            core = openvino.Core()
            if isinstance(content, str):
                files.check_content(content)
                model = core.read_model(content)
            else:
                model = core.read_model(content, b"")
            compiled = core.compile_model(model, "CPU", settings)
        except UserError:
            raise
        except Exception as error:  # RuntimeError, with the place in OpenVINO's source first
            raise _unusable(content, error) from None
        # Those of the compiled graph also have names of operations that were joined.
        names = [output.get_any_name() for output in model.outputs]
        of_thread = threading.local()  # a request computes for one thread

        def run(inputs: Arrays) -> Arrays:
            if not hasattr(of_thread, "request"):
                of_thread.request = compiled.create_infer_request()
            outputs = of_thread.request.infer(inputs)
            return {name: outputs[place] for place, name in enumerate(names)}

        return run

    def describe(self) -> dict[str, Any]:
        """See `GraphEngine.describe`."""
        return dataclasses.asdict(self)


PLAIN = OnnxRuntime()  # computes whatever nothing else was said about
BY_NAME: Mapping[str, GraphEngine] = {ONNX_RUNTIME: PLAIN, OPENVINO: OpenVino()}


def _unusable(content: str | bytes, error: Exception) -> UserError:
    source = content if isinstance(content, str) else "the export"
    if "://" in source:
        expected = "expected a local path, as engines open no other"
        return UserError(f"{source}: {expected}; copy the folder to this machine")
    return UserError(f"{source}: no usable ONNX file ({first_line(error)})")


def is_installed(name: str) -> bool:
    """Whether the package of an engine is there."""
    return importlib.util.find_spec(name) is not None


def engine_of(settings: Mapping[str, Any], source: str) -> GraphEngine:
    """The engine that `describe` described, in the file of an export; ONNX Runtime if nothing is said there.

    Raises:
      UserError: the settings are not those of an engine.
    """
    name = settings.get("name", ONNX_RUNTIME)
    if name == ONNX_RUNTIME:
        return PLAIN
    precision = settings.get("precision", "")
    group_size = settings.get("group_size")
    is_known = name == OPENVINO and isinstance(precision, str) and precision in _PRECISIONS
    if not is_known or type(group_size) is not int or not 0 <= group_size <= LARGEST_GROUP:
        expected = f"expected the engine that albert-tf tune wrote, got {shortened(dict(settings))}"
        raise UserError(f"{source}: {expected}; run albert-tf tune again, or name an engine")
    return OpenVino(precision, group_size)


def installed_engine_of(settings: Mapping[str, Any], source: str) -> GraphEngine:
    """`engine_of`, or ONNX Runtime, with a warning, where the package of that engine is missing."""
    engine = engine_of(settings, source)
    if is_installed(engine.name):
        return engine
    if engine.name != ONNX_RUNTIME:
        slower = "ONNX Runtime computes it instead, and may be slower"
        advice = f"pip install {engine.name}"
        warnings.warn(f"{source} was tuned for {engine.name}: {slower}; {advice}", stacklevel=2)
    return PLAIN
