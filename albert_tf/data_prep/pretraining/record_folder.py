"""A folder of records in which a killed run can be resumed.

A file gets its final name only when it is complete. Until the whole run is complete, the folder contains `.unfinished`:
the settings of the run, the counts and checksums of complete files, and intermediate files. A file whose checksum has
changed is made again.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from albert_tf.core import checksums, files
from albert_tf.core.errors import UserError
from albert_tf.core.files import OutputFile
from albert_tf.data import record_metadata
from albert_tf.data.record_formats import check_metadata
from albert_tf.data.record_metadata import METADATA_FILE

WORK_FOLDER = ".unfinished"
# Names in `unchanged` of `RecordFolder` -> why a run cannot be resumed if the value differs.
_CHANGES = {
    "modified_nanoseconds": "--input_file has changed",
    "code": "the program or a library has changed, so its examples would differ",
}


class WorkFolder:
    """The folder of a run's intermediate files; every process has its own instance."""

    def __init__(self, path: str, run: str = ""):
        self.path = path
        self._run = run

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def counts_of(self, path: str) -> dict[str, Any] | None:
        """The counts of a file if it is complete and unchanged; this reads the whole file."""
        counts = self.read_json(self._counts_file(path))
        try:
            if not counts or not files.exists(path):
                return None
            return counts if counts.pop("sha256", None) == files.sha256(path) else None
        except (UserError, OSError):
            return None

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The content of a JSON file of the run; None if there is no such file, or it is damaged."""
        try:
            values = checksums.read_json(path) if files.exists(path) else None
        except UserError:
            return None
        return values if values and values.pop("run", None) == self._run else None

    def write_json(self, path: str, values: Mapping[str, Any]) -> None:
        """Writes a file for `read_json`."""
        write_json(path, {**values, "run": self._run})

    @contextlib.contextmanager
    def writing(self, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
        """A file that gets its name only when its content and `counts` are on the disk.

        Args:
          path: its name.
          counts: returned by `counts_of`; may be filled until the end of the `with` block, which adds `bytes`.
        """
        with OutputFile(path, within=self.path) as file:
            yield file
            counts["bytes"] = file.num_bytes
            self.write_json(self._counts_file(path), {**counts, "sha256": file.sha256.hexdigest()})

    def remove_file(self, path: str) -> None:
        """Removes a file of `writing`."""
        files.remove(path)
        files.remove(self._counts_file(path))

    def _counts_file(self, path: str) -> str:
        return self.file(os.path.basename(path) + ".json")


def write_json(path: str, values: Mapping[str, Any], *, within: str = "") -> None:
    """Writes a JSON file with a checksum; for `within` see `files.staged`."""
    with OutputFile(path, within=within) as file:
        file.write(checksums.json_file(values))


class RecordFolder:
    """The records of a run, finished or not.

    Args:
      path: the folder.
      identity: settings and input, the first entries of the metadata; a run is resumed only if they are equal.
      unchanged: other values that must stay equal until the run is complete (`_CHANGES`).
    """

    def __init__(self, path: str, identity: Mapping[str, Any], unchanged: Mapping[str, Any]):
        self.path = path
        self._state = {**identity, **unchanged}
        self.work = WorkFolder(
            os.path.join(path, WORK_FOLDER), run=checksums.checksum_of(self._state)
        )
        self._metadata_file = os.path.join(path, METADATA_FILE)
        self._identity = identity

    def finished_metadata(self) -> dict[str, Any] | None:
        """The metadata of a complete run with this identity; None if there is no complete run."""
        if not files.exists(self._metadata_file):
            return None
        metadata = checksums.read_json(self._metadata_file)
        check_metadata(metadata, self._metadata_file)
        self._check_same(metadata)
        if not {"counts", "shards"} <= metadata.keys():
            self._reject(f"{METADATA_FILE} lacks counts or shards")
        for shard in metadata["shards"]:
            path = os.path.join(self.path, shard["file"])
            if not self._is_shard(path, shard):
                raise UserError(
                    f"{path}: is missing or was changed; empty the folder to make all again"
                )
        # In case a run was killed at the very end:
        files.remove_leftovers(self.path)
        self.remove_work()
        return metadata

    def _is_shard(self, path: str, shard: Mapping[str, Any]) -> bool:
        status = files.status(path)
        if not status or status.length != shard["bytes"]:
            return False
        with files.errors_named(path, "read"), files.open_binary(path) as file:
            return record_metadata.is_shard(shard, status.length, file)

    def open(self) -> bool:
        """Resumes the run with the same identity, or starts one; returns whether a run is resumed.

        Raises:
          UserError: the folder contains other records, or cannot be written to.
        """
        state_file = self.work.file("settings.json")
        if files.exists(state_file):
            try:
                old_state = checksums.read_json(state_file)
            except UserError as error:
                raise UserError(f"{error}; or empty {self.path} to make all again") from None
            self._check_same(old_state)
            for key, reason in _CHANGES.items():
                if old_state.get(key) != self._state[key]:
                    self._reject(reason)
            files.remove_leftovers(self.work.path)
            return True
        for name in files.names_in(self.path) if files.is_folder(self.path) else ():
            is_record = name.endswith((".tfrecord", ".tfrecord.gz"))
            if is_record or name in self._identity["file_names"]:
                raise UserError(
                    f"{self.path}: holds other records ({name}); give another folder, or empty it"
                )
        self.remove_work()  # files of a run with unknown settings
        write_json(state_file, self._state)
        return False

    def finish(self, counts: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> dict:
        """Writes the metadata and removes the intermediate files; returns the metadata."""
        entries = list(map(self._shard_entry, shards))
        counted = {"num_shards": len(shards), "counts": dict(counts), "shards": entries}
        metadata = {**self._identity, **counted}
        # Started in the folder of intermediate files, so that an incomplete file is removed with them.
        write_json(self._metadata_file, metadata, within=self.work.path)
        self.remove_work()
        return metadata

    def _shard_entry(self, shard: Mapping[str, Any]) -> dict[str, Any]:
        names = ("file", "examples", "bytes", "records")
        name, examples, num_bytes, records = (shard[key] for key in names)
        path = os.path.join(self.path, name)
        with files.errors_named(path, "read"), files.open_binary(path) as file:
            return record_metadata.shard_entry(name, examples, num_bytes, file, records)

    def remove_work(self) -> None:
        """Removes the intermediate files."""
        files.remove(self.work.path)

    def _check_same(self, old: Mapping[str, Any]) -> None:
        for key, value in self._identity.items():
            if key == "input_files" and old.get(key) != value:
                self._reject("--input_file named other files, or they have changed")
            if old.get(key) != value:
                self._reject(f"{key} was {old.get(key)}, is {value}")

    def _reject(self, difference: str) -> NoReturn:
        raise UserError(
            f"{self.path}: holds records of another run: {difference}; give another folder"
        )
