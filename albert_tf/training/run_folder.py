"""The folder of a run: its settings, logs, results and other files.

A file is replaced only by a whole new file. A run that was killed is resumed from its newest checkpoint; the lines of
its logs after that step are deleted.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import NoReturn

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.settings import Settings
from albert_tf.training.settings import RunConfig

CONFIG_FILE, RESULTS_FILE = "config.json", "results.json"
METRICS_FILE, EVAL_METRICS_FILE = "metrics.jsonl", "eval_metrics.jsonl"
# What --overwrite_output_dir deletes. CONFIG_FILE stays until the new one replaces it, so that the folder is a run's.
_FOLDERS = ("checkpoints", "train", "eval", "model", "predictions")
_WRITTEN_BY_RUN = (RESULTS_FILE, METRICS_FILE, EVAL_METRICS_FILE, *_FOLDERS)


def write_json(path: str, values: Mapping) -> None:
    """Writes a JSON file."""
    files.write_bytes(path, (json.dumps(values, indent=2) + "\n").encode())


def write_files(folder: str, contents: Mapping[str, str | bytes]) -> None:
    """Writes files by their paths inside a folder."""
    for name, content in contents.items():
        content = content.encode() if isinstance(content, str) else content
        files.write_bytes(os.path.join(folder, name), content)


class RunFolder:
    """The folder of a run; nothing in it is changed before `open`.

    Args:
      run: settings of the run; `output_dir` is the folder.
      settings: all settings of the run, by group; config.json holds them. A group that is no `Settings` describes the
        data, and must be the same when the run is resumed.
      is_chief: whether this process writes; the other workers of a run only read.

    Raises:
      UserError: the folder holds another run or other files.
    """

    def __init__(self, run: RunConfig, settings: Mapping[str, Settings | Mapping], is_chief: bool):
        self.path = run.output_dir
        self.is_chief = is_chief
        self._run = run
        self._values = {
            group: values.to_dict() if isinstance(values, Settings) else values
            for group, values in settings.items()
        }
        self._summary_writers = {}
        recorded = self._read_settings()
        # A run without a checkpoint starts again, with whatever settings.
        has_checkpoint = tf.train.get_checkpoint_state(self.file("checkpoints")) is not None
        self._is_resumed = bool(recorded) and has_checkpoint and not run.overwrite_output_dir
        if self._is_resumed:
            self._check_same_run(settings, recorded)

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
                refuse(f"holds files that are no run (no {CONFIG_FILE})")
            return {}
        try:
            recorded = json.loads(files.read_bytes(path))
        except ValueError:
            recorded = None
        # The folder of a model has a config.json too.
        if not isinstance(recorded, dict) or not {"run", "optimizer"} <= recorded.keys():
            refuse(f"holds files that are no run ({CONFIG_FILE} is not a run's)")
        return recorded

    def _check_same_run(
        self, settings: Mapping[str, Settings | Mapping], recorded: Mapping[str, Mapping]
    ) -> None:
        """Compares the settings with those that an earlier process recorded in config.json.

        A setting that config.json lacks did not exist when the run was started, and counts as having its default. A
        setting that exists only in config.json is ignored with a note: there is nothing to compare it with.
        """
        before, may_differ = dict(recorded), set()
        for group, values in settings.items():
            if isinstance(values, Settings):
                before[group] = values.from_recorded(recorded.get(group, {}))
                may_differ.update(values.names(changes_results=False))
                unknown = ", ".join(name for name in before[group] if name not in values.names())
                if unknown and group != "model" and self.is_chief:  # a model may have foreign keys
                    note = f"ignored, no settings of this version: {unknown}"
                    print(f"{self.file(CONFIG_FILE)}: {note}")
        if not self._run.do_train:  # only the model must be the same, except its dropout rates
            groups = self._values.items()
            may_differ.update(*(values for group, values in groups if group != "model"))
        for group, values in self._values.items():
            for name, value in values.items():
                old_value = before.get(group, {}).get(name)
                if name not in may_differ and old_value != value:
                    raise UserError(
                        f"--output_dir={self.path} holds a run with {name}={old_value!r}, not {value!r}:"
                        " choose another folder, or --overwrite_output_dir to start again"
                    )

    def open(self) -> None:
        """Creates the folder, or deletes the run in it if that was asked for, and writes config.json.

        An evaluation does not change the config.json of a run.

        Raises:
          UserError: the folder cannot be written.
        """
        if not self.is_chief:
            return
        with self.writing():
            if self._run.overwrite_output_dir:
                for path in map(self.file, _WRITTEN_BY_RUN):
                    if tf.io.gfile.exists(path):
                        remove(path)
            tf.io.gfile.makedirs(self.path)
            if self._run.do_train or not self._is_resumed:
                write_json(self.file(CONFIG_FILE), self._values)

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turns errors of the disk into one line that names the flag."""
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            raise UserError(
                f"--output_dir={self.path} cannot be written ({system_error(error)}): make room or choose another"
                " folder; the same command continues from the newest checkpoint"
            ) from None

    def write_files(self, contents: Mapping[str, str | bytes]) -> None:
        """Writes files by their paths inside the folder."""
        if self.is_chief:
            with self.writing():
                write_files(self.path, contents)

    def read_json(self, name: str) -> dict:
        """A JSON file of the run; empty if there is none."""
        path = self.file(name)
        return files.read_json(path) if files.exists(path) else {}

    def append_metrics(self, name: str, values: Mapping) -> None:
        """Appends a line to a log."""
        if self.is_chief:
            with self.writing(), tf.io.gfile.GFile(self.file(name), "a") as file:
                file.write(json.dumps(values) + "\n")

    def logged(self, name: str) -> dict[int, dict[str, float]]:
        """The lines of a log by their step."""
        if not files.exists(self.file(name)):
            return {}
        lines = map(json.loads, files.read_bytes(self.file(name)).splitlines())
        return {line.pop("step"): line for line in lines}

    def cut_metrics(self, last_step: int) -> None:
        """Deletes the lines after a step from the logs, because the run continues from this step."""
        for name in (METRICS_FILE, EVAL_METRICS_FILE):
            path = self.file(name)
            if self.is_chief and files.exists(path):
                lines = files.read_bytes(path).splitlines(keepends=True)
                lines = [
                    line for line in lines if line.endswith(b"\n")
                ]  # without an unfinished line
                lines = [line for line in lines if json.loads(line)["step"] <= last_step]
                with self.writing():
                    files.write_bytes(path, b"".join(lines))

    def write_summaries(self, name: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values to TensorBoard's curves of this name ("train" or "eval")."""
        if not self.is_chief:
            return
        if name not in self._summary_writers:
            self._summary_writers[name] = tf.summary.create_file_writer(self.file(name))
        with self.writing(), self._summary_writers[name].as_default():
            for key, value in values.items():
                if key != "step":
                    tf.summary.scalar(key, value, step=step)
            self._summary_writers[name].flush()


def remove(path: str) -> None:
    """Deletes a file or a folder."""
    (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)


def system_error(error: Exception) -> str:
    """The system's error message, without the name of a temporary file that TensorFlow puts before it."""
    return first_line(error).rpartition("; ")[2]
