"""Compressed files are read as what they contain: gzip, bzip2, xz and Zstandard.

The first bytes of a file tell how it is compressed, not its name.
"""

import bz2
import gzip
import io
import lzma
import zlib
from typing import Any

from albert_tf.core.errors import UserError

ENDINGS = (".gz", ".bz2", ".xz", ".zst")  # of the names of compressed files
_FIRST_BYTES = {
    "gzip": (b"\x1f\x8b",),
    "bzip2": tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)),
    "xz": (b"\xfd7zXZ\x00",),
    "Zstandard": (b"\x28\xb5\x2f\xfd",),
}
_LONGEST = 16  # bytes that tell the kind of a file


def kind_of(head: bytes) -> str:
    """How a file that begins with these bytes is compressed: a key of `_FIRST_BYTES`, or "" if it is not."""
    return next((kind for kind, starts in _FIRST_BYTES.items() if head.startswith(starts)), "")


def without_ending(path: str) -> str:
    """A name without the ending of a compressed file: "train.tsv.gz" -> "train.tsv"."""
    for ending in ENDINGS:
        if path.lower().endswith(ending):
            return path[: -len(ending)]
    return path


def uncompressed(file: io.BufferedReader, source: str) -> io.BufferedReader:
    """A reader of what a file contains, which is the file itself if it is not compressed.

    Reading damaged data raises a UserError that begins with `source`.
    """
    kind = kind_of(file.peek(_LONGEST)[:_LONGEST])
    return io.BufferedReader(_Reader(file, kind, source), 1 << 16) if kind else file


def uncompressed_bytes(content: bytes, source: str) -> bytes:
    """The content of a file that is in memory."""
    if not kind_of(content[:_LONGEST]):
        return content
    file: Any = io.BufferedReader(io.BytesIO(content))
    return uncompressed(file, source).read()


class _Reader(io.RawIOBase):
    """The bytes of a compressed file."""

    def __init__(self, file: io.BufferedReader, kind: str, source: str):
        self._kind = kind
        self._source = source
        self._file = _opened(file, kind)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None):  # of the disk
                raise
            raise UserError(
                f"{self._source}: its {self._kind} data is cut off or damaged"
            ) from None
        buffer[: len(data)] = data
        return len(data)


def _opened(file: io.BufferedReader, kind: str) -> Any:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=file)
    if kind == "bzip2":
        return bz2.BZ2File(file)
    if kind == "xz":
        return lzma.LZMAFile(file)
    import pyarrow  # Python itself reads Zstandard only since version 3.14

    return pyarrow.CompressedInputStream(file, "zstd")
