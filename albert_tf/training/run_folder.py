"""The folder of a run: its settings, logs, results and other files.

A run that was killed is resumed from its newest checkpoint; lines of later steps are deleted from the logs.
"""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager as ContextManager
from typing import Any, NoReturn

import tensorflow as tf

from albert_tf.core import files, run_files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.training.settings import RunConfig

CONFIG_FILE, RESULTS_FILE = "config.json", "results.json"
METRICS_FILE, EVAL_METRICS_FILE = "metrics.jsonl", "eval_metrics.jsonl"
CHECKPOINTS, BEST = "checkpoints", "checkpoints/best"
MODEL = "model"
_EVAL_DATA = "eval_data"  # in config.json: the data that the best checkpoint was chosen by


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
        self.path, self.is_chief, self.data = config.output_dir, is_chief, data or {}
        self._config, self._settings = config, settings
        self._values = {
            group: values.to_dict() if isinstance(values, Settings) else values
            for group, values in settings.items()
        }
        self._summary_writers: dict[str, Any] = {}
        recorded = self._read_settings()
        # A training without a checkpoint starts again, with any settings.
        self._newest = run_files.checkpoints(self.file(CHECKPOINTS))[-1:]
        self._is_resumed = bool(recorded and (self._newest or not config.do_train))
        self._recorded = recorded if self._is_resumed else {}
        self._eval_data = self._recorded.get(_EVAL_DATA, {})
        if self._is_resumed:
            self._check_same_run()

    def _read_settings(self) -> Mapping:
        """The content of config.json; empty if there is no run and no other file."""

        def refuse(reason: str) -> NoReturn:
            reason = f"contains files that do not belong to a run ({reason})"
            raise UserError(f"--output_dir={self.path} {reason}: choose a new or empty folder")

        path = self.file(CONFIG_FILE)
        if not files.exists(path):
            if self.is_chief and files.exists(self.path) and files.names_in(self.path):
                refuse(f"no {CONFIG_FILE}")
            return {}
        recorded = files.read_json(path)
        if not {"run", "optimizer"} <= recorded.keys():  # a model's folder has a config.json, too
            refuse(f"{CONFIG_FILE} is not a run's")
        return recorded

    def _check_same_run(self) -> None:
        """Compares settings and evaluation data with those that an earlier process recorded."""
        may_differ: set[str] = set()
        for values in self._settings.values():
            if isinstance(values, Settings):
                may_differ.update(values.names(changes_results=False))
        if not self._config.do_train:  # only the model must be the same, except its dropout rates
            groups = self._values.items()
            may_differ.update(*(values for group, values in groups if group != "model"))
            may_differ -= set() if self._newest else {"init_checkpoint"}
        for group, values in self._values.items():
            recorded = self._recorded.get(group, {})
            for name, value in values.items():
                old = recorded.get(name, _default(self._settings[group], name, value))
                if name not in may_differ and value != old:
                    raise UserError(
                        f"--output_dir={self.path} contains a run with {name}={old!r}, not {value!r}:"
                        " choose another folder, or delete it"
                    )
        own, current = self._eval_data, self.data.get("eval")
        if own and current and own["sha256"] != current["sha256"]:
            raise UserError(
                f"--output_dir={self.path} contains a run that is evaluated with {own['file']}, not with the data in"
                f" {current['file']}: choose another folder, to evaluate with --init_checkpoint={self.path}"
            )

    def open(self) -> None:
        """Creates the folder and writes config.json; an evaluation does not change that of a run."""
        if not self.is_chief:
            return
        with self.writing():
            if self._config.do_train and not self._is_resumed:
                # Files of a run that was killed before its first checkpoint do not belong to this run.
                for name in (RESULTS_FILE, BEST):
                    files.remove(self.file(name))
            files.make_folder(self.path)
            if self._config.do_train or not self._is_resumed:
                eval_data = self._eval_data or self.data.get("eval", {})
                self.write_json(CONFIG_FILE, {**self._values, _EVAL_DATA: eval_data})

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def writing(self) -> ContextManager[None]:
        """See `writing`."""
        return writing(self.path)

    def write_files(self, contents: Mapping[str, str | bytes]) -> None:
        """Writes files, given by their paths inside the folder."""
        if self.is_chief:
            write_files(self.path, contents)

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
        remaining = {
            name: self.read_lines(name, step) if step else []
            for name in (METRICS_FILE, EVAL_METRICS_FILE)
        }
        for name, lines in remaining.items():
            if self.is_chief and files.exists(self.file(name)):
                write_files(self.path, {name: "".join(json.dumps(line) + "\n" for line in lines)})
        return {values.pop("step"): values for values in remaining[EVAL_METRICS_FILE]}

    def write_summaries(self, name: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values to the curves of this name ("train" or "eval"), in TensorBoard."""
        if not self.is_chief:
            return
        with self.writing():
            if name not in self._summary_writers:
                self._summary_writers[name] = tf.summary.create_file_writer(self.file(name))
            with self._summary_writers[name].as_default():
                for key in values.keys() - {"step"}:
                    tf.summary.scalar(key, values[key], step=step)
                self._summary_writers[name].flush()


def _default(settings: Settings | Mapping, name: str, value: Any) -> Any:
    """What a run had of a setting that is newer: its default, or the present value if a task replaces that of None."""
    default = getattr(type(settings), name, None) if isinstance(settings, Settings) else None
    return value if default is None else default
