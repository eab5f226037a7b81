"""A folder of records that a run can go on filling where another one was killed.

Whatever is written gets its name only when it is complete. Until all of it is, the folder holds `.unfinished`: the
settings of the run, the counts of what is complete, and what the run keeps for itself.
"""

import contextlib
import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.errors import UserError
from data_prep.text_files import OutputFile

METADATA_FILE = "metadata.json"
WORK_FOLDER = ".unfinished"


class WorkFolder:
    """Where a run keeps what it needs to go on; every process has one.

    Args:
      path: the folder; on the disk of the records.
    """

    def __init__(self, path: str):
        self.path = path

    def file(self, name: str) -> str:
        """The path of a file of the run."""
        return os.path.join(self.path, name)

    def counts_of(self, path: str) -> dict[str, Any] | None:
        """The counts of a file, if it is complete."""
        counts = read_json(self._counts_file(path))
        if counts and os.path.exists(path) and os.path.getsize(path) == counts["bytes"]:
            return counts
        return None

    @contextlib.contextmanager
    def writing(self, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
        """A file that gets its name only when everything, `counts` too, is on the disk.

        Args:
          path: its name.
          counts: for `counts_of`; may be filled until the end of the `with` block, where `bytes` is added.

        Raises:
          UserError: the disk is full, for example; nothing is left under any name.
        """
        # The workers of a run that was killed a moment ago may still write: they use other names.
        partial_path = self.file(f"{os.path.basename(path)}.{os.getpid()}.tmp")
        with OutputFile(path, partial_path=partial_path) as file:
            yield file
            counts["bytes"] = file.num_bytes
            write_json(self._counts_file(path), counts)

    def _counts_file(self, path: str) -> str:
        return self.file(os.path.basename(path) + ".json")


class RecordFolder:
    """The records of a run, finished or not.

    Args:
      path: the folder.
      identity: settings and input; a run goes on only with one of the same, and its metadata starts with them.
      input_files: paths of the text; it is another one if they were modified.
    """

    def __init__(self, path: str, identity: Mapping[str, Any], input_files: Sequence[str]):
        self.path = path
        self.work = WorkFolder(os.path.join(path, WORK_FOLDER))
        self._metadata_file = os.path.join(path, METADATA_FILE)
        self._identity = identity
        self._input_files = input_files

    def finished_metadata(self) -> dict[str, Any] | None:
        """The metadata of a run that is complete, if it is this one.

        Raises:
          UserError: the folder holds other records, or a file of this run is missing.
        """
        metadata = read_json(self._metadata_file)
        if metadata is None:
            return None
        self._check_same(metadata)
        for shard in metadata["shards"]:
            path = os.path.join(self.path, shard["file"])
            if not os.path.exists(path) or os.path.getsize(path) != shard["bytes"]:
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
        modified = [os.stat(path).st_mtime_ns for path in self._input_files]
        if (old_state := read_json(state_file)) is not None:
            self._check_same(old_state)
            if old_state["modified_nanoseconds"] != modified:
                self._refuse("--input_file has changed")
            for path in glob.glob(self.work.file("*.tmp"), include_hidden=True):
                os.remove(path)
            return True
        names = sorted(os.listdir(self.path)) if os.path.isdir(self.path) else []
        if found := [name for name in names if self._is_record(name)]:
            raise UserError(
                f"{self.path}: holds other records ({found[0]}); give another folder, or empty it"
            )
        write_json(state_file, {**self._identity, "modified_nanoseconds": modified})
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
        write_json(self._metadata_file, metadata)
        self.remove_work()
        return metadata

    def remove_work(self) -> None:
        """Removes what was unfinished."""
        shutil.rmtree(self.work.path, ignore_errors=True)

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


def read_json(path: str) -> dict[str, Any] | None:
    """What a JSON file holds; None if there is no such file.

    Raises:
      UserError: it cannot be read, or is something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise UserError(f"{path}: not a JSON file; delete it to make all again") from None


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Writes a JSON file that is whole or absent.

    Raises:
      UserError: it cannot be written.
    """
    with OutputFile(path) as file:
        file.write((json.dumps(values, indent=2) + "\n").encode())
