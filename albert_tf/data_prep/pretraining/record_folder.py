"""A folder of records in which a killed run can be resumed.

A file gets its final name only when it is complete. Until the whole run is complete, the folder contains `.unfinished`:
the settings of the run, the counts and checksums of complete files, and intermediate files. A file whose checksum has
changed is made again.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from albert_tf.core import checksums
from albert_tf.core.errors import UserError
from albert_tf.core.files import check_regular, remove_leftovers
from albert_tf.data import record_metadata
from albert_tf.data.record_formats import check_metadata
from albert_tf.data.record_metadata import METADATA_FILE
from albert_tf.data_prep.text_files import OutputFile, expand_paths

WORK_FOLDER = ".unfinished"
# Settings that older records do not name, with their value then.
_VALUES_BEFORE = {"keep_accents": False}


class InputFile(NamedTuple):
    """A file of the corpus."""

    path: str
    num_bytes: int
    modified_nanoseconds: int  # since 1970


def local_inputs(patterns: str) -> list[InputFile]:
    """The files of `text_files.expand_paths` on this machine, with their sizes and times."""
    status = {path: os.stat(path) for path in expand_paths(patterns)}
    return [InputFile(path, of.st_size, of.st_mtime_ns) for path, of in status.items()]


class FileAccess:
    """Reads and writes files of this machine; `beam_files.py` does the same on other file systems."""

    output_file = OutputFile

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading bytes.

        Raises:
          OSError: it cannot be opened; a UserError if it is a pipe or device.
        """
        check_regular(path)
        return open(path, "rb")

    def read_bytes(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file.

        Raises:
          UserError: it cannot be read.
        """
        try:
            with self.open(path) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None

    def size_of(self, path: str) -> int | None:
        """The bytes of a file; None if there is no such file."""
        return os.path.getsize(path) if os.path.exists(path) else None

    def sizes_in(self, folder: str) -> dict[str, int | None]:
        """`size_of` the files and folders in a folder, by name; empty if there is no such folder."""
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return {name: self.size_of(os.path.join(folder, name)) for name in names}

    # Removes the incomplete files of a run that was stopped.
    remove_partial = staticmethod(remove_leftovers)

    def remove_folder(self, folder: str) -> None:
        """Removes a folder and its content."""
        shutil.rmtree(folder, ignore_errors=True)

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The content of a JSON file of `write_json`; None if there is no such file.

        Raises:
          UserError: it cannot be read, is not JSON, or was changed.
        """
        content = self.read_bytes(path)
        return None if content is None else checksums.parse_json(content, path)

    def write_json(self, path: str, values: Mapping[str, Any], *, within: str = "") -> None:
        """Writes a JSON file with a checksum; the file is never incomplete under its name.

        Args:
          path: the file.
          values: its content.
          within: see `OutputFile`.

        Raises:
          UserError: it cannot be written.
        """
        with self.output_file(path, within=within) as file:
            file.write(checksums.json_file(values))


class WorkFolder:
    """The folder of a run's intermediate files; every process has its own instance.

    Args:
      path: the folder, on the same disk as the records.
      files: reads and writes files.
      run: identifies the run; a file of another run counts as damaged.
    """

    def __init__(self, path: str, files: FileAccess, run: str = ""):
        self.path = path
        self.files = files
        self._run = run

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def counts_of(self, path: str) -> dict[str, Any] | None:
        """The counts of a file if it is complete and unchanged; this reads the whole file."""
        counts = self.read_json(self._counts_file(path))
        if not counts or self.files.size_of(path) != counts["bytes"]:
            return None
        try:
            with self.files.open(path) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except (UserError, OSError):
            return None
        return counts if counts.pop("sha256", None) == sha256 else None

    def read_json(self, path: str) -> dict[str, Any] | None:
        """The content of a JSON file of the run; None if there is no such file, or it is damaged."""
        try:
            values = self.files.read_json(path)
        except UserError:
            return None
        return values if values and values.pop("run", None) == self._run else None

    def write_json(self, path: str, values: Mapping[str, Any]) -> None:
        """Writes a file for `read_json`."""
        self.files.write_json(path, {**values, "run": self._run})

    @contextlib.contextmanager
    def writing(self, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
        """A file that gets its name only when its content and `counts` are on the disk.

        Args:
          path: its name.
          counts: returned by `counts_of`; may be filled until the end of the `with` block, which adds `bytes`.

        Raises:
          UserError: for example, the disk is full; then nothing is left under any name.
        """
        with self.files.output_file(path, within=self.path) as file:
            yield file
            counts["bytes"] = file.num_bytes
            sha256 = file.sha256.hexdigest()
            self.write_json(self._counts_file(path), {**counts, "sha256": sha256})

    def _counts_file(self, path: str) -> str:
        return self.file(os.path.basename(path) + ".json")


class RecordFolder:
    """The records of a run, finished or not.

    Args:
      path: the folder.
      identity: settings and input, the first entries of the metadata; a run is resumed only if they are equal.
      modified_nanoseconds: when each input file was modified; a run is not resumed if that has changed.
      files: reads and writes files.
    """

    def __init__(
        self,
        path: str,
        identity: Mapping[str, Any],
        modified_nanoseconds: Sequence[int],
        files: FileAccess,
    ):
        self.path = path
        run = checksums.checksum_of(
            {**identity, "modified_nanoseconds": list(modified_nanoseconds)}
        )
        self.work = WorkFolder(os.path.join(path, WORK_FOLDER), files, run)
        self._metadata_file = os.path.join(path, METADATA_FILE)
        self._identity = identity
        self._modified = list(modified_nanoseconds)
        self._files = files

    def finished_metadata(self) -> dict[str, Any] | None:
        """The metadata of a complete run with this identity; None if there is no complete run.

        Raises:
          UserError: the folder holds other records, or a file of this run is missing.
        """
        metadata = self._files.read_json(self._metadata_file)
        if metadata is None:
            return None
        check_metadata(metadata, self._metadata_file)
        self._check_same(metadata)
        if not {"counts", "shards"} <= metadata.keys():
            self._refuse(f"{METADATA_FILE} lacks counts or shards")
        for shard in metadata["shards"]:
            path = os.path.join(self.path, shard["file"])
            if not self._is_shard(path, shard):
                raise UserError(
                    f"{path}: is missing or was changed; empty the folder to make all again"
                )
        # In case a run was killed at the very end:
        self._files.remove_partial(self.path)
        self.remove_work()
        return metadata

    def _is_shard(self, path: str, shard: Mapping[str, Any]) -> bool:
        num_bytes = self._files.size_of(path)
        if num_bytes != shard["bytes"]:
            return False
        with self._files.open(path) as file:
            return record_metadata.is_shard(shard, num_bytes, file)

    def open(self) -> bool:
        """Resumes the run with the same identity, or starts one; returns whether a run is resumed.

        Raises:
          UserError: the folder holds other records, or cannot be written to.
        """
        state_file = self.work.file("settings.json")
        try:
            old_state = self._files.read_json(state_file)
        except UserError as error:
            raise UserError(f"{error}; or empty {self.path} to make all again") from None
        if old_state is not None:
            self._check_same(old_state)
            if old_state.get("modified_nanoseconds") != self._modified:
                self._refuse("--input_file has changed")
            self._files.remove_partial(self.work.path)
            return True
        for name in sorted(self._files.sizes_in(self.path)):
            is_record = name.endswith((".tfrecord", ".tfrecord.gz"))
            if is_record or name in self._identity["file_names"]:
                raise UserError(
                    f"{self.path}: holds other records ({name}); give another folder, or empty it"
                )
        self.remove_work()  # files of a run with unknown settings
        state = {**self._identity, "modified_nanoseconds": self._modified}
        self._files.write_json(state_file, state)
        return False

    def finish(self, counts: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> dict:
        """Writes the metadata and removes the intermediate files; returns the metadata."""
        files = list(map(self._shard_entry, shards))
        counted = {"num_shards": len(shards), "counts": dict(counts), "shards": files}
        metadata = {**self._identity, **counted}
        # Started in the folder of intermediate files, so that an incomplete file is removed with them.
        self._files.write_json(self._metadata_file, metadata, within=self.work.path)
        self.remove_work()
        return metadata

    def _shard_entry(self, shard: Mapping[str, Any]) -> dict[str, Any]:
        names = ("file", "examples", "bytes", "records")
        name, examples, num_bytes, records = (shard[key] for key in names)
        with self._files.open(os.path.join(self.path, name)) as file:
            return record_metadata.shard_entry(name, examples, num_bytes, file, records)

    def remove_work(self) -> None:
        """Removes the intermediate files."""
        self._files.remove_folder(self.work.path)

    def _check_same(self, old: Mapping[str, Any]) -> None:
        for key, value in self._identity.items():
            if key == "input_files" and old.get(key) != value:
                self._refuse("--input_file named other files, or they have changed")
            old_value = old.get(key, _VALUES_BEFORE.get(key))
            if old_value != value:
                self._refuse(f"{key} was {old_value}, is {value}")

    def _refuse(self, difference: str) -> None:
        raise UserError(
            f"{self.path}: holds records of another run: {difference}; give another folder"
        )
