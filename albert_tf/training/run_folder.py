"""The folder of a run: settings, logs, results; a killed run resumes from its newest checkpoint, logs cut there."""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager as ContextManager
from typing import Any

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.newest_checkpoint import newest_checkpoint
from albert_tf.core.removed_settings import REMOVED
from albert_tf.core.settings import Settings
from albert_tf.training.settings import RunConfig

CONFIG_FILE = "config.json"
RESULTS_FILE = "results.json"
METRICS_FILE = "metrics.jsonl"
EVAL_METRICS_FILE = "eval_metrics.jsonl"
CHECKPOINTS = "checkpoints"
BEST = "checkpoints/best"
MODEL = "model"
_CURVES = {METRICS_FILE: "train", EVAL_METRICS_FILE: "eval"}
_EVAL_DATA = "eval_data"  # in config.json: the data that the best checkpoint was chosen by


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
        data: Mapping[str, Mapping[str, str]],
    ):
        self.path = config.output_dir
        self.is_chief = is_chief
        self.data = data
        self._config = config
        self._settings = settings
        values_of_groups = {
            group: values.to_dict() if isinstance(values, Settings) else values
            for group, values in settings.items()
        }
        # As they are read back when the run is resumed: a tuple becomes a list.
        self._values = json.loads(json.dumps(values_of_groups))
        self._curves: dict[str, tf.summary.SummaryWriter] = {}
        recorded = self._read_settings()
        # A training without a checkpoint starts again, with any settings.
        self._newest = newest_checkpoint(self.file(CHECKPOINTS))
        self._is_resumed = bool(recorded and (self._newest or not config.do_train))
        self._recorded = recorded if self._is_resumed else {}
        self._eval_data = self._recorded.get(_EVAL_DATA, {})
        if self._is_resumed:
            self._check_removed_settings()
            self._check_same_run()

    def _read_settings(self) -> Mapping:
        """The content of config.json; empty if there is no run and no other file."""
        recorded = self.read_json(CONFIG_FILE)
        is_run = {"run", "optimizer"} <= recorded.keys()  # a model's folder has such a file, too
        has_other_files = self.is_chief and files.exists(self.path) and files.names_in(self.path)
        if not is_run and (recorded or has_other_files):
            reason = f"contains files that do not belong to a run (no {CONFIG_FILE} of a run)"
            raise UserError(f"--output_dir={self.path} {reason}: choose a new or empty folder")
        return recorded

    def _check_removed_settings(self) -> None:
        """Rejects a resumed training that used a setting that no longer exists; the model itself can still be used."""
        if not self._config.do_train:
            return
        for group in self._values:
            recorded = self._recorded.get(group, {})
            for name, removed in REMOVED.items():
                value = recorded.get(name)
                if value is not None and value not in removed.defaults:
                    reason = (
                        f"contains a run with {name}={value!r}, which this program no longer has"
                    )
                    advice = f"give another --output_dir, and --init_checkpoint={self.path}"
                    raise UserError(f"--output_dir={self.path} {reason}: {advice}")

    def _check_same_run(self) -> None:
        """Compares settings and evaluation data with those that an earlier process recorded."""
        may_differ = self._settings_that_may_differ()
        for group, values_by_name in self._values.items():
            recorded = self._recorded.get(group, {})
            for name, value in values_by_name.items():
                # A newer setting had its default, or the present value if a task replaces that of None.
                default = getattr(type(self._settings[group]), name, None)
                old = recorded.get(name, value if default is None else default)
                if name not in may_differ and value != old:
                    reason = f"contains a run with {name}={old!r}, not {value!r}"
                    raise UserError(
                        f"--output_dir={self.path} {reason}: choose another, or delete it"
                    )

        of_run = self._eval_data
        current = self.data.get("eval")
        if of_run and current and of_run["sha256"] != current["sha256"]:
            reason = (
                f"contains a run that is evaluated with {of_run['file']}, not {current['file']}"
            )
            advice = f"give another --output_dir, and --init_checkpoint={self.path}"
            raise UserError(f"--output_dir={self.path} {reason}: {advice}")

    def _settings_that_may_differ(self) -> set[str]:
        """Names of the settings that a resumed run may have with other values."""
        names: set[str] = set()
        for settings in self._settings.values():
            if isinstance(settings, Settings):
                names.update(settings.names(changes_results=False))
        if self._config.do_train:
            return names
        # Only the model must be the same, except its dropout rates.
        for group, values_by_name in self._values.items():
            if group != "model":
                names.update(values_by_name)
        if not self._newest:
            names.discard("init_checkpoint")
        return names

    def open(self) -> None:
        """Creates the folder and writes config.json; an evaluation does not change that of a run."""
        if not self.is_chief:
            return
        with self.writing():
            if self._config.do_train and not self._is_resumed:
                # Files of a run that was killed before its first checkpoint do not belong to this run.
                for name in (RESULTS_FILE, BEST):
                    files.remove(self.file(name))
            if self._config.do_train or not self._is_resumed:
                eval_data = self._eval_data or self.data.get("eval", {})
                self.write_json(CONFIG_FILE, {**self._values, _EVAL_DATA: eval_data})

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def writing(self) -> ContextManager[None]:
        """Turns errors of the disk into a UserError of one line that names the flag."""
        advice = "make room or choose another folder; the same command continues from the newest checkpoint"
        return files.errors_named(f"--output_dir={self.path}", "written", advice)

    def write_files(self, contents: Mapping[str, str | bytes]) -> None:
        """Writes files, given by their paths inside the folder."""
        for name, content in contents.items() if self.is_chief else ():
            content = content.encode() if isinstance(content, str) else content
            files.write_bytes(self.file(name), content)

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Writes a JSON file of the run."""
        self.write_files({name: files.json_bytes(values)})

    def read_json(self, name: str) -> dict[str, Any]:
        """The values of `write_json`; empty if there is no such file."""
        return files.read_json_if_there(self.file(name))

    def cut_logs(self, step: int) -> dict[int, dict[str, float | None]]:
        """Deletes lines of later steps from the logs; returns those of the evaluations that remain, by step."""
        lines_of_logs: dict[str, list[dict[str, Any]]] = {}
        for name in (METRICS_FILE, EVAL_METRICS_FILE):
            path = self.file(name)
            content = files.read_bytes(path) if files.exists(path) else b""
            complete = content[: content.rfind(b"\n") + 1].splitlines()  # the last may not be
            lines = [files.parse_json(line, path) for line in complete if step]
            lines = [line for line in lines if line["step"] <= step]
            if content:
                self.write_files({name: "".join(json.dumps(line) + "\n" for line in lines)})
            lines_of_logs[name] = lines
        return {line.pop("step"): line for line in lines_of_logs[EVAL_METRICS_FILE]}

    def log(self, name: str, values: Mapping[str, Any]) -> None:
        """Appends the values of a step to a log, and to its curves in TensorBoard; undefined ones are null there."""
        if not self.is_chief:
            return
        with self.writing():
            with tf.io.gfile.GFile(self.file(name), "a") as file:
                file.write(json.dumps(values, allow_nan=False) + "\n")
            if name not in self._curves:
                self._curves[name] = tf.summary.create_file_writer(self.file(_CURVES[name]))
            with self._curves[name].as_default(step=values["step"]):
                for key in values.keys() - {"step"}:
                    if values[key] is not None:
                        tf.summary.scalar(key, values[key])
            self._curves[name].flush()
