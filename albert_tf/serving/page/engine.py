"""The engine of the page that works alone: two files of the npm package onnxruntime-web.

They are not in this package because of their size (14 MB). A checksum makes sure that they are those that were tested.
"""

import hashlib
import os
import tarfile
from collections.abc import Mapping

from albert_tf.core import files
from albert_tf.core.errors import UserError

NAME = "onnxruntime-web"
VERSION = "1.30.0"
LICENSE = "MIT"

# The part of the page -> the file in the npm package, and its SHA-256.
_FILES: Mapping[str, tuple[str, str]] = {
    "engine.mjs": (
        "dist/ort.wasm.bundle.min.mjs",
        "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    ),
    "engine.wasm": (
        "dist/ort-wasm-simd-threaded.wasm",
        "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    ),
}
_FOLDER_OF_ARCHIVE = "package"  # in which npm puts all files of a package

# Where `npm pack` and `npm install` put it.
_USUAL_PLACES = (f"{NAME}-{VERSION}.tgz", f"node_modules/{NAME}")
_HOW_TO_GET = f"run `npm pack {NAME}@{VERSION}` here, or name the file or folder with --web_engine"


def engine_files(path: str = "") -> dict[str, bytes]:
    """The two files by the names of the parts of the page.

    Args:
      path: the package, as the archive that `npm pack` writes or as a folder; by default, where `npm` puts it.

    Raises:
      UserError: there is no such package, or it is not the version that was tested.
    """
    path = path or _usual_place()
    contents = {}
    for part, (name, sha256) in _FILES.items():
        content = _read(path, name)
        if hashlib.sha256(content).hexdigest() != sha256:
            expected = f"expected that of {NAME} {VERSION} (SHA-256 {sha256[:12]}...)"
            raise UserError(f"{path}: has another {name}, {expected}; {_HOW_TO_GET}")
        contents[part] = content
    return contents


def _usual_place() -> str:
    for path in _USUAL_PLACES:
        if os.path.exists(path):
            return path
    raise UserError(f"--format=web needs {NAME} {VERSION}: {_HOW_TO_GET}")


def _read(path: str, name: str) -> bytes:
    """The content of a file of the package."""
    if not os.path.exists(path):
        raise UserError(f"--web_engine={path}: no such file or folder; {_HOW_TO_GET}")
    if os.path.isdir(path):
        for folder in (path, os.path.join(path, _FOLDER_OF_ARCHIVE)):
            file = os.path.join(folder, name)
            if os.path.isfile(file):
                return files.read_bytes(file)
    else:
        try:
            with tarfile.open(path) as archive:
                member = archive.extractfile(f"{_FOLDER_OF_ARCHIVE}/{name}")
                if member:
                    return member.read()
        except (tarfile.TarError, OSError, EOFError, KeyError):
            pass  # the message below says what is expected
    raise UserError(f"--web_engine={path}: has no {name} of {NAME}; {_HOW_TO_GET}")
