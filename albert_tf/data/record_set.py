"""Finds files of pretraining records, and reads the metadata.json of their folders."""

import concurrent.futures
import dataclasses
import functools
import glob
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.core import files as file_system
from albert_tf.core.errors import UserError, first_line
from albert_tf.data.record_formats import FORMATS, RecordFormat, name_of
from albert_tf.data.record_formats.base import (
    METADATA_FILE,
    Metadata,
    Schema,
    add_counts,
    mask_settings,
)
from albert_tf.data.record_formats.full import pretraining_schema

_FILES_EXAMINED_TOGETHER = 16


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """A set of record files."""

    files: tuple[str, ...]  # paths
    counts: tuple[int, ...]  # number of records in each file
    num_examples: int  # in all files
    metadata: Metadata  # content of metadata.json; empty for files made by the original's script

    @property
    def num_records(self) -> int:
        """Number of records in all files."""
        return sum(self.counts)

    @property
    def format(self) -> RecordFormat:
        """The format of the records."""
        return FORMATS[name_of(self.metadata)]

    @property
    def schema(self) -> Schema:
        """The features of pretraining records, as they are parsed."""
        return self.format.schema(self.metadata)

    def require_vocabulary(self, flag: str, sha256: str, vocabulary: str, owner: str) -> None:
        """Raises a UserError if the records were made with another vocabulary than the model's.

        Its file is `vocabulary`; `owner` is the flag or word that stands for the model.
        """
        if self.metadata.get("spm_sha256", sha256) != sha256:
            raise UserError(
                f"--{flag}: the records were made with another vocabulary than {vocabulary}, that of"
                f" {owner}; make them with it, or give another checkpoint"
            )


def find_pretraining_records(patterns: str, flag: str) -> RecordSet:
    """As `find_records`, for pretraining records; without metadata, the first record tells their lengths."""
    record_set = find_records(patterns, flag)
    if "record_format" in record_set.metadata:
        return record_set
    lengths = feature_lengths(record_set, flag)
    for name in pretraining_schema(0, 0):
        if name not in lengths:
            raise UserError(
                f"--{flag}: {record_set.files[0]} has no feature {name!r}: no pretraining records, or the"
                f" {METADATA_FILE} that was written with them is missing"
            )
    found = {
        "max_seq_length": lengths["input_ids"],
        "max_predictions_per_seq": lengths["masked_lm_positions"],
    }
    return dataclasses.replace(record_set, metadata={**record_set.metadata, **found})


def find_records(patterns: str, flag: str) -> RecordSet:
    """The records that a flag names: files, globs or folders, separated by commas.

    Raises:
      UserError: nothing matches; a file is missing, empty, truncated or not a TFRecord file; or the files do not belong
        together.
    """
    found = [path for pattern in patterns.split(",") for path in _expand(pattern.strip())]
    if not found:
        raise UserError(f"--{flag}={patterns}: no record files there (*.tfrecord*)")
    metadata_of = _metadata_by_folder(found, flag)
    shards = {
        os.path.join(folder, shard["file"]): shard
        for folder, metadata in metadata_of.items()
        for shard in metadata.get("shards", ())
    }
    # A remote file answers slowly, but many can be read in parallel.
    with concurrent.futures.ThreadPoolExecutor(_FILES_EXAMINED_TOGETHER) as pool:
        listed = [shards.get(path) for path in found]
        counts = tuple(pool.map(functools.partial(_num_records, flag), found, listed))
    if not sum(counts):
        raise UserError(f"--{flag}={patterns}: the files hold no records")
    examples = [
        shard["examples"] if shard else count for shard, count in zip(listed, counts, strict=True)
    ]
    metadata = _common_metadata(list(metadata_of.values()), flag)
    return RecordSet(tuple(found), counts, sum(examples), metadata)


