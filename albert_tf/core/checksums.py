"""Checksums of a folder's files (SHA256SUMS), of a JSON file (an entry in it), of a large file and of source code.

`sha256sum --check SHA256SUMS` verifies a SHA256SUMS file, too.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from albert_tf.core import files
from albert_tf.core.errors import UserError

SUMS_FILE = "SHA256SUMS"
JSON_ENTRY = "checksum"
# Ends of the names of the files that a model is read from, which SUMS_FILE must list.
_OF_MODELS = (
    *(".safetensors", "pytorch_model.bin", ".h5", ".pb", ".index", "spiece.model"),
    *("vocab.txt", "config.json", "export.json"),
)
_END_BYTES = 64 << 10  # bytes that a fingerprint covers at each end of a file


def with_sums(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """The contents of files by name, with their SHA256SUMS file added."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return {**contents, SUMS_FILE: _lines(sums)}


def write_sums(folder: str, names: Iterable[str]) -> None:
    """Writes the SHA256SUMS file of a folder."""
    sums = {name: files.sha256(os.path.join(folder, name)) for name in names}
    files.write_bytes(os.path.join(folder, SUMS_FILE), _lines(sums))


def verify(folder: str) -> None:
    """Checks the files that the SHA256SUMS of a folder lists; a folder without this file passes.

    Raises:
      UserError: a file is missing or was changed, or SHA256SUMS is damaged or lacks a file of a model.
    """
    path = os.path.join(folder, SUMS_FILE)
    if not files.exists(path):
        return
    lines = files.read_bytes(path).decode(errors="replace").splitlines()
    listed = {line.partition("  ")[2] for line in lines}
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
    for file in _others(folder, listed):
        raise UserError(f"{path}: does not list {file}; copy the folder again")


def check_no_others(folder: str, names: Iterable[str]) -> None:
    """Checks, before files are written to a folder, that it has no files of another model, which would stay there.

    Raises:
      UserError: it has some.
    """
    for file in _others(folder, set(names)) if files.is_folder(folder) else ():
        raise UserError(f"{file}: is of another model; remove it, or give another folder")


def _others(folder: str, names: Collection[str]) -> Iterator[str]:
    """The files of models below a folder that have other names, without subfolders that have a SHA256SUMS file."""
    paths = list(files.files_below(folder))
    apart = tuple(
        os.path.dirname(path) + os.sep
        for path in paths
        if os.path.basename(path) == SUMS_FILE and os.path.dirname(path) != folder
    )
    for path in paths:
        is_of_model = path.endswith(_OF_MODELS) and not path.startswith(apart)
        if is_of_model and os.path.relpath(path, folder) not in names:
            yield path


def _lines(checksums: Mapping[str, str]) -> bytes:
    return "".join(f"{checksums[name]}  {name}\n" for name in sorted(checksums)).encode()


# --- JSON files ---


def json_file(values: Mapping[str, Any]) -> bytes:
    """The content of a JSON file whose last entry, `JSON_ENTRY`, is the checksum of the others."""
    return (json.dumps({**values, JSON_ENTRY: checksum_of(values)}, indent=2) + "\n").encode()


def read_json(path: str, *, required: bool = False) -> dict[str, Any]:
    """The values of a `json_file`, without the checksum; one without a checksum is not verified unless `required`.

    Raises:
      UserError: the file cannot be read, is not a JSON object, or was changed.
    """
    return parse_json(files.read_bytes(path), path, required=required)


def parse_json(content: bytes, source: str, *, required: bool = False) -> dict[str, Any]:
    """`read_json` for content that was already read; `source` names it in errors."""
    values = files.parse_json(content, source)
    checksum = values.pop(JSON_ENTRY, None)
    if required and checksum is None:
        raise UserError(f"{source}: has no {JSON_ENTRY}; copy it again")
    if checksum is not None and checksum != checksum_of(values):
        raise UserError(
            f"{source}: is not the file that was written (its {JSON_ENTRY} differs); copy it again, or delete this"
            " entry if you changed the file yourself"
        )
    return values


def checksum_of(values: Mapping[str, Any]) -> str:
    """SHA-256 of values; neither their order nor the spaces in their file change it."""
    as_read = json.loads(json.dumps(values))  # other keys become strings
    text = json.dumps(as_read, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# --- Large files ---


def fingerprint(file: BinaryIO, num_bytes: int) -> str:
    """SHA-256 of a file's size, first 64 KiB and last 64 KiB; tells large files apart without reading all of them."""
    digest = hashlib.sha256(f"{num_bytes} bytes".encode())
    digest.update(file.read(_END_BYTES))
    file.seek(max(0, num_bytes - _END_BYTES))
    digest.update(file.read(_END_BYTES))
    return digest.hexdigest()


def file_fingerprint(path: str) -> str:
    """The `fingerprint` of the file of a name."""
    with files.errors_named(path, "read"), files.open_binary(path) as file:
        num_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        return fingerprint(file, num_bytes)


def of_code(packages: Iterable[str]) -> str:
    """SHA-256 of all source files in packages of albert_tf, given by their folders."""
    digest = hashlib.sha256()
    for package in packages:
        for source in sorted((pathlib.Path(__file__).parents[1] / package).rglob("*.py")):
            digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()
