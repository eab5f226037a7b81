"""Pretraining, speed and fine-tuning of a row and seed; each is a run of the project's programs with its own folder.

Rows with equal settings share a folder, also between experiments, so that their model is trained only once. A killed
pretraining or fine-tuning is resumed from its checkpoints.
"""

import dataclasses
import gc
import json
import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.tasks import registry, repeated_runs
from albert_tf.tasks.classification.settings import GLUE_TASK_NAMES, task_key
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training import loop
from albert_tf.training.run_folder import CONFIG_FILE, EVAL_METRICS_FILE, METRICS_FILE, RESULTS_FILE
from albert_tf.training.settings import RunConfig
from lab.experiments.declarations import (
    PRETRAINING,
    TASKS,
    Experiment,
    Row,
    fine_tuning_classes,
)
from lab.experiments.preparation import Workspace, key_of, locked

# Settings of a run that determine where it is computed.
DEVICE_SETTINGS = RunConfig.names(about_devices=True)
# Settings that fine-tuning takes from pretraining, unless the scale's `[tasks]` has other values.
INHERITED = (*DEVICE_SETTINGS, "mixed_precision")


def settings_of(values: Mapping[str, Any], classes: Sequence[type[Settings]]) -> list[Settings]:
    """An instance of each settings class, from one dictionary of all their fields.

    Raises:
      UserError: a name is not a field of any class, or a value is wrong.
    """
    known = [{field.name for field in dataclasses.fields(cls)} for cls in classes]
    if unknown := set(values) - set().union(*known):
        raise UserError(f"{', '.join(sorted(unknown))}: not a setting of this program")
    return [
        cls(**{name: value for name, value in values.items() if name in names})
        for cls, names in zip(classes, known, strict=True)
    ]


def asdict_of(settings: Sequence[Settings]) -> dict[str, Any]:
    """All fields of some settings, in one dictionary."""
    return {name: value for group in settings for name, value in group.to_dict().items()}


