"""Reads and checks metadata.json of a folder of records, and makes its entries about the shards."""

import base64
from collections.abc import Collection, Mapping, Sequence
from textwrap import shorten
from typing import Any, BinaryIO, NoReturn

from albert_tf.core import checksums
from albert_tf.core.errors import UserError

METADATA_FILE = "metadata.json"
PACKED = "packed"  # a record format

_TOKENS, _WORDS, _IDS = range(1, 2**16), range(1, 2**10), range(2**24)
_SIZES = range(2**63)
# The entries that readers use, with their types; a range is the range of a whole number.
_SETTINGS = {
    "record_format": str,
    "max_seq_length": _TOKENS,
    "max_predictions_per_seq": _TOKENS,
    "do_permutation": bool,
    "vocab_size": _IDS,
    "spm_sha256": str,
    "sentence_task": str,
    "do_lower_case": bool,
    "keep_accents": bool,
    "shards": list,
    "counts": dict,
}
_COMPACT = ("max_seq_length", "max_predictions_per_seq", "do_permutation")
_DYNAMIC = {
    "favor_shorter_ngram": bool,
    "do_whole_word_mask": bool,
    "ngram": _WORDS,
    "masked_lm_prob": float,
    "word_start_rule": str,
    "vocabulary": dict,
    "vocab_size": _IDS,
}
_VOCABULARY = {"cls_id": _IDS, "sep_id": _IDS, "mask_id": _IDS, "word_starts": str}
_FEATURES = {
    "task_name": str,
    "labels": list,
    "max_seq_length": _TOKENS,
    "choices": _WORDS,
    "columns": dict,
    "do_lower_case": bool,
    "spm_sha256": str,
    "table_sha256": str,
}
_SHARD = {"file": str, "examples": _SIZES, "bytes": _SIZES}
# Counts of packed records: the largest numbers of examples and of predictions in a row.
MOST_EXAMPLES, MOST_PREDICTIONS = "most_examples_of_row", "most_predictions_of_row"
_PACKED = {MOST_EXAMPLES: range(1, 2**10), MOST_PREDICTIONS: _TOKENS}
_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "an object"}


def read(path: str) -> dict[str, Any]:
    """The values in a metadata.json.

    Raises:
      UserError: it cannot be read, was changed, or has an entry of the wrong type; the error names the entry.
    """
    values = checksums.read_json(path)
    check(values, path)
    return values


def check(values: Mapping[str, Any], source: str) -> None:
    """Checks the entries that readers use; older files have no checksum, and a file may have been written by hand.

    Args:
      values: values of a metadata.json.
      source: where the values come from, for the error.

    Raises:
      UserError: an entry is missing or of the wrong type, or a number is impossible.
    """
    _check(values, _SETTINGS, source)
    if values.get("record_format") in ("compact", PACKED):
        _check(values, _SETTINGS, source, required=_COMPACT)
        if values.get("masking") not in ("static", "dynamic"):
            _refuse(source, "masking", "static or dynamic", values.get("masking"))
    is_packed = values.get("record_format") == PACKED
    if is_packed:
        _check(values, _SETTINGS, source, required=("counts",))
        _check(values["counts"], _PACKED, source, required=_PACKED)
    if values.get("masking") == "dynamic":
        _check(values, _DYNAMIC, source, required=_DYNAMIC)
        _check(values["vocabulary"], _VOCABULARY, source, required=_VOCABULARY)
        bits = values["vocabulary"]["word_starts"]
        if len(bits) != 4 * -(-values["vocab_size"] // 24) or not _is_base64(bits):
            _refuse(source, "word_starts", "a bit for each token, in base64", bits)
    if "table_sha256" in values:
        _check(values, _FEATURES, source, required=_FEATURES)
        _check(values["columns"], dict.fromkeys(values["columns"], _TOKENS), source)
        if not all(isinstance(label, str) for label in values["labels"]):
            _refuse(source, "labels", "texts", values["labels"])
    _check_shards(values.get("shards", ()), is_packed, source)


def _check_shards(shards: Sequence[Any], is_packed: bool, source: str) -> None:
    for shard in shards:
        if not isinstance(shard, dict):
            _refuse(source, "shards", "an object for each file", shard)
        required = {**_SHARD, "rows": _SIZES} if is_packed else _SHARD
        _check(shard, {**required, "fingerprint": str}, source, required=required)
        if "/" in shard["file"] or shard["examples"] > 64 * shard["bytes"]:
            _refuse(source, "shards", "the names and sizes of files", shard)


def _check(
    values: Mapping[str, Any],
    kinds: Mapping[str, type | range],
    source: str,
    required: Collection[str] = (),
) -> None:
    for name, kind in kinds.items():
        value = values.get(name)
        if name not in values:
            if name in required:
                _refuse(source, name, "an entry of this name", None)
        elif isinstance(kind, range):
            if type(value) is not int or value not in kind:
                _refuse(source, name, f"a whole number from {kind[0]} to {kind[-1]}", value)
        elif kind is float:
            if type(value) not in (int, float) or not 0 <= value <= 1:
                _refuse(source, name, "a number from 0 to 1", value)
        elif type(value) is not kind:
            _refuse(source, name, _NAMES[kind], value)


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _refuse(source: str, name: str, expected: str, value: Any) -> NoReturn:
    found = "nothing" if value is None else shorten(repr(value), 60)
    raise UserError(f"{source}: {name}: expected {expected}, got {found}; make the records again")


def shard_entry(
    name: str, examples: int, num_bytes: int, file: BinaryIO, *, rows: int | None = None
) -> dict[str, Any]:
    """The entry of a shard.

    Args:
      name: name of its file.
      examples: number of its examples.
      num_bytes: its size.
      file: opened for reading, at its start.
      rows: number of its records, if they are packed.
    """
    entry = {"file": name, "examples": examples, "bytes": num_bytes}
    entry |= {} if rows is None else {"rows": rows}
    return {**entry, "fingerprint": checksums.fingerprint(file, num_bytes)}


def is_shard(entry: Mapping[str, Any], num_bytes: int, file: BinaryIO) -> bool:
    """Whether a file is the one described by an entry; older entries have no fingerprint.

    Args:
      entry: entry of the shard.
      num_bytes: size of the file.
      file: opened for reading, at its start.
    """
    if entry["bytes"] != num_bytes:
        return False
    return entry.get("fingerprint") in (None, checksums.fingerprint(file, num_bytes))
