"""The one way to files and folders, local or remote (a path with ://, through `tf.io.gfile`, imported only then).

Files in memory (`memory_files.py`), which are only read, have paths with ://, too.

What must be complete or absent is written through `OutputFile` or `staged`: beside its place, under a hidden name, then
synced and renamed. Of a link, its target is replaced. Pipes and devices are written through. One process at a time
writes a file or folder, and removes what a killed process has left there.
"""

import contextlib
import errno
import functools
import glob
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.core import locks, memory_files
from albert_tf.core.errors import UserError, first_line, shortened

AnyPath = str | os.PathLike[str]  # type of paths in public functions
HUB_PREFIX = "hf:"  # starts the name of a model on the Hugging Face hub
_TEMPORARY = ".albert-tmp-"  # begins the names of incomplete files and folders, and of their locks
# Bytes of a file's name that are repeated in a temporary one; most file systems allow 255.
_LONGEST_NAME = 200
# /dev/stdout is a link to a name in one of them.
_FOLDERS_OF_DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
_BEGINS_LFS_POINTER = b"version https://git-lfs.github.com/spec/"

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


def is_here(path: str) -> bool:
    """Whether there is a local file or folder, or a file in memory; remote systems are not asked."""
    is_remote = "://" in path and not path.startswith(memory_files.PREFIX)
    return not is_remote and exists(path)


def size_and_time(path: str) -> tuple[int, int]:
    """The size of a file, and when it was modified, in nanoseconds since 1970."""
    if "://" not in path:
        return os.path.getsize(path), os.stat(path).st_mtime_ns
    about = _on(path, lambda system: system.stat(path))
    return about.length, about.mtime_nsec


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
    if paths == [pattern]:
        return paths
    return [path for path in paths if not is_written_beside_texts(path)]


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
    """Opens a file for reading bytes; a pointer of Git LFS in its place is a `UserError`."""
    file = _on(path, lambda system: system.GFile(path, "rb"))
    reader = io.BufferedReader(_RemoteReader(file), 1 << 20) if "://" in path else file
    if reader.peek(len(_BEGINS_LFS_POINTER)).startswith(_BEGINS_LFS_POINTER):
        reader.close()
        expected = "expected the file itself; run git lfs pull where it was cloned"
        raise UserError(f"{path}: is only a pointer of Git LFS, {expected}")
    return reader


def read_bytes(path: str, *, may_be_pipe: bool = False) -> bytes:
    """The content of a file.

    A device, which may have no end, is a `UserError`, and so is a named pipe, which may have no writer, unless
    `may_be_pipe`. An open file of this process, such as /dev/stdin or that of a shell's <(command), is read.
    """
    with errors_named(path, "read"):
        check_regular(path, may_be_pipe=may_be_pipe)
        with open_binary(path) as file:
            return file.read()


def check_regular(path: str, *, may_be_pipe: bool = False) -> None:
    """Raises a `UserError` if a path is that of a device or a named pipe (`read_bytes`), an OSError if of nothing."""
    if "://" in path or _descriptor_of(path) is not None:
        return
    mode = os.stat(path).st_mode
    is_pipe = stat.S_ISFIFO(mode)
    if is_pipe and may_be_pipe:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = "a pipe" if is_pipe else "a device or socket"
        raise UserError(f"{path}: expected a regular file, found {kind}")


def check_content(path: str) -> None:
    """Checks a file that a library is going to read: no device or pipe, no pointer of Git LFS."""
    with errors_named(path, "read"):
        check_regular(path)
        open_binary(path).close()


def read_json(path: str, kind: type = dict) -> Any:
    """The value in a JSON file (`parse_json`); raises a UserError if it cannot be read."""
    return parse_json(read_bytes(path), path, kind)


