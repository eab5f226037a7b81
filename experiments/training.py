"""One row, one seed: pretraining, speed, fine-tuning, each a run of the project's own programs in a folder of its own.

Two rows of any experiments that come to the same settings share a folder, so that the model is trained once. Every part
of a run can be killed and goes on: pretraining and fine-tuning from their checkpoints.
"""

import dataclasses
import gc
import json
import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf import config, files, presets, protocol, train_loop
from albert_tf.checkpoints import EVAL_METRICS_FILE, METRICS_FILE, RESULTS_FILE
from albert_tf.errors import UserError
from albert_tf.tasks.classification import ClassificationTask
from albert_tf.tasks.pretraining import PretrainingTask
from albert_tf.tasks.race import RaceTask
from albert_tf.tasks.squad import SquadTask
from experiments.declarations import Experiment, Row
from experiments.preparation import Workspace, key_of, locked

STEPS_FACTOR = "steps_factor"
PRETRAINING = (config.RunConfig, config.OptimizerConfig, config.PretrainingConfig)
TIMING_STEPS = "steps"


def settings_of(
    values: Mapping[str, Any], classes: Sequence[type[config.Settings]]
) -> list[config.Settings]:
    """An instance of each settings class, from one dictionary of all their fields.

    Raises:
      UserError: a name is a field of none, or a value is wrong.
    """
    known = [{field.name for field in dataclasses.fields(cls)} for cls in classes]
    if unknown := set(values) - set().union(*known):
        raise UserError(f"{', '.join(sorted(unknown))}: not a setting of this program")
    return [
        cls(**{name: value for name, value in values.items() if name in names})
        for cls, names in zip(classes, known, strict=True)
    ]


def asdict_of(settings: Sequence[config.Settings]) -> dict[str, Any]:
    """All fields of some settings, in one dictionary."""
    return {name: value for one in settings for name, value in one.to_dict().items()}


def command(program: str, settings: Sequence[config.Settings]) -> str:
    """The command line that does the same as a call with these settings."""
    flags = []
    for one in settings:
        for field in dataclasses.fields(one):
            value = getattr(one, field.name)
            if value != field.default:
                shown = str(value).lower() if field.type is bool else value
                flags.append(f"--{field.name}={shown}")
    return shlex.join(["python", program, *flags])


# --- Pretraining ---


