"""A folder of records that a run can go on filling where another one was killed.

Whatever is written gets its name only when it is complete. Until all of it is, the folder holds `.unfinished`: the
settings of the run, the counts of what is complete, and what the run keeps for itself.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from albert_tf.core.errors import UserError
from albert_tf.core.files import remove_leftovers
from data_prep.pretraining.text_blocks import open_here
from data_prep.text_files import OutputFile

METADATA_FILE = "metadata.json"
WORK_FOLDER = ".unfinished"


class FileAccess:
    """How the files of a run are reached: here, those of this machine; `beam_files.py` knows other file systems."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading bytes.

        Raises:
          OSError: it cannot be opened.
        """
        return open_here(path)

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

    def output_file(self, path: str, within: str = "") -> OutputFile:
        """A file that appears under its name only when it is whole.

        Args:
          path: its name.
          within: where it is written until it is whole, on the same file system; the folder of `path` if empty.
        """
        return OutputFile(path, within=within)

    def size_of(self, path: str) -> int | None:
        """The bytes of a file; None if there is no such file."""
        return os.path.getsize(path) if os.path.exists(path) else None

    def sizes_in(self, folder: str) -> dict[str, int | None]:
        """`size_of` what is in a folder, by name; nothing if there is no such folder."""
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return {name: self.size_of(os.path.join(folder, name)) for name in names}

    def remove_partial(self, folder: str) -> None:
        """Removes what a run that was stopped had not written to the end."""
        remove_leftovers(folder)

    def remove_folder(self, folder: str) -> None:
        """Removes a folder and what is in it."""
        shutil.rmtree(folder, ignore_errors=True)

    def read_json(self, path: str) -> Any:
        """What a JSON file holds; None if there is no such file.

        Raises:
          UserError: it cannot be read, or is something else.
        """
        content = self.read_bytes(path)
        try:
            return None if content is None else json.loads(content)
        except ValueError:
            raise UserError(f"{path}: not a JSON file; delete it to make all again") from None

    def write_json(self, path: str, values: Any) -> None:
        """Writes a JSON file that is whole or absent.

        Raises:
          UserError: it cannot be written.
        """
        with self.output_file(path) as file:
            file.write((json.dumps(values, indent=2) + "\n").encode())


class WorkFolder:
    """Where a run keeps what it needs to go on; every process has one.

    Args:
      path: the folder; on the disk of the records.
      files: how files are reached.
    """

    def __init__(self, path: str, files: FileAccess):
        self.path = path
        self.files = files

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def counts_of(self, path: str) -> dict[str, Any] | None:
        """The counts of a file, if it is complete."""
        counts = self.files.read_json(self._counts_file(path))
        return counts if counts and self.files.size_of(path) == counts["bytes"] else None

    @contextlib.contextmanager
    def writing(self, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
        """A file that gets its name only when everything, `counts` too, is on the disk.

        Args:
          path: its name.
          counts: for `counts_of`; may be filled until the end of the `with` block, where `bytes` is added.

        Raises:
          UserError: the disk is full, for example; nothing is left under any name.
        """
        with self.files.output_file(path, within=self.path) as file:
            yield file
            counts["bytes"] = file.num_bytes
            self.files.write_json(self._counts_file(path), counts)

    def _counts_file(self, path: str) -> str:
        return self.file(os.path.basename(path) + ".json")


class RecordFolder:
    """The records of a run, finished or not.

    Args:
      path: the folder.
      identity: settings and input; a run goes on only with one of the same, and its metadata starts with them.
      modified_nanoseconds: when each file of the text was modified; it is another one if that has changed.
      files: how files are reached.
    """

    def __init__(
        self,
        path: str,
        identity: Mapping[str, Any],
        modified_nanoseconds: Sequence[int],
        files: FileAccess,
    ):
        self.path = path
        self.work = WorkFolder(os.path.join(path, WORK_FOLDER), files)
        self._metadata_file = os.path.join(path, METADATA_FILE)
        self._identity = identity
        self._modified = list(modified_nanoseconds)
        self._files = files

    def finished_metadata(self) -> dict[str, Any] | None:
        """The metadata of a run that is complete, if it is this one.

        Raises:
          UserError: the folder holds other records, or a file of this run is missing.
        """
        metadata = self._files.read_json(self._metadata_file)
        if metadata is None:
            return None
        self._check_same(metadata)
        sizes = self._files.sizes_in(self.path)
        for shard in metadata["shards"]:
            if sizes.get(shard["file"]) != shard["bytes"]:
                path = os.path.join(self.path, shard["file"])
                raise UserError(
                    f"{path}: is missing or was changed; empty the folder to make all again"
                )
        self.remove_work()  # if a run was killed at the very end
        return metadata

    def open(self) -> bool:
        """Goes on with a run of the same settings, or starts one; returns whether it goes on.

        Raises:
          UserError: the folder holds other records, or cannot be written to.
        """
        state_file = self.work.file("settings.json")
        if (old_state := self._files.read_json(state_file)) is not None:
            self._check_same(old_state)
            if old_state["modified_nanoseconds"] != self._modified:
                self._refuse("--input_file has changed")
            self._files.remove_partial(self.work.path)
            return True
        names = sorted(self._files.sizes_in(self.path))
        if found := [name for name in names if self._is_record(name)]:
            raise UserError(
                f"{self.path}: holds other records ({found[0]}); give another folder, or empty it"
            )
        state = {**self._identity, "modified_nanoseconds": self._modified}
        self._files.write_json(state_file, state)
        return False

    def finish(self, counts: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> dict:
        """Writes the metadata and removes what was unfinished; returns the metadata."""
        files = [{key: shard[key] for key in ("file", "examples", "bytes")} for shard in shards]
        metadata = {
            **self._identity,
            "num_shards": len(shards),
            "counts": dict(counts),
            "shards": files,
        }
        self._files.write_json(self._metadata_file, metadata)
        self.remove_work()
        return metadata

    def remove_work(self) -> None:
        """Removes what was unfinished."""
        self._files.remove_folder(self.work.path)

    def _check_same(self, old: Mapping[str, Any]) -> None:
        for key, value in self._identity.items():
            if key == "input_files" and old.get(key) != value:
                self._refuse("--input_file named other files, or they have changed")
            if old.get(key) != value:
                self._refuse(f"{key} was {old.get(key)}, is {value}")

    def _refuse(self, difference: str) -> None:
        raise UserError(
            f"{self.path}: holds records of another run: {difference}; give another folder"
        )

    def _is_record(self, name: str) -> bool:
        return name.endswith((".tfrecord", ".tfrecord.gz")) or name in self._identity["file_names"]
