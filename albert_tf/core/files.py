"""The one way to files and folders, local or remote (a path with ://, through `tf.io.gfile`, imported only then).

What must be complete or absent is written through `OutputFile` or `staged`: beside its place, under a hidden name, then
synced and renamed. The next writer of the same file or folder replaces what a killed process has left there.
"""

import contextlib
import errno
import functools
import glob
import io
import json
import os
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.core.errors import UserError, first_line, shortened

AnyPath = str | os.PathLike[str]  # type of paths in public functions
HUB_PREFIX = "hf:"  # starts the name of a model on the Hugging Face hub
_TEMPORARY = ".albert-tmp-"  # begins the names of incomplete files and folders

# Local files under the names of `tf.io.gfile`.
_LOCAL = types.SimpleNamespace(
    GFile=open,
    exists=os.path.exists,
    glob=functools.partial(glob.glob, recursive=True),
    isdir=os.path.isdir,
    listdir=os.listdir,
    makedirs=functools.partial(os.makedirs, exist_ok=True),
    remove=os.remove,
    rename=lambda path, new_path, overwrite: os.replace(path, new_path),
    rmtree=shutil.rmtree,
)


@contextlib.contextmanager
def errors_named(path: str, done: str, advice: str = "") -> Iterator[None]:
    """Turns errors of the disk or of a file system into a line: "path: cannot be <done> (reason)<advice>"."""
    try:
        yield
    except Exception as error:
        tensorflow = sys.modules.get("tensorflow")
        if not isinstance(error, (OSError, tensorflow.errors.OpError if tensorflow else OSError)):
            raise
        # TensorFlow writes the name of a temporary file before the system's message.
        reason = getattr(error, "strerror", None) or first_line(error).rpartition("; ")[2]
        raise UserError(f"{path}: cannot be {done} ({reason}){advice and ': ' + advice}") from error


def names_in(folder: str) -> list[str]:
    """The names in a folder, sorted, without hidden ones; raises an OSError if it cannot be read."""
    names = _on(folder, lambda system: system.listdir(folder))
    return sorted(name.rstrip("/") for name in names if not name.startswith("."))


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    return _on(path, lambda system: system.isdir(path))


def exists(path: str) -> bool:
    """Whether there is a file or folder of this name."""
    return _on(path, lambda system: system.exists(path))


def size_and_time(path: str) -> tuple[int, int]:
    """The size of a file, and when it was modified, in nanoseconds since 1970."""
    if "://" not in path:
        return os.path.getsize(path), os.stat(path).st_mtime_ns
    found = _on(path, lambda system: system.stat(path))
    return found.length, found.mtime_nsec


def real_path(path: str) -> str:
    """A path without links, `.`, `..` and repeated slashes, for comparisons."""
    scheme, separator, rest = path.partition("://")
    return scheme + separator + os.path.normpath(rest) if separator else os.path.realpath(path)


def matching(pattern: str) -> list[str]:
    """The files and folders that a glob matches, sorted. A name that exists is not a pattern, whatever it contains."""
    if exists(pattern):
        return [pattern]
    return sorted(_on(pattern, lambda system: system.glob(pattern)))


def split_list(paths: str) -> list[str]:
    """The paths and patterns between commas, without the blanks around them: "a.txt, b*" -> ["a.txt", "b*"]."""
    parts = [part.strip() for part in paths.split(",")]
    return [part for part in parts if part]


def listed(paths: str) -> list[str]:
    """The paths and patterns that a flag lists; the name of an existing file or folder may contain commas."""
    return [paths] if exists(paths) else split_list(paths)


# Pretraining records and what describes them, vectors of `search`, vocabularies of `train_sentencepiece`.
_WRITTEN_BESIDE_TEXTS = re.compile(
    r"metadata\.json|pretraining-\d+-of-\d+\.tfrecord|.+\.[0-9a-f]{16}\.vectors|.+\.model"
)


def is_written_beside_texts(path: str) -> bool:
    """Whether a name is that of a file which programs of this project write into folders of texts."""
    return bool(_WRITTEN_BESIDE_TEXTS.fullmatch(os.path.basename(path)))


def texts_matching(pattern: str) -> list[str]:
    """As `matching`; a glob leaves out what programs of this project write beside texts."""
    paths = matching(pattern)
    return (
        paths
        if paths == [pattern]
        else [path for path in paths if not is_written_beside_texts(path)]
    )


class _RemoteReader(io.RawIOBase):
    """A remote file as Python's own classes expect it."""

    def __init__(self, file: Any):
        self._file = file

    readable = seekable = lambda _: True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def open_binary(path: str) -> io.BufferedReader:
    """Opens a file for reading bytes."""
    file = _on(path, lambda system: system.GFile(path, "rb"))
    return io.BufferedReader(_RemoteReader(file), 1 << 20) if "://" in path else file