class Trained:
    """The pretraining of a row with a seed, where it is or will be.

    Args:
      workspace: shared data.
      experiment: whose budget counts.
      row: what is trained.
      seed: of the run.

    Attributes:
      folder: of everything about this model.
      run_folder: of the pretraining run.
      model_config: the model's sizes.
    """

    def __init__(self, workspace: Workspace, experiment: Experiment, row: Row, seed: int):
        self.workspace, self.experiment, self.row, self.seed = workspace, experiment, row, seed
        self.model_config = workspace.scale.model_config(row)
        self.shallower = None
        if row.warm_start_from:
            source = experiment.row(row.warm_start_from)
            self.shallower = Trained(workspace, experiment, source, seed)
        self.values = self._values()
        self.folder = workspace.path("runs", key_of(self.declared()), f"seed-{seed}")
        self.run_folder = os.path.join(self.folder, "pretraining")

    def _values(self) -> dict[str, Any]:
        """The run's settings as far as they stand in scale and row; the budget in seconds is still one of seconds."""
        scale, row = self.workspace.scale, self.row
        own = scale.experiments.get(self.experiment.name, {})
        values = {**scale.training, **own, **row.training}
        factor = values.pop(STEPS_FACTOR, 1)
        factor = scale.steps_factors.get(str(factor), factor)
        if self.experiment.budget == "seconds":
            values["num_train_steps"] = 0
        else:
            values["num_train_steps"] = round(values["num_train_steps"] * factor)
        return values

    def declared(self) -> dict[str, Any]:
        """Everything that decides what comes out, but the seed and the machine."""
        scale, row = self.workspace.scale, self.row
        found = {
            "model": self.model_config.to_dict(),
            "data": {**scale.data, **row.data},
            "text": self.workspace.sources(row.text),
            "vocabulary": dict(scale.vocabulary),
            "training": self.values,
            "warm start": self.shallower.declared() if self.shallower else {},
        }
        if self.experiment.budget == "seconds":
            found["seconds"] = scale.seconds
        return found

    def train(self) -> dict[str, Any]:
        """Trains the model, or what is missing of its training.

        Returns:
          `minutes` of training alone, without evaluations; `steps`; `parameters` with the heads; `command`; the curves
          `training` and `evaluation`.
        """
        if self.shallower:
            self.shallower.train()
        with locked(self.folder):
            settings = self.settings()
            if not os.path.exists(os.path.join(self.run_folder, RESULTS_FILE)):
                run, optimizer, pretraining = settings
                train_loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)
                forget()
            return {**self.results(), "command": self._command(settings)}

    def _command(self, settings: Sequence[config.Settings]) -> str:
        """The command line of the training, with names in place of this machine's folders."""
        text = command("run_pretraining.py", settings)
        return text.replace(self.workspace.folder, "WORK")

    def settings(self) -> list[config.Settings]:
        """The settings of run_pretraining.py; makes the data that they name."""
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
        """How many steps fit into the scale's seconds, found once by a short run."""
        path = os.path.join(self.folder, "budget.json")
        if os.path.exists(path):
            return files.read_json(path)["num_train_steps"]
        measured = timed_run(
            values, self.workspace.scale.speed, os.path.join(self.folder, "timing")
        )
        steps_per_second = measured["median"] / measured["batch"]
        steps = max(1, int(self.workspace.scale.seconds * steps_per_second))
        found = {"num_train_steps": steps, "seconds": self.workspace.scale.seconds, **measured}
        files.write_bytes(path, json.dumps(found, indent=2).encode())
        return steps

    def results(self) -> dict[str, Any]:
        """What the run's folder says of the training."""
        training = _lines(os.path.join(self.run_folder, METRICS_FILE))
        settings = files.read_json(os.path.join(self.run_folder, "config.json"))
        batch = settings["run"]["train_batch_size"]
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


def forget() -> None:
    """Gives the memory of a finished run back."""
    tf_keras.backend.clear_session()
    gc.collect()


def _lines(path: str) -> list[dict]:
    """The objects of a JSON-lines file; none if it is not there."""
    if not os.path.exists(path):
        return []
    return [json.loads(line) for line in files.read_bytes(path).decode().splitlines()]


# --- Speed ---


