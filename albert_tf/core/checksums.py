"""Checksums: SHA256SUMS of the files in a folder, an entry in a JSON file, a fingerprint of a file of any size.

`sha256sum --check SHA256SUMS` verifies the first, too.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from albert_tf.core import files
from albert_tf.core.errors import UserError

SUMS_FILE = "SHA256SUMS"
JSON_ENTRY = "checksum"
_END_BYTES = 64 << 10  # that a fingerprint covers at each end of a file


def with_sums(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Contents of files by name, and those of their SHA256SUMS."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return {**contents, SUMS_FILE: _lines(sums)}


def write_sums(folder: str, names: Iterable[str]) -> None:
    """Writes SHA256SUMS of files that are in a folder.

    Args:
      folder: the folder.
      names: paths of the files, relative to it.
    """
    sums = {name: files.sha256(os.path.join(folder, name)) for name in names}
    files.write_bytes(os.path.join(folder, SUMS_FILE), _lines(sums))


def verify(folder: str) -> None:
    """Checks the files that the SHA256SUMS of a folder lists; a folder without this file passes.

    Raises:
      UserError: a file is missing or was changed, or SHA256SUMS is damaged.
    """
    path = os.path.join(folder, SUMS_FILE)
    if not files.exists(path):
        return
    lines = files.read_bytes(path).decode(errors="replace").splitlines()
    for line in lines or [""]:
        checksum, separator, name = line.partition("  ")
        is_inside = {"", ".", "..", SUMS_FILE}.isdisjoint(name.split("/"))
        if not separator or len(checksum) != 64 or not is_inside or "\0" in name:
            raise UserError(f"{path}: damaged; copy the folder again")
        if files.sha256(os.path.join(folder, name)) != checksum:
            raise UserError(
                f"{os.path.join(folder, name)}: is not the file that was written (its checksum differs from the one in"
                f" {SUMS_FILE}); copy the folder again, or delete {SUMS_FILE} if you changed the file yourself"
            )


def _lines(checksums: Mapping[str, str]) -> bytes:
    return "".join(f"{checksums[name]}  {name}\n" for name in sorted(checksums)).encode()


# --- JSON files ---


def json_file(values: Mapping[str, Any]) -> bytes:
    """The content of a JSON file whose last entry, `JSON_ENTRY`, is the checksum of the others.

    Args:
      values: what `json.dumps` takes.
    """
    return (json.dumps({**values, JSON_ENTRY: checksum_of(values)}, indent=2) + "\n").encode()


def read_json(path: str) -> dict[str, Any]:
    """The values of a `json_file`, without the checksum; one without a checksum is not verified.

    Raises:
      UserError: it cannot be read, is no JSON object, or was changed.
    """
    return parse_json(files.read_bytes(path), path)


def parse_json(content: bytes, source: str) -> dict[str, Any]:
    """`read_json` of a content that was read; `source` names it in errors."""
    values = files.parse_json(content, source)
    checksum = values.pop(JSON_ENTRY, None)
    if checksum is not None and checksum != checksum_of(values):
        raise UserError(
            f"{source}: is not the file that was written (its {JSON_ENTRY} differs); copy it again, or delete this"
            " entry if you changed the file yourself"
        )
    return values


def checksum_of(values: Mapping[str, Any]) -> str:
    """SHA-256 of values, independent of the order and of spaces in their file."""
    as_read = json.loads(json.dumps(values))  # keys that are no strings become strings
    text = json.dumps(as_read, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# --- Large files ---


def fingerprint(file: BinaryIO, num_bytes: int) -> str:
    """SHA-256 of the size of a file and its first and last 64 KiB: tells files apart without reading them whole.

    Args:
      file: opened for reading, at its start.
      num_bytes: its size.
    """
    digest = hashlib.sha256(f"{num_bytes} bytes".encode())
    digest.update(file.read(_END_BYTES))
    file.seek(max(0, num_bytes - _END_BYTES))
    digest.update(file.read(_END_BYTES))
    return digest.hexdigest()