def without_device_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run without those that determine where it is computed."""
    return {name: value for name, value in values.items() if name not in DEVICE_SETTINGS}


# --- Pretraining ---


class Trained:
    """The pretraining of a row and seed, finished or not.

    Args:
      workspace: shared data.
      experiment: the experiment, which determines the budget.
      row: the model.
      seed: seed of the run.

    Attributes:
      folder: folder of all runs of this model.
      run_folder: run folder of the pretraining run.
      model_config: the model's sizes.
      members: the models that an ensemble averages; an ensemble itself is not trained.
    """

    def __init__(self, workspace: Workspace, experiment: Experiment, row: Row, seed: int):
        self.workspace, self.experiment, self.row, self.seed = workspace, experiment, row, seed
        self.model_config = workspace.scale.model_config(row)
        self.shallower = None
        if row.warm_start_from:
            source = experiment.row(row.warm_start_from)
            self.shallower = Trained(workspace, experiment, source, seed)
        self.members = [
            Trained(workspace, experiment, experiment.row(name), seed) for name in row.ensemble_of
        ]
        self.values = self._values()
        self.folder = workspace.path("runs", key_of(self.declared()), f"seed-{seed}")
        self.run_folder = os.path.join(self.folder, "pretraining")

    def _values(self) -> dict[str, Any]:
        """The run's settings from scale and row; for a budget in seconds, `num_train_steps` is 0."""
        scale, row = self.workspace.scale, self.row
        own = scale.experiments.get(self.experiment.name, {})
        values = {**scale.training, **own, **row.training}
        factor = scale.steps_factors.get(f"{row.steps_factor:g}", row.steps_factor)
        if self.experiment.budget == "seconds":
            factor = 0
        return {**values, "num_train_steps": round(values["num_train_steps"] * factor)}

    def declared(self) -> dict[str, Any]:
        """All settings that change results, without the seed and the machine."""
        scale, row = self.workspace.scale, self.row
        declared = {
            "model": self.model_config.to_dict(),
            "data": {**scale.data, **row.data},
            "text": self.workspace.sources(row.text),
            "vocabulary": dict(scale.vocabulary),
            "training": without_device_settings(self.values),
            "warm start": self.shallower.declared() if self.shallower else {},
        }
        if self.members:
            declared["ensemble of"] = {each.row.name: each.declared() for each in self.members}
        if self.experiment.budget == "seconds":
            declared["seconds"] = scale.seconds
        return declared

    def train(self) -> dict[str, Any]:
        """Trains the model, or completes its training.

        Returns:
          `minutes` of training without evaluations; `steps`; `parameters` with the heads; the curves `training` and
          `evaluation`.
        """
        with locked(self.folder):
            files.remove_leftovers(self.run_folder)
            if not os.path.exists(os.path.join(self.run_folder, RESULTS_FILE)):
                if self.shallower:
                    self.shallower.train()
                run, optimizer, pretraining = self.settings()
                loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)
                free_memory()
        return self.results()

    def settings(self) -> list[Settings]:
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
        return settings_of(values, PRETRAINING)

    def _steps_in_time(self, values: Mapping[str, Any]) -> int:
        """The number of steps in the scale's seconds, measured once by a short run."""
        path = os.path.join(self.folder, "budget.json")
        if os.path.exists(path):
            return files.read_json(path)["num_train_steps"]
        scale = self.workspace.scale
        measured = timed_run(values, scale.speed, os.path.join(self.folder, "timing"))
        steps_per_second = measured["median"] / measured["batch"]
        steps = max(1, int(scale.seconds * steps_per_second))
        budget = {"num_train_steps": steps, "seconds": scale.seconds, **measured}
        files.write_bytes(path, json.dumps(budget, indent=2).encode())
        return steps

    def results(self) -> dict[str, Any]:
        """The results of the training, from the run's folder."""
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
            "chance": results["chance"],
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

    Args:
      values: settings of run_pretraining.py.
      speed: those that differ, such as `num_train_steps` and `log_every_steps`.
      folder: folder of the run; deleted before and after.

    Returns:
      `examples_per_second` of each interval, `median`, `fastest`, `batch`.
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
    """The settings with the paths of a task's data; {} if there is none below --data_dir.

    Raises:
      UserError: there is no such task.
    """
    if task in ("squad1.1", "squad2.0"):
        version = task.removeprefix("squad")
        paths = workspace.squad_files(version)
        return {"version": version, **paths} if paths else {}
    if task == "race":
        folder = workspace.find("race", "RACE")
        return {"data_dir": folder} if folder else {}
    names = {task_key(name): name for name in GLUE_TASK_NAMES}
    if task not in names:
        raise UserError(f"{task}: no such task; known are {', '.join(TASKS)}")
    folder = workspace.find(f"glue/{names[task]}", f"glue*/{names[task]}")
    return {"task_name": names[task], "data_dir": folder} if folder else {}


def initial_task(trained: Trained, task: str) -> str:
    """The task whose fine-tuned model a task starts from; "" if the task starts from the pretrained model.

    It also starts from the pretrained model if the other task has no data, or has no settings in the scale.
    """
    name = trained.experiment.initial_tasks.get(task, "")
    is_possible = name in trained.workspace.scale.tasks and task_data(trained.workspace, name)
    return name if is_possible else ""


def fine_tune(trained: Trained, task: str) -> dict[str, Any] | None:
    """Fine-tunes a row on a task, several times if so configured; trains the initial model first if necessary.

    Args:
      trained: the pretrained model.
      task: a name of the scale's `[tasks]`.

    Returns:
      Metrics by name, medians if there are several runs; `runs`, the metrics of each; `initial_task`, whose best model
      the runs started from, if there is one; `settings`, the name of `task_folder`. None if there is no data.

    Raises:
      UserError: the scale has no such task; see `repeated_runs.fine_tune`.
    """
    data = task_data(trained.workspace, task)
    if not data:
        return None
    initial, folder = initial_task(trained, task), task_folder(trained, task)
    path = os.path.join(folder, RESULTS_FILE)
    with locked(folder + ".lock"):
        files.remove_leftovers(folder)
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
    if not initial:
        trained.train()
        return trained.run_folder
    fine_tune(trained, initial)
    return best_run(trained, initial)


