"""A run's folder on disk: what it was started with, its checkpoints, its log, its results.

Whatever is written stands beside the old until it is whole. A run that was killed is taken up from its newest
checkpoint, and its log is cut back to that step.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping

import tensorflow as tf

from albert_tf.errors import UserError

CONFIG_FILE, RESULTS_FILE = "config.json", "results.json"
METRICS_FILE, EVAL_METRICS_FILE = "metrics.jsonl", "eval_metrics.jsonl"


def write_json(path: str, values: Mapping) -> None:
    """Writes a JSON file beside, then puts it in place."""
    temporary = path + ".writing"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps(values, indent=2) + "\n")
    tf.io.gfile.rename(temporary, path, overwrite=True)


class RunFolder:
    """The folder of a run.

    Args:
      path: the folder; made if it does not exist.
      settings: everything that the run is started with, by group of settings.
      free: names of settings that may differ from those of the run that the folder holds.
      overwrite: whether to delete what the folder holds.
      is_chief: whether this process writes; the other workers of a run only read.

    Raises:
      UserError: the folder holds another run or other files.
    """

    def __init__(
        self, path: str, settings: Mapping, free: frozenset[str], overwrite: bool, is_chief: bool
    ):
        self.path = path
        self.is_chief = is_chief
        self._summary_writers = {}
        config_path = self.file(CONFIG_FILE)
        if overwrite and is_chief and tf.io.gfile.exists(path):
            self._check_is_run(config_path)
            tf.io.gfile.rmtree(path)
        if tf.io.gfile.exists(config_path):
            self._check_same_run(config_path, settings, free)
        elif tf.io.gfile.exists(path) and tf.io.gfile.listdir(path) and is_chief:
            self._check_is_run(config_path)
        if is_chief:
            tf.io.gfile.makedirs(path)
            write_json(config_path, settings)

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def _check_is_run(self, config_path: str) -> None:
        if tf.io.gfile.listdir(self.path) and not tf.io.gfile.exists(config_path):
            raise UserError(
                f"--output_dir={self.path} holds files that are no run (no {CONFIG_FILE}):"
                " choose a new or empty folder"
            )

    def _check_same_run(self, config_path: str, settings: Mapping, free: frozenset[str]) -> None:
        try:
            with tf.io.gfile.GFile(config_path) as file:
                before = json.load(file)
        except ValueError:
            raise UserError(f"{config_path} is not JSON: no run can be resumed from it") from None
        for group, values in settings.items():
            for name, value in values.items():
                old = before.get(group, {}).get(name)
                if name not in free and old != value:
                    raise UserError(
                        f"--output_dir={self.path} holds a run with {name}={old!r}, not {value!r}:"
                        " choose another folder, or --overwrite_output_dir to start anew"
                    )

    def append_metrics(self, name: str, values: Mapping) -> None:
        """Adds a line to a log."""
        if self.is_chief:
            with tf.io.gfile.GFile(self.file(name), "a") as file:
                file.write(json.dumps(values) + "\n")

    def write_summaries(self, name: str, step: int, values: Mapping[str, float]) -> None:
        """Adds values to TensorBoard's curves of this name ("train" or "eval")."""
        if not self.is_chief:
            return
        if name not in self._summary_writers:
            self._summary_writers[name] = tf.summary.create_file_writer(self.file(name))
        with self._summary_writers[name].as_default():
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
            with tf.io.gfile.GFile(path + ".writing", "w") as file:
                file.write("".join(kept))
            tf.io.gfile.rename(path + ".writing", path, overwrite=True)


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
        """The newest checkpoint's path, or None."""
        return tf.train.latest_checkpoint(self._folder.file("checkpoints"))

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
        except (tf.errors.OpError, AssertionError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"{path}: damaged checkpoint, or of another model ({reason}); to go on from an older one,"
                f" delete its files and its name in {self._path}/checkpoint"
            ) from None

    def save(self, step: int) -> None:
        """Saves the state of a step.

        Raises:
          UserError: the folder cannot be written (a full disk); older checkpoints stay whole.
        """
        with self._writing():
            self._manager.save(checkpoint_number=step)
        if not self._folder.is_chief:
            tf.io.gfile.rmtree(self._path)
            tf.io.gfile.makedirs(self._path)

    def save_if_best(self, step: int, metric: str, value: float) -> bool:
        """Saves the state of a step if its metric beats the best so far; says whether it did."""
        best = self.best
        if best is not None and not value > best["value"]:
            return False
        with self._writing():
            self._best_manager.save(checkpoint_number=step)
            if self._folder.is_chief:
                write_json(self._best_file, {"step": step, "metric": metric, "value": value})
        return True

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"--output_dir: cannot write a checkpoint to {self._path} ({reason});"
                f" the newest whole one is {self.latest}: make room and run the same command again"
            ) from None
