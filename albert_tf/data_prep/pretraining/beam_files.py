"""Files on Apache Beam's file systems: paths of this machine, gs://, s3://, hdfs:// and others.

The functions are those of `text_files.py` and `record_folder.py`, for all of these file systems. They use the same
names in the same folder, so either engine can resume a run of the other.
"""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.files import temporary_path
from albert_tf.data_prep import text_files
from albert_tf.data_prep.pretraining.record_folder import FileAccess, InputFile, local_inputs

# Also the least number of bytes that is fetched from a remote file at once.
READ_BYTES = 4 << 20
DELETE_FILES = 1000  # in one call


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading bytes; a file such as x.gz is not decompressed.

    Raises:
      OSError: it cannot be opened.
    """
    try:
        file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except Exception as error:
        raise OSError(_cause(error)) from None
    return io.BufferedReader(file, READ_BYTES)  # files of object stores have no `peek`


def read_bytes(path: str) -> bytes:
    """The content of a file.

    Raises:
      UserError: it cannot be read.
    """
    with _errors_named(path, "read"), open_file(path) as file:
        return file.read()


def expand_inputs(patterns: str) -> list[InputFile]:
    """The files that --input_file names, in a fixed order, each once.

    For paths of this machine see `text_files.expand_paths`. A remote folder means all files below it except hidden
    ones, in the order that `text_files.expand_paths` would give a local copy of it. A remote glob matches files.

    Raises:
      UserError: a pattern matches no file.
    """
    by_path = {}
    for pattern in filter(None, patterns.split(",")):
        files = _expand_remote(pattern) if "://" in pattern else local_inputs(pattern)
        by_path |= {file.path: file for file in files}
    return list(by_path.values())


def _expand_remote(pattern: str) -> list[InputFile]:
    folder = pattern.rstrip("/")
    with _errors_named(f"--input_file={pattern}", "listed"):
        matches = []
        if not set("*?[") & set(pattern):
            matches = _in_walk_order(_match(folder + "/**"), folder)
        matches = matches or sorted(_match(pattern), key=lambda file: file.path)
    files = [
        InputFile(file.path, file.size_in_bytes, int(file.last_updated_in_seconds * 1e9))
        for file in matches
        if file.path[-1] != "/"  # an empty folder in an object store
    ]
    if not files:
        raise UserError(f"--input_file={pattern}: no such file there")
    return files


def _in_walk_order(files: Sequence[Any], folder: str) -> list[Any]:
    """The files below a folder without hidden ones; the files of a folder come before those of its subfolders."""

    def walk_order(file: Any) -> list[tuple[bool, str]]:
        *folders, name = file.path.removeprefix(folder + "/").split("/")
        return [*((True, folder) for folder in folders), (False, name)]

    orders = {file.path: walk_order(file) for file in files}
    seen = [file for file in files if not any(name[:1] == "." for _, name in orders[file.path])]
    return sorted(seen, key=lambda file: orders[file.path])


def _match(pattern: str) -> list[Any]:
    return FileSystems.match([pattern])[0].metadata_list


@contextlib.contextmanager
def _errors_named(path: str, done: str) -> Iterator[None]:
    """Turns errors into a `UserError` that names the path."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: cannot be {done} ({_cause(error)})") from None


def _cause(error: Exception) -> str:
    """The message of any file system's error, in one line."""
    causes = getattr(error, "exception_details", None) or {}
    return first_line(next(iter(causes.values()), error))


class OutputFile(text_files.OutputFile):
    """A file that appears under its name only when it is complete.

    It is written under another name and renamed when the `with` block ends. If a runner gives the same task to two
    workers, each of them therefore leaves a complete file.
    """

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        super().write(bytes(data))  # some file systems accept only bytes

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        partial_path = temporary_path(self._within or os.path.dirname(self.path))
        try:
            uncompressed = CompressionTypes.UNCOMPRESSED
            file = FileSystems.create(partial_path, compression_type=uncompressed)
            with contextlib.closing(file):
                yield file
            _rename(partial_path, self.path)
        except BaseException:
            _delete([partial_path])
            raise

    def _errors_named(self) -> contextlib.AbstractContextManager[None]:
        return _errors_named(self.path, "written")


def _rename(path: str, new_path: str) -> None:
    folder = os.path.dirname(new_path)
    if "://" not in new_path:
        os.makedirs(folder or ".", exist_ok=True)
    try:
        FileSystems.rename([path], [new_path])
    except BeamIOError:
        # hdfs:// does not overwrite. An existing file was written by another worker, with the same content.
        if not FileSystems.exists(new_path):
            raise
        _delete([path])


def _delete(paths: Sequence[str]) -> None:
    """Deletes those of the files that exist."""
    for start in range(0, len(paths), DELETE_FILES):
        with contextlib.suppress(BeamIOError):
            FileSystems.delete(list(paths[start : start + DELETE_FILES]))


class BeamFileAccess(FileAccess):
    """`FileAccess` on any file system; errors become `UserError`s."""

    open = staticmethod(open_file)
    output_file = OutputFile

    def read_bytes(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        return None if self.size_of(path) is None else read_bytes(path)

    def size_of(self, path: str) -> int | None:
        """The bytes of a file; None if there is no such file."""
        with _errors_named(path, "looked at"):
            files = _match(path)
            return files[0].size_in_bytes if files else None

    def sizes_in(self, folder: str) -> dict[str, int]:
        """The bytes of the files in a folder, by name, with a single request."""
        with _errors_named(folder, "listed"):
            files = _match(os.path.join(folder, "*"))
        return {os.path.basename(file.path): file.size_in_bytes for file in files}

    def remove_partial(self, folder: str) -> None:
        """Does nothing: other machines may still write for the stopped run. `remove_folder` removes all files later."""

    def remove_folder(self, folder: str) -> None:
        """Removes a folder and the files in it."""
        with _errors_named(folder, "deleted"):
            _delete([file.path for file in _match(os.path.join(folder, "*"))])
            _delete([folder])  # object stores have no folders
