"""Reads the metadata.json of a folder of records, whose values may be of any type and size if it was damaged."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.core.settings import LARGEST_INT64
from albert_tf.data.record_formats import FORMATS, base, name_of

_BYTES_AROUND_RECORD = 16  # of a TFRecord file: length and checksums
_AGAIN = "make the records again"


class _Rule(NamedTuple):
    """What a value must be."""

    is_right: Callable[[Any], bool]
    expected: str


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_count(value: Any) -> bool:
    return _is_whole(value, 0, LARGEST_INT64)


def _is_row_length(value: Any) -> bool:
    return _is_whole(value, 1, base.LONGEST_ROW)


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_vocabulary(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    starts = value.get("word_starts")
    ids = [value.get(name) for name in ("cls_id", "sep_id", "mask_id")]
    if not isinstance(starts, str) or not set(starts) <= {"0", "1"}:
        return False
    return all(_is_whole(id, 0, len(starts) - 1) for id in ids)


_COUNT = _Rule(_is_count, "a count")
_LENGTH = _Rule(_is_row_length, f"a number of tokens, at most {base.LONGEST_ROW:,}")
_TRUE_OR_FALSE = _Rule(lambda value: isinstance(value, bool), "true or false")
_TEXT = _Rule(lambda value: isinstance(value, str), "a text")
_SHARE = _Rule(_is_share, "a share from 0 to 1")

# The values that reading uses; others are only recorded.
_RULES = {
    "max_seq_length": _LENGTH,
    "max_predictions_per_seq": _LENGTH,
    "ngram": _LENGTH,
    "masked_lm_prob": _SHARE,
    "do_whole_word_mask": _TRUE_OR_FALSE,
    "favor_shorter_ngram": _TRUE_OR_FALSE,
    "do_lower_case": _TRUE_OR_FALSE,
    "keep_accents": _TRUE_OR_FALSE,
    "record_format": _TEXT,
    "masking": _TEXT,
    "word_start_rule": _TEXT,
    "sentence_task": _TEXT,
    "spm_sha256": _TEXT,
    "vocab_size": _COUNT,
    "counts": _Rule(_are_counts, "counts by their names"),
    "vocabulary": _Rule(_is_vocabulary, "word_starts of 0 and 1, cls_id, sep_id and mask_id"),
    "shards": _Rule(lambda value: isinstance(value, list), "a list"),
}


def read_metadata(folder: str) -> dict[str, Any]:
    """The metadata of a folder of records; empty if it has none, as the records of the original's script.

    A UserError names the value that is missing, or of another type or size than a program writes.
    """
    path = os.path.join(folder, base.METADATA_FILE)
    if not files.exists(path):
        return {}
    metadata = files.read_json(path)
    _check(metadata, _RULES, path)
    name = name_of(metadata)
    if name not in FORMATS:
        raise UserError(f"{path}: unknown record_format {name!r}; {_AGAIN}")
    if "record_format" in metadata:
        _check_has(metadata, FORMATS[name].needed, path)
    if metadata.get("masking") == "dynamic":
        _check_has(metadata, (*base.MASKS, "vocabulary"), path)
    longest = metadata.get("max_seq_length", base.LONGEST_ROW)
    for count_name, count in metadata.get("counts", {}).items():
        # Every example and every prediction of a row is at least one of its tokens.
        if count_name.endswith("_per_row") and count > longest:
            reason = f"{count_name} is {count:,}, above max_seq_length {longest:,}"
            raise UserError(f"{path}: {reason}; {_AGAIN}")
    for shard in metadata.get("shards", ()):
        _check_shard(shard, path)
    return metadata


def _check(values: Mapping[str, Any], rules: Mapping[str, _Rule], path: str) -> None:
    for name, rule in rules.items():
        if name in values and not rule.is_right(values[name]):
            reason = f"{name} is {shortened(values[name])}, expected {rule.expected}"
            raise UserError(f"{path}: {reason}; {_AGAIN}")


def _check_has(values: Mapping[str, Any], names: tuple[str, ...], path: str) -> None:
    for name in names:
        if name not in values:
            raise UserError(f"{path}: has no {name}; {_AGAIN}")


def _check_shard(shard: Any, path: str) -> None:
    """Checks the entry of a file, which must be in the same folder."""
    names = ("file", "examples", "records", "bytes")
    if not isinstance(shard, dict):
        expected = f"an object with {', '.join(names)}"
        raise UserError(f"{path}: a shard is {shortened(shard)}, expected {expected}; {_AGAIN}")
    _check_has(shard, names, path)
    _check(shard, {**dict.fromkeys(names[1:], _COUNT), "file": _TEXT}, path)
    file = shard["file"]
    if os.path.basename(file) != file or file in ("", ".", ".."):
        raise UserError(
            f"{path}: a shard is {shortened(file)}, expected a file of its folder; {_AGAIN}"
        )
    if shard["records"] * _BYTES_AROUND_RECORD > shard["bytes"]:
        reason = f"{shard['records']:,} records do not fit into {shard['bytes']:,} bytes"
        raise UserError(f"{path}: {file}: {reason}; {_AGAIN}")
