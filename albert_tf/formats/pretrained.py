"""Reads models in every format, assigns their values with strict checks, and writes Hugging Face and TF1 folders.

Each module of `formats` reads one format into `Weights`: a configuration, and arrays under the released variable names.
All models are filled from `Weights`; it is an error if an encoder variable has no value.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeVar, overload

import safetensors
import tensorflow as tf
from absl import logging

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened
from albert_tf.formats import (
    embedding_modules,
    keras_hub,
    model_card,
    sentence_transformers,
    tf1,
)
from albert_tf.formats.file_names import EXPORT, GRAPH, ONNX_MODEL, WEIGHT_FILES
from albert_tf.formats.hugging_face.write import left_out_of, write
from albert_tf.formats.layouts import read_weights
from albert_tf.formats.load_remarks import remark_on_load
from albert_tf.formats.weights import POOLER, LoadReport, Weights, check_head, match
from albert_tf.model import heads
from albert_tf.model.encoder import AlbertEncoder, SavableModel
from albert_tf.text.tokenizer import Tokenizer

FORMATS = ("hf", "keras_hub", "tf1")  # of `save_pretrained`
ModelClass = TypeVar("ModelClass", bound=SavableModel)
_PRETRAINED = ("AlbertForPreTraining", "AlbertForEmbedding")  # whose encoders get other heads
_WITH_LABELS = (heads.AlbertForSequenceClassification, heads.AlbertForTokenClassification)


@overload
def load_pretrained(
    path: files.AnyPath,
    *,
    dtype: Any = None,
    num_hidden_layers: int | None = None,
    num_labels: int | None = None,
    num_classes: int | None = None,
    model_class: None = None,
) -> heads.ModelWithHead: ...


@overload
def load_pretrained(
    path: files.AnyPath,
    *,
    dtype: Any = None,
    num_hidden_layers: int | None = None,
    num_labels: int | None = None,
    num_classes: int | None = None,
    model_class: type[ModelClass],
) -> ModelClass: ...


def load_pretrained(
    path: files.AnyPath,
    *,
    dtype: Any = None,
    num_hidden_layers: int | None = None,
    num_labels: int | None = None,
    num_classes: int | None = None,
    model_class: type[SavableModel] | None = None,
) -> SavableModel:
    """The model at a path: an `AlbertForPreTraining`, or the class that was fine-tuned.

    Example:
      model = load_pretrained("models/albert-minilm-l6")
      tokenizer = Tokenizer.from_pretrained("models/albert-minilm-l6")
      model.encoder(tokenizer(["It rains."]))["sequence_output"]  # [1, L, D]

    Args:
      path: a run's folder; a model's folder in the Hugging Face layout, or its name on the hub
        (`hf:albert/albert-base-v2`); the folder of a released TF1 archive; a TF-Hub module, or an
        export of `albert_tf.export`; or the prefix of a checkpoint (TF1, TF Model Garden, or a run's).
      dtype: tf_keras dtype policy of the model, such as "mixed_bfloat16"; None uses the global policy.
      num_hidden_layers: use this number of layers: the first ones or, if all layers share their parameters, any number;
        None uses the model's own.
      num_labels: use only the encoder, in an `AlbertForSequenceClassification` (or `model_class`) with this number of
        labels and a new head, which is yet to be trained; 1 is a regression. `num_classes` is another name of it.
      model_class: the class to return; None returns that of the model. A pretrained model gets a new head, about which
        a warning is logged; every other model must be of this class. `AlbertEncoder` takes the encoder of any.

    Raises:
      UserError: the path does not exist or contains no known format; a file is damaged, or was changed after this
        project wrote it; or a variable of the encoder is missing or has another shape.
    """
    numbers = [number for number in (num_labels, num_classes) if number is not None]
    are_numbers = all(isinstance(number, Integral) and number >= 1 for number in numbers)
    if len(numbers) > 1 or not are_numbers:
        reason = "must be a whole number of at least 1, and only one of them"
        raise UserError(f"num_labels, or num_classes, {reason}; got {shortened(numbers)}")

    weights = read_weights(path, num_hidden_layers)
    built_class: Any = model_class
    if not model_class or model_class is AlbertEncoder:
        built_class = heads.MODEL_CLASSES[weights.model_class]
        if numbers:
            built_class = heads.AlbertForSequenceClassification
    if numbers or built_class.__name__ != weights.model_class:
        model, report = _with_new_head(built_class, weights, numbers, dtype)
    else:
        model, report = build_model(weights, dtype=dtype)

    untrained = report.initialized
    if model_class is AlbertEncoder:
        remark_on_load(weights, untrained=[name for name in untrained if name in POOLER])
        return model.encoder
    if not model.uses_pooler:
        untrained = [name for name in untrained if name not in POOLER]
    remark_on_load(weights, unused=report.ignored, untrained=untrained)
    return model


def _with_new_head(
    model_class: type[heads.ModelWithHead], weights: Weights, num_labels: Sequence[int], dtype: Any
) -> tuple[heads.ModelWithHead, LoadReport]:
    """The encoder of a model with an untrained head of another class, or with another number of labels, if given."""
    source = weights.source
    trained_class = weights.model_class
    name = model_class.__name__
    has_labels = model_class in _WITH_LABELS
    if num_labels and not has_labels:
        raise UserError(f"num_labels={num_labels[0]}: the head of {name} has no labels")
    is_pretrained = trained_class in _PRETRAINED and model_class is not heads.AlbertForPreTraining
    if not num_labels and not is_pretrained:
        advice = f"load_pretrained(path) loads it, and {name}(config) is a new model"
        raise UserError(f"{source}: is {trained_class}, expected {name}; {advice}")
    if not num_labels and has_labels:
        raise UserError(f"{source}: is {trained_class}; for a new head of {name}, give num_labels")

    if num_labels:
        labels = [f"LABEL_{label}" for label in range(num_labels[0])]
        weights = dataclasses.replace(weights, config=weights.config.with_labels(labels, ""))
    else:
        logging.warning("%s: has no head of %s; that of the model has random values", source, name)
    model = model_class(weights.config, dtype=dtype)
    return model, assign_weights(model.named_variables(), weights.without_head())


def build_model(weights: Weights, *, dtype=None) -> tuple[heads.ModelWithHead, LoadReport]:
    """The model with the given weights, and a report of the variables that got a value."""
    model = heads.MODEL_CLASSES[weights.model_class](weights.config, dtype=dtype)
    report = assign_weights(model.named_variables(), weights)
    check_head(report, weights)
    model.mark_untrained(report.initialized)
    return model, report


def assign_weights(variables: Mapping[str, tf.Variable], weights: Weights) -> LoadReport:
    """Assigns values from disk to variables; returns which got one.

    Only variables of heads may keep their initial values. If an encoder's variable is missing on either side, or a
    shape differs, no variable is changed, and a `UserError` is raised.
    """
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    report = match(shapes, weights)
    for name in report.loaded:
        variables[name].assign(weights.arrays[name])
    return report


def weights_of(model: heads.ModelWithHead) -> Weights:
    """A model in memory as `Weights`."""
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    return Weights("", model.config, arrays, type(model).__name__)


def save_pretrained(
    model: heads.ModelWithHead | AlbertEncoder,
    folder: files.AnyPath,
    format: str = "hf",
    spm_model_file: files.AnyPath | Tokenizer = "",
    *,
    task: Mapping[str, Any] | None = None,
    untrained: Collection[str] = (),
    card: Mapping[str, Mapping[str, Any]] | None = None,
    **cleaning: bool,
) -> None:
    """Writes a model as a folder that `load_pretrained` reads.

    Example:
      save_pretrained(model, "my_model", spm_model_file=tokenizer)

    Args:
      folder: created if it does not exist; files of the same names are replaced when the new ones are complete.
      format: "hf" for the Hugging Face layout (config.json, model.safetensors); "keras_hub" for the same with a
        spiece.model that cleans text, as keras-hub needs; or "tf1" for the released layout (albert_config.json,
        model.ckpt-best.*).
      spm_model_file: SentencePiece model or WordPiece vocabulary to copy into the folder, or its tokenizer; "" if there
        is none.
      untrained: released names of variables without trained values; they are not written. A loaded model knows them.
      card: facts for the model card (`README.md`) of the Hugging Face layout: tables by title.
      cleaning: `do_lower_case` (default True) and `keep_accents` (default False) of the model's text; a tokenizer has
        its own values for these.

    Raises:
      UserError: the format is unknown, the vocabulary cannot be read, the folder cannot be written, or has a model that
        would be read instead.
    """
    if format not in FORMATS:
        raise UserError(f"format must be one of {', '.join(FORMATS)}; got {format!r}")
    folder = str(folder)
    if files.is_folder(f"{folder}/checkpoints"):
        raise UserError(f"{folder}: a run's folder, whose config.json would be replaced")
    _check_is_read(folder, format, is_embedder=isinstance(model, heads.AlbertForEmbedding))
    cleaning = _cleaning(**cleaning)
    tokenizer = spm_model_file or None
    if isinstance(tokenizer, Tokenizer):
        cleaning = tokenizer.cleaning
    elif tokenizer:
        tokenizer = Tokenizer.from_file(tokenizer, **_cleaning(**cleaning))
    settings: dict[str, Any] = {"tokenizer": tokenizer, "cleaning": cleaning}
    if isinstance(model, AlbertEncoder):
        model, untrained = _with_untrained_heads(model)
    settings["untrained"] = {*untrained, *model.untrained_variables()}
    try:
        if format == "tf1":
            tf1.write(model, folder, task or {}, **settings)
            return
        further: dict[str, bytes] = {}
        if isinstance(model, heads.AlbertForEmbedding):
            further |= sentence_transformers.module_files(model, task or {})
        if format == "keras_hub":
            left_out = left_out_of(model, settings["untrained"])
            further |= keras_hub.vocabulary_of(model, tokenizer, left_out)
        text = model_card.model_card(model, folder, card or {})
        write(model, folder, task or {}, card=text, further=further, **settings)
    except (OSError, safetensors.SafetensorError, tf.errors.OpError) as error:
        raise UserError(f"{folder}: the model cannot be written ({first_line(error)})") from None


def _check_is_read(folder: str, format: str, *, is_embedder: bool) -> None:
    """Checks that a model will be read from the folder to which it is written, and not an older one beside it."""
    names = files.names_in(folder) if files.is_folder(folder) else []
    older = []
    if embedding_modules.recognizes(folder) and (format == "tf1" or not is_embedder):
        older.append(embedding_modules.MODULES)
    if format == "tf1":
        older += [name for name in names if name.startswith((*WEIGHT_FILES, GRAPH))]
    if older:
        reason = f"has {older[0]} of another model, which would be read instead of this one"
        raise UserError(f"{folder}: {reason}; remove it, or give another folder")
    if ONNX_MODEL in names and EXPORT in names:
        reason = f"predictors compute the older {ONNX_MODEL} in it; export it again, or remove it"
        logging.warning("%s: %s", folder, reason)


def _with_untrained_heads(
    encoder: AlbertEncoder,
) -> tuple[heads.AlbertForPreTraining, Collection[str]]:
    """An encoder in the class of pretrained models, and the names of the variables that are not its own."""
    model = heads.AlbertForPreTraining(encoder.config)
    model.encoder.set_weights(encoder.get_weights())
    return model, model.named_variables().keys() - encoder.named_variables().keys()


def _cleaning(*, do_lower_case: bool = True, keep_accents: bool = False) -> dict[str, Any]:
    """`Tokenizer.cleaning`, complete."""
    return {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
