"""Pretraining, speed and fine-tuning of a row and seed; each is a run of the project's programs with its own folder.

Rows with equal settings share a folder, also between experiments, so that their model is trained only once. A killed
pretraining or fine-tuning is resumed from its checkpoints.
"""

import gc
import json
import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras

from albert_tf.core import files
from albert_tf.core.settings import Settings
from albert_tf.tasks import registry, repeated_runs
from albert_tf.tasks.classification.glue import GLUE_TASKS, task_key
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training import loop
from albert_tf.training.run_folder import CONFIG_FILE, EVAL_METRICS_FILE, METRICS_FILE, RESULTS_FILE
from lab.experiments.declarations import (
    PRETRAINING,
    Experiment,
    Row,
    fine_tuning_classes,
    preset_rows,
)
from lab.experiments.preparation import Workspace, key_of, locked

# Settings of a run that determine where it is computed.
DEVICE_SETTINGS = ("distribution_strategy", "tpu_name", "jit_compile")
# Settings that fine-tuning takes from pretraining, unless the scale's `[tasks]` has other values.
INHERITED = (*DEVICE_SETTINGS, "mixed_precision")


def settings_of(values: Mapping[str, Any], classes: Sequence[type[Settings]]) -> list[Settings]:
    """An instance of each settings class, from one dictionary of all their fields."""
    return [
        cls(**{name: value for name, value in values.items() if name in cls.names()})
        for cls in classes
    ]