def read_bytes(path: str) -> bytes:
    """The content of a file."""
    with errors_named(path, "read"), open_binary(path) as file:
        return file.read()


def read_json(path: str, kind: type = dict) -> Any:
    """The value in a JSON file (`parse_json`); raises a UserError if it cannot be read."""
    return parse_json(read_bytes(path), path, kind)


def parse_json(content: str | bytes, source: str, kind: type = dict) -> Any:
    """The value of a JSON text, or of its UTF-8 bytes, from `source`.

    A UserError if it is not JSON, contains half a surrogate pair, which UTF-8 cannot encode, or is not of this kind
    (dict, list, or object for any value).
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (RecursionError, ValueError) as error:
        raise UserError(f"{source}: not usable as JSON ({first_line(error)})") from None
    if not isinstance(value, kind):
        expected = "a JSON object" if kind is dict else "a JSON array"
        raise UserError(f"{source}: expected {expected}, got {shortened(value)}")
    return value


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file and the folders above it; the file is complete or absent."""
    with OutputFile(path) as file:
        file.write(content)


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file."""
    return (json.dumps(value, indent=2) + "\n").encode()


def write_files(folder: str, contents: Mapping[str, bytes]) -> None:
    """Writes files that belong together, given by their paths in a folder (`staged`)."""
    with staged(folder) as staging:
        for name, content in contents.items():
            write_bytes(os.path.join(staging, name), content)


class OutputFile:
    """A file that appears under its name only when the `with` block ends without an exception."""

    def __init__(self, path: str):
        self.path = path
        self.num_bytes = 0  # written so far
        folder, name = os.path.split(path)
        # An object store shows an object only when it is complete.
        self._temporary = path if "://" in path else os.path.join(folder, _TEMPORARY + name)

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes."""
        with errors_named(self.path, "written"):
            self._file.write(bytes(data) if "://" in self.path else data)  # gfile takes only bytes
        self.num_bytes += len(data)

    def __enter__(self) -> "OutputFile":
        with errors_named(self.path, "written"):
            if is_folder(self.path):
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            make_folder(os.path.dirname(self.path))
            self._file = _on(self.path, lambda system: system.GFile(self._temporary, "wb"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with errors_named(self.path, "written"):
            try:
                self._file.close()
                if kind is None and self._temporary != self.path:
                    sync(self._temporary)
                    os.replace(self._temporary, self.path)
                    sync(os.path.dirname(self.path))
            finally:
                if self._temporary != self.path and os.path.exists(self._temporary):
                    os.remove(self._temporary)


@contextlib.contextmanager
def staged(folder: str) -> Iterator[str]:
    """A temporary folder whose content moves to `folder` when the block ends without an exception.

        with files.staged("models") as staging:
            save(os.path.join(staging, "1"))  # a file or folder, which replaces models/1

    All of the content is on the disk before the first file moves. JSON files, by which a folder is recognized, move
    last. Two processes must not write to the same folder (`locks.locked`).
    """
    folder = folder or "."
    staging = os.path.join(folder, f"{_TEMPORARY}staged")
    remove(staging)
    make_folder(staging)
    try:
        yield staging
        if "://" not in folder:
            for path, subfolders, names in os.walk(staging):
                for name in (*subfolders, *names):
                    sync(os.path.join(path, name))
        for name in sorted(names_in(staging), key=lambda name: name.endswith(".json")):
            path, new_path = os.path.join(staging, name), os.path.join(folder, name)
            if is_folder(new_path):
                remove(new_path)
            _on(path, lambda system: system.rename(path, new_path, overwrite=True))  # noqa: B023
        sync(folder)
    finally:
        remove(staging)


def remove(path: str) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    if is_folder(path) and not os.path.islink(path):
        _on(path, lambda system: system.rmtree(path))
    elif exists(path) or os.path.islink(path):
        _on(path, lambda system: system.remove(path))


def make_folder(path: str) -> None:
    """Makes a folder and those above it."""
    if path:
        _on(path, lambda system: system.makedirs(path))


def sync(path: str) -> None:
    """Writes a local file, or the names in a folder, to the disk."""
    if "://" in path:
        return
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _on(path: str, function: Callable[[Any], Any]) -> Any:
    """Calls `function` with the file system of the path; errors of a remote one become FileNotFoundErrors or lines."""
    if "://" not in path:
        return function(_LOCAL)
    import tensorflow as tf

    try:
        return function(tf.io.gfile)
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, first_line(error)) from error
    except tf.errors.OpError as error:
        raise UserError(f"{path}: {first_line(error)}") from None
