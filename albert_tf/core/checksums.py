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
    lines = [f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)]
    return "".join(lines).encode()


def sums_file_of(folder: str, names: Iterable[str]) -> bytes:
    """The content of SHA256SUMS for files that are in a folder.

    Args:
      folder: the folder.
      names: paths of the files, relative to it.
    """
    return sums_file({name: files.read_bytes(os.path.join(folder, name)) for name in names})


def verify(folder: str) -> None:
    """Checks the files that the SHA256SUMS of a folder lists; a folder without this file passes.

    Raises:
      UserError: a file is missing or was changed, or SHA256SUMS is damaged.
    """
    path = os.path.join(folder, SUMS_FILE)
    if not files.exists(path):
        return
    for line in files.read_bytes(path).decode(errors="replace").splitlines():
        checksum, separator, name = line.partition("  ")
        if not separator or len(checksum) != 64 or os.path.basename(name) in ("", "..", SUMS_FILE):
            raise UserError(f"{path}: damaged; copy the folder again")
        content = files.read_bytes(os.path.join(folder, name))
        if hashlib.sha256(content).hexdigest() != checksum:
            raise UserError(
                f"{os.path.join(folder, name)}: is not the file that was written (its checksum differs from the one in"
                f" {SUMS_FILE}); copy the folder again, or delete {SUMS_FILE} if you changed the file yourself"
            )
