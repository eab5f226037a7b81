"""Text files on remote file systems (gs://, hdfs://, ...), read through TensorFlow, and files of this machine."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from albert_tf.core import files
from albert_tf.core.errors import UserError
from data_prep.text_files import LineReader, expand_paths, total_bytes

READ_BYTES = 16 << 20


def expand_inputs(patterns: str, *, not_among: Sequence[str] = ()) -> list[str]:
    """The files that --input_file names, in a fixed order, each once.

    Args:
      patterns: files, globs and folders, of this machine (`text_files.expand_paths`) or remote, separated by commas.
      not_among: files that the program is going to write.

    Raises:
      UserError: a pattern matches no file, or a file is about to be overwritten.
    """
    paths = []
    for pattern in filter(None, patterns.split(",")):
        if "://" in pattern:
            paths += _expand_remote(pattern)
        else:
            paths += expand_paths(pattern, not_among=not_among)
    return list(dict.fromkeys(paths))


def _expand_remote(pattern: str) -> list[str]:
    try:
        paths = sorted(files.remote(lambda gfile: list(_files_below(gfile, pattern))))
    except OSError as error:
        raise UserError(f"--input_file={pattern}: cannot be listed ({error.strerror})") from None
    if not paths:
        raise UserError(f"--input_file={pattern}: no such file there")
    return paths


def _files_below(gfile: Any, pattern: str) -> Iterator[str]:
    """The files of a pattern, and those below the folders among them; hidden ones are left out."""
    for match in gfile.glob(pattern):
        if not gfile.isdir(match):
            yield match
            continue
        for folder, _, names in gfile.walk(match):
            inside = folder.removeprefix(match.rstrip("/"))
            if "/." not in inside:
                yield from (f"{folder.rstrip('/')}/{name}" for name in names if name[0] != ".")


def size_of(paths: Sequence[str]) -> int:
    """The bytes of files, for a progress bar; a file that cannot be read counts as 0."""
    size = total_bytes([path for path in paths if "://" not in path])
    for path in paths:
        if "://" in path:
            with contextlib.suppress(OSError):
                size += files.remote(lambda gfile, path=path: gfile.stat(path).length)
    return size


class RemoteLineReader(LineReader):
    """`LineReader` of files of this machine and remote files."""

    def _open(self, path: str) -> BinaryIO:
        if "://" not in path:
            return super()._open(path)
        return io.BufferedReader(_RemoteFile(path), READ_BYTES)


class _RemoteFile(io.RawIOBase):
    """A file of tf.io.gfile as an unbuffered Python file."""

    def __init__(self, path: str):
        super().__init__()
        self._file = files.remote(lambda gfile: gfile.GFile(path, "rb"))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data = files.remote(lambda _: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)
