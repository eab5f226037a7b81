"""Inference: times a classifier of the size albert-base in every form to which it can be exported.

All forms have the same weights. Each engine uses all cores and its defaults, unless its name says otherwise.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from albert_tf.core import files
from albert_tf.core.workers import num_cores
from lab.benchmarks import libraries, measure
from lab.benchmarks.inputs import (
    BFLOAT16_EXPORT,
    EXPORT,
    INT8_EXPORT,
    INT8_WEIGHTS_EXPORT,
    MODEL,
    ONNX_EXPORT,
    STATIC_INT8_EXPORT,
    TEXT,
    TFLITE_EXPORTS,
    TFLITE_FLOAT32_EXPORTS,
    export_path,
    model_path,
    text_path,
    vocabulary_path,
)
from lab.benchmarks.measure import BenchSettings, Measurement, Values

SIZES = ((1, 32), (1, 128), (8, 32), (1, 384))  # batch, length

MakeCall = Callable[[int, int], Callable[[], np.ndarray]]  # batch, length -> call


def answer(settings: BenchSettings, *, who: str) -> Values:
    """Times batches of every size.

    Returns:
      `cells`: by "batch x length", the values of `repeated`; `sample`: the logits of a sequence, if it takes ids.
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


def random_ids(settings: BenchSettings, batch: int, length: int) -> dict[str, np.ndarray]:
    """Random sequences without padding, int32 [B, L]."""
    vocab_size = files.read_json(f"{model_path(settings)}/config.json")["vocab_size"]
    ids = np.random.default_rng(1).integers(5, vocab_size, (batch, length)).astype(np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def texts_of(settings: BenchSettings, count: int, length: int) -> list[str]:
    """Texts of the corpus, each as long as fits into the given number of tokens."""
    from albert_tf import Tokenizer

    tokenizer = Tokenizer.from_file(vocabulary_path(settings))
    with open(text_path(settings), encoding="utf-8", errors="ignore") as file:
        lines = itertools.islice(file, 2000)
        words = itertools.cycle([word for line in lines for word in line.split()])
    size_of = functools.cache(lambda word: len(tokenizer.encode(word)))
    texts = []
    for _ in range(count):
        text, size = [], 2  # [CLS] and [SEP]
        while (size := size + size_of(word := next(words))) <= length:
            text.append(word)
        texts.append(" ".join(text))
    return texts


def _saved_model(settings: BenchSettings, *, name: str = EXPORT) -> MakeCall:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (the export uses its operations)

    model = tf.saved_model.load(f"{export_path(settings, name)}/1")

    def make_call(batch: int, length: int):
        ids = random_ids(settings, batch, length)
        features = {name: tf.constant(value) for name, value in ids.items()}
        return lambda: model(features)["logits"].numpy()

    return make_call


def _saved_model_strings(settings: BenchSettings) -> MakeCall:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations tokenize)

    model = tf.saved_model.load(f"{export_path(settings)}/1")

    def make_call(batch: int, length: int):
        texts = tf.constant(texts_of(settings, batch, length))
        return lambda: model.signatures["classify"](texts=texts)["logits"].numpy()

    return make_call


def _predictor(settings: BenchSettings) -> MakeCall:
    from albert_tf import load_predictor

    predictor = load_predictor(model_path(settings))

    def make_call(batch: int, length: int):
        texts = texts_of(settings, batch, length)
        return lambda: predictor.predict(texts)

    return make_call


def _tflite(settings: BenchSettings, *, names: Mapping[int, str] = TFLITE_EXPORTS) -> MakeCall:
    from albert_tf.serving import tflite

    def make_call(batch: int, length: int):
        path = f"{export_path(settings, names[length])}/model.tflite"
        run = tflite.runner(files.read_bytes(path), num_cores())
        features = random_ids(settings, batch, length)
        return lambda: run(**features)["logits"]

    return make_call


def _onnx_runtime(settings: BenchSettings, *, name: str = ONNX_EXPORT) -> MakeCall:
    from albert_tf.serving import onnx_model

    path = f"{export_path(settings, name)}/{onnx_model.MODEL}"
    session = onnx_model.session(path, num_cores())

    def make_call(batch: int, length: int):
        inputs = onnx_model.inputs_of(random_ids(settings, batch, length))
        return lambda: session.run(["logits"], inputs)[0]

    return make_call


def _openvino(settings: BenchSettings, *, name: str = ONNX_EXPORT, **options: str) -> MakeCall:
    import openvino

    from albert_tf.serving import onnx_model

    path = f"{export_path(settings, name)}/{onnx_model.MODEL}"
    options["INFERENCE_NUM_THREADS"] = str(num_cores())
    model = openvino.Core().compile_model(path, "CPU", options)

    def make_call(batch: int, length: int):
        inputs = onnx_model.inputs_of(random_ids(settings, batch, length))
        return lambda: model(inputs)["logits"]

    return make_call


