"""The folder of a run: its settings, logs, results and other files.

A run that was killed is resumed from its newest checkpoint; lines of later steps are deleted from the logs.
"""

import dataclasses
import functools
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager as ContextManager
from typing import Any, NoReturn

import tensorflow as tf

from albert_tf.core import files, run_files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.training.optimizers import has_same_rates
from albert_tf.training.settings import RunConfig
from albert_tf.training.trackers import Tracker, tracker

CONFIG_FILE, RESULTS_FILE = "config.json", "results.json"
METRICS_FILE, EVAL_METRICS_FILE = "metrics.jsonl", "eval_metrics.jsonl"
CHECKPOINTS, BEST = "checkpoints", "checkpoints/best"
MODEL = "model"
OTHER_DATA = "other_data"  # has a folder for the results of each file that is not the run's own
_EVAL_DATA, _RUN_ID = "eval_data", "run_id"  # in config.json: data of the evaluations; for trackers
_LOGS = (METRICS_FILE, EVAL_METRICS_FILE)


def writing(output_dir: str) -> ContextManager[None]:
    """Turns errors of the disk into a UserError of one line that names the flag."""
    advice = (
        "make room or choose another folder; the same command continues from the newest checkpoint"
    )
    return files.errors_named(f"--output_dir={output_dir}", "written", advice)


def write_files(output_dir: str, contents: Mapping[str, str | bytes]) -> None:
    """Writes files, given by their paths inside the folder of a run or of several runs."""
    with writing(output_dir):
        for name, content in contents.items():
            content = content.encode() if isinstance(content, str) else content
            files.write_bytes(os.path.join(output_dir, name), content)


