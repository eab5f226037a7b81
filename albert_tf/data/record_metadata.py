"""metadata.json of a folder of records: how its entries are checked, and its entries for the files."""

from collections.abc import Mapping
from textwrap import shorten
from typing import Any, BinaryIO, NoReturn

from albert_tf.core import checksums
from albert_tf.core.errors import UserError

METADATA_FILE = "metadata.json"

# The kind of an entry is a type, or the range of a whole number.
Kinds = Mapping[str, type | range]
TOKENS, WORDS, IDS, SIZES = range(1, 2**16), range(1, 2**10), range(2**24), range(2**63)
_ENTRIES: Kinds = {
    "record_format": str,
    "max_seq_length": TOKENS,
    "vocab_size": IDS,
    "spm_sha256": str,
    "sentence_task": str,
    "do_lower_case": bool,
    "keep_accents": bool,
    "shards": list,
    "counts": dict,
}
_SHARD: Kinds = {
    "file": str,
    "examples": SIZES,
    "records": SIZES,
    "bytes": SIZES,
    "fingerprint": str,
}
_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "an object"}


def check(metadata: Mapping[str, Any], source: str) -> None:
    """Checks the entries that records of all kinds have; a file may have been written by hand."""
    check_entries(metadata, _ENTRIES, source, required=False)
    for shard in metadata.get("shards", ()):
        if not isinstance(shard, dict):
            reject(source, "shards", "an object for each file", shard)
        check_entries(shard, _SHARD, source)
        if "/" in shard["file"] or shard["examples"] > 64 * shard["bytes"]:
            reject(source, "shards", "the names and sizes of files", shard)


def check_entries(
    values: Mapping[str, Any], kinds: Kinds, source: str, *, required: bool = True
) -> None:
    """Checks values by name, which must exist if they are required; a float must be from 0 to 1."""
    for name, kind in kinds.items():
        value: Any = values.get(name)
        if name not in values:
            if required:
                reject(source, name, "an entry of this name", None)
        elif isinstance(kind, range):
            if type(value) is not int or value not in kind:
                reject(source, name, f"a whole number from {kind[0]} to {kind[-1]}", value)
        elif kind is float:
            if type(value) not in (int, float) or not 0 <= value <= 1:
                reject(source, name, "a number from 0 to 1", value)
        elif type(value) is not kind:
            reject(source, name, _NAMES[kind], value)


def reject(source: str, name: str, expected: str, value: Any) -> NoReturn:
    """Raises the error of an entry that is not what readers expect."""
    found = "nothing" if value is None else shorten(repr(value), 60)
    raise UserError(f"{source}: {name}: expected {expected}, got {found}; make the records again")


def shard_entry(
    name: str, examples: int, num_bytes: int, file: BinaryIO, records: int | None = None
) -> dict[str, Any]:
    """The entry of a file of records, which is open at its start; unless `records` is given, each example is one."""
    return {
        "file": name,
        "examples": examples,
        "records": examples if records is None else records,
        "bytes": num_bytes,
        "fingerprint": checksums.fingerprint(file, num_bytes),
    }


def is_shard(entry: Mapping[str, Any], num_bytes: int, file: BinaryIO) -> bool:
    """Whether an open file, at its start, is the one that an entry describes."""
    is_size = entry["bytes"] == num_bytes
    return is_size and entry["fingerprint"] == checksums.fingerprint(file, num_bytes)