def _expand(pattern: str) -> list[str]:
    """The files of a pattern; those of a folder are the ones that its metadata.json lists."""
    if file_system.is_folder(pattern):
        path = os.path.join(pattern, METADATA_FILE)
        if file_system.exists(path):
            shards = file_system.read_json(path).get("shards", ())
            return [os.path.join(pattern, shard["file"]) for shard in shards]
        pattern = os.path.join(glob.escape(pattern), "*.tfrecord*")
    # Unlike the shell's "*", that of TensorFlow, for remote files, matches hidden names.
    paths = file_system.matching(pattern)
    return [path for path in paths if not os.path.basename(path).startswith(".")]


def _metadata_by_folder(paths: Sequence[str], flag: str) -> dict[str, Metadata]:
    """The metadata of the files' folders; empty for a folder without metadata."""
    found = {}
    for folder in sorted({os.path.dirname(path) for path in paths}):
        path = os.path.join(folder, METADATA_FILE)
        found[folder] = file_system.read_json(path) if file_system.exists(path) else {}
        if name_of(found[folder]) not in FORMATS:
            name = name_of(found[folder])
            raise UserError(f"--{flag}: {path}: unknown record_format {name!r}; make them again")
    return found


def _common_metadata(folders: Sequence[Metadata], flag: str) -> dict[str, Any]:
    """The metadata of all folders, which must agree: settings of the first one, counts of all."""
    formats = sorted(set(map(name_of, folders)))
    if len(formats) > 1:
        raise UserError(f"--{flag}: {' and '.join(formats)} records are mixed; give one kind")
    first, *others = filter(None, folders) if any(folders) else ({},)
    for key in ("max_seq_length", "max_predictions_per_seq", "spm_sha256", "sentence_task"):
        if any(other.get(key) != first.get(key) for other in others):
            raise UserError(f"--{flag}: its folders were made with different {key}")
    masks = mask_settings(first)
    if any(mask_settings(other) != masks for other in others):
        raise UserError(f"--{flag}: its folders were made with different settings of masks")
    counts: dict[str, Any] = {}
    for metadata in folders:
        numbers = {name: n for name, n in metadata.get("counts", {}).items() if type(n) is int}
        add_counts(counts, numbers)
    return {**first, "counts": counts}


def _num_records(flag: str, path: str, shard: Mapping | None) -> int:
    """Number of records in a file, from its metadata or by counting its frames."""
    status = file_system.status(path)
    if not status or file_system.is_folder(path):
        raise UserError(f"--{flag}: {path} is no file; expected TFRecord files")
    if not shard:
        return _count_frames(flag, path, status.length)
    if status.length != shard["bytes"]:
        raise UserError(
            f"--{flag}: {path} has {status.length} bytes, but {METADATA_FILE} lists {shard['bytes']}: truncated or"
            " changed; copy or make it again"
        )
    return shard["records"]


def _count_frames(flag: str, path: str, size: int) -> int:
    """Counts TFRecord frames: length (8 bytes), its checksum (4), data, its checksum (4)."""
    count = position = 0
    with (
        file_system.errors_named(f"--{flag}: {path}", "read"),
        file_system.open_binary(path) as file,
    ):
        while header := file.read(12):
            length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else size
            position += 16 + length
            if position > size:
                raise UserError(
                    f"--{flag}: {path} is not a complete TFRecord file: record {count} does not end inside it"
                )
            file.seek(position)
            count += 1
    return count


def feature_lengths(record_set: RecordSet, flag: str) -> dict[str, int]:
    """Number of values of every feature of the first record."""
    dataset = tf.data.TFRecordDataset(record_set.files[0])
    try:
        example = tf.train.Example.FromString(next(iter(dataset)).numpy())
    except Exception as error:  # DecodeError of protobuf, DataLossError of TensorFlow
        reason = first_line(error)
        raise UserError(f"--{flag}: {record_set.files[0]}: damaged record 0 ({reason})") from None
    kinds = ("int64_list", "float_list", "bytes_list")
    return {
        name: sum(len(getattr(feature, kind).value) for kind in kinds)
        for name, feature in example.features.feature.items()
    }