class RunFolder:
    """The folder of a run; nothing is written before `open`.

    Args:
      settings: all settings of the run by group, as in config.json. A group that is not a `Settings` describes the
        data, and must be the same when the run is resumed.
      data: the data of this process, see `Task.data_files`.
    """

    def __init__(
        self,
        config: RunConfig,
        settings: Mapping[str, Any],
        is_chief: bool,
        data: Mapping[str, Mapping[str, str]] | None = None,
    ):
        self.path = config.output_dir
        self.is_chief = is_chief
        self.data = data or {}
        self._config, self._settings = config, settings
        self._values = {
            group: values.to_dict() if isinstance(values, Settings) else values
            for group, values in settings.items()
        }
        self._tracker: Tracker | None = None
        self._summary_writers: dict[str, Any] = {}
        recorded = self._read_settings()
        # A training without a checkpoint starts again, with any settings.
        self._has_checkpoint = bool(run_files.checkpoints(self.file(CHECKPOINTS)))
        is_continued = self._has_checkpoint or not config.do_train
        self._is_resumed = bool(recorded) and is_continued
        self._recorded = recorded if self._is_resumed else {}
        self._eval_data = self._recorded.get(_EVAL_DATA, {})
        if self._is_resumed:
            self._check_same_run()

    def _read_settings(self) -> Mapping:
        """The content of config.json; empty if there is no run and no other file."""

        def refuse(reason: str) -> NoReturn:
            raise UserError(f"--output_dir={self.path} {reason}: choose a new or empty folder")

        if not files.exists(self.path):
            return {}
        if not files.is_folder(self.path):
            refuse("is a file")
        path = self.file(CONFIG_FILE)
        if not files.exists(path):
            if self.is_chief and files.names_in(self.path):
                refuse(f"contains files that do not belong to a run (no {CONFIG_FILE})")
            return {}
        recorded = files.read_json(path)
        if not {"run", "optimizer"} <= recorded.keys():  # a model's folder has a config.json, too
            refuse(f"contains files that do not belong to a run ({CONFIG_FILE} is not a run's)")
        return recorded

    def _check_same_run(self) -> None:
        """Compares the settings with those that an earlier process recorded; a missing one had its default."""
        may_differ: set[str] = set()
        for values in self._settings.values():
            if isinstance(values, Settings):
                may_differ.update(values.names(changes_results=False))
        if not self._config.do_train:  # only the model must be the same, except its dropout rates
            groups = self._values.items()
            may_differ.update(*(values for group, values in groups if group != "model"))
            may_differ -= set() if self._has_checkpoint else {"init_checkpoint"}
        self._check_eval_data()
        steps_hint = self._check_num_steps(may_differ)
        for group, values in self._values.items():
            old_values = {**_defaults(self._settings[group]), **self._recorded.get(group, {})}
            for name, value in values.items():
                old_value = old_values.get(name)
                is_new = name not in self._recorded.get(group, {})
                # The task has replaced a default of None.
                if name in may_differ or (is_new and old_value is None) or old_value == value:
                    continue
                raise UserError(
                    f"--output_dir={self.path} contains a run with {name}={old_value!r}, not {value!r}:"
                    " choose another folder, or delete it"
                    f"{steps_hint if name == 'num_train_steps' else ''}"
                )

    def _check_num_steps(self, may_differ: set[str]) -> str:
        """Lets --num_train_steps differ if no update so far would have had another learning rate; otherwise, a hint."""
        optimizer = self._settings["optimizer"]
        old = self._recorded["optimizer"].get("num_train_steps", optimizer.num_train_steps)
        newest = run_files.checkpoints(self.file(CHECKPOINTS))[-1:]
        if not newest or old == optimizer.num_train_steps:
            return ""
        step = int(newest[0].rpartition("-")[2])
        if has_same_rates(optimizer, old, step):
            may_differ.add("num_train_steps")
        return (
            "; the learning rate depends on it, except with --num_cooldown_steps before their start, or --poly_power=0."
            f" To finish now: --num_train_steps={old} --stop_after_steps={step}"
        )

    def _check_eval_data(self) -> None:
        """Checks that a training is not continued with other evaluation data than its best checkpoint was chosen by."""
        own, current = self._eval_data, self.data.get("eval") or {}
        if self._config.do_train and own and current and own["sha256"] != current["sha256"]:
            raise UserError(
                f"--output_dir={self.path} contains a run that is evaluated with {own['file']}, not with the data in"
                f" {current['file']}: choose another folder, or evaluate the run with --do_train=false"
            )

    @functools.cached_property
    def places(self) -> Mapping[str, str]:
        """For each split of `data` the folder of its results, in the run's folder: "" for the run's own data.

        A run's own data are those of its training, or else the first that were used. Results of other data never
        replace those of the run's own.
        """
        own = {**self.data, **(self.read_json(RESULTS_FILE).get("data") or {})}
        if self._config.do_train or self._eval_data:
            own["eval"] = self._eval_data or self.data.get("eval", {})
        if "predict" in self.data:  # the newest predictions are always in the same place
            own["predict"] = self.data["predict"]
        return {
            split: ""
            if own[split]["sha256"] == used["sha256"]
            else f"{OTHER_DATA}/{os.path.basename(used['file'].rstrip('/'))}-{used['sha256'][:8]}/"
            for split, used in self.data.items()
        }

    def open(self) -> None:
        """Creates the folder and writes config.json.

        An evaluation does not change the config.json of a run.
        """
        if not self.is_chief:
            return
        run_id = self._recorded.get(_RUN_ID) or uuid.uuid4().hex
        with self.writing():
            # Files of a run that was killed before its first checkpoint do not belong to this run.
            names: tuple[str, ...] = ()
            if self._config.do_train and not self._is_resumed:
                names = (RESULTS_FILE, BEST)
            for name in names:
                files.remove(self.file(name))
            files.make_folder(self.path)
            if self._config.do_train or not self._is_resumed:
                eval_data = self._eval_data or self.data.get("eval", {})
                own = {**self._values, _EVAL_DATA: eval_data, _RUN_ID: run_id}
                self.write_json(CONFIG_FILE, own)
        if kind := self._config.log_to:
            self._tracker = tracker(kind, self.path, run_id, self._values)

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def writing(self) -> ContextManager[None]:
        """See `writing`."""
        return writing(self.path)

    def write_files(self, contents: Mapping[str, str | bytes], split: str = "") -> list[str]:
        """Writes files, given by their paths inside the folder, or inside that of a split; returns their paths."""
        contents = {self.places.get(split, "") + name: contents[name] for name in contents}
        if self.is_chief:
            write_files(self.path, contents)
        return [self.file(name) for name in contents]

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Writes a JSON file of the run."""
        files.write_bytes(self.file(name), files.json_bytes(values))

    def read_json(self, name: str) -> dict[str, Any]:
        """The values of `write_json`; empty if there is no such file."""
        path = self.file(name)
        return files.read_json(path) if files.exists(path) else {}

    # --- Logs ---

    def append_metrics(self, name: str, values: Mapping) -> None:
        """Appends a line to a log."""
        if self.is_chief:
            with self.writing(), tf.io.gfile.GFile(self.file(name), "a") as file:
                file.write(json.dumps(values) + "\n")

    def read_lines(self, name: str, last_step: int | None = None) -> list[dict[str, Any]]:
        """The lines of a log up to a step; empty if the log does not exist. An incomplete last line is left out."""
        path = self.file(name)
        content = files.read_bytes(path) if files.exists(path) else b""
        complete = content[: content.rfind(b"\n") + 1].splitlines()
        lines = [files.parse_json(line, path) for line in complete]
        return [line for line in lines if last_step is None or line["step"] <= last_step]

    def cut_logs(self, step: int) -> dict[int, dict[str, float]]:
        """Deletes lines of later steps from the logs, which the resumed run will write again.

        Returns:
          The remaining lines of the evaluations by step.
        """
        remaining = {name: self.read_lines(name, step) if step else [] for name in _LOGS}
        for name, lines in remaining.items():
            if self.is_chief and files.exists(self.file(name)):
                write_files(self.path, {name: "".join(json.dumps(line) + "\n" for line in lines)})
        return {values.pop("step"): values for values in remaining[EVAL_METRICS_FILE]}

    def write_summaries(self, name: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values to the curves of this name ("train" or "eval"), in TensorBoard and the tracker of --log_to."""
        if not self.is_chief:
            return
        if self._tracker:
            self._tracker(name, step, values)
        with self.writing():
            if name not in self._summary_writers:
                self._summary_writers[name] = tf.summary.create_file_writer(self.file(name))
            with self._summary_writers[name].as_default():
                for key in values.keys() - {"step"}:
                    tf.summary.scalar(key, values[key], step=step)
                self._summary_writers[name].flush()


def _defaults(settings: Settings | Mapping) -> dict[str, Any]:
    """The defaults of settings; empty for a description of data."""
    if not isinstance(settings, Settings):
        return {}
    return {field.name: field.default for field in dataclasses.fields(settings)}
