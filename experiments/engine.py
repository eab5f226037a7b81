"""Runs experiments: every row and seed that is not finished, one JSON file each.

Order of the work: all rows of the first seed, then of the next, so that a table is whole early. What was measured of a
row is written as soon as it is known; a run that is killed goes on where it was.
"""

import dataclasses
import datetime
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.workers import num_cores
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.training.run_folder import write_json
from experiments import intrinsic, layer_changes, training
from experiments.declarations import FOLDER, PAPER_SIZES, UNTRAINED, Experiment, Row
from experiments.preparation import Workspace, key_of, locked
from experiments.training import Trained


def result_path(results_dir: str, experiment: Experiment, scale: str, row: Row, seed: int) -> str:
    """Where the results of a row and a seed are written."""
    name = re.sub(r"[^a-z0-9.]+", "-", row.name.lower()).strip("-")
    return os.path.join(results_dir, experiment.name, scale, f"{name}-seed{seed}.json")


class Result:
    """The JSON file of a row and a seed; several processes may add measures to it.

    Args:
      path: of the file.
      about: what it begins with; `declared`, every setting that decides what comes out, must be what it was.
      lock: folder that only one process at a time writes under.

    Attributes:
      path: of the file.
      measures: what was measured, by name.

    Raises:
      UserError: the file was made with other settings.
    """

    def __init__(self, path: str, about: Mapping[str, Any], lock: str):
        self.path = path
        self._about, self._lock = about, lock
        self.measures = self._read()["measures"]

    def _read(self) -> dict[str, Any]:
        if not os.path.exists(self.path):
            return {**self._about, "made": made(), "measures": {}, "minutes": {}}
        found = files.read_json(self.path)
        if changed := _difference(found["declared"], self._about["declared"]):
            raise UserError(
                f"{self.path}: was made with {changed}; give another --results_dir, or delete it"
            )
        return found

    def add(self, name: str, measured: Any, minutes: float) -> None:
        """Adds a measure to what the file holds by now.

        Args:
          name: of the measure.
          measured: its numbers; None if there was no data for it.
          minutes: it took.
        """
        with locked(self._lock):
            found = self._read()
            found["measures"][name] = measured
            found["minutes"][name] = minutes
            if (now := made()) != found["made"]:
                found.setdefault("made_later", {})[name] = now
            write_json(self.path, found)
        self.measures = found["measures"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """Runs the rows of experiments at one scale.

    Attributes:
      workspace: shared data.
      results_dir: folder of the JSON files.
      measures: what is measured of what the experiments ask for; empty is all.
      tasks: which of the tasks that the experiments ask for; empty is all.
    """

    workspace: Workspace
    results_dir: str
    measures: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def run(self, experiment: Experiment, rows: Sequence[Row], seeds: Sequence[int]) -> None:
        """Does what is not done yet of some rows and seeds of an experiment.

        Raises:
          UserError: a finished row was made with other settings; a setting or file is wrong.
        """
        scale = self.workspace.scale
        if experiment.budget == "none":
            for row in rows:
                self._run_row(experiment, row, seeds[0])
            return
        present = []
        for row in rows:
            if not scale.has(row):
                print(f"{experiment.name}, {row.name}: not at scale {scale.name}")
            elif missing := self._missing_text(experiment, row):
                print(f"{experiment.name}, {row.name}: needs the text {missing!r}, see --data_dir")
            else:
                present.append(row)
        for seed in seeds:
            for row in present:
                self._run_row(experiment, row, seed)

    def _missing_text(self, experiment: Experiment, row: Row) -> str:
        """A text that is not there of a row, or of those that it is made from; "" if all are."""
        if not self.workspace.has_text(row.text):
            return row.text
        others = filter(None, (row.warm_start_from, *row.ensemble_of))
        missing = (self._missing_text(experiment, experiment.row(name)) for name in others)
        return next(filter(None, missing), "")

    def _run_row(self, experiment: Experiment, row: Row, seed: int) -> None:
        """Measures what is missing of one row with one seed."""
        scale = self.workspace.scale
        about = {"experiment": experiment.name, "row": row.name, "scale": scale.name, "seed": seed}
        if experiment.budget == "none":  # nothing is trained, so the paper's own sizes are counted
            config = PAPER_SIZES.model_config(row)
            declared = {"model": config.to_dict()}
            functions = {"parameters": lambda: parameters(row, config)}
        else:
            trained = Trained(self.workspace, experiment, row, seed)
            declared = {**trained.declared(), "intrinsic": dict(scale.intrinsic)}
            functions = self._wanted(experiment, trained)
        path = result_path(self.results_dir, experiment, scale.name, row, seed)
        result = Result(
            path,
            {**about, "declared": {**declared, "budget": experiment.budget}},
            self.workspace.path("results", key_of(os.path.abspath(path))),
        )
        if experiment.budget != "none" and not row.ensemble_of:
            _check_tasks(result, trained)
        title = f"{experiment.name}, {row.name}, seed {seed}"
        for name, measure in functions.items():
            if result.measures.get(name) is not None:
                continue
            print(f"--- {title}: {name}", flush=True)
            started = time.monotonic()
            measured = measure()
            minutes = (time.monotonic() - started) / 60
            if name == "pretraining":
                minutes = measured["minutes"]
            result.add(name, measured, round(minutes, 2))
        print(f"{title}: finished, {result.path}", flush=True)

    def _wanted(self, experiment: Experiment, trained: Trained) -> dict:
        """Functions that measure, by name, in order; the pretraining is the first where anything needs it."""
        known = {
            "parameters": lambda: parameters(trained.row, trained.model_config),
            "speed": lambda: self._speed(trained),
            "pretraining": trained.train,
            "intrinsic": lambda: self._intrinsic(trained),
            "layer_changes": lambda: self._layer_changes(trained),
        }
        asked = experiment.measures_of(trained.row)
        wanted = [name for name in asked if name in (self.measures or [name])]
        if trained.row.ensemble_of:
            wanted = [name for name in wanted if name == "tasks"]
            known.pop("pretraining")
        elif not set(wanted) - set(UNTRAINED):
            known.pop("pretraining")
        wanted.append("pretraining")
        functions = {name: known[name] for name in known if name in wanted}
        for task in self._tasks(experiment) if "tasks" in wanted else ():
            functions[f"task {task}"] = lambda task=task: self._task(trained, task)
        return functions

    def _tasks(self, experiment: Experiment) -> list[str]:
        """The tasks that the scale has, those first that others start from."""
        wanted = [task for task in experiment.tasks if task in self.workspace.scale.tasks]
        chosen = [task for task in wanted if task in (self.tasks or [task])]
        return sorted(chosen, key=lambda task: task in experiment.initial_tasks)

    # --- Measures ---

    def _speed(self, trained: Trained) -> dict[str, Any]:
        values = {**training.asdict_of(trained.settings())}
        folder = os.path.join(trained.folder, "speed")
        return training.timed_run(values, self.workspace.scale.speed, folder)

    def _model(self, trained: Trained) -> AlbertForPreTraining:
        training.forget()
        trained.train()
        return intrinsic.load(trained.run_folder, self.workspace.intrinsic())

    def _intrinsic(self, trained: Trained) -> dict[str, Any]:
        limits = self.workspace.scale.intrinsic
        passages = self.workspace.passages()
        found = intrinsic.measure(
            self._model(trained),
            self.workspace.intrinsic(),
            {task: self.workspace.probe(task) for task in intrinsic.SENTENCE_TASKS},
            limits.get("max_examples", 0),
            limits.get("max_probe_examples", 0),
        )
        sources = {name: os.path.basename(path) for name, path in passages.items()}
        return {**found, "development_set": sources}

    def _layer_changes(self, trained: Trained) -> dict[str, Any]:
        limit = self.workspace.scale.intrinsic.get("max_examples", 0)
        return layer_changes.measure(self._model(trained), self.workspace.intrinsic(), limit)

    def _task(self, trained: Trained, task: str) -> dict[str, Any] | None:
        """Metrics of a task; of the row's ensemble, if it is one; None if the task's data is not there."""
        measure = training.ensemble if trained.row.ensemble_of else training.fine_tune
        return measure(trained, task)


def parameters(row: Row, ours: AlbertConfig) -> dict[str, int]:
    """Exact numbers of parameters of a row: at the paper's sizes and at the scale's, without and with heads."""
    paper = PAPER_SIZES.model_config(row)
    return {
        "paper": count_parameters(paper, with_heads=False),
        "paper_with_heads": count_parameters(paper, with_heads=True),
        "here": count_parameters(ours, with_heads=False),
        "here_with_heads": count_parameters(ours, with_heads=True),
    }


def count_parameters(config: AlbertConfig, *, with_heads: bool) -> int:
    """Number of parameters of the model that is built from a configuration; no variable gets memory.

    Args:
      config: the sizes.
      with_heads: whether those of masked LM and sentence order count.
    """
    with tf.Graph().as_default():
        model = AlbertForPreTraining(config)
        names = model.named_variables()
        return sum(
            variable.shape.num_elements()
            for name, variable in names.items()
            if with_heads or name.startswith("bert/")
        )


def _check_tasks(result: Result, trained: Trained) -> None:
    """Refuses a file whose fine-tuning was done with other settings than the scale has now for the task."""
    for name, measured in result.measures.items():
        task = name.removeprefix("task ")
        if task == name or not measured or task not in trained.workspace.scale.tasks:
            continue
        if measured["settings"] != (now := os.path.basename(training.task_folder(trained, task))):
            raise UserError(
                f"{result.path}: {name} was made with other settings ({measured['settings']}, now it is {now}); give"
                " another --results_dir, or delete it"
            )


def _difference(before: Mapping, now: Mapping, path: str = "") -> str:
    """The first setting that differs, in words; "" if none does."""
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if inner := _difference(old, new, f"{path}{name}."):
                return inner
        elif old != new and not (isinstance(old, list | tuple) and list(old) == list(new)):
            return f"{path}{name}={old}, now it is {new}"
    return ""


def made() -> dict[str, Any]:
    """When, with which code and on which machine."""
    return {"date": f"{datetime.datetime.now():%Y-%m-%d}", "commit": commit(), **machine()}


def commit() -> str:
    """The commit of this code, with "+" if files were changed since; "unknown" outside a checkout."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", FOLDER, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        code = (":(top)*.py", ":(top)*.toml")  # not the results, which a run writes
        is_changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
        return git("rev-parse", "--short", "HEAD") + ("+" if is_changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """What the numbers were made on."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(r"model name\s*: (.*)", file.read())
        name = found[1] if found else name
    devices = [device.device_type for device in tf.config.list_physical_devices()]
    return {
        "processor": name,
        "cores": num_cores(),
        "devices": ", ".join(f"{devices.count(kind)} {kind}" for kind in sorted(set(devices))),
        "tensorflow": tf.__version__,
    }
