"""The one way to files: finds, reads and writes files and folders, local or remote.

A path with :// is remote: it is reached through TensorFlow's `tf.io.gfile`, which is imported only then. All other
paths are local. Files and folders that must be complete or absent are written through `OutputFile` or `staged`: into a
hidden temporary folder next to their final place, and moved there when they are complete. `errors_named` turns an error
of the disk or of a file system into a line for the user.
"""

import contextlib
import errno
import fcntl
import functools
import glob
import hashlib
import io
import json
import os
import shutil
import stat
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from albert_tf.core.errors import UserError, first_line

AnyPath = str | os.PathLike[str]  # type of paths in public functions
HUB_PREFIX = "hf:"  # starts the name of a model on the Hugging Face hub
ADDRESSES = ("http://", "https://", "kaggle://")  # prefixes of paths that cannot be read here
NOT_DOWNLOADED = (
    "cannot be downloaded here; download it and give the file or folder (of models: docs/models.md)"
)

# Temporary folders begin with this. Their names do not contain the final name: `tf.io.gfile.glob` returns hidden
# names too, and "*.tfrecord*" would match ".train.tfrecord.tmp".
_TEMPORARY = ".albert-tmp-"
_REPLACED = ".replaced"  # in a complete temporary folder: the old folders that its content replaces
_ABANDONED_SECONDS = 7 * 24 * 60 * 60  # from its creation; used where the file system has no locks

_REMOTE_BYTES = 4 << 20  # read from a remote file at once

_JSON_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "truth value",
    type(None): "null",
}


class FileStatus(NamedTuple):
    """The size of a file, and when it was modified, in nanoseconds since 1970."""

    length: int
    mtime_nsec: int


def _local_status(path: str) -> FileStatus:
    found = os.stat(path)
    return FileStatus(found.st_size, found.st_mtime_ns)


# Local files under the names of `tf.io.gfile`.
_LOCAL = types.SimpleNamespace(
    GFile=open,
    exists=os.path.exists,
    glob=functools.partial(glob.glob, recursive=True),
    isdir=os.path.isdir,
    listdir=os.listdir,
    makedirs=functools.partial(os.makedirs, exist_ok=True),
    remove=os.remove,
    rename=lambda path, new_path, overwrite=False: os.replace(path, new_path),
    rmtree=functools.partial(shutil.rmtree, ignore_errors=True),
    stat=_local_status,
)
_folders_without_leftovers: set[str] = set()  # folders that this process has cleaned


@contextlib.contextmanager
def errors_named(path: str, done: str, advice: str = "") -> Iterator[None]:
    """Turns errors of the disk or of a file system into a line: "path: cannot be <done> (reason)<advice>"."""
    try:
        yield
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else None
        if not isinstance(error, (OSError, *_tensorflow_errors())):
            raise
        # TensorFlow writes the name of a temporary file before the system's message.
        reason = reason or first_line(error).rpartition("; ")[2]
        raise UserError(f"{path}: cannot be {done} ({reason}){advice and ': ' + advice}") from error


def _tensorflow_errors() -> tuple[type[Exception], ...]:
    """The class of TensorFlow's errors, if TensorFlow is loaded."""
    tensorflow = sys.modules.get("tensorflow")
    return (tensorflow.errors.OpError,) if tensorflow else ()


def read_bytes(path: str) -> bytes:
    """The content of a file; a pipe or a device is an error, because reading it might never end."""
    with errors_named(path, "read"), open_binary(path) as file:
        return file.read()


def sha256(path: str) -> str:
    """The hexadecimal hash of a file's content, read in parts; raises the errors of `read_bytes`."""
    with errors_named(path, "read"), open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_binary(path: str) -> io.BufferedReader:
    """Opens a file for reading bytes; one that is no regular file is a UserError (`check_regular`)."""
    check_regular(path)
    if "://" in path:
        return io.BufferedReader(_RemoteFile(path), _REMOTE_BYTES)
    return open(path, "rb")