def timed_run(values: Mapping[str, Any], speed: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Trains some steps and gives the speed of each interval but the first, in which graphs are made.

    Args:
      values: settings of run_pretraining.py.
      speed: `steps`, `log_every_steps`, and settings of run_pretraining.py that differ.
      folder: of the run; deleted before and after.

    Returns:
      `examples_per_second` of each interval, `median`, `fastest`, `batch`, `seq_length`.
    """
    speed = dict(speed)
    steps = speed.pop(TIMING_STEPS)
    own = {"num_train_steps": steps, "num_warmup_steps": 1, "do_eval": False, "eval_file": ""}
    own.update({"output_dir": folder, "save_checkpoints_steps": steps})
    run, optimizer, pretraining = settings_of({**values, **speed, **own}, PRETRAINING)
    _delete(folder)
    train_loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)
    forget()
    lines = _lines(os.path.join(folder, METRICS_FILE))
    _delete(folder)
    speeds = [line["examples_per_second"] for line in lines][1:]
    return {
        "examples_per_second": speeds,
        "median": statistics.median(speeds),
        "fastest": max(speeds),
        "batch": run.train_batch_size,
    }


def _delete(folder: str) -> None:
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


# --- Fine-tuning ---


def task_data(workspace: Workspace, task: str) -> dict[str, Any]:
    """The settings that name a task's data; {} if it is not below --data_dir."""
    if task.startswith("squad"):
        version = task.removeprefix("squad")
        found = workspace.squad_files(version)
        return {"version": version, **found} if found else {}
    if task == "race":
        folder = workspace.find("race", "RACE")
        return {"data_dir": folder} if folder else {}
    (name,) = (name for name in config.GLUE_TASK_NAMES if config.task_key(name) == task)
    folder = workspace.find(f"glue/{name}", f"glue*/{name}")
    return {"task_name": name, "data_dir": folder} if folder else {}


def fine_tune(trained: Trained, task: str, initial: str) -> dict[str, Any] | None:
    """Fine-tunes a trained row on a task, several times if the scale says so.

    Args:
      trained: the pretrained model.
      task: a name of the scale's `[tasks]`.
      initial: folder of the fine-tuned model to start from; "" starts from the pretrained one.

    Returns:
      Metrics by name, medians where there are several runs; `runs` with each; None if the data is not there.
    """
    workspace = trained.workspace
    data = task_data(workspace, task)
    if not data:
        return None
    folder = task_folder(trained, task)
    path = os.path.join(folder, RESULTS_FILE)
    with locked(folder + ".lock"):
        settings = _task_settings(trained, task, {**data, "output_dir": folder}, initial)
        if not os.path.exists(path):
            task_class, run, optimizer, task_config = settings
            protocol.fine_tune(task_class, task_config, run, optimizer)
            forget()
    return task_results(files.read_json(path))


def task_folder(trained: Trained, task: str) -> str:
    """Where the fine-tuning runs of a row are."""
    return os.path.join(trained.folder, "tasks", f"{task}-{key_of(_wanted(trained, task))}")


def best_run(trained: Trained, task: str) -> str:
    """The folder of a fine-tuned model: of the best of several runs."""
    folder = task_folder(trained, task)
    return files.read_json(os.path.join(folder, RESULTS_FILE)).get("best_run", folder)


def task_results(results: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers in the results.json of one run, of several or of an ensemble."""
    numbers = results.get("median", results.get("eval"))
    runs = [run["eval"] for run in results.get("runs", ())]
    return {**numbers, "runs": runs} if runs else dict(numbers)


def _wanted(trained: Trained, task: str) -> dict[str, Any]:
    """The scale's settings of a task, with the paper's where it names that preset."""
    scale = trained.workspace.scale
    if task not in scale.tasks:
        raise UserError(f"scale {scale.name}: has no [tasks.{task}]")
    values = dict(scale.tasks[task])
    table = {"paper": presets.PAPER, "readme": presets.README}.get(values.get("preset"), {})
    return {**table.get(task, {}), **values, **trained.experiment.fine_tuning}


def _task_settings(trained: Trained, task: str, others: Mapping[str, Any], initial: str) -> tuple:
    kinds = {"race": (RaceTask, config.RaceConfig)}
    kinds.update(dict.fromkeys(("squad1.1", "squad2.0"), (SquadTask, config.SquadConfig)))
    task_class, config_class = kinds.get(task, (ClassificationTask, config.ClassifierConfig))
    values = {**_wanted(trained, task), "seed": trained.seed, **others}
    values["init_checkpoint"] = initial or trained.run_folder
    classes = (config.FineTuningRunConfig, config.FineTuningOptimizerConfig, config_class)
    return task_class, *settings_of(values, classes)


def ensemble(
    trained: Trained, members: Sequence[Trained], task: str, folder: str
) -> dict[str, Any] | None:
    """Averages the predictions of the fine-tuned models of some rows, chosen on the development data.

    Args:
      trained: a member, whose settings count.
      members: rows that were fine-tuned on the task.
      task: see `fine_tune`.
      folder: for the results.
    """
    data = task_data(trained.workspace, task)
    if not data:
        return None
    runs = [
        run
        for member in members
        for run in files.read_json(os.path.join(task_folder(member, task), RESULTS_FILE)).get(
            "runs", [{"folder": task_folder(member, task)}]
        )
    ]
    others = {**data, "output_dir": folder, "ensemble": ",".join(run["folder"] for run in runs)}
    task_class, run, optimizer, task_config = _task_settings(trained, task, others, "")
    return task_results(protocol.fine_tune(task_class, task_config, run, optimizer))
