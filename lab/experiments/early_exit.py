"""Score, mean number of layers and time of a text, for every fixed depth and every patience of a fine-tuned model."""

import contextlib
import io
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core import files
from albert_tf.export import export_model
from albert_tf.serving.predictors import load_predictor
from albert_tf.tasks import registry
from albert_tf.tasks.classification.settings import task_key
from lab.experiments import training
from lab.experiments.declarations import fine_tuning_classes
from lab.experiments.training import Trained

_TIMED_TEXTS, _REPEATS = 64, 3
# Engine -> the options of its export; TensorFlow computes the model itself.
ENGINES: Mapping[str, dict[str, str] | None] = {
    "TensorFlow": None,
    "ONNX Runtime": {"format": "onnx"},
    "ONNX Runtime, int8": {"format": "onnx", "quantization": "dynamic_int8"},
}


def measure(trained: Trained, task: str) -> list[dict[str, Any]] | None:
    """The points of a task, see `points`; None if there is no data."""
    if not training.task_data(trained.workspace, task):
        return None
    training.fine_tune(trained, task)
    return points(training.best_run(trained, task))


def points(folder: str, engines: Sequence[str] = ("TensorFlow",)) -> list[dict[str, Any]]:
    """How a finished run of a classifier does by depth in each engine, then by patience, on its development data.

    Returns:
      Objects of `engine`, `num_hidden_layers`, `patience` (None for a fixed depth), `score` in percent, `mean_layers`,
      and `milliseconds`, the mean time of one text, of the fastest of some calls.
    """
    saved = files.read_json(os.path.join(folder, "config.json"))
    name = saved["task"].get("task_name") or "race"
    values = {**saved["run"], **saved["task"], "num_runs": 1, "do_train": False}
    values |= {"init_checkpoint": folder, "output_dir": "unused", "num_hidden_layers": None}
    run, _, config = training.settings_of(values, fine_tuning_classes(task_key(name)))
    evaluated = registry.find(task_key(name)).task(config, run)
    depth = saved["model"]["num_hidden_layers"]
    uses = [(engine, layers, None) for engine in engines for layers in range(1, depth + 1)]
    uses += [("TensorFlow", depth, patience) for patience in range(2, depth)]
    return [_point(evaluated, folder, *use) for use in uses]


def _point(
    task, model: str, engine: str, num_hidden_layers: int, patience: int | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:  # ONNX Runtime reads it at the first call
        options: dict[str, Any] = {"num_hidden_layers": num_hidden_layers, "patience": patience}
        if ENGINES[engine]:
            with contextlib.redirect_stdout(io.StringIO()):
                export_model(model, folder, **options, **ENGINES[engine])
            predictor = load_predictor(folder)
        else:
            predictor = load_predictor(model, **options)
        return _measured(task, predictor, engine=engine, **options)


def _measured(task, predictor, **use: Any) -> dict[str, Any]:
    table = task.tables["eval"]
    outputs = predictor.outputs(table)
    numbers = outputs.get("num_layers", np.array(use["num_hidden_layers"]))
    predictions = task.predictions({"logits": tf.constant(outputs["logits"])}, {})
    arrays = {name: value.numpy() for name, value in predictions.items()}
    score = task.evaluate([arrays])[task.best_metric]
    return {
        **use,
        "score": round(100 * float(score), 3),
        "mean_layers": round(float(np.mean(numbers)), 3),
        "milliseconds": round(_milliseconds(predictor, table), 3),
    }


def _milliseconds(predictor, table) -> float:
    """The mean time of one text, each the fastest of some calls."""
    seconds = []
    for index in range(min(_TIMED_TEXTS, len(table))):
        features = table.batch(
            np.array([index]), int(table.lengths[index]), predictor.sequence_names
        )
        times = []
        for _ in range(_REPEATS):
            started = time.perf_counter()
            predictor.run(features)
            times.append(time.perf_counter() - started)
        seconds.append(min(times))
    return 1000 * statistics.fmean(seconds)
