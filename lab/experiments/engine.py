"""Runs experiments: every row and seed that is not finished; each has its own JSON file.

All rows of the first seed are run first, then those of the next seed, so that a table is complete early. Each measure
of a row is written as soon as it is known, and a killed run is resumed.
"""

import dataclasses
import datetime
import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.workers import num_cores
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining
from lab.experiments import intrinsic, layer_changes, training
from lab.experiments.columns import PROBE_COLUMNS
from lab.experiments.declarations import FOLDER, MEASURES, PAPER_SIZES, UNTRAINED, Experiment, Row
from lab.experiments.preparation import Workspace, key_of, locked
from lab.experiments.recorded import read_result, result_path
from lab.experiments.training import Trained
from lab.machine import commit, processor_name


class Result:
    """The JSON file of a row and a seed; several processes may add measures to it, with the lock of a folder.

    `about` is the file's first entries; its `declared`, all settings that change results, must equal those of an
    existing file.
    """

    def __init__(self, path: str, about: Mapping[str, Any], lock: str, command: str = ""):
        self.path = path
        self._about = about
        self._lock = lock
        self._command = command
        self.measures = self._read()["measures"]

    def _read(self) -> dict[str, Any]:
        if not os.path.exists(self.path):
            made = provenance(self._command)
            return {**self._about, "made": made, "measures": {}, "minutes": {}}
        content = read_result(self.path)
        if changed := _difference(content["declared"], self._about["declared"]):
            raise UserError(
                f"{self.path}: was made with {changed}; give another --results_dir, or delete it"
            )
        return content

    def add(self, name: str, measured: Any, minutes: float) -> None:
        """Adds a measure, None if there was no data for it, to the current content of the file."""
        with locked(self._lock):
            content = self._read()
            content["measures"][name] = measured
            content["minutes"][name] = minutes
            if (now := provenance(self._command)) != content["made"]:
                content.setdefault("made_later", {})[name] = now
            files.write_bytes(self.path, files.json_bytes(content))
        self.measures = content["measures"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """Runs the rows of experiments at one scale."""

    workspace: Workspace
    results_dir: str
    measures: tuple[str, ...] = ()  # a choice of the experiments' measures; empty means all
    tasks: tuple[str, ...] = ()  # the same for tasks
    command: str = ""  # the command line, which is recorded with each result

    def run(self, experiment: Experiment, rows: Sequence[Row], seeds: Sequence[int]) -> None:
        """Runs the rows and seeds of an experiment that are not finished."""
        scale = self.workspace.scale
        is_trained = experiment.budget != "none"
        present = []
        for row in rows:
            texts = {each.text for each in experiment.with_sources(row)}
            missing = texts - self.workspace.texts.keys()
            if not scale.has_row(experiment, row):
                print(f"{experiment.name}, {row.name}: not at scale {scale.name}")
            elif is_trained and missing:
                print(
                    f"{experiment.name}, {row.name}: needs the text {min(missing)!r}, see --data_dir"
                )
            else:
                present.append(row)
        for seed in seeds if is_trained else seeds[:1]:
            for row in present:
                self._run_row(experiment, row, seed)

    def _run_row(self, experiment: Experiment, row: Row, seed: int) -> None:
        """Measures what is missing for a row and a seed."""
        scale = self.workspace.scale
        if experiment.budget == "none":  # nothing is trained; the paper's sizes are counted
            config = PAPER_SIZES.model_config(row)
            declared = {"model": config.to_dict(), "budget": experiment.budget}
            functions = {"parameters": lambda: parameters(row, config)}
        else:
            trained = Trained(self.workspace, experiment, row, seed)
            declared = declared_of(trained)
            functions = self._wanted(experiment, trained)
        path = result_path(self.results_dir, experiment, scale.name, row, seed)
        about = {"experiment": experiment.name, "row": row.name, "scale": scale.name, "seed": seed}
        about["declared"] = declared
        lock = self.workspace.path("results", key_of(os.path.abspath(path)))
        result = Result(path, about, lock, self.command)
        if experiment.budget != "none":
            _check_tasks(result, trained)
        title = f"{experiment.name}, {row.name}, seed {seed}"
        for name, measure in functions.items():
            if result.measures.get(name) is not None:
                continue
            print(f"--- {title}: {name}", flush=True)
            started = time.monotonic()
            measured = measure()
            minutes = (time.monotonic() - started) / 60
            if name == "pretraining":  # which may have been interrupted
                minutes = measured["minutes"]
            result.add(name, measured, round(minutes, 2))
        print(f"{title}: finished, {result.path}", flush=True)

    def _wanted(self, experiment: Experiment, trained: Trained) -> dict:
        """The measuring functions by name, in order; includes "pretraining" if any of them needs a trained model."""
        measures = {
            "parameters": lambda: parameters(trained.row, trained.model_config),
            "speed": lambda: self._speed(trained),
            "pretraining": trained.train,
            "intrinsic": lambda: self._intrinsic(trained),
            "layer_changes": lambda: self._layer_changes(trained),
        }
        names = set(experiment.measures_of(trained.row)) & set(self.measures or MEASURES)
        if names - set(UNTRAINED):
            names.add("pretraining")
        functions = {name: measures[name] for name in measures if name in names}
        if "tasks" not in names:
            return functions

        # Tasks that initialize others come first.
        tasks = sorted(experiment.tasks, key=lambda task: task in experiment.initial_tasks)
        chosen = set(self.tasks or tasks) & set(self.workspace.scale.tasks)
        for task in tasks:
            if task in chosen:
                functions[f"task {task}"] = functools.partial(training.fine_tune, trained, task)
        return functions

    # --- Measures ---

    def _speed(self, trained: Trained) -> dict[str, Any]:
        folder = os.path.join(trained.folder, "speed")
        return training.timed_run(trained.run_values(), self.workspace.scale.speed, folder)

    def _model(self, trained: Trained) -> AlbertForPreTraining:
        training.free_memory()
        trained.train()
        depth = trained.model_config.num_hidden_layers
        return intrinsic.load(trained.run_folder, self.workspace.intrinsic(), depth)

    def _intrinsic(self, trained: Trained) -> dict[str, Any]:
        limits = self.workspace.scale.intrinsic
        shown = set(trained.experiment.columns)
        probed = [task for task in intrinsic.PAIR_TASKS if shown & PROBE_COLUMNS[task]]
        measured = intrinsic.measure(
            self._model(trained),
            self.workspace.intrinsic(),
            {task: self.workspace.probe(task) for task in probed},
            limits.get("max_examples", 0),
            limits.get("max_probe_examples", 0),
        )
        passages = self.workspace.passages()
        sources = {name: os.path.basename(path) for name, path in passages.items()}
        return {**measured, "development_set": sources}

    def _layer_changes(self, trained: Trained) -> dict[str, Any]:
        limit = self.workspace.scale.intrinsic.get("max_examples", 0)
        return layer_changes.measure(self._model(trained), self.workspace.intrinsic(), limit)


def parameters(row: Row, ours: AlbertConfig) -> dict[str, int]:
    """Numbers of parameters of a row at the paper's and at the scale's sizes, without and with heads."""
    return {
        name + suffix: count_parameters(config, with_heads=bool(suffix))
        for name, config in {"paper": PAPER_SIZES.model_config(row), "here": ours}.items()
        for suffix in ("", "_with_heads")
    }


def count_parameters(config: AlbertConfig, *, with_heads: bool) -> int:
    """Number of parameters of a model, also of its pretraining heads; counted without allocating its variables."""
    with tf.Graph().as_default():
        return sum(
            variable.shape.num_elements()
            for name, variable in AlbertForPreTraining(config).named_variables().items()
            if with_heads or name.startswith("bert/")
        )


def _check_tasks(result: Result, trained: Trained) -> None:
    """Raises an error if a file's fine-tuning had other settings than the scale has now."""
    for name, measured in result.measures.items():
        task = name.removeprefix("task ")
        if task == name or not measured or task not in trained.workspace.scale.tasks:
            continue
        if measured["settings"] != (now := os.path.basename(training.task_folder(trained, task))):
            raise UserError(
                f"{result.path}: {name} was made with other settings ({measured['settings']}, now it is {now}); give"
                " another --results_dir, or delete it"
            )


def declared_of(trained: Trained) -> dict[str, Any]:
    """All settings that change the results of a row, without the seed and the machine."""
    limits = trained.workspace.scale.intrinsic
    return {**trained.declared(), "intrinsic": limits, "budget": trained.experiment.budget}


def _difference(before: Mapping, now: Mapping, path: str = "") -> str:
    """The first setting that differs, as a message; "" if all are equal."""
    for name in {**before, **now}:
        old = before.get(name)
        new = now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner_difference = _difference(old, new, f"{path}{name}.")
            if inner_difference:
                return inner_difference
        elif old != new and not (isinstance(old, list | tuple) and list(old) == list(new)):
            return f"{path}{name}={old}, now it is {new}"
    return ""


def provenance(command: str) -> dict[str, Any]:
    """Command line, date, commit, machine and TensorFlow version of a measurement."""
    devices = [device.device_type for device in tf.config.list_physical_devices()]
    return {
        **({"command": command} if command else {}),
        "date": f"{datetime.datetime.now():%Y-%m-%d}",
        "commit": commit(FOLDER, short=True) or "unknown",
        "processor": processor_name(),
        "cores": num_cores(),
        "devices": ", ".join(f"{devices.count(kind)} {kind}" for kind in sorted(set(devices))),
        "tensorflow": tf.__version__,
    }
