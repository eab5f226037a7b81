"""The checkpoints of a run: the newest ones and the best one.

A checkpoint is written together with its record (`run_files.checkpoint_record`), TensorFlow's list of checkpoints and,
for the best checkpoint, its metric. Either all of these files get their names or none of them (`files.staged`). Older
checkpoints are deleted afterwards.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core import files, run_files
from albert_tf.core.errors import UserError, first_line
from albert_tf.training.run_folder import BEST, CHECKPOINTS, RunFolder, remove

_BEST_FILE = f"{BEST}/best.json"


class Checkpoints:
    """Saves, keeps and restores the state of a run.

    Attributes:
      best: step, metric and value of the best checkpoint, or None.
    """

    def __init__(self, folder: RunFolder, state: Mapping, keep: int):
        self._checkpoint = tf.train.Checkpoint(**state)
        self._folder, self._keep = folder, keep
        self.best: Mapping[str, Any] | None = folder.read_json(_BEST_FILE) or None
        if self.best and not (
            isinstance(self.best.get("step"), int)
            and isinstance(self.best.get("value"), int | float)
        ):
            raise UserError(f"{folder.file(_BEST_FILE)}: expected a step and a value; {self._hint}")
        saved = run_files.checkpoints(folder.file(BEST))
        missing = ""
        if self.best and self.best_path not in saved:
            missing = f"{self.best_path}.index"
        elif not self.best and any(files.exists(f"{path}.json") for path in saved):
            missing = folder.file(_BEST_FILE)
        if missing:
            raise UserError(f"{missing}: is missing from the best checkpoint; {self._hint}")

    @property
    def _hint(self) -> str:
        return f"copy the folder of the run again, or delete {self._folder.file(BEST)} to continue without it"

    @property
    def latest(self) -> str | None:
        """The path of the newest checkpoint, or None."""
        saved = run_files.checkpoints(self._folder.file(CHECKPOINTS))
        return saved[-1] if saved else None

    @property
    def best_path(self) -> str | None:
        """The path of the best checkpoint, or None."""
        return (
            os.path.join(self._folder.file(BEST), f"step-{self.best['step']}")
            if self.best
            else None
        )

    def restore(self, path: str) -> dict[str, Any]:
        """Restores the whole state from a checkpoint; returns its record."""
        try:
            record = run_files.checkpoint_record(path, self._folder.run_id)
            self._checkpoint.read(path).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, LookupError, RuntimeError, ValueError) as error:
            hint = f"to continue from the checkpoint before it, or to start again if there is none, delete {path}.*"
            hint = self._hint if path == self.best_path else hint
            raise UserError(
                f"{path}: damaged checkpoint, or of another model ({first_line(error)}); {hint}"
            ) from None
        return record

    def save(self, step: int) -> None:
        """Saves the state at a step; if the folder cannot be written, older checkpoints are not changed."""
        self._write(CHECKPOINTS, step, self._keep, {})

    def save_if_best(self, step: int, metric: str, value: float) -> bool:
        """Saves the state at a step if the metric is above the best value so far; returns whether it is."""
        if self.best is not None and not value > self.best["value"]:
            return False
        best = {"step": step, "metric": metric, "value": value}
        self._write(BEST, step, 1, {"best.json": self._folder.json_content(best)})
        self.best = best
        return True

    def record_logs(self) -> None:
        """Updates the record of the newest checkpoint after lines were appended to the logs."""
        path = self.latest
        if path and self._folder.is_chief and files.exists(f"{path}.json"):
            with self._folder.writing():
                files.write_bytes(f"{path}.json", self._record(path))

    def _record(self, path: str) -> bytes:
        """The record of a checkpoint."""
        values = {"index_sha256": run_files.index_sha256(path), "logs": self._folder.log_states()}
        return self._folder.json_content(values)

    def _write(self, name: str, step: int, keep: int, contents: Mapping[str, bytes]) -> None:
        """Writes a checkpoint and files that belong to it; then deletes all but the newest ones of its folder."""
        folder, checkpoint = self._folder.file(name), f"step-{step}"
        with self._folder.writing():
            with files.staged(folder) as staging:
                path = os.path.join(staging, checkpoint)
                self._checkpoint.write(path)
                files.remove_parts(path)
                # All workers take part in saving, but only the chief's files are kept.
                if not self._folder.is_chief:
                    for file_name in tf.io.gfile.listdir(staging):
                        remove(os.path.join(staging, file_name))
                    return
                before = [os.path.basename(path) for path in run_files.checkpoints(folder)]
                kept = [*(other for other in before if other != checkpoint), checkpoint][-keep:]
                contents = {
                    **contents,
                    f"{checkpoint}.json": self._record(path),
                    "checkpoint": run_files.state_content(kept),
                }
                for file_name, content in contents.items():
                    with tf.io.gfile.GFile(os.path.join(staging, file_name), "wb") as file:
                        file.write(content)
            self._delete_old(folder, keep)

    def delete_old(self) -> None:
        """Deletes old checkpoints that remained because a process was killed before it had deleted them."""
        for name, keep in ((CHECKPOINTS, self._keep), (BEST, 1)):
            folder = self._folder.file(name)
            with self._folder.writing():
                self._delete_old(folder, keep)

    def _delete_old(self, folder: str, keep: int) -> None:
        """Deletes the files of all but the newest complete checkpoints."""
        kept = [os.path.basename(path) for path in run_files.checkpoints(folder)][-keep:]
        names = files.names_in(folder) if kept else []
        # The records are deleted first, because a checkpoint without a record counts as incomplete.
        for name in sorted(names, key=lambda name: not name.endswith(".json")):
            match = re.match(r"(step-\d+)[._]", name)
            if match and match[1] not in kept:
                remove(os.path.join(folder, name))
