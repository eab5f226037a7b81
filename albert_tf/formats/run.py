"""Reads the models of runs from the runs' folders."""

import math
import os
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core import files, run_files
from albert_tf.core.errors import UserError
from albert_tf.formats import checkpoint_files, hugging_face, sentence_transformers
from albert_tf.formats.weights import Weights, encoder_shapes, model_class_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining


def read(folder: str, checkpoint: str = "") -> Weights:
    """The model of a run: of its newest checkpoint or, after a finished fine-tuning, of its model folder (the best).

    `checkpoint` is the prefix of one of its checkpoints, to be read instead.
    """
    path = os.path.join(folder, "config.json")
    settings = files.read_json(path)
    groups = {name: settings.get(name, {}) for name in ("model", "head", "task")}
    if not settings.get("model") or not all(isinstance(group, dict) for group in groups.values()):
        raise UserError(f"{folder}: expected a run's config.json, with the model's configuration")
    config = AlbertConfig.from_dict(groups["model"], source=folder)
    model_class = model_class_of(groups["head"].get("model_class", "AlbertForPreTraining"), path)
    model_folder = os.path.join(folder, "model")
    is_finished = files.exists(os.path.join(model_folder, hugging_face.WEIGHTS))
    if is_finished and not checkpoint and model_class is not AlbertForPreTraining:
        return sentence_transformers.read(model_folder)
    saved = checkpoint or run_files.newest_checkpoint(os.path.join(folder, "checkpoints"))
    if not saved:
        raise UserError(f"{folder}: the run has no checkpoint yet")
    if not checkpoint and not is_finished:
        _remark_on_unfinished(folder, saved, settings)
    checkpoint = saved
    with checkpoint_files.opened(checkpoint, "TF2") as reader:
        _check_size(config, reader, path)
        model = model_class(config, dtype="float32")
        # Without expect_partial, TensorFlow would also warn about missing values, after the error.
        restored = tf.train.Checkpoint(model=model).read(checkpoint).expect_partial()
        restored.assert_existing_objects_matched()
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    text = hugging_face.vocabulary_of(model_folder, {})
    recorded = {name: value for name, value in groups["task"].items() if name in text}
    return Weights(checkpoint, config, arrays, model_class.__name__, **text | recorded)


def _check_size(config: AlbertConfig, reader: Any, path: str) -> None:
    """Checks that a checkpoint has as many values as the model needs, which would otherwise be built in any size."""
    wanted = sum(map(math.prod, encoder_shapes(config).values()))
    saved = sum(map(math.prod, reader.get_variable_to_shape_map().values()))
    if wanted > saved:
        reason = f"describes an encoder of {wanted:,} values, but its checkpoint has {saved:,}"
        raise UserError(f"{path}: {reason}")


def _remark_on_unfinished(folder: str, checkpoint: str, settings: Mapping[str, Any]) -> None:
    """Says on standard error that a model comes from a run that was stopped before its end."""
    optimizer = settings.get("optimizer")
    last = optimizer.get("num_train_steps") if isinstance(optimizer, dict) else None
    step = os.path.basename(checkpoint).removeprefix("step-")
    if step != str(last):
        reason = f"this run has not finished; the model is that of step {step} of {last}"
        print(f"NOTE: {folder}: {reason}", file=sys.stderr, flush=True)
