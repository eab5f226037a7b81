"""Texts per second of an embedder, in each form and engine that `albert-tf tune` knows, with the time for tokens."""

import functools
import pathlib

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.formats import layouts
from albert_tf.formats.weights import report_of
from albert_tf.serving import calibration, graph_engines, onnx_files, tuning
from albert_tf.serving.onnx_model import OnnxModel
from albert_tf.serving.predictors import load_predictor
from lab.benchmarks import measure
from lab.benchmarks.inputs import corpus
from lab.benchmarks.measure import BenchSettings, Measurement, Values
from lab.made_texts import neighboring_words
from lab.small_forms import batches_of

MODEL = "models/albert-minilm-l6"
NUM_TEXTS = 128
LENGTHS = (3, 110)  # words


def answers(settings: BenchSettings, *, form: tuning.Form) -> Values:
    """Embeds the same texts again and again in a form.

    Returns:
      The values of `repeated`; `texts_a_second`; `median_cosine` with the vectors in float32, of texts with which
      `int8_calibrated` was not made.
    """
    if not graph_engines.is_installed(form.engine.name):
        raise UserError(f"needs the package {form.engine.name}")
    words = pathlib.Path(corpus(settings)).read_text(encoding="utf-8").split()
    texts = neighboring_words(words, NUM_TEXTS, LENGTHS)
    others = neighboring_words(words, NUM_TEXTS, LENGTHS, seed=1)
    predictor = load_predictor(MODEL, engine=tuning.REFERENCE.engine.name)
    expected = predictor.embed(others)
    weights = layouts.read_weights(MODEL)
    missing = report_of(weights).initialized
    if form.quantization == tuning.CALIBRATED:
        most_tokens = predictor.task_settings["max_seq_length"]
        batches = batches_of(predictor.tokenizer, texts, most_tokens)
        roundings = calibration.roundings_of(weights, missing, batches)
        contents = onnx_files.calibrated(weights, missing, roundings)
    else:
        contents = onnx_files.convert(weights, missing, form.quantization)
    predictor.compute = OnnxModel(contents, weights.config, weights.model_class, form.engine)
    cosines = (predictor.embed(others) * expected).sum(axis=1)
    timing = measure.repeated(functools.partial(predictor.embed, texts), settings.seconds)
    return {
        **timing,
        "texts_a_second": NUM_TEXTS / timing["median"],
        "median_cosine": float(np.median(cosines)),
    }


MEASUREMENTS = tuple(
    Measurement(
        "answers." + form.title().replace(", ", "."),
        functools.partial(answers, form=form),
        corpus,
        in_quick=form is tuning.REFERENCE,
    )
    for form in tuning.FORMS
)
