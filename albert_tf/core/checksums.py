"""SHA256SUMS: the checksums of the files in a folder; `sha256sum --check SHA256SUMS` verifies them, too."""

import hashlib
import os
from collections.abc import Iterable, Mapping

from albert_tf.core import files
from albert_tf.core.errors import UserError

SUMS_FILE = "SHA256SUMS"


def sums_file(contents: Mapping[str, bytes]) -> bytes:
    """The content of SHA256SUMS for files.

    Args:
      contents: of the files, by name.
    """
    return _lines({name: hashlib.sha256(content).hexdigest() for name, content in contents.items()})


def sums_file_of(folder: str, names: Iterable[str]) -> bytes:
    """The content of SHA256SUMS for files that are in a folder.

    Args:
      folder: the folder.
      names: paths of the files, relative to it.
    """
    return _lines({name: files.sha256(os.path.join(folder, name)) for name in names})


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
