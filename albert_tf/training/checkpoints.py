"""The checkpoints of a run: the newest ones and the best one, kept by TensorFlow's CheckpointManager."""

import glob
import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.newest_checkpoint import newest_checkpoint
from albert_tf.training.run_folder import BEST, CHECKPOINTS, RunFolder

_BEST_FILE = f"{BEST}/best.json"
_NAME = "step"  # begins the names of checkpoints


class Checkpoints:
    """Saves, keeps and restores the state of a run; `best` is step, metric and value of the best one, or None."""

    def __init__(self, folder: RunFolder, state: Mapping, keep: int):
        self._checkpoint = tf.train.Checkpoint(**state)
        self._folder = folder
        self._keep = keep
        self._managers: dict[str, tf.train.CheckpointManager] = {}
        self.best: Mapping[str, Any] | None = folder.read_json(_BEST_FILE) or None

    @property
    def latest(self) -> str:
        """The path of the newest checkpoint; "" if there is none."""
        return newest_checkpoint(self._folder.file(CHECKPOINTS))

    @property
    def best_path(self) -> str:
        """The path of the best checkpoint; "" if there is none."""
        return newest_checkpoint(self._folder.file(BEST)) if self.best else ""

    def restore(self, path: str) -> None:
        """Restores the whole state from a checkpoint."""
        try:
            self._checkpoint.read(path).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, LookupError, RuntimeError, ValueError) as error:
            reason = f"damaged checkpoint, or of another model ({first_line(error)})"
            advice = f"delete {path}.* to continue from the one before, or to start again"
            raise UserError(f"{path}: {reason}; {advice}") from None

    def save(self, step: int) -> None:
        """Saves the state at a step."""
        self._save(CHECKPOINTS, step, self._keep)

    def save_if_best(self, step: int, metric: str, value: float | None) -> bool:
        """Saves the state at a step if the metric is above the best value so far; returns whether it is.

        Where the metric is undefined, nothing is saved.
        """
        if value is None:
            return False
        if self.best is not None and not value > self.best["value"]:
            return False
        self._save(BEST, step, 1)
        self.best = {"step": step, "metric": metric, "value": value}
        self._folder.write_json(_BEST_FILE, self.best)
        return True

    def remove_leftovers(self) -> None:
        """Removes what a process has left that was killed while it saved; other files in the folders stay."""
        if not self._folder.is_chief:
            return
        with self._folder.writing():
            for name in (CHECKPOINTS, BEST):
                folder = self._folder.file(name)
                for leftover in _leftovers(folder):
                    files.remove(os.path.join(folder, leftover))

    def _save(self, name: str, step: int, keep: int) -> None:
        with self._folder.writing():
            if not self._folder.is_chief:
                # All workers take part in saving, but only the chief's files are kept.
                with tempfile.TemporaryDirectory() as place:
                    self._manager(place, keep).save(checkpoint_number=step)
                return
            if name not in self._managers:
                self._managers[name] = self._manager(self._folder.file(name), keep)
            path = self._managers[name].save(checkpoint_number=step)
            for file in glob.glob(f"{glob.escape(path)}.*"):
                files.sync(file)
            files.sync(os.path.dirname(path))

    def _manager(self, place: str, keep: int) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(
            self._checkpoint, place, max_to_keep=keep, checkpoint_name=_NAME
        )


def _leftovers(folder: str) -> list[str]:
    """The names of incomplete checkpoints in a folder, and of complete ones that its list does not contain.

    TensorFlow writes a checkpoint in this order: a folder `step-4_temp`, files `step-4.data-...`, the file
    `step-4.index`; then `checkpoint.tmp...`, which becomes the list `checkpoint`.
    """
    if not files.is_folder(folder):
        return []
    names = files.names_in(folder)
    state = tf.train.get_checkpoint_state(folder)
    listed = {os.path.basename(path) for path in state.all_model_checkpoint_paths} if state else ()
    leftovers = []
    for name in names:
        match = re.fullmatch(rf"({_NAME}-\d+)(_temp|\..+)", name)
        if not match:
            is_leftover = name.startswith("checkpoint.tmp")
        elif match[2] == "_temp" or f"{match[1]}.index" not in names:
            is_leftover = True
        else:
            # Without a list, complete checkpoints may be those of a folder that was copied in part.
            is_leftover = bool(listed) and match[1] not in listed
        if is_leftover:
            leftovers.append(name)
    return leftovers
