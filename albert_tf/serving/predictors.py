"""Loads a finished model with its vocabulary and settings as a `Predictor`; most need no TensorFlow (`engines.py`)."""

import functools
import os

from albert_tf.core.errors import UserError
from albert_tf.core.files import HUB_PREFIX, AnyPath
from albert_tf.formats import layouts
from albert_tf.formats.model_tokenizer import tokenizer_of
from albert_tf.formats.weights import Weights
from albert_tf.serving.engines import AUTO, TENSORFLOW, Computed, check_name, computed
from albert_tf.serving.exports import form_that_computes
from albert_tf.serving.exports.form import Form
from albert_tf.serving.finished_model import predictor_class_of, task_settings_of
from albert_tf.tasks.predictor import Predictor
from albert_tf.text.model_inputs import SHORTEST_SEQUENCE


def load_predictor(
    path: AnyPath,
    *,
    spm_model_file: AnyPath = "",
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    num_hidden_layers: int | None = None,
    engine: str = AUTO,
) -> Predictor:
    """Loads a finished model of any task, which answers texts.

    `load_predictor(path).predict(texts)` returns a dictionary for each text: label and probabilities, a score, the
    answer to a question, filled masks, or an embedding.

    Example:
      [answer] = load_predictor("models/albert-tiny-docs").predict(["Returns the [MASK] of it."])
      answer["masks"][0][0]["token"]  # "▁name"
      albert = load_predictor("models/albert-minilm-l6")
      albert.similarity(["a cat"], ["a dog", "the tax law"])  # cosines, float32 [1, 2]

    A predictor can be copied and pickled; the copy loads the same path again. In a process that is forked later, only
    the predictor of an ONNX export answers.

    Args:
      path: the model, in any layout that `load_pretrained` takes; or an ONNX export, folder or file, which is computed
        without TensorFlow.
      spm_model_file: its vocabulary, a SentencePiece model or vocab.txt, if none came with it.
      do_lower_case: whether text is lower-cased; None uses the value in the model's folder, or true if it has none.
      max_seq_length: maximum number of tokens of a sequence; None uses that of the fine-tuning, or the model's maximum.
      num_hidden_layers: see `load_pretrained`.
      engine: what computes the model: "onnxruntime" or "openvino", which need no TensorFlow; "tensorflow"; or "auto",
        ONNX Runtime where it and the package onnx are installed and there is no GPU. An ONNX export is computed by what
        `albert-tf tune` found, or by ONNX Runtime, or by the one of the two that is named.

    Raises:
      UserError: there is no such model, or no vocabulary for it; its task is unknown; or the length is above the
        model's maximum.
    """
    _check_count("max_seq_length", max_seq_length, SHORTEST_SEQUENCE)
    _check_count("batch_size", batch_size, 1)
    form = form_that_computes(str(path))
    weights = _read(path, form, num_hidden_layers)
    tokenizer = tokenizer_of(weights, spm_model_file, do_lower_case)
    settings = task_settings_of(weights, max_seq_length)
    predictor_class = predictor_class_of(weights)
    model, compute, untrained = _model_of(weights, form, engine)
    predictor = predictor_class(model, tokenizer, settings, batch_size, untrained, compute=compute)
    # Another process may have another current folder.
    predictor.loaded_from = functools.partial(
        load_predictor,
        _absolute(path),
        spm_model_file=_absolute(spm_model_file),
        do_lower_case=do_lower_case,
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        num_hidden_layers=num_hidden_layers,
        engine=engine,
    )
    return predictor


def _check_count(name: str, count: int | None, least: int) -> None:
    """Checks an argument that is a whole number, or None for the default."""
    if count is not None and (not isinstance(count, int) or count < least):
        raise UserError(f"{name} must be an integer of at least {least}, got {count!r}")


def _read(path: AnyPath, form: Form | None, num_hidden_layers: int | None) -> Weights:
    """The model at a path; without arrays if it is an export of the given form."""
    if not form or not form.read:
        return layouts.read_weights(path, num_hidden_layers)
    if num_hidden_layers:
        reason = f"the layers of an {form.title} export cannot be changed; export it again"
        raise UserError(f"{path}: {reason}")
    return form.read(str(path))


def _model_of(weights: Weights, form: Form | None, engine: str) -> Computed:
    """The model, computed by the engine of its export, or by the given one."""
    if not form or not form.load:
        return computed(weights, engine)
    check_name(engine)
    if engine == TENSORFLOW:
        reason = f"is an {form.title} export, which TensorFlow does not compute"
        raise UserError(f"{weights.source}: {reason}; give the model's folder")
    exported = form.load(weights, "" if engine == AUTO else engine)
    return exported, exported, weights.left_out


def _absolute(path: AnyPath) -> str:
    """A path from the root; names on the hub, remote paths and "" stay."""
    path = str(path)
    is_local = path and "://" not in path and not path.startswith(HUB_PREFIX)
    return os.path.abspath(path) if is_local else path
