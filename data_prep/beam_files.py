"""Files through Apache Beam's file systems: paths of this machine, gs://, s3://, hdfs:// and what else Beam knows.

What `text_files.py` and `record_folder.py` do with files of this machine is done here for all of them, under the same
names in the same folder, so that a run may be taken up by either.
"""

import contextlib
import io
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from albert_tf.errors import UserError, first_line
from data_prep.record_folder import RecordFolder, WorkFolder
from data_prep.text_files import expand_paths

# Also the least that is fetched of a remote file at once.
READ_BYTES = 4 << 20
DELETE_FILES = 1000  # in one call


class InputFile(NamedTuple):
    """A file of the corpus."""

    path: str
    num_bytes: int
    modified_nanoseconds: int  # since 1970


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading, as its bytes are, whatever its name ends in.

    Raises:
      OSError: it cannot be opened.
    """
    try:
        file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except Exception as error:
        raise OSError(_cause(error)) from None
    return io.BufferedReader(file, READ_BYTES)  # those of object stores cannot look ahead (`peek`)


def read_bytes(path: str) -> bytes:
    """The content of a file.

    Raises:
      UserError: it cannot be read.
    """
    with _errors_named(path, "read"), open_file(path) as file:
        return file.read()


def size_of(path: str) -> int | None:
    """The bytes of a file; None if there is no such file.

    Raises:
      UserError: the file system cannot be asked.
    """
    with _errors_named(path, "looked at"):
        found = _match(path)
        return found[0].size_in_bytes if found else None


def expand_inputs(patterns: str) -> list[InputFile]:
    """The files that --input_file names, in a fixed order, each once.

    Those of this machine are the ones of `text_files.expand_paths`. Of a remote folder they are all below it, hidden
    ones left out, in the order in which a walk through a copy of it here would come to them; a glob names files.

    Raises:
      UserError: a pattern matches no file.
    """
    found = {}
    for pattern in filter(None, patterns.split(",")):
        files = _expand_remote(pattern) if "://" in pattern else _expand_here(pattern)
        found |= {file.path: file for file in files}
    return list(found.values())


def _expand_here(pattern: str) -> Iterator[InputFile]:
    for path in expand_paths(pattern):
        status = os.stat(path)
        yield InputFile(path, status.st_size, status.st_mtime_ns)


def _expand_remote(pattern: str) -> list[InputFile]:
    folder = pattern.rstrip("/")
    with _errors_named(f"--input_file={pattern}", "listed"):
        found = []
        if not set("*?[") & set(pattern):
            found = _in_walk_order(_match(folder + "/**"), folder)
        found = found or sorted(_match(pattern), key=lambda file: file.path)
    files = [
        InputFile(file.path, file.size_in_bytes, int(file.last_updated_in_seconds * 1e9))
        for file in found
        if file.path[-1] != "/"  # what stands for an empty folder in an object store
    ]
    if not files:
        raise UserError(f"--input_file={pattern}: no such file there")
    return files


def _in_walk_order(files: Sequence[Any], folder: str) -> list[Any]:
    """The files below a folder, those in each before those of its subfolders, without hidden ones."""
    names = {file.path: file.path.removeprefix(folder + "/").split("/") for file in files}
    seen = [file for file in files if not any(name[:1] == "." for name in names[file.path])]
    return sorted(seen, key=lambda file: _walk_order(names[file.path]))


def _walk_order(names: Sequence[str]) -> list[tuple[bool, str]]:
    return [(index < len(names) - 1, name) for index, name in enumerate(names)]


def _match(pattern: str) -> list[Any]:
    return FileSystems.match([pattern])[0].metadata_list


@contextlib.contextmanager
def _errors_named(path: str, done: str) -> Iterator[None]:
    """Turns errors into one that names the path."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: cannot be {done} ({_cause(error)})") from None


def _cause(error: Exception) -> str:
    """What an error says, of which every file system has its own, in one line."""
    causes = getattr(error, "exception_details", None) or {}
    return first_line(next(iter(causes.values()), error))


