"""Text files on remote file systems (gs://, hdfs://, ...), read through TensorFlow, beside those of this machine."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.errors import UserError, first_line
from data_prep.text_files import LineReader, expand_paths, total_bytes

READ_BYTES = 16 << 20


def expand_inputs(patterns: str, *, not_among: Sequence[str] = ()) -> list[str]:
    """The files that --input_file names, in a fixed order, each once.

    Args:
      patterns: files, globs and folders, here (`text_files.expand_paths`) or remote, separated by commas.
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
        paths = sorted(_remote(_files_below, pattern))
    except OSError as error:
        raise UserError(f"--input_file={pattern}: cannot be listed ({error})") from None
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
    """The bytes of files, for a progress bar; a file that cannot be looked at counts nothing."""
    size = total_bytes([path for path in paths if "://" not in path])
    for path in paths:
        if "://" in path:
            with contextlib.suppress(OSError):
                size += _remote(lambda gfile, path: [gfile.stat(path).length], path)[0]
    return size


class RemoteLineReader(LineReader):
    """`LineReader` of files here and remote."""

    def read(self, path: str) -> Iterator[str]:
        """The lines of a file, without line ends and byte-order mark.

        Raises:
          UserError: the file cannot be read, or is not UTF-8 and `invalid_utf8` is "error".
        """
        if "://" not in path:
            yield from super().read(path)
            return
        try:
            with io.BufferedReader(_RemoteFile(path), READ_BYTES) as file:
                yield from self._decode_lines(file, path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error})") from None
        if path in self._num_invalid and self._invalid_utf8 == "error":
            raise UserError(f"{self._describe(path)}; see --invalid_utf8")


class _RemoteFile(io.RawIOBase):
    """A file of tf.io.gfile, which knows no buffers."""

    def __init__(self, path: str):
        super().__init__()
        [self._file] = _remote(lambda gfile, path: [gfile.GFile(path, "rb")], path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        [data] = _remote(lambda _, size: [self._file.read(size)], len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _remote(function: Any, argument: Any) -> list[Any]:
    """What `function(tf.io.gfile, argument)` gives; its errors become OSErrors."""
    import tensorflow as tf

    try:
        return list(function(tf.io.gfile, argument))
    except tf.errors.OpError as error:
        raise OSError(first_line(error)) from None
