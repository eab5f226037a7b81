"""A folder of records in which a killed run can be resumed.

A file gets its final name only when it is complete. Until the whole run is complete, the folder contains `.unfinished`:
the settings of the run, the counts of complete files, and intermediate files.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.files import OutputFile
from albert_tf.data.record_formats.base import METADATA_FILE

WORK_FOLDER = ".unfinished"
# Why a run cannot be resumed if one of these values differs.
_CHANGES = {
    "input_files": "--input_file named other files, or they have changed",
    "modified_nanoseconds": "--input_file has changed",
}


class WorkFolder:
    """The folder of a run's intermediate files; every process has its own instance.

    Attributes:
      run: a name of the run that is in its files; a process of an earlier run may still be writing to the folder.
    """

    def __init__(self, path: str):
        self.path = path
        self.run = uuid.uuid4().hex

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def counts_of(self, path: str) -> dict[str, Any] | None:
        """The counts of a file if it is complete and unchanged; this reads the whole file."""
        counts = self.read_json(self._counts_file(path))
        try:
            if not counts or not files.exists(path):
                return None
            return counts
        except (UserError, OSError):
            return None

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The content of a JSON file of the run; None if there is no such file, or it is damaged."""
        try:
            values = files.read_json(path) if files.exists(path) else None
        except UserError:
            return None
        return values if values and values.pop("run", None) == self.run else None

    def write_json(self, path: str, values: Mapping[str, Any]) -> None:
        """Writes a file for `read_json`."""
        with OutputFile(path) as file:
            file.write(files.json_bytes({**values, "run": self.run}))

    @contextlib.contextmanager
    def writing(self, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
        """A file that gets its name only when its content and `counts` are on the disk.

        Args:
          counts: returned by `counts_of`; may be filled until the end of the `with` block, which adds `bytes`.
        """
        with OutputFile(path) as file:
            yield file
            counts["bytes"] = file.num_bytes
            self.write_json(self._counts_file(path), counts)

    def remove_file(self, path: str) -> None:
        """Removes a file of `writing`."""
        files.remove(path)
        files.remove(self._counts_file(path))

    def _counts_file(self, path: str) -> str:
        return self.file(os.path.basename(path) + ".json")


class RecordFolder:
    """The records of a run, finished or not.

    Attributes:
      work: its intermediate files, after `open`.
      is_resumed: whether an earlier run began it.
    """

    def __init__(self, path: str):
        self.path = path
        self.work = WorkFolder(os.path.join(path, WORK_FOLDER))
        self.is_resumed = False
        self._metadata_file = os.path.join(path, METADATA_FILE)
        self._state_file = self.work.file("settings.json")

    def open(
        self, identity: Mapping[str, Any], unchanged: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Starts the run, or resumes it; returns its metadata if it is complete already.

        Args:
          identity: settings and input, the first entries of the metadata; a run is resumed only if they are equal.
          unchanged: other values that must stay equal until the run is complete.

        Raises:
          UserError: the folder contains other records, or cannot be written to.
        """
        self._identity, state = identity, {**identity, **unchanged}
        earlier = self._earlier_run(state)
        if earlier and "shards" in earlier:
            for shard in earlier["shards"]:
                path = os.path.join(self.path, shard["file"])
                found = files.status(path)
                if not found or found.length != shard["bytes"]:
                    raise UserError(
                        f"{path}: is missing or was changed; empty the folder to make all again"
                    )
            files.remove(self.work.path)
            return earlier
        if earlier:
            self.is_resumed, self.work.run = True, earlier["run"]
            return None
        for name in files.names_in(self.path) if files.is_folder(self.path) else ():
            is_record = name.endswith((".tfrecord", ".tfrecord.gz"))
            if is_record or name in identity["file_names"]:
                raise UserError(
                    f"{self.path}: holds other records ({name}); give another folder, or empty it"
                )
        files.remove(self.work.path)  # files of a run with unknown settings
        self.work.write_json(self._state_file, state)
        return None

    def _earlier_run(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """The metadata of an earlier run, or its state if it is incomplete; it must have the values of this run."""
        if files.exists(self._metadata_file):
            path, expected = self._metadata_file, self._identity
        elif files.exists(self._state_file):
            path, expected = self._state_file, state
        else:
            return None
        try:
            found = files.read_json(path)
        except UserError as error:
            raise UserError(f"{error}; or empty {self.path} to make all again") from None
        for key, value in expected.items():
            if found.get(key) != value:
                difference = _CHANGES.get(key, f"{key} was {found.get(key)}, is {value}")
                raise UserError(
                    f"{self.path}: holds records of another run: {difference}; give another folder"
                )
        return found

    def finish(self, counts: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> dict:
        """Writes the metadata and removes the intermediate files; returns the metadata."""
        names = ("file", "examples", "records", "bytes")
        entries = [{name: shard[name] for name in names} for shard in shards]
        counted = {"num_shards": len(shards), "counts": dict(counts), "shards": entries}
        metadata = {**self._identity, **counted}
        # Started in the folder of intermediate files, so that an incomplete file is removed with them.
        with OutputFile(self._metadata_file) as file:
            file.write(files.json_bytes(metadata))
        files.remove(self.work.path)
        return metadata