class _RemoteFile(io.RawIOBase):
    """A file of tf.io.gfile as an unbuffered Python file."""

    def __init__(self, path: str):
        super().__init__()
        self._file = remote(lambda gfile: gfile.GFile(path, "rb"))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = remote(lambda _: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return remote(lambda _: self._file.read())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        remote(lambda _: self._file.seek(offset, whence))
        return self.tell()

    def tell(self) -> int:
        return remote(lambda _: self._file.tell())


def check_regular(path: str) -> None:
    """Checks that a local path is not a pipe, socket or device; a path that does not exist passes.

    Raises:
      UserError: it is one of these, or the path (which may come from a file) contains a null character.
    """
    if "\0" in path:
        raise UserError(f"{path!r}: is not a path")
    if "://" not in path and os.path.exists(path):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise UserError(f"{path}: expected a regular file, got a pipe, socket or device")


def read_json(path: str, kind: type = dict) -> Any:
    """The value in a JSON file (`parse_json`); raises a UserError if it cannot be read."""
    return parse_json(read_bytes(path), path, kind)


def parse_json(content: str | bytes, source: str, kind: type = dict) -> Any:
    """The value of a JSON text that may come from anywhere.

    Args:
      content: the text, or its UTF-8 bytes, with or without a byte order mark.
      source: where it comes from, for the error.
      kind: what it must be: dict for an object, list for an array; object for any value.

    Raises:
      UserError: it is not JSON, is nested too deeply, contains half a surrogate pair, which UTF-8 cannot encode, or is
        of another kind.
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (RecursionError, UnicodeEncodeError) as error:
        is_nested = isinstance(error, RecursionError)
        reason = "nested too deeply" if is_nested else "half a surrogate pair, \\ud800 to \\udfff"
        raise UserError(f"{source}: not usable as JSON ({reason})") from None
    except ValueError as error:
        is_utf16 = isinstance(content, bytes) and content.startswith((b"\xff\xfe", b"\xfe\xff"))
        reason = "it is UTF-16; save it as UTF-8" if is_utf16 else first_line(error)
        raise UserError(f"{source}: not JSON ({reason})") from None
    if not isinstance(value, kind):
        expected, actual = (_JSON_NAMES.get(type_, "number") for type_ in (kind, type(value)))
        raise UserError(f"{source}: expected a JSON {expected}, got a JSON {actual}")
    return value


def names_in(folder: str) -> list[str]:
    """The names in a folder, sorted, without hidden ones; raises an OSError if it cannot be read."""
    names = _on(folder, lambda system: _all_names(system, folder))
    return [name for name in names if not name.startswith(".")]


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    return _on(path, lambda system: system.isdir(path))


def exists(path: str) -> bool:
    """Whether there is a file or folder of this name."""
    return _on(path, lambda system: system.exists(path))


def status(path: str) -> FileStatus | None:
    """The size and time of a file; None if there is no such file."""
    try:
        found = _on(path, lambda system: system.stat(path))
    except FileNotFoundError:
        return None
    return FileStatus(found.length, found.mtime_nsec)


def real_path(path: str) -> str:
    """A path without links, `.`, `..` and repeated slashes, for comparisons: two names of a file have the same."""
    scheme, separator, rest = path.partition("://")
    if separator:
        return scheme + separator + os.path.normpath(rest)
    real = os.path.realpath(path)
    return real.lower() if _ignores_case(real) else real


def _ignores_case(path: str) -> bool:
    """Whether the disk of a path, which need not exist, does not distinguish upper and lower case."""
    folder, name = os.path.split(path)
    while folder != path and (name == name.swapcase() or not os.path.exists(path)):
        path = folder
        folder, name = os.path.split(path)
    other = os.path.join(folder, name.swapcase())
    return folder != path and os.path.exists(other) and os.path.samefile(path, other)


def matching(pattern: str) -> list[str]:
    """The files and folders that a glob matches, sorted. A name that exists is not a pattern, whatever it contains."""
    if exists(pattern):
        return [pattern]
    return sorted(_on(pattern, lambda system: system.glob(pattern)))


def files_below(folder: str) -> Iterator[str]:
    """The files below a folder without hidden ones; the files of a folder come before those of its subfolders."""
    paths = [os.path.join(folder, name) for name in names_in(folder)]
    subfolders = set(filter(is_folder, paths))
    yield from (path for path in paths if path not in subfolders)
    for subfolder in sorted(subfolders):
        if not os.path.islink(subfolder):  # a link to a folder above would not end
            yield from files_below(subfolder)


def remove(path: str) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    if is_folder(path):
        _on(path, lambda system: system.rmtree(path))
    elif exists(path):
        _on(path, lambda system: system.remove(path))


def remote(function: Callable[[Any], Any]) -> Any:
    """Calls `function(tf.io.gfile)` and turns its errors into OSErrors."""
    import tensorflow as tf

    try:
        return function(tf.io.gfile)
    except tf.errors.OpError as error:
        is_missing = isinstance(error, tf.errors.NotFoundError)
        number = errno.ENOENT if is_missing else errno.EIO
        raise OSError(number, first_line(error)) from error


def remove_parts(checkpoint: str) -> None:
    """Removes the folder in which TensorFlow wrote the parts of a checkpoint; TensorFlow ignores errors there."""
    if exists(folder := f"{checkpoint}_temp"):
        remote(lambda system: system.rmtree(folder))


def _on(path: str, function: Callable[[Any], Any]) -> Any:
    """Calls `function` with the file system of the path."""
    return remote(function) if "://" in path else function(_LOCAL)


def _all_names(system: Any, folder: str) -> list[str]:
    return sorted(name.rstrip("/") for name in system.listdir(folder))


# --- Writing ---


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file and the folders above it; the file is never incomplete under its name (`staged`)."""
    folder, name = os.path.split(path)
    write_files(folder, {name: content})


def write_files(folder: str, contents: Mapping[str, bytes]) -> None:
    """Writes files that belong together, given by their paths in a folder: all of them or none (`staged`)."""
    with staged(folder) as staging:
        for name, content in contents.items():
            path = os.path.join(staging, name)
            with _naming(os.path.join(folder, name)):
                _on(path, functools.partial(_write, path=path, content=content))


def _write(system: Any, path: str, content: bytes) -> None:
    system.makedirs(os.path.dirname(path))
    with system.GFile(path, "wb") as file:
        file.write(content)


class OutputFile:
    """A file that appears under its name only when it is complete (`staged`). Use as a context manager.

    If the `with` block raises an exception, an existing file of this name is kept. Errors of the disk become
    `UserError`s that name the file.

    Attributes:
      num_bytes: number of bytes written so far.
      sha256: hash of the bytes written so far, an object of hashlib.
    """

    def __init__(self, path: str, *, within: str = ""):
        self.path = path
        self.num_bytes = 0
        self.sha256 = hashlib.sha256()
        self._within = within

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes."""
        with errors_named(self.path, "written"):
            self._file.write(bytes(data) if "://" in self.path else data)  # gfile takes only bytes
        self.num_bytes += len(data)
        self.sha256.update(data)

    def __enter__(self) -> "OutputFile":
        self._opened = self._open()
        with errors_named(self.path, "written"):
            self._file = self._opened.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        with errors_named(self.path, "written"):
            self._opened.__exit__(*error)

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        folder, name = os.path.split(self.path)
        if is_folder(self.path):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        with staged(folder, within=self._within) as staging:
            path = os.path.join(staging, name)
            with _on(path, lambda system: system.GFile(path, "wb")) as file:
                yield file


@contextlib.contextmanager
def staged(folder: str, *, within: str = "") -> Iterator[str]:
    """A temporary folder whose content moves to `folder` when the block ends without an exception.

        with files.staged("models") as staging:
            save(os.path.join(staging, "1"))  # a file or folder, which replaces models/1

    All of the content is on the disk before the first file moves. A process that is killed leaves its temporary folder.
    `names_in` and patterns such as `*.tfrecord*` do not match its hidden name. The first `staged` of each process for a
    folder calls `remove_leftovers`. Processes that write the same files each have their own temporary folder.

    Args:
      folder: where the files belong; created if it does not exist.
      within: where the temporary folder is created, on the same file system; empty for `folder`. Use it for a single
        file only: `remove_leftovers` would not know where several files belong.

    Raises:
      OSError: a file cannot be written; the error, also one raised in the block, names the final path.
    """
    folder = folder or "."
    within = within or folder
    staging, lock = _on(folder, lambda system: _make_staging(system, folder, within))
    names = []
    try:
        with _final_names(staging, folder):
            yield staging
            if "://" not in folder:
                for path, subfolders, file_names in os.walk(staging):
                    for name in (*subfolders, *file_names):
                        sync(os.path.join(path, name))
                sync(staging)  # also says that what was removed from it is gone
            names = _on(folder, lambda system: _all_names(system, staging))
            try:
                _on(folder, lambda system: _move_out(system, staging, folder))
            except KeyboardInterrupt:  # moves all files or none
                _on(folder, lambda system: _move_out(system, staging, folder))
                raise
    finally:
        _on(folder, lambda system: _clean_up(system, staging, folder, names))
        if lock is not None:
            os.close(lock)


def remove_leftovers(folder: str) -> None:
    """Removes incomplete files and folders that killed processes have left in a folder.

    If a process was killed while it moved a folder or several files to their place, they are moved now. Temporary
    folders of running processes stay, because each process locks its own. Where the file system has no locks, temporary
    folders stay for a week.
    """
    folder = folder or "."
    if is_folder(folder):
        _on(folder, lambda system: _remove_leftovers(system, folder))
    _folders_without_leftovers.add(folder)


def temporary_path(folder: str) -> str:
    """A new hidden name for a temporary file or folder, which `remove_leftovers` recognizes."""
    return os.path.join(folder, f"{_TEMPORARY}{int(time.time())}-{uuid.uuid4().hex[:12]}")


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Adds the path to OSErrors of the block: those of `write` and `close` do not name a file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or first_line(error), path) from error


def _make_staging(system: Any, folder: str, within: str) -> tuple[str, int | None]:
    """Makes a temporary folder; returns it with its lock (None where the file system has no locks)."""
    with _naming(folder):
        make_folder(folder)
        if within not in _folders_without_leftovers:
            remove_leftovers(within)
        while True:
            staging = temporary_path(within)
            system.makedirs(staging)
            # Another process may remove it as a leftover before it is locked.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                lock = _lock(staging)
                if lock is None or os.path.exists(staging):
                    return staging, lock
                os.close(lock)


def _lock(path: str) -> int | None:
    """Locks a path until the returned descriptor is closed or the process ends; None where there are no locks."""
    if "://" in path:
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return descriptor


@contextlib.contextmanager
def _final_names(staging: str, folder: str) -> Iterator[None]:
    """Replaces the temporary folder by the final one in errors; TensorFlow's errors become OSErrors."""
    try:
        yield
    except Exception as error:
        if staging not in str(error):
            raise
        if isinstance(error, UserError):
            raise UserError(str(error).replace(staging, folder)) from error
        if isinstance(error, OSError):
            path = str(error.filename or folder).replace(staging, folder)
            raise OSError(error.errno, error.strerror, path) from error
        if isinstance(error, _tensorflow_errors()):
            path, _, reason = first_line(error).replace(staging, folder).rpartition("; ")
            numbers = {os.strerror(number): number for number in errno.errorcode}
            raise OSError(numbers.get(reason, errno.EIO), reason, path or folder) from error
        raise


def make_folder(path: str) -> None:
    """Makes a folder and those above it, which a power failure does not remove afterwards."""
    parent = os.path.dirname(os.path.abspath(path))
    if "://" in path:
        remote(lambda system: system.makedirs(path))
    elif not os.path.isdir(path):
        if not os.path.exists(parent):
            make_folder(parent)
        os.makedirs(path, exist_ok=True)
        with contextlib.suppress(PermissionError):  # a folder may be written and not be read
            sync(parent)


def sync(path: str) -> None:
    """Writes a local file, or the names in a folder, to the disk."""
    with _naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems do not sync folders.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF):
                raise
        finally:
            os.close(descriptor)


