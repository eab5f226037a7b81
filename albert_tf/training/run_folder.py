"""A run's folder on disk: what it was started with, its checkpoints, its log, its results.

Whatever is written stands beside the old until it is whole. A run that was killed is taken up from its newest
checkpoint, and its log is cut back to that step.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

CONFIG_FILE, RESULTS_FILE = "config.json", "results.json"
METRICS_FILE, EVAL_METRICS_FILE = "metrics.jsonl", "eval_metrics.jsonl"
# What --overwrite_output_dir deletes; CONFIG_FILE stays until the new one replaces it, so that this is still a run.
_WRITTEN_BY_RUN = (
    *(RESULTS_FILE, METRICS_FILE, EVAL_METRICS_FILE),
    *("checkpoints", "train", "eval", "model", "predictions"),
)


def write_json(path: str, values: Mapping) -> None:
    """Writes a JSON file beside, then puts it in place."""
    files.write_bytes(path, (json.dumps(values, indent=2) + "\n").encode())


def write_files(folder: str, contents: Mapping[str, str | bytes]) -> None:
    """Writes files by their paths inside a folder, each beside, then puts it in place."""
    for name, content in contents.items():
        content = content.encode() if isinstance(content, str) else content
        files.write_bytes(os.path.join(folder, name), content)


class RunFolder:
    """The folder of a run; nothing in it is changed before `open`.

    Args:
      path: the folder; made by `open` if it does not exist.
      settings: everything that the run is started with, by group of settings.
      free: names of settings that may differ from those of the run that the folder holds.
      overwrite: whether `open` deletes the run that the folder holds.
      is_chief: whether this process writes; the other workers of a run only read.

    Raises:
      UserError: the folder holds another run or other files.
    """

    def __init__(
        self, path: str, settings: Mapping, free: frozenset[str], overwrite: bool, is_chief: bool
    ):
        self.path = path
        self.is_chief = is_chief
        self._settings = settings
        self._overwrite = overwrite
        self._summary_writers = {}
        before = self._read_settings()
        # A run that never came to a checkpoint has nothing to go on from, nor to lose.
        self._is_taken_up = bool(before and not overwrite and _recorded(self.file("checkpoints")))
        if self._is_taken_up:
            self._check_same_run(before, free)

    def open(self, trains: bool) -> None:
        """Makes the folder, or deletes the run in it if that was asked for, and writes the settings.

        Args:
          trains: false leaves the settings of the run in the folder as they are.

        Raises:
          UserError: the folder cannot be written.
        """
        if not self.is_chief:
            return
        with self.writing():
            if self._overwrite:
                self._delete_run()
            tf.io.gfile.makedirs(self.path)
            if trains or not self._is_taken_up:
                write_json(self.file(CONFIG_FILE), self._settings)

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
                f"--output_dir={self.path} cannot be written ({_reason(error)}): make room or choose another"
                " folder; the same command goes on from the newest checkpoint"
            ) from None

    def _read_settings(self) -> Mapping:
        """What the run in the folder was started with; empty if there is no run and no other file.

        Raises:
          UserError: the folder holds something else.
        """
        if not tf.io.gfile.exists(self.path):
            return {}
        if not tf.io.gfile.isdir(self.path):
            raise UserError(f"--output_dir={self.path} is a file: choose a new or empty folder")
        path = self.file(CONFIG_FILE)
        if not tf.io.gfile.exists(path):
            if self.is_chief and files.names_in(self.path):
                raise UserError(
                    f"--output_dir={self.path} holds files that are no run (no {CONFIG_FILE}):"
                    " choose a new or empty folder"
                )
            return {}
        try:
            with tf.io.gfile.GFile(path) as file:
                settings = json.load(file)
        except ValueError:
            settings = None
        # A model's folder has a config.json as well.
        if not isinstance(settings, dict) or not {"run", "optimizer"} <= settings.keys():
            raise UserError(
                f"--output_dir={self.path} holds files that are no run ({CONFIG_FILE} is not a run's):"
                " choose a new or empty folder"
            )
        return settings

    def _delete_run(self) -> None:
        for name in _WRITTEN_BY_RUN:
            if tf.io.gfile.exists(self.file(name)):
                _remove(self.file(name))

    def _check_same_run(self, before: Mapping, free: frozenset[str]) -> None:
        for group, values in self._settings.items():
            for name, value in values.items():
                old = before.get(group, {}).get(name)
                if name not in free and old != value:
                    raise UserError(
                        f"--output_dir={self.path} holds a run with {name}={old!r}, not {value!r}:"
                        " choose another folder, or --overwrite_output_dir to start anew"
                    )

    def write_files(self, contents: Mapping[str, str | bytes]) -> None:
        """Writes files by their paths inside the folder."""
        if self.is_chief:
            with self.writing():
                write_files(self.path, contents)

    def read_json(self, name: str) -> dict:
        """A JSON file of the run; empty if there is none."""
        if not tf.io.gfile.exists(self.file(name)):
            return {}
        with tf.io.gfile.GFile(self.file(name)) as file:
            return json.load(file)

    def append_metrics(self, name: str, values: Mapping) -> None:
        """Adds a line to a log."""
        if self.is_chief:
            with self.writing(), tf.io.gfile.GFile(self.file(name), "a") as file:
                file.write(json.dumps(values) + "\n")

    def logged(self, name: str) -> dict[int, dict[str, float]]:
        """The lines of a log by their step."""
        if not tf.io.gfile.exists(self.file(name)):
            return {}
        with tf.io.gfile.GFile(self.file(name)) as file:
            lines = [json.loads(line) for line in file]
        return {line.pop("step"): line for line in lines}

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

    def cut_metrics(self, last_step: int) -> None:
        """Takes the lines after a step out of the logs: the run goes on from there."""
        for name in (METRICS_FILE, EVAL_METRICS_FILE):
            path = self.file(name)
            if not self.is_chief or not tf.io.gfile.exists(path):
                continue
            with tf.io.gfile.GFile(path) as file:
                lines = [line for line in file if line.endswith("\n")]  # a killed write has no end
            kept = [line for line in lines if json.loads(line)["step"] <= last_step]
            with self.writing():
                files.write_bytes(path, "".join(kept).encode())


class Checkpoints:
    """The state of a run: saved, kept, restored; and the best of it.

    Args:
      folder: the run's folder.
      state: what makes up the state, by name.
      keep: number of checkpoints kept besides the best.
    """

    def __init__(self, folder: RunFolder, state: Mapping, keep: int):
        self._checkpoint = tf.train.Checkpoint(**state)
        self._folder = folder
        # Every worker has to take part in a save, but only the chief's files count.
        name = "checkpoints" if folder.is_chief else f"checkpoints/.worker-{os.getpid()}"
        self._path = folder.file(name)
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, self._path, max_to_keep=keep, checkpoint_name="step"
        )
        self._best_manager = tf.train.CheckpointManager(
            self._checkpoint,
            os.path.join(self._path, "best"),
            max_to_keep=1,
            checkpoint_name="step",
        )
        self._best_file = os.path.join(self._path, "best", "best.json")

    @property
    def latest(self) -> str | None:
        """The path of the newest checkpoint that is there, or None."""
        paths = _recorded(self._folder.file("checkpoints"))
        return next((path for path in reversed(paths) if tf.io.gfile.exists(f"{path}.index")), None)

    @property
    def best_path(self) -> str | None:
        """The path of the best checkpoint, or None."""
        return self._best_manager.latest_checkpoint

    @property
    def best(self) -> Mapping | None:
        """Step, metric and value of the best checkpoint, or None."""
        if not tf.io.gfile.exists(self._best_file):
            return None
        with tf.io.gfile.GFile(self._best_file) as file:
            return json.load(file)

    def restore(self, path: str) -> None:
        """Puts the state back as it was saved, all of it.

        Raises:
          UserError: the checkpoint is damaged or of another model.
        """
        try:
            self._checkpoint.restore(path).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, LookupError, RuntimeError, ValueError) as error:
            raise UserError(
                f"{path}: damaged checkpoint, or of another model ({first_line(error)}); to go on from the one"
                f" before, delete {path}.*"
            ) from None

    def save(self, step: int) -> None:
        """Saves the state of a step.

        Raises:
          UserError: the folder cannot be written (a full disk); older checkpoints stay whole.
        """
        with self._writing(self._path, step):
            self._manager.save(checkpoint_number=step)
        if not self._folder.is_chief:
            tf.io.gfile.rmtree(self._path)
            tf.io.gfile.makedirs(self._path)

    def save_if_best(self, step: int, metric: str, value: float) -> bool:
        """Saves the state of a step if its metric beats the best so far; says whether it did."""
        best = self.best
        if best is not None and not value > best["value"]:
            return False
        with self._writing(os.path.dirname(self._best_file), step):
            self._best_manager.save(checkpoint_number=step)
            if self._folder.is_chief:
                write_json(self._best_file, {"step": step, "metric": metric, "value": value})
        return True

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            with contextlib.suppress(tf.errors.OpError):
                if os.path.join(folder, f"step-{step}") not in _recorded(folder):
                    for left in tf.io.gfile.glob(os.path.join(folder, f"step-{step}[._]*")):
                        _remove(left)
            raise UserError(
                f"--output_dir: cannot write a checkpoint to {folder} ({_reason(error)});"
                f" the newest whole one is {self.latest}: make room and run the same command again"
            ) from None


def _recorded(folder: str) -> list[str]:
    """The checkpoints that were finished, oldest first."""
    state = tf.train.get_checkpoint_state(folder)
    return list(state.all_model_checkpoint_paths) if state else []


def _remove(path: str) -> None:
    (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)


def _reason(error: Exception) -> str:
    """What the system says, without the name of a temporary file that TensorFlow puts in front."""
    return first_line(error).rpartition("; ")[2]