class OutputFile:
    """A file that appears under its name only when it is whole.

    It is written under another name and renamed when the `with` block ends, so that of two workers that were given
    the same piece of work, as runners may do, each leaves a whole file.

    Args:
      path: its name.
      partial_path: its name until it is whole, on the same file system.

    Attributes:
      num_bytes: how much was written so far.
    """

    def __init__(self, path: str, partial_path: str):
        self.path = path
        self.partial_path = partial_path
        self.num_bytes = 0
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Appends bytes.

        Raises:
          UserError: they cannot be written.
        """
        data = bytes(data)  # some file systems take nothing else
        with _errors_named(self.path, "written"):
            self._file.write(data)
        self.num_bytes += len(data)

    def __enter__(self) -> "OutputFile":
        with _errors_named(self.path, "written"):
            self._file = FileSystems.create(
                self.partial_path, compression_type=CompressionTypes.UNCOMPRESSED
            )
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        try:
            with _errors_named(self.path, "written"):
                self._file.close()
                if error_type is None:
                    _rename(self.partial_path, self.path)
        except UserError:
            error_type = UserError
            raise
        finally:
            if error_type is not None:
                _delete([self.partial_path])


def _rename(path: str, new_path: str) -> None:
    folder = os.path.dirname(new_path)
    if "://" not in new_path:
        os.makedirs(folder or ".", exist_ok=True)
    try:
        FileSystems.rename([path], [new_path])
    except BeamIOError:
        # hdfs:// overwrites nothing. What stands there is another worker's, and the same.
        if not FileSystems.exists(new_path):
            raise
        _delete([path])


def _delete(paths: Sequence[str]) -> None:
    """Deletes files, those that are there."""
    for start in range(0, len(paths), DELETE_FILES):
        with contextlib.suppress(BeamIOError):
            FileSystems.delete(list(paths[start : start + DELETE_FILES]))


def read_json(path: str) -> Any:
    """What a JSON file holds; None if there is no such file.

    Raises:
      UserError: it cannot be read, or is something else.
    """
    if size_of(path) is None:
        return None
    try:
        return json.loads(read_bytes(path))
    except ValueError:
        raise UserError(f"{path}: not a JSON file; delete it to make all again") from None


def write_json(path: str, values: Any) -> None:
    """Writes a JSON file that is whole or absent.

    Raises:
      UserError: it cannot be written.
    """
    with OutputFile(path, f"{path}.{uuid.uuid4().hex}.tmp") as file:
        file.write((json.dumps(values, indent=2) + "\n").encode())


class BeamWorkFolder(WorkFolder):
    """`WorkFolder` on any file system; every worker has one."""

    def counts_of(self, path: str) -> dict[str, Any] | None:
        """The counts of a file, if it is complete."""
        counts = read_json(self._counts_file(path))
        return counts if counts and size_of(path) == counts["bytes"] else None

    @contextlib.contextmanager
    def writing(self, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
        """A file that gets its name only when everything, `counts` too, is written.

        Args:
          path: its name.
          counts: for `counts_of`; may be filled until the end of the `with` block, where `bytes` is added.

        Raises:
          UserError: it cannot be written; nothing is left under any name.
        """
        partial_path = self.file(f"{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")
        with OutputFile(path, partial_path) as file:
            yield file
            counts["bytes"] = file.num_bytes
            write_json(self._counts_file(path), counts)


class BeamRecordFolder(RecordFolder):
    """`RecordFolder` on any file system.

    Args:
      path: the folder.
      identity: settings and input; a run goes on only with one of the same, and its metadata starts with them.
      input_files: the corpus; it is another one if they were modified.
    """

    def __init__(self, path: str, identity: Mapping[str, Any], input_files: Sequence[InputFile]):
        super().__init__(path, identity, [file.path for file in input_files])
        self.work = BeamWorkFolder(self.work.path)
        self._modified = [file.modified_nanoseconds for file in input_files]

    def finished_metadata(self) -> dict[str, Any] | None:
        """The metadata of a run that is complete, if it is this one.

        Raises:
          UserError: the folder holds other records, or a file of this run is missing.
        """
        metadata = read_json(self._metadata_file)
        if metadata is None:
            return None
        self._check_same(metadata)
        sizes = {os.path.basename(file.path): file.size_in_bytes for file in self._files()}
        for shard in metadata["shards"]:
            if sizes.get(shard["file"]) != shard["bytes"]:
                raise UserError(
                    f"{os.path.join(self.path, shard['file'])}: is missing or was changed;"
                    " empty the folder to make all again"
                )
        self.remove_work()
        return metadata

    def open(self) -> bool:
        """Goes on with a run of the same settings, or starts one; returns whether it goes on.

        Raises:
          UserError: the folder holds other records, or cannot be written to.
        """
        state_file = self.work.file("settings.json")
        if (old_state := read_json(state_file)) is not None:
            self._check_same(old_state)
            if old_state["modified_nanoseconds"] != self._modified:
                self._refuse("--input_file has changed")
            return True
        names = sorted(os.path.basename(file.path) for file in self._files())
        if found := [name for name in names if self._is_record(name)]:
            raise UserError(
                f"{self.path}: holds other records ({found[0]}); give another folder, or empty it"
            )
        write_json(state_file, {**self._identity, "modified_nanoseconds": self._modified})
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
        with _errors_named(self.work.path, "deleted"):
            _delete([file.path for file in _match(self.work.file("*"))])
            _delete([self.work.path])  # object stores have no folders

    def _files(self) -> list[Any]:
        with _errors_named(self.path, "listed"):
            return _match(os.path.join(self.path, "*"))
