"""Finds record files of pretraining, and checks them against the metadata.json of their folders."""

import concurrent.futures
import dataclasses
import fnmatch
import functools
import glob
import gzip
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.core import checksums
from albert_tf.core import files as file_system
from albert_tf.core.errors import UserError, first_line
from albert_tf.data import record_metadata
from albert_tf.data.record_formats import FORMATS, RecordFormat, check_metadata, name_of
from albert_tf.data.record_formats.base import Metadata, Schema, add_counts, mask_settings
from albert_tf.data.record_formats.full import pretraining_schema
from albert_tf.data.record_metadata import METADATA_FILE

_GZIP_MAGIC = b"\x1f\x8b"
_FILES_EXAMINED_TOGETHER = 16


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """A set of record files."""

    files: tuple[str, ...]  # paths
    counts: tuple[int, ...]  # number of records in each file
    compression: str  # "" or "GZIP"
    metadata: Metadata  # content of metadata.json; empty for files made by the original's script

    @property
    def num_records(self) -> int:
        """Number of records in all files."""
        return sum(self.counts)

    @property
    def num_examples(self) -> int:
        """Number of examples in all files."""
        listed = {shard["file"]: shard["examples"] for shard in self.metadata.get("shards", ())}
        files = zip(self.files, self.counts, strict=True)
        return sum(listed.get(_whole_path(path), count) for path, count in files)

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
      UserError: nothing matches; a file is empty, truncated or not a TFRecord file; the files do not belong together;
        or they are not the files that their metadata.json lists.
    """
    found = {pattern: _expand(pattern) for pattern in map(str.strip, patterns.split(","))}
    files = [path for paths in found.values() for path in paths]
    if not files:
        raise UserError(f"--{flag}={patterns}: no record files there (*.tfrecord*)")
    metadata = _common_metadata(files, flag)
    listed = {shard["file"]: shard for shard in metadata["shards"]}
    _check_listed(found, listed, flag)
    # A remote file answers slowly, but many can be read in parallel.
    with concurrent.futures.ThreadPoolExecutor(_FILES_EXAMINED_TOGETHER) as pool:
        shards = [listed.get(_whole_path(path)) for path in files]
        examined = list(pool.map(functools.partial(_examine, flag), files, shards))
    counts, kinds = zip(*examined, strict=True)
    if len(set(kinds)) > 1:
        raise UserError(f"--{flag}: compressed and uncompressed files are mixed; give one kind")
    if not sum(counts):
        raise UserError(f"--{flag}={patterns}: the files hold no records")
    return RecordSet(tuple(files), counts, "GZIP" if kinds[0] else "", metadata)


def _expand(pattern: str) -> list[str]:
    paths = file_system.matching(_pattern_of(pattern))
    # Unlike the shell's "*", that of TensorFlow, for remote files, matches hidden names.
    return [path for path in paths if not os.path.basename(path).startswith(".")]


def _pattern_of(pattern: str) -> str:
    """The pattern of the record files in a folder; any other pattern is returned unchanged."""
    is_folder = file_system.is_folder(pattern)
    return os.path.join(glob.escape(pattern), "*.tfrecord*") if is_folder else pattern


def _check_listed(
    found: Mapping[str, Sequence[str]], listed: Mapping[str, Mapping], flag: str
) -> None:
    """Checks that the files of each pattern are those that the metadata of their folders lists."""
    folders = {os.path.dirname(path) for path in listed}
    for pattern, paths in found.items():
        whole = set(map(_whole_path, paths))
        for path in sorted(whole - listed.keys()):
            if os.path.dirname(path) in folders:
                raise UserError(
                    f"--{flag}: {path} is not one of the files that {METADATA_FILE} in its folder lists; move it to"
                    " another folder, or delete it"
                )
        folders_of_pattern = {os.path.dirname(path) for path in whole}
        for path in sorted(listed.keys() - whole):
            is_meant = fnmatch.fnmatch(path, _whole_path(_pattern_of(pattern)))
            if is_meant and os.path.dirname(path) in folders_of_pattern:
                raise UserError(
                    f"--{flag}: {path} is missing, but {METADATA_FILE} lists it; copy it again, or name each of the"
                    " files to be read"
                )


def _common_metadata(files: Sequence[str], flag: str) -> dict[str, Any]:
    """The metadata of all folders: settings of the first one, counts and shards of all."""
    metadata_of = {}
    folders = sorted({os.path.dirname(path) for path in files})
    for folder in folders:
        path = os.path.join(folder, METADATA_FILE)
        if file_system.exists(path):
            try:
                metadata_of[folder] = checksums.read_json(path)
                check_metadata(metadata_of[folder], path)
            except UserError as error:
                raise UserError(f"--{flag}: {error}") from None
    _check_agreement([metadata_of.get(folder, {}) for folder in folders], flag)
    # Files of different folders may have the same names.
    shards = [
        {**shard, "file": _whole_path(os.path.join(folder, shard["file"]))}
        for folder, metadata in metadata_of.items()
        for shard in metadata.get("shards", ())
    ]
    counts: dict[str, Any] = {}
    for metadata in metadata_of.values():
        numbers = {name: n for name, n in metadata.get("counts", {}).items() if type(n) is int}
        add_counts(counts, numbers)
    return {**next(iter(metadata_of.values()), {}), "counts": counts, "shards": shards}


def _whole_path(path: str) -> str:
    """A path with a single `/` before the name; paths from a glob may contain `//`."""
    return os.path.join(os.path.dirname(path), os.path.basename(path))


def _check_agreement(folders: Sequence[Metadata], flag: str) -> None:
    """Checks the metadata of folders that are read together; the metadata may be empty."""
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


def _examine(flag: str, path: str, shard: Mapping | None) -> tuple[int, bool]:
    """Number of records in a file, from its metadata or by counting its frames, and whether it is compressed."""
    if file_system.is_folder(path):
        raise UserError(f"--{flag}: {path} is a folder; expected TFRecord files")
    with (
        file_system.errors_named(f"--{flag}: {path}", "read"),
        file_system.open_binary(path) as file,
    ):
        is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if shard and not record_metadata.is_shard(shard, size, file):
            raise UserError(
                f"--{flag}: {path} is not the file that {METADATA_FILE} lists ({size} bytes, listed are"
                f" {shard['bytes']}): truncated or changed; make it again"
            )
        if shard:
            return shard["records"], is_gzip
        try:
            content = gzip.GzipFile(fileobj=file) if is_gzip else file
            return _count_frames(content, None if is_gzip else size), is_gzip
        except (EOFError, OSError, ValueError, zlib.error) as error:
            reason = first_line(error)
            raise UserError(
                f"--{flag}: {path} is not a complete TFRecord file ({reason})"
            ) from None


def _count_frames(file, size: int | None) -> int:
    """Counts TFRecord frames: length (8 bytes), its checksum (4), data, its checksum (4)."""
    count = position = 0
    while header := file.read(12):
        length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else None
        if length is None or (size is not None and position + 16 + length > size):
            raise ValueError(f"record {count} at byte {position} does not end inside the file")
        position += 16 + length
        file.seek(position)
        count += 1
    return count


def feature_lengths(record_set: RecordSet, flag: str) -> dict[str, int]:
    """Number of values of every feature of the first record."""
    dataset = tf.data.TFRecordDataset(record_set.files[0], record_set.compression)
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
