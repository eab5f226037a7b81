"""The folder of a run: its settings, logs, results and other files.

A file is replaced only by a complete new file. A run that was killed is resumed from its newest checkpoint. The
checkpoint's record says how long the logs were; later lines are deleted.
"""

import contextlib
import functools
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager as ContextManager
from typing import Any, NoReturn

import tensorflow as tf

from albert_tf.core import checksums, files, run_files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.training.optimizers import has_same_rates
from albert_tf.training.settings import RunConfig
from albert_tf.training.trackers import Tracker, tracker

CONFIG_FILE, RESULTS_FILE = "config.json", "results.json"
METRICS_FILE, EVAL_METRICS_FILE = "metrics.jsonl", "eval_metrics.jsonl"
# Deleted by --overwrite_output_dir. CONFIG_FILE stays until it is replaced, so that the folder always belongs to a run.
CHECKPOINTS, BEST = "checkpoints", "checkpoints/best"
_LOGS = (METRICS_FILE, EVAL_METRICS_FILE)
MODEL = "model"
OTHER_DATA = "other_data"  # has a folder for the results of each file that is not the run's own
_EVAL_DATA = "eval_data"  # group of config.json: the data of the run's evaluations
_CURVES = ("train", "eval")
_FOLDERS = (CHECKPOINTS, *_CURVES, MODEL, "predictions", OTHER_DATA)
_WRITTEN_BY_RUN = (RESULTS_FILE, *_LOGS, *_FOLDERS)


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
    """The folder of a run; before `open`, only temporary files left by killed processes are removed.

    Args:
      settings: all settings of the run by group, as in config.json. A group that is not a `Settings` describes the
        data, and must be the same when the run is resumed.
      data: the data of this process, see `Task.data_files`.

    Attributes:
      run_id: identifies the run in every file that a later process reads, so that a file of another run is detected.
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
        self._config = config
        self._values = {
            group: values.to_dict() if isinstance(values, Settings) else values
            for group, values in settings.items()
        }
        self._tracker: Tracker | None = None
        self._summary_writers: dict[str, Any] = {}
        if is_chief:
            with self.writing():
                for name in ("", CHECKPOINTS, BEST):
                    files.remove_leftovers(self.file(name))
        recorded = self._read_settings()
        # A training without a checkpoint starts again, with any settings.
        self._has_checkpoint = bool(run_files.checkpoints(self.file(CHECKPOINTS)))
        is_continued = self._has_checkpoint or not config.do_train
        self._is_resumed = bool(recorded) and is_continued and not config.overwrite_output_dir
        self._eval_data = recorded.get(_EVAL_DATA) if self._is_resumed else None
        self.run_id = recorded.get(run_files.RUN_ID) if self._is_resumed else uuid.uuid4().hex
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
                refuse(f"contains files that do not belong to a run (no {CONFIG_FILE})")
            return {}
        recorded = checksums.read_json(path)
        # A model's folder also has a config.json.
        if not all(isinstance(recorded.get(group), dict) for group in ("run", "optimizer")):
            refuse(f"contains files that do not belong to a run ({CONFIG_FILE} is not a run's)")
        return recorded

    def _check_same_run(
        self, settings: Mapping[str, Settings | Mapping], recorded: Mapping[str, Mapping]
    ) -> None:
        """Compares the settings with those that an earlier process recorded in config.json."""
        may_differ: set[str] = set()
        for group, values in settings.items():
            if not isinstance(recorded.get(group, {}), dict):
                raise UserError(f"{self.file(CONFIG_FILE)}: {group} must be a JSON object")
            if isinstance(values, Settings):
                may_differ.update(values.names(changes_results=False))
        if not self._config.do_train:  # only the model must be the same, except its dropout rates
            groups = self._values.items()
            may_differ.update(*(values for group, values in groups if group != "model"))
            may_differ -= set() if self._has_checkpoint else {"init_checkpoint"}
        self._check_eval_data()
        steps_hint = self._check_num_steps(settings["optimizer"], recorded, may_differ)
        for group, values in self._values.items():
            for name, value in values.items():
                old_value = recorded.get(group, {}).get(name)
                if name not in may_differ and old_value != value:
                    raise UserError(
                        f"--output_dir={self.path} contains a run with {name}={old_value!r}, not {value!r}:"
                        " choose another folder, or --overwrite_output_dir to start again"
                        f"{steps_hint if name == 'num_train_steps' else ''}"
                    )

    def _check_num_steps(
        self, optimizer: Any, recorded: Mapping[str, Mapping], may_differ: set[str]
    ) -> str:
        """Lets --num_train_steps differ if no update so far would have had another learning rate; otherwise, a hint."""
        old = recorded["optimizer"].get("num_train_steps")
        newest = run_files.checkpoints(self.file(CHECKPOINTS))[-1:]
        if not newest or not isinstance(old, int) or old == optimizer.num_train_steps:
            return ""
        step = int(newest[0].rpartition("-")[2])
        with contextlib.suppress(UserError):  # a damaged config.json
            if has_same_rates(optimizer, old, step):
                may_differ.add("num_train_steps")
        return (
            "; the learning rate depends on it, except with --num_cooldown_steps before their start, or --poly_power=0."
            f" To finish now: --num_train_steps={old} --stop_after_steps={step}"
        )

    def _check_eval_data(self) -> None:
        """Checks that a training is not continued with other evaluation data than its best checkpoint was chosen by."""
        own, current = self._eval_data or {}, self.data.get("eval") or {}
        if not isinstance(own, dict):
            raise UserError(f"{self.file(CONFIG_FILE)}: {_EVAL_DATA} must be a JSON object")
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
        return {
            split: ""
            if own[split]["sha256"] == used["sha256"]
            else f"{OTHER_DATA}/{os.path.basename(used['file'].rstrip('/'))}-{used['sha256'][:8]}/"
            for split, used in self.data.items()
        }

    def open(self) -> None:
        """Creates the folder, or deletes the run in it if that was requested, and writes config.json.

        An evaluation does not change the config.json of a run.
        """
        if not self.is_chief:
            return
        with self.writing():
            # Files of a run that was killed before its first checkpoint do not belong to this run.
            names: tuple[str, ...] = ()
            if self._config.overwrite_output_dir:
                names = _WRITTEN_BY_RUN
            elif self._config.do_train and not self._is_resumed:
                names = (RESULTS_FILE, BEST)
            for path in map(self.file, names):
                if os.path.islink(path):
                    os.remove(path)
                elif tf.io.gfile.exists(path):
                    remove(path)
            files.make_folder(self.path)
            if self._config.do_train or not self._is_resumed:
                eval_data = self._eval_data or self.data.get("eval", {})
                self.write_json(CONFIG_FILE, {**self._values, _EVAL_DATA: eval_data})
        if kind := self._config.log_to:
            self._tracker = tracker(kind, self.path, self.run_id or "", self._values)

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

    def json_content(self, values: Mapping[str, Any]) -> bytes:
        """The content of a JSON file of this run."""
        own = {run_files.RUN_ID: self.run_id} if self.run_id else {}
        return checksums.json_file({**values, **own})

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Writes a JSON file of the run."""
        files.write_bytes(self.file(name), self.json_content(values))

    def read_json(self, name: str) -> dict[str, Any]:
        """The values of `write_json`; empty if there is no such file."""
        path = self.file(name)
        if not files.exists(path):
            return {}
        values = checksums.read_json(path)
        if values.pop(run_files.RUN_ID, self.run_id) != self.run_id and self.run_id:
            raise UserError(f"{path}: belongs to another run; copy the folder of the run again")
        return values

    def append_metrics(self, name: str, values: Mapping) -> None:
        """Appends a line to a log."""
        if self.is_chief:
            with self.writing(), tf.io.gfile.GFile(self.file(name), "a") as file:
                file.write(json.dumps(values) + "\n")

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a log; empty if the log does not exist."""
        path = self.file(name)
        return [files.parse_json(line, path) for line in self._content(name).splitlines()]

    def _content(self, name: str) -> bytes:
        """The content of a file; empty if the file does not exist."""
        path = self.file(name)
        return files.read_bytes(path) if files.exists(path) else b""

    def log_states(self) -> dict[str, dict[str, Any]]:
        """Lengths and checksums of the logs, for the record of a checkpoint; writes the logs to the disk first."""
        contents = {name: self._content(name) for name in _LOGS}
        self.sync_logs()
        return {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in contents.items()
        }

    def sync_logs(self) -> None:
        """Writes logs and TensorBoard's curves to the disk."""
        if "://" in self.path or not self.is_chief:
            return
        with self.writing():
            for folder in map(self.file, _CURVES):
                if files.is_folder(folder):
                    for path in (*files.files_below(folder), folder):
                        files.sync(path)
            for path in (*map(self.file, _LOGS), self.path):
                if files.exists(path):
                    files.sync(path)

    def cut_logs(self, step: int, states: Mapping[str, Any]) -> dict[int, dict[str, float]]:
        """Deletes lines of later steps from the logs, which the resumed run will write again.

        Args:
          states: `log_states` when the checkpoint of this step was saved or its evaluation logged; everything appended
            after that is deleted. Empty if the checkpoint has no record.

        Returns:
          The remaining lines of the evaluations by step.
        """
        remaining = {}
        for name in _LOGS:
            path = self.file(name)
            if os.path.islink(path) and not os.path.exists(path):
                raise UserError(f"{path}: is a link to a file that does not exist; delete it")
            content = self._content(name)
            kept = self._unchanged(name, content, states.get(name)) if step else b""
            lines = kept.splitlines(keepends=True)
            if content and not content.endswith(b"\n") and self.is_chief:
                print(f"{path}: its last line was incomplete and is cut")
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()
            steps = _steps(path, lines)
            lines = [line for line, at in zip(lines, steps, strict=True) if at <= step]
            if self.is_chief and b"".join(lines) != content:
                with self.writing():
                    files.write_bytes(path, b"".join(lines))
            remaining = {values.pop("step"): values for values in map(json.loads, lines)}
        return remaining

    def _unchanged(self, name: str, content: bytes, state: Mapping[str, Any] | None) -> bytes:
        """The part of a log that a checkpoint's record describes; the whole log if there is no record."""
        if not state or not self.is_chief:
            return content
        if state["bytes"] and not files.exists(self.file(name)):
            print(f"{self.file(name)}: is missing; a new one begins here")
            return b""
        content = content[: state["bytes"]]
        if hashlib.sha256(content).hexdigest() != state["sha256"]:
            raise UserError(
                f"{self.file(name)}: is not the log that the run wrote, it was damaged, changed or replaced; copy it"
                " again, or delete it to continue the run with a new log"
            )
        return content

    def write_summaries(self, name: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values to the curves of this name ("train" or "eval"), in TensorBoard and the tracker of --log_to."""
        if not self.is_chief:
            return
        if self._tracker:
            self._tracker(name, step, values)
        if name not in self._summary_writers:
            with self.writing():
                self._summary_writers[name] = tf.summary.create_file_writer(self.file(name))
        with self.writing(), self._summary_writers[name].as_default():
            for key, value in values.items():
                if key != "step":
                    tf.summary.scalar(key, value, step=step)
            self._summary_writers[name].flush()


def _steps(path: str, lines: list[bytes]) -> list[int]:
    """The step of each line of a log."""
    steps = []
    for number, line in enumerate(lines, start=1):
        source = f"{path}: line {number}"
        steps.append(files.parse_json(line, source).get("step"))
        if type(steps[-1]) is not int:
            raise UserError(f"{source}: has no whole number as its step; delete this line")
    return steps


def remove(path: str) -> None:
    """Deletes a file or a folder."""
    (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