def _transformers(settings: BenchSettings) -> MakeCall:
    import torch
    import transformers

    torch.set_num_threads(num_cores())
    model_class = transformers.AlbertForSequenceClassification
    model = model_class.from_pretrained(model_path(settings)).eval()

    def make_call(batch: int, length: int):
        inputs = libraries.transformers_inputs(random_ids(settings, batch, length))

        def call():
            with torch.inference_mode():
                return model(**inputs).logits.numpy()

        return call

    return make_call


class Engine(NamedTuple):
    """A form of the model, and the engine that runs it."""

    title: str
    maker: Callable[[BenchSettings], MakeCall]
    inputs: tuple[str, ...]  # the data that it needs (`inputs.py`)
    needs: tuple[str, ...] = ()  # modules
    takes_text: bool = (
        False  # whether it tokenizes texts; its tokens then differ from those of the others
    )
    batches: bool = True  # whether it takes several sequences at once
    precision: str = "float32"


_ONNX_RUNTIME, _OPENVINO = ("onnx", "onnxruntime"), ("onnx", "openvino")


def _of_int8(
    title: str, run: Callable, export: str, needs: tuple[str, ...], precision: str
) -> Engine:
    """An engine that reads an export in int8."""
    return Engine(title, functools.partial(run, name=export), (export,), needs, precision=precision)


ENGINES: Mapping[str, Engine] = {
    "saved_model": Engine("SavedModel, ids", _saved_model, (EXPORT,)),
    "saved_model_strings": Engine(
        "SavedModel, strings", _saved_model_strings, (TEXT, EXPORT), takes_text=True
    ),
    "saved_model_bfloat16": Engine(
        "SavedModel, ids, `--dtype=bfloat16`",
        functools.partial(_saved_model, name=BFLOAT16_EXPORT),
        (BFLOAT16_EXPORT,),
        precision="bfloat16",
    ),
    "predictor": Engine("`load_predictor`, strings", _predictor, (TEXT, MODEL), takes_text=True),
    "tflite": Engine(
        "TFLite in LiteRT",
        functools.partial(_tflite, names=TFLITE_FLOAT32_EXPORTS),
        tuple(TFLITE_FLOAT32_EXPORTS.values()),
        batches=False,
    ),
    "tflite_int8": Engine(
        "TFLite `dynamic_int8` in LiteRT",
        _tflite,
        tuple(TFLITE_EXPORTS.values()),
        batches=False,
        precision="TFLite int8",
    ),
    "onnx_runtime": Engine("ONNX in ONNX Runtime", _onnx_runtime, (ONNX_EXPORT,), _ONNX_RUNTIME),
    "onnx_runtime_weights": _of_int8(
        "ONNX `int8_weights` in ONNX Runtime",
        _onnx_runtime,
        INT8_WEIGHTS_EXPORT,
        _ONNX_RUNTIME,
        "int8_weights",
    ),
    "onnx_runtime_int8": _of_int8(
        "ONNX `int8` in ONNX Runtime", _onnx_runtime, INT8_EXPORT, _ONNX_RUNTIME, "int8"
    ),
    "onnx_runtime_static": _of_int8(
        "ONNX `int8`, calibrated, in ONNX Runtime",
        _onnx_runtime,
        STATIC_INT8_EXPORT,
        _ONNX_RUNTIME,
        "int8, calibrated",
    ),
    "openvino": Engine(
        "ONNX in OpenVINO, its default precision",
        _openvino,
        (ONNX_EXPORT,),
        _OPENVINO,
        precision="bfloat16",
    ),
    "openvino_float32": Engine(
        "ONNX in OpenVINO, float32",
        functools.partial(_openvino, INFERENCE_PRECISION_HINT="f32"),
        (ONNX_EXPORT,),
        _OPENVINO,
    ),
    "openvino_int8": _of_int8("ONNX `int8` in OpenVINO", _openvino, INT8_EXPORT, _OPENVINO, "int8"),
    "openvino_static": _of_int8(
        "ONNX `int8`, calibrated, in OpenVINO",
        _openvino,
        STATIC_INT8_EXPORT,
        _OPENVINO,
        "int8, calibrated",
    ),
    "transformers": Engine(
        "transformers, PyTorch without compilation",
        _transformers,
        (MODEL,),
        libraries.NEEDS["transformers"],
    ),
}
MEASUREMENTS = tuple(
    Measurement(
        f"engines.{name}",
        functools.partial(answer, who=name),
        needs=engine.needs,
        inputs=engine.inputs,
        in_quick=name in ("saved_model", "transformers"),
    )
    for name, engine in ENGINES.items()
)
