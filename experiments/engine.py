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

from albert_tf import files
from albert_tf.checkpoints import write_json
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.heads import AlbertForPreTraining
from albert_tf.pretrained import load_pretrained
from albert_tf.workers import num_cores
from experiments import intrinsic, layer_changes, training
from experiments.declarations import FOLDER, Experiment, Row, Scale
from experiments.preparation import Workspace
from experiments.training import Trained


def result_path(results_dir: str, experiment: Experiment, scale: str, row: Row, seed: int) -> str:
    """Where the results of a row and a seed are written."""
    name = re.sub(r"[^a-z0-9.]+", "-", row.name.lower()).strip("-")
    return os.path.join(results_dir, experiment.name, scale, f"{name}-seed{seed}.json")


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
        if experiment.budget == "none":  # nothing is trained, so the paper's own sizes are counted
            own = dataclasses.replace(scale, sizes={}, model={})
            workspace = Workspace(own, self.workspace.data_dir, self.workspace.work_dir)
            engine = dataclasses.replace(self, workspace=workspace)
            for row in rows:
                engine.run_row(experiment, row, seeds[0], is_first_seed=True)
            return
        for seed in seeds:
            for row in rows:
                if scale.has(row):
                    self.run_row(experiment, row, seed, is_first_seed=seed == scale.seeds[0])
                else:
                    print(f"{experiment.name}, {row.name}: not at scale {scale.name}")

    def run_row(self, experiment: Experiment, row: Row, seed: int, *, is_first_seed: bool) -> None:
        """Measures what is missing of one row with one seed."""
        scale = self.workspace.scale
        path = result_path(self.results_dir, experiment, scale.name, row, seed)
        trained = Trained(self.workspace, experiment, row, seed)
        found = self._started(path, experiment, trained)
        title = f"{experiment.name}, {row.name}, seed {seed}"
        measures = dict(found["measures"])
        for name, measure in self._wanted(experiment, trained, is_first_seed).items():
            if measures.get(name) is not None:
                continue
            print(f"--- {title}: {name}", flush=True)
            started = time.monotonic()
            measures[name] = measure()
            found["measures"] = measures
            found["minutes"][name] = round((time.monotonic() - started) / 60, 2)
            if name == "pretraining":
                found["minutes"][name] = measures[name]["minutes"]
            write_json(path, found)
        print(f"{title}: finished, {path}", flush=True)

    def _started(self, path: str, experiment: Experiment, trained: Trained) -> dict[str, Any]:
        """What is known of a row, or the beginning of it."""
        declared = {**trained.declared(), "budget": experiment.budget}
        scale = trained.workspace.scale
        declared["intrinsic"] = dict(scale.intrinsic)
        if os.path.exists(path):
            found = files.read_json(path)
            if changed := _difference(found["declared"], declared):
                raise UserError(
                    f"{path}: was made with {changed}; delete it, or choose another --results_dir"
                )
            return found
        return {
            "experiment": experiment.name,
            "row": trained.row.name,
            "scale": scale.name,
            "seed": trained.seed,
            "declared": declared,
            "made": {
                "date": f"{datetime.datetime.now():%Y-%m-%d}",
                "commit": commit(),
                **machine(),
            },
            "measures": {},
            "minutes": {},
        }

    def _wanted(self, experiment: Experiment, trained: Trained, is_first_seed: bool) -> dict:
        """Functions that measure, by name, in order; the pretraining is the first where anything needs it."""
        known = {
            "parameters": lambda: parameters(trained),
            "speed": lambda: self._speed(trained),
            "pretraining": trained.train,
            "intrinsic": lambda: self._intrinsic(trained),
            "layer_changes": lambda: self._layer_changes(trained),
        }
        wanted = [name for name in experiment.measures if name in (self.measures or [name])]
        if not is_first_seed and "speed" in wanted:
            wanted.remove("speed")
        if trained.row.ensemble_of:
            wanted = [name for name in wanted if name == "tasks"]
            known.pop("pretraining")
        elif experiment.budget == "none" or not set(wanted) - {"parameters", "speed"}:
            known.pop("pretraining")
        wanted.append("pretraining")
        functions = {name: known[name] for name in known if name in wanted}
        for task in self._tasks(experiment) if "tasks" in wanted else ():
            functions[f"task {task}"] = lambda task=task: self._task(experiment, trained, task)
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
        return load_pretrained(trained.run_folder)

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

    def _task(self, experiment: Experiment, trained: Trained, task: str) -> dict | None:
        """Metrics of a task; of the row's ensemble, if it is one."""
        if names := trained.row.ensemble_of:
            members = [
                Trained(self.workspace, experiment, experiment.row(name), trained.seed)
                for name in names
            ]
            for member in members:
                self._task(experiment, member, task)
            folder = os.path.join(trained.folder, "ensembles", task)
            return training.ensemble(members[0], members, task, folder)
        initial = experiment.initial_tasks.get(task, "")
        if initial and self._task(experiment, trained, initial) is not None:
            initial = training.best_run(trained, initial)
        else:
            initial = ""
        trained.train()
        return training.fine_tune(trained, task, initial)


def parameters(trained: Trained) -> dict[str, int]:
    """Exact numbers of parameters of a row: at the paper's sizes and at the scale's, without and with heads."""
    row, ours = trained.row, trained.model_config
    paper = Scale(name="paper", title="", seeds=(), texts={}).model_config(row)
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


def commit() -> str:
    """The commit of this code, with "+" if files were changed since; "unknown" outside a checkout."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", FOLDER, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        code = ("*.py", "*.toml")
        is_changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", *code)
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