def task_folder(trained: Trained, task: str) -> str:
    """The folder of a row's fine-tuning runs, named by a hash of all settings that change results."""
    wanted = without_device_settings(_wanted(trained, task))
    if initial := initial_task(trained, task):
        wanted["initial task"] = os.path.basename(task_folder(trained, initial))
    return os.path.join(trained.folder, "tasks", f"{task}-{key_of(wanted)}")


def runs_of(trained: Trained, task: str) -> list[str]:
    """The folders of the finished runs of a row on a task."""
    folder = task_folder(trained, task)
    runs = files.read_json(os.path.join(folder, RESULTS_FILE)).get("runs", ())
    # Only the names of the runs' folders are used, because the work folder may have been moved.
    return [os.path.join(folder, os.path.basename(run["folder"])) for run in runs] or [folder]


def best_run(trained: Trained, task: str) -> str:
    """The folder of the fine-tuned model, of the best run if there are several."""
    folder = task_folder(trained, task)
    best = files.read_json(os.path.join(folder, RESULTS_FILE)).get("best_run")
    return os.path.join(folder, os.path.basename(best)) if best else folder


def task_results(results: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in the results.json of one run, of several runs or of an ensemble."""
    numbers = results.get("median", results.get("eval"))
    runs = [run["eval"] for run in results.get("runs", ())]
    return {**numbers, "runs": runs} if runs else dict(numbers)


def _wanted(trained: Trained, task: str) -> dict[str, Any]:
    """The scale's settings for a task, with those of its preset and those inherited from pretraining."""
    scale = trained.workspace.scale
    if task not in scale.tasks:
        raise UserError(f"scale {scale.name}: has no [tasks.{task}]")
    values = dict(scale.tasks[task])
    table = registry.preset_rows(values.get("preset"))
    inherited = {name: trained.values[name] for name in INHERITED if name in trained.values}
    return {**inherited, **table.get(task, {}), **values, **trained.experiment.fine_tuning}


def _task_settings(trained: Trained, task: str, own: Mapping[str, Any]) -> list[Settings]:
    """The settings of a run of the task's program: the scale's settings, with the changes in `own`."""
    values = {**_wanted(trained, task), "seed": trained.seed, **own}
    return settings_of(values, fine_tuning_classes(task))


def _run(trained: Trained, task: str, own: Mapping[str, Any]) -> dict:
    """Runs the task's program with `_task_settings`; returns the contents of results.json."""
    run, optimizer, config = _task_settings(trained, task, own)
    task_class = registry.resolve(registry.find(task).task)
    results = repeated_runs.fine_tune(task_class, config, run, optimizer)
    free_memory()
    return results


def ensemble(trained: Trained, task: str) -> dict[str, Any] | None:
    """Averages the predictions of several rows' fine-tuned models, which are chosen on the development data.

    Args:
      trained: an ensemble; its members are fine-tuned first if they are not finished.
      task: see `fine_tune`.

    Returns:
      Metrics by name; `members`, the chosen rows and runs. None if there is no data.
    """
    data = task_data(trained.workspace, task)
    if not data:
        return None
    names = {}
    for member in trained.members:
        fine_tune(member, task)
        runs = runs_of(member, task)
        several = [f", {os.path.basename(run)}" for run in runs] if len(runs) > 1 else [""]
        names.update({run: member.row.name + name for run, name in zip(runs, several, strict=True)})
    parts = [os.path.basename(task_folder(member, task)) for member in trained.members]
    folder = os.path.join(trained.folder, "ensembles", f"{task}-{key_of(parts)}")
    run_settings = {**data, "output_dir": folder, "ensemble": ",".join(names)}
    with locked(folder + ".lock"):
        results = _run(trained.members[0], task, run_settings)
    return {**task_results(results), "members": [names[run] for run in results["members"]]}