def _move_out(system: Any, staging: str, folder: str) -> None:
    """Moves the content of a temporary folder to its place.

    A folder cannot be overwritten, so the old one moves into `_REPLACED`. Where one `rename` is not enough, the
    existence of `_REPLACED` also says that the content is complete.
    """
    replaced = os.path.join(staging, _REPLACED)
    names = [name for name in _all_names(system, staging) if name != _REPLACED]
    moves = {os.path.join(staging, name): os.path.join(folder, name) for name in names}
    old_folders = [path for new, path in moves.items() if system.isdir(new) and system.isdir(path)]
    if len(moves) > 1 or old_folders:
        system.makedirs(replaced)
        # What a power failure leaves of the moves is completed only with `replaced`.
        if system is _LOCAL:
            sync(staging)
            sync(os.path.dirname(staging))
    for new, path in moves.items():
        if path in old_folders:
            system.rename(path, os.path.join(replaced, os.path.basename(path)))
        system.rename(new, path, overwrite=True)
    if system is _LOCAL:
        sync(folder)


def _clean_up(system: Any, staging: str, folder: str, names: Sequence[str]) -> None:
    """Removes a temporary folder; an old folder moves back to its place if the new one could not be moved there.

    If only some of the files `names` were moved, the folder stays for `remove_leftovers`, which moves them.
    """
    replaced = os.path.join(staging, _REPLACED)
    for name in _all_names(system, replaced) if system.exists(replaced) else ():
        if not system.exists(os.path.join(folder, name)):
            system.rename(os.path.join(replaced, name), os.path.join(folder, name))
    left = [name for name in names if system.exists(os.path.join(staging, name))]
    if 0 < len(left) < len(names):
        _folders_without_leftovers.discard(os.path.dirname(staging))
    else:
        system.rmtree(staging)


def _remove_leftovers(system: Any, folder: str) -> None:
    for name in _all_names(system, folder):
        if not name.startswith(_TEMPORARY):
            continue
        path = os.path.join(folder, name)
        try:
            lock = _lock(path)
        except OSError:  # another process is writing to it or removing it
            continue
        created = name.removeprefix(_TEMPORARY).partition("-")[0]
        is_old = created.isdigit() and time.time() - int(created) > _ABANDONED_SECONDS
        try:
            if lock is not None or is_old:
                if system.exists(os.path.join(path, _REPLACED)):
                    _move_out(system, path, folder)
                if system.isdir(path):
                    system.rmtree(path)
                elif system.exists(path):  # its writer may have moved it in the meantime
                    system.remove(path)
        finally:
            if lock is not None:
                os.close(lock)
