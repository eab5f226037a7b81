"""The checkpoints of a run: its newest ones, and the best one."""

import contextlib
import os
from collections.abc import Iterator, Mapping

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.training.run_folder import RunFolder, remove, system_error, write_json


class Checkpoints:
    """Saves, keeps and restores the state of a run.

    Args:
      folder: the run's folder.
      state: the objects that a checkpoint contains, by name.
      keep: number of checkpoints that are kept besides the best one.
    """

    def __init__(self, folder: RunFolder, state: Mapping, keep: int):
        self._checkpoint = tf.train.Checkpoint(**state)
        self._folder = folder
        # Every worker takes part in a save, but only the files of the chief are kept.
        name = "checkpoints" if folder.is_chief else f"checkpoints/.worker-{os.getpid()}"
        self._path = folder.file(name)
        self._best_path = os.path.join(self._path, "best")
        self._best_file = os.path.join(self._best_path, "best.json")
        manager, name = tf.train.CheckpointManager, "step"
        self._manager = manager(self._checkpoint, self._path, keep, checkpoint_name=name)
        self._best_manager = manager(self._checkpoint, self._best_path, 1, checkpoint_name=name)

    @property
    def latest(self) -> str | None:
        """The path of the newest checkpoint that exists, or None."""
        paths = _finished(self._folder.file("checkpoints"))
        return next((path for path in reversed(paths) if tf.io.gfile.exists(f"{path}.index")), None)

    @property
    def best_path(self) -> str | None:
        """The path of the best checkpoint, or None."""
        return self._best_manager.latest_checkpoint

    @property
    def best(self) -> Mapping | None:
        """Step, metric and value of the best checkpoint, or None."""
        return files.read_json(self._best_file) if files.exists(self._best_file) else None

    def restore(self, path: str) -> None:
        """Restores the whole state from a checkpoint.

        Raises:
          UserError: the checkpoint is damaged or of another model.
        """
        try:
            self._checkpoint.restore(path).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, LookupError, RuntimeError, ValueError) as error:
            raise UserError(
                f"{path}: damaged checkpoint, or of another model ({first_line(error)}); to continue from the"
                f" checkpoint before it, delete {path}.*"
            ) from None

    def save(self, step: int) -> None:
        """Saves the state of a step.

        Raises:
          UserError: the folder cannot be written (a full disk); older checkpoints are not changed.
        """
        with self._writing(self._path, step):
            self._manager.save(checkpoint_number=step)
        if not self._folder.is_chief:
            tf.io.gfile.rmtree(self._path)
            tf.io.gfile.makedirs(self._path)

    def save_if_best(self, step: int, metric: str, value: float) -> bool:
        """Saves the state of a step if its metric is above the best value so far; returns whether it is."""
        best = self.best
        if best is not None and not value > best["value"]:
            return False
        with self._writing(self._best_path, step):
            self._best_manager.save(checkpoint_number=step)
            if self._folder.is_chief:
                write_json(self._best_file, {"step": step, "metric": metric, "value": value})
        return True

    @contextlib.contextmanager
    def _writing(self, folder: str, step: int) -> Iterator[None]:
        """Turns an error of the disk into one line, and deletes the unfinished checkpoint."""
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            with contextlib.suppress(tf.errors.OpError):
                if os.path.join(folder, f"step-{step}") not in _finished(folder):
                    for path in tf.io.gfile.glob(os.path.join(folder, f"step-{step}[._]*")):
                        remove(path)
            raise UserError(
                f"--output_dir: cannot write a checkpoint to {folder} ({system_error(error)});"
                f" the newest whole one is {self.latest}: make room and run the same command again"
            ) from None


def _finished(folder: str) -> list[str]:
    """The checkpoints that were written completely, oldest first."""
    state = tf.train.get_checkpoint_state(folder)
    return list(state.all_model_checkpoint_paths) if state else []