def without_device_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run without those that determine where it is computed."""
    return {name: value for name, value in values.items() if name not in DEVICE_SETTINGS}


# --- Pretraining ---


class Trained:
    """The pretraining of a row and seed, finished or not; `folder` has all runs of this model."""

    def __init__(self, workspace: Workspace, experiment: Experiment, row: Row, seed: int):
        self.workspace = workspace
        self.experiment = experiment
        self.row = row
        self.seed = seed
        self.model_config = workspace.scale.model_config(row)
        self.shallower: Trained | None = None
        if row.warm_start_from:
            shallower = experiment.row(row.warm_start_from)
            self.shallower = Trained(workspace, experiment, shallower, seed)
        self.values = self._values()
        self.folder = workspace.path("runs", key_of(self.declared()), f"seed-{seed}")
        self.run_folder = os.path.join(self.folder, "pretraining")

    def _values(self) -> dict[str, Any]:
        """The run's settings from scale and row; for a budget in seconds, `num_train_steps` is 0."""
        scale = self.workspace.scale
        row = self.row
        of_experiment = scale.experiments.get(self.experiment.name, {})
        values = {**scale.training, **of_experiment, **row.training}
        factor = scale.steps_factors.get(f"{row.steps_factor:g}", row.steps_factor)
        if self.experiment.budget == "seconds":
            factor = 0
        return {**values, "num_train_steps": round(values["num_train_steps"] * factor)}

    def declared(self) -> dict[str, Any]:
        """All settings that change results, without the seed and the machine."""
        scale = self.workspace.scale
        row = self.row
        declared = {
            "model": self.model_config.to_dict(),
            "data": {**scale.data, **row.data},
            "text": self.workspace.sources(row.text),
            "vocabulary": dict(scale.vocabulary),
            "training": without_device_settings(self.values),
            "warm start": self.shallower.declared() if self.shallower else {},
        }
        if self.row.fine_tuning:
            declared["fine-tuning"] = self.row.fine_tuning
        if self.experiment.budget == "seconds":
            declared["seconds"] = scale.seconds * row.steps_factor
        return declared

    def train(self) -> dict[str, Any]:
        """Trains the model, or completes its training; returns `results`."""
        with locked(self.folder):
            if not os.path.exists(os.path.join(self.run_folder, RESULTS_FILE)):
                if self.shallower:
                    self.shallower.train()
                run, optimizer, pretraining = settings_of(self.run_values(), PRETRAINING)
                loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)
                free_memory()
        return self.results()

    def run_values(self) -> dict[str, Any]:
        """The settings of run_pretraining.py; also makes the data that they refer to."""
        workspace = self.workspace
        task = {**workspace.scale.data, **self.row.data}.get("sentence_task", "sop")
        config_file = os.path.join(self.folder, "albert_config.json")
        files.write_bytes(config_file, self.model_config.to_json_string().encode())
        values = {
            **self.values,
            "input_file": workspace.records(self.row),
            "eval_file": os.path.join(workspace.intrinsic(), task),
            "spm_model_file": workspace.vocabulary(),
            "albert_config_file": config_file,
            "output_dir": self.run_folder,
            "seed": self.seed,
        }
        if self.shallower:
            values["init_checkpoint"] = self.shallower.run_folder
            values["warm_start_from_shallower"] = True
        if not values["num_train_steps"]:
            values["num_train_steps"] = self._steps_in_time(values)
        values["num_warmup_steps"] = min(values["num_warmup_steps"], values["num_train_steps"] // 4)
        return values

    def _steps_in_time(self, values: Mapping[str, Any]) -> int:
        """The number of steps in the scale's seconds, measured once by a short run."""
        path = os.path.join(self.folder, "budget.json")
        if os.path.exists(path):
            return files.read_json(path)["num_train_steps"]
        scale = self.workspace.scale
        measured = timed_run(values, scale.speed, os.path.join(self.folder, "timing"))
        steps_per_second = measured["median"] / measured["batch"]
        steps = max(1, int(scale.seconds * self.row.steps_factor * steps_per_second))
        budget = {"num_train_steps": steps, "seconds": scale.seconds, **measured}
        files.write_bytes(path, json.dumps(budget, indent=2).encode())
        return steps

    def results(self) -> dict[str, Any]:
        """The results in the run's folder; `minutes` of training are without evaluations, `parameters` with heads."""
        training = _lines(os.path.join(self.run_folder, METRICS_FILE))
        run = files.read_json(os.path.join(self.run_folder, CONFIG_FILE))["run"]
        batch = run["train_batch_size"]
        steps = [0, *(line["step"] for line in training)]
        seconds = sum(
            (step - before) * batch / line["examples_per_second"]
            for before, step, line in zip(steps, steps[1:], training, strict=False)
        )
        results = files.read_json(os.path.join(self.run_folder, RESULTS_FILE))
        return {
            "minutes": round(seconds / 60, 2),
            "steps": results["step"],
            "batch": batch,
            "parameters": results["num_parameters"],
            "majority": results["majority"],
            "training": training,
            "evaluation": _lines(os.path.join(self.run_folder, EVAL_METRICS_FILE)),
        }


def free_memory() -> None:
    """Frees the memory of a finished run."""
    tf_keras.backend.clear_session()
    gc.collect()


def _lines(path: str) -> list[dict]:
    """The objects of a JSON-lines file; empty if the file does not exist."""
    lines = files.read_bytes(path).splitlines() if os.path.exists(path) else ()
    return list(map(json.loads, lines))


# --- Speed ---


def timed_run(values: Mapping[str, Any], speed: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Measures the speed of training steps, except for the first interval, which includes building the graph.

    The settings are `values`, of run_pretraining.py, replaced by those in `speed`; the folder is deleted afterwards.
    """
    values = {**values, **speed, "num_warmup_steps": 1, "do_eval": False, "eval_file": ""}
    values.update(save_checkpoints_steps=values["num_train_steps"], output_dir=folder)
    # The model from which a row starts may not exist yet, and the values of weights do not affect the speed.
    values.update(init_checkpoint="", warm_start_from_shallower=False)
    run, optimizer, pretraining = settings_of(values, PRETRAINING)
    shutil.rmtree(folder, ignore_errors=True)
    loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)
    free_memory()
    lines = _lines(os.path.join(folder, METRICS_FILE))
    shutil.rmtree(folder)
    speeds = [line["examples_per_second"] for line in lines][1:]
    return {
        "examples_per_second": speeds,
        "median": statistics.median(speeds),
        "fastest": max(speeds),
        "batch": run.train_batch_size,
    }


# --- Fine-tuning ---


def task_data(workspace: Workspace, task: str) -> dict[str, Any]:
    """The settings with the paths of a task's data; {} if there is none below --data_dir."""
    if task in ("squad1.1", "squad2.0"):
        version = task.removeprefix("squad")
        paths = workspace.squad_files(version)
        return {"version": version, **paths} if paths else {}
    if task == "race":
        folder = workspace.find("race", "RACE")
        return {"data_dir": folder} if folder else {}
    name = {task_key(name): name for name in GLUE_TASKS}[task]
    folder = workspace.find(f"glue/{name}", f"glue*/{name}")
    return {"task_name": name, "data_dir": folder} if folder else {}


def initial_task(trained: Trained, task: str) -> str:
    """The task whose fine-tuned model a task starts from; "" if the task starts from the pretrained model.

    It also starts from the pretrained model if the other task has no data, or has no settings in the scale.
    """
    name = trained.experiment.initial_tasks.get(task, "")
    is_possible = name in trained.workspace.scale.tasks and task_data(trained.workspace, name)
    return name if is_possible else ""


def fine_tune(trained: Trained, task: str) -> dict[str, Any] | None:
    """Fine-tunes a row on a task, several times if so configured; trains the initial model first if necessary.

    Returns:
      Metrics by name, medians if there are several runs; `runs`, the metrics of each; `initial_task`, whose best model
      the runs started from, if there is one; `settings`, the name of `task_folder`. None if there is no data.
    """
    data = task_data(trained.workspace, task)
    if not data:
        return None
    initial = initial_task(trained, task)
    folder = task_folder(trained, task)
    path = os.path.join(folder, RESULTS_FILE)
    with locked(folder + ".lock"):
        if not os.path.exists(path):
            start = _start(trained, initial)
            _run(trained, task, {**data, "output_dir": folder, "init_checkpoint": start})
    return {
        **task_results(files.read_json(path)),
        **({"initial_task": initial} if initial else {}),
        "settings": os.path.basename(folder),
    }


def _start(trained: Trained, initial: str) -> str:
    """The folder of the model that fine-tuning starts from; trains the model if it does not exist."""
    if initial:
        fine_tune(trained, initial)
        return best_run(trained, initial)
    trained.train()
    return trained.run_folder


def task_folder(trained: Trained, task: str) -> str:
    """The folder of a row's fine-tuning runs, named by a hash of all settings that change results."""
    settings = without_device_settings(settings_for(trained, task))
    initial = initial_task(trained, task)
    if initial:
        settings["initial task"] = os.path.basename(task_folder(trained, initial))
    return os.path.join(trained.folder, "tasks", f"{task}-{key_of(settings)}")


def best_run(trained: Trained, task: str) -> str:
    """The folder of the fine-tuned model, of the best run if there are several."""
    folder = task_folder(trained, task)
    best = files.read_json(os.path.join(folder, RESULTS_FILE)).get("best_run", "")
    return os.path.join(folder, os.path.basename(best)) if best else folder


def task_results(results: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in the results.json of one run or of several."""
    numbers = results.get("median", results.get("eval"))
    runs = [run["eval"] for run in results.get("runs", ())]
    return {**numbers, "runs": runs} if runs else dict(numbers)


def settings_for(trained: Trained, task: str) -> dict[str, Any]:
    """The scale's settings for a task, with those of its preset and those inherited from pretraining."""
    of_scale = trained.workspace.scale.tasks[task]
    of_preset = preset_rows(of_scale.get("preset")).get(task, {})
    inherited = {name: trained.values[name] for name in INHERITED if name in trained.values}
    return {
        **inherited,
        **of_preset,
        **of_scale,
        **trained.experiment.fine_tuning,
        **trained.row.fine_tuning,
    }


def _run(trained: Trained, task: str, paths: Mapping[str, Any]) -> dict:
    """Runs the task's program with the scale's settings and the paths; returns the contents of results.json."""
    values = {**settings_for(trained, task), "seed": trained.seed, **paths}
    run, optimizer, config = settings_of(values, fine_tuning_classes(task))
    task_class = registry.find(task).task
    results = repeated_runs.fine_tune(task_class, config, run, optimizer)
    free_memory()
    return results
