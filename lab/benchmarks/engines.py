"""Inference engines: times a classifier of the size albert-base in every form to which it can be exported.

All forms have the same weights. Each engine uses all cores and its defaults, unless its name says otherwise.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from albert_tf.core import files
from albert_tf.core.workers import num_cores
from lab.benchmarks import inference, measure, peers
from lab.benchmarks.inputs import (
    BFLOAT16_EXPORT,
    EXPORT,
    MODEL,
    ONNX_EXPORT,
    TEXT,
    TFLITE_EXPORTS,
    export_path,
    model_path,
)
from lab.benchmarks.measure import BenchSettings, Measurement, Values

SIZES = ((1, 32), (1, 128), (8, 32), (1, 384))  # batch, length

MakeCall = Callable[[int, int], Callable[[], np.ndarray]]  # batch, length -> call


def answer(settings: BenchSettings, *, who: str) -> Values:
    """Times batches of every size.

    Returns:
      `cells`: by "batch x length", the values of `repeated`; `sample`: the logits of a sequence, if the engine takes
      ids.
    """
    engine = ENGINES[who]
    make_call = engine.maker(settings)
    cells = {}
    for batch, length in SIZES:
        if batch == 1 or engine.batches:
            timing = measure.repeated(
                make_call(batch, length), settings.seconds / 5, warm_up=2, least=10
            )
            cells[f"{batch}x{length}"] = timing
    if engine.takes_text:
        return {"cells": cells}
    return {"cells": cells, "sample": np.asarray(make_call(1, SIZES[0][1])()).tolist()}


def _saved_model(settings: BenchSettings, *, name: str = EXPORT) -> MakeCall:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (the export uses its operations)

    model = tf.saved_model.load(f"{export_path(settings, name)}/1")

    def make_call(batch: int, length: int):
        ids = inference.random_ids(settings, batch, length)
        features = {name: tf.constant(value) for name, value in ids.items()}
        return lambda: model(features)["logits"].numpy()

    return make_call


def _saved_model_strings(settings: BenchSettings) -> MakeCall:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations tokenize)

    model = tf.saved_model.load(f"{export_path(settings)}/1")

    def make_call(batch: int, length: int):
        texts = tf.constant(inference.texts_of(settings, batch, length))
        return lambda: model.signatures["classify"](texts=texts)["logits"].numpy()

    return make_call


def _predictor(settings: BenchSettings) -> MakeCall:
    from albert_tf import load_predictor

    predictor = load_predictor(model_path(settings))

    def make_call(batch: int, length: int):
        texts = inference.texts_of(settings, batch, length)
        return lambda: predictor.predict(texts)

    return make_call


def _tflite(settings: BenchSettings) -> MakeCall:
    from albert_tf.serving import tflite

    def make_call(batch: int, length: int):
        path = f"{export_path(settings, TFLITE_EXPORTS[length])}/model.tflite"
        run = tflite.runner(files.read_bytes(path), num_cores())
        features = inference.random_ids(settings, batch, length)
        return lambda: run(**features)["logits"]

    return make_call


def _onnx_runtime(settings: BenchSettings) -> MakeCall:
    import onnxruntime

    from albert_tf.serving import onnx_files

    path = f"{export_path(settings, ONNX_EXPORT)}/{onnx_files.MODEL}"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def make_call(batch: int, length: int):
        inputs = onnx_files.inputs_of(inference.random_ids(settings, batch, length))
        return lambda: session.run(["logits"], inputs)[0]

    return make_call


def _openvino(settings: BenchSettings, **options: str) -> MakeCall:
    import openvino

    from albert_tf.serving import onnx_files

    path = f"{export_path(settings, ONNX_EXPORT)}/{onnx_files.MODEL}"
    model = openvino.Core().compile_model(path, "CPU", options)

    def make_call(batch: int, length: int):
        inputs = onnx_files.inputs_of(inference.random_ids(settings, batch, length))
        return lambda: model(inputs)["logits"]

    return make_call


def _transformers(settings: BenchSettings) -> MakeCall:
    import torch
    import transformers

    torch.set_num_threads(num_cores())
    model_class = transformers.AlbertForSequenceClassification
    model = model_class.from_pretrained(model_path(settings)).eval()

    def make_call(batch: int, length: int):
        inputs = peers.transformers_inputs(inference.random_ids(settings, batch, length))

        def call():
            with torch.inference_mode():
                return model(**inputs).logits.numpy()

        return call

    return make_call


class Engine(NamedTuple):
    """A form of the model, and the engine that runs it.

    Attributes:
      title: title in the table.
      maker: settings -> call by batch and length.
      inputs: names of the data that it needs (`inputs.py`).
      needs: modules that it needs.
      takes_text: whether it tokenizes texts; its tokens then differ from those of engines that take ids.
      batches: whether it takes several sequences at once.
    """

    title: str
    maker: Callable[[BenchSettings], MakeCall]
    inputs: tuple[str, ...]
    needs: tuple[str, ...] = ()
    takes_text: bool = False
    batches: bool = True


_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}
ENGINES: Mapping[str, Engine] = {
    "saved_model": Engine("SavedModel, ids", _saved_model, (EXPORT,)),
    "saved_model_strings": Engine(
        "SavedModel, strings", _saved_model_strings, (TEXT, EXPORT), takes_text=True
    ),
    "saved_model_bfloat16": Engine(
        "SavedModel, ids, `--dtype=bfloat16`",
        functools.partial(_saved_model, name=BFLOAT16_EXPORT),
        (BFLOAT16_EXPORT,),
    ),
    "predictor": Engine("`load_predictor`, strings", _predictor, (TEXT, MODEL), takes_text=True),
    "tflite_int8": Engine(
        "TFLite `dynamic_int8` in LiteRT", _tflite, tuple(TFLITE_EXPORTS.values()), batches=False
    ),
    "onnx_runtime": Engine(
        "ONNX in ONNX Runtime", _onnx_runtime, (ONNX_EXPORT,), ("onnx", "onnxruntime")
    ),
    "openvino": Engine(
        "ONNX in OpenVINO, its default precision", _openvino, (ONNX_EXPORT,), ("onnx", "openvino")
    ),
    "openvino_float32": Engine(
        "ONNX in OpenVINO, float32",
        functools.partial(_openvino, **_FLOAT32),
        (ONNX_EXPORT,),
        ("onnx", "openvino"),
    ),
    "transformers": Engine(
        "transformers, PyTorch without compilation",
        _transformers,
        (MODEL,),
        peers.PEERS["transformers"],
    ),
}
MEASUREMENTS = tuple(
    Measurement(
        f"engines.{who}",
        functools.partial(answer, who=who),
        needs=engine.needs,
        inputs=engine.inputs,
    )
    for who, engine in ENGINES.items()
)
