"""Reads the models of runs from the runs' folders, or from one of their checkpoints."""

import dataclasses
import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.newest_checkpoint import newest_checkpoint
from albert_tf.formats import checkpoint_files, description, transformers_folders
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import CONFIG, WEIGHTS
from albert_tf.formats.hugging_face.vocabulary import vocabulary_of
from albert_tf.formats.weights import Weights, check_class, encoder_shapes
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import PRETRAINING

_CHECKPOINTS = "checkpoints"
_BEST = "best"
_MODEL = "model"  # the folder of the best model, in the Hugging Face layout


def recognizes(path: str) -> bool:
    """Whether a path is that of a run's folder, or of a checkpoint of a run."""
    folder, _ = _run_and_checkpoint(path)
    return folder != ""


def describe(path: str) -> Description:
    """The length of a run's model, and all settings of its task."""
    folder, _ = _run_and_checkpoint(path)
    settings = files.read_json(os.path.join(folder, CONFIG))
    return description.of_sizes(settings.get("model"), settings.get("task"))


def read_without_arrays(path: str) -> Weights:
    """The configuration, the class and the vocabulary of a run's model."""
    folder, checkpoint = _run_and_checkpoint(path)
    model_folder = _finished_model_of(folder)
    if model_folder and not checkpoint:
        return transformers_folders.layout_of(model_folder).read_without_arrays(model_folder)

    settings = _settings_in(folder)
    text = vocabulary_of(os.path.join(folder, _MODEL), {})
    for name, value in settings.get("task", {}).items():
        if name in text:
            text[name] = value
    is_finetuned = _is_fine_tuning(settings)
    return Weights(
        checkpoint or folder,
        AlbertConfig.from_dict(settings["model"], source=folder),
        {},
        _model_class(folder, settings),
        run_settings=settings.get("task", {}) if is_finetuned else {},
        **text,
    )


def read(path: str) -> Weights:
    """The model of a run: the best of a fine-tuning, otherwise that of the newest checkpoint.

    The best is in the model folder after the end, and before it in the best checkpoint, if there was an evaluation. If
    the path is that of a checkpoint, the model is that of this checkpoint.
    """
    folder, checkpoint = _run_and_checkpoint(path)
    if checkpoint:
        return _read_checkpoint(checkpoint)
    model_folder = _finished_model_of(folder)
    if model_folder:
        return transformers_folders.layout_of(model_folder).read(model_folder)

    settings = _settings_in(folder)
    checkpoint = newest_checkpoint(os.path.join(folder, _CHECKPOINTS))
    if _is_fine_tuning(settings):
        checkpoint = newest_checkpoint(os.path.join(folder, _CHECKPOINTS, _BEST)) or checkpoint
    if not checkpoint:
        raise UserError(f"{folder}: the run has no checkpoint yet")
    if not _is_finished(folder):
        _remark_on_unfinished(folder, checkpoint, settings)
    return _read_checkpoint(checkpoint)


def _is_fine_tuning(settings: Mapping[str, Any]) -> bool:
    """Whether a run, of which these are the settings, trains a head for a task, and so keeps the best model."""
    return bool(settings["model"].get("finetuning_task"))


def _is_finished(folder: str) -> bool:
    """Whether a run has written its model folder."""
    return files.exists(os.path.join(folder, _MODEL, WEIGHTS))


def _finished_model_of(folder: str) -> str:
    """The folder with the best model of a finished fine-tuning; "" for other runs, whose checkpoints are read."""
    is_pretraining = _model_class(folder, _settings_in(folder)) == PRETRAINING
    if is_pretraining or not _is_finished(folder):
        return ""
    return os.path.join(folder, _MODEL)


def _run_and_checkpoint(path: str) -> tuple[str, str]:
    """The folder of a run, and the prefix of a checkpoint if the path is that of one; "" for what a path is not.

    Examples:
      "runs/mrpc" -> "runs/mrpc", ""
      "runs/mrpc/checkpoints/step-100" -> "runs/mrpc", "runs/mrpc/checkpoints/step-100"
    """
    if files.is_folder(os.path.join(path, _CHECKPOINTS)):
        return path, ""
    checkpoint = checkpoint_files.prefix_of(path)
    match = re.fullmatch(rf"(?:(.*)/)?{_CHECKPOINTS}(?:/{_BEST})?/[^/]+", checkpoint)
    if not match:
        return "", ""
    folder = match[1] or "."
    if not files.exists(os.path.join(folder, CONFIG)):
        return "", ""
    return folder, checkpoint


def _settings_in(folder: str) -> dict[str, Any]:
    """The settings in a run's `config.json`; an error if they do not describe a model."""
    settings = files.read_json(os.path.join(folder, CONFIG))
    groups = [settings.get(name, {}) for name in ("model", "head", "task")]
    if not settings.get("model") or not all(isinstance(group, dict) for group in groups):
        raise UserError(f"{folder}: expected a run's config.json, with the model's configuration")
    return settings


def _model_class(folder: str, settings: Mapping[str, Any]) -> str:
    """The name of the class of a run's model."""
    name = settings.get("head", {}).get("model_class", PRETRAINING)
    check_class(name, os.path.join(folder, CONFIG))
    return name


def _read_checkpoint(checkpoint: str) -> Weights:
    """The model of a run's checkpoint with this prefix."""
    import tensorflow as tf

    from albert_tf.model.heads import MODEL_CLASSES

    weights = read_without_arrays(checkpoint)
    folder, _ = _run_and_checkpoint(checkpoint)
    with checkpoint_files.opened(checkpoint, "TF2") as reader:
        _check_size(weights.config, reader, os.path.join(folder, CONFIG))
        model = MODEL_CLASSES[weights.model_class](weights.config, dtype="float32")
        # Without expect_partial, TensorFlow would also warn about missing values, after the error.
        restored = tf.train.Checkpoint(model=model).read(checkpoint).expect_partial()
        restored.assert_existing_objects_matched()
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    return dataclasses.replace(weights, arrays=arrays)


def _check_size(config: AlbertConfig, reader: Any, path: str) -> None:
    """Checks that a checkpoint has as many values as the model needs, which would otherwise be built in any size."""
    encoder_size = sum(map(math.prod, encoder_shapes(config).values()))
    saved_size = sum(map(math.prod, reader.get_variable_to_shape_map().values()))
    if encoder_size > saved_size:
        reason = f"describes an encoder of {encoder_size:,} values, but its checkpoint has {saved_size:,}"
        raise UserError(f"{path}: {reason}")


def _remark_on_unfinished(folder: str, checkpoint: str, settings: Mapping[str, Any]) -> None:
    """Says on standard error that a model comes from a run that was stopped before its end."""
    optimizer = settings.get("optimizer")
    last = optimizer.get("num_train_steps") if isinstance(optimizer, dict) else None
    step = os.path.basename(checkpoint).removeprefix("step-")
    if step != str(last):
        reason = f"this run has not finished; the model is that of step {step} of {last}"
        print(f"NOTE: {folder}: {reason}", file=sys.stderr, flush=True)