def read_json_if_there(path: str) -> dict[str, Any]:
    """The object in a JSON file, an empty one if there is no such file."""
    return read_json(path) if exists(path) else {}


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
    """A file that appears under its name only when the `with` block ends without an exception.

    Of a link, the target is replaced. A pipe or a device, such as /dev/stdout, gets the bytes as they are written.
    Inside the block, no other process can write the file: that is a `UserError` there, or the other process waits.
    """

    def __init__(self, path: str, *, wait: bool = False):
        self.path = path
        self._wait = wait  # for another process that writes it; then the file is written again
        self.num_bytes = 0  # written so far

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes."""
        with errors_named(self.path, "written"):
            self._file.write(bytes(data) if "://" in self.path else data)  # gfile takes only bytes
        self.num_bytes += len(data)

    def __enter__(self) -> "OutputFile":
        with errors_named(self.path, "written"):
            self._opened = _opened_for_writing(self.path, self._wait)
            self._file = self._opened.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        with errors_named(self.path, "written"):
            self._opened.__exit__(*error)


def _opened_for_writing(path: str, wait: bool) -> contextlib.AbstractContextManager[Any]:
    """The file of an `OutputFile`: written in place, if it is no regular one, or replaced at the end of the block."""
    if is_folder(path) or path.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if "://" in path:
        make_folder(os.path.dirname(path))
        # An object store shows an object only when it is complete.
        return _on(path, lambda system: system.GFile(path, "wb"))
    descriptor = _descriptor_of(path)
    if descriptor is not None:
        return os.fdopen(os.dup(descriptor), "wb")  # opened by its path, a file would begin anew
    if _is_written_through(path):
        return os.fdopen(os.open(path, os.O_WRONLY), "wb")
    return _replaced(path, wait)


@contextlib.contextmanager
def _replaced(path: str, wait: bool) -> Iterator[Any]:
    """A temporary file, which takes the place of a local file when the block ends without an exception."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    start = os.path.join(folder, _TEMPORARY + _short(name))
    in_use = f"{path}: is being written by another process; wait, or choose another file"
    with locks.holding(f"{start}.lock", in_use, wait=wait):
        # Nobody else writes it: what is there was left by processes that were killed.
        for left_behind in glob.glob(glob.escape(f"{start}-") + "[0-9a-f]" * 16):
            os.remove(left_behind)
        temporary = f"{start}-{secrets.token_hex(8)}"
        try:
            with open(temporary, "xb") as file:
                yield file
            sync(temporary)
            os.replace(temporary, target)
            sync(folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
            raise


def _short(name: str) -> str:
    """The name of a file, or a hash of it if its temporary names would be too long."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST_NAME else hashlib.sha256(encoded).hexdigest()


def _is_written_through(path: str) -> bool:
    """Whether a local path is that of a pipe or device, which must not be replaced; a disk or socket is an OSError."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is a disk or socket, expected a file")
    return not stat.S_ISREG(mode)


def _descriptor_of(path: str) -> int | None:
    """The number of the open file of this process that a path stands for, such as /dev/stdout; None if of none."""
    folders = [os.path.realpath(folder) for folder in _FOLDERS_OF_DESCRIPTORS]
    for _ in range(40):  # links, as many as Linux follows
        folder, name = os.path.split(os.path.abspath(path))
        if os.path.realpath(folder) in folders and re.fullmatch("[0-9]+", name):
            return int(name)
        if not os.path.islink(path):
            break
        path = os.path.join(folder, os.readlink(path))
    return None


@contextlib.contextmanager
def staged(folder: str) -> Iterator[str]:
    """A temporary folder whose content moves to `folder` when the block ends without an exception.

        with files.staged("models") as staging:
            save(os.path.join(staging, "1"))  # a file or folder, which replaces models/1

    All of the content is on the disk before the first file moves. JSON files, by which a folder is recognized, move
    last. Inside the block, no other process can write to the folder in this way: that is a `UserError` there.
    """
    folder = folder or "."
    staging = os.path.join(folder, f"{_TEMPORARY}staged")
    in_use = f"{folder}: is being written by another process; wait, or choose another folder"
    is_remote = "://" in folder
    lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if not is_remote:
        lock = locks.holding(f"{os.path.realpath(staging)}.lock", in_use)
    with lock:
        remove(staging)
        make_folder(staging)
        try:
            yield staging
            if not is_remote:
                for path, subfolders, names in os.walk(staging):
                    for name in (*subfolders, *names):
                        sync(os.path.join(path, name))
            for name in sorted(names_in(staging), key=lambda name: name.endswith(".json")):
                _move(os.path.join(staging, name), os.path.join(folder, name))
            sync(folder)
        finally:
            remove(staging)


def _move(path: str, new_path: str) -> None:
    """Moves a file or folder in place of another; of a link there, its target is replaced."""
    if "://" in path:
        if is_folder(new_path):
            remove(new_path)
        _on(path, lambda system: system.rename(path, new_path, overwrite=True))
        return
    if not os.path.isdir(new_path) and _is_written_through(new_path):
        raise UserError(f"{new_path}: is a pipe or device, expected a file or folder")
    target = os.path.realpath(new_path)
    if os.path.islink(new_path):
        # The target may be on another disk, where nothing can be renamed to.
        folder, name = os.path.split(target)
        beside = os.path.join(folder, f"{_TEMPORARY}{_short(name)}-moved")
        make_folder(folder)
        remove(beside)  # of a process that was killed
        shutil.move(path, beside)
        path = beside
    if os.path.isdir(target):
        remove(target)
    os.replace(path, target)


def remove_older(path: str) -> None:
    """Removes a file that will be made again, or that a link names; links, devices and pipes stay."""
    if "://" in path:
        remove(path)
    elif os.path.isfile(path) and _descriptor_of(path) is None:
        os.remove(os.path.realpath(path))


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
    if path.startswith(memory_files.PREFIX):
        return function(memory_files.SYSTEM)
    import tensorflow as tf

    try:
        return function(tf.io.gfile)
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, first_line(error)) from error
    except tf.errors.OpError as error:
        raise UserError(f"{path}: {first_line(error)}") from None
