"""Finds files of pretraining records, and reads the metadata.json of their folders."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from albert_tf.core import files as file_system
from albert_tf.core.errors import UserError, first_line
from albert_tf.data.record_formats import FORMATS, RecordFormat, base, name_of
from albert_tf.data.record_formats.full import pretraining_schema
from albert_tf.data.record_formats.metadata import read_metadata


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """A set of record files."""

    files: tuple[str, ...]  # paths
    counts: tuple[int, ...]  # number of records in each file
    num_examples: int  # in all files
    metadata: base.Metadata  # of metadata.json; empty for files made by the original's script

    @property
    def num_records(self) -> int:
        """Number of records in all files."""
        return sum(self.counts)

    @property
    def format(self) -> RecordFormat:
        """The format of the records."""
        return FORMATS[name_of(self.metadata)]

    @property
    def schema(self) -> base.Schema:
        """The features of pretraining records, as they are parsed."""
        return self.format.schema(self.metadata)


def find_pretraining_records(patterns: str, flag: str) -> RecordSet:
    """As `find_records`, for pretraining records; without metadata, the first record tells their lengths."""
    record_set = find_records(patterns, flag)
    if "record_format" in record_set.metadata:
        return record_set
    first = next(iter(tf.data.TFRecordDataset(list(record_set.files)))).numpy()
    features = {}
    with contextlib.suppress(DecodeError):
        features = tf.train.Example.FromString(first).features.feature
    if missing := [name for name in pretraining_schema(0, 0) if name not in features]:
        reason = f"has no feature {missing[0]!r}: not for pretraining, or without its metadata.json"
        raise UserError(f"--{flag}: {record_set.files[0]} {reason}")
    lengths = {
        "max_seq_length": len(features["input_ids"].int64_list.value),
        "max_predictions_per_seq": len(features["masked_lm_ids"].int64_list.value),
    }
    return dataclasses.replace(record_set, metadata={**record_set.metadata, **lengths})


def find_records(patterns: str, flag: str) -> RecordSet:
    """The records that a flag names: files, globs or folders, separated by commas.

    A UserError if nothing matches, a file is missing, empty, truncated or not a TFRecord file, or files do not match.
    """
    paths = [path for pattern in file_system.listed(patterns) for path in _expand(pattern, flag)]
    if not paths:
        raise UserError(f"--{flag}={patterns}: no record files there (*.tfrecord*)")
    folders = sorted(set(map(os.path.dirname, paths)))
    metadata_of = {folder: _read_metadata(folder, flag) for folder in folders}
    shards = {
        os.path.join(folder, shard["file"]): shard
        for folder, metadata in metadata_of.items()
        for shard in metadata.get("shards", ())
    }
    listed = [shards.get(path) for path in paths]
    # A remote file answers slowly, but many can be read in parallel.
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counts = tuple(pool.map(functools.partial(_num_records, flag), paths, listed))
    if not sum(counts):
        raise UserError(f"--{flag}={patterns}: the files hold no records")
    num_examples = sum(
        shard["examples"] if shard else count for shard, count in zip(listed, counts, strict=True)
    )
    metadata = _common_metadata(list(metadata_of.values()), flag)
    return RecordSet(tuple(paths), counts, num_examples, metadata)


def _expand(pattern: str, flag: str) -> list[str]:
    """The files of a pattern; those of a folder are the ones that its metadata.json lists."""
    if file_system.is_folder(pattern):
        return _files_of_folder(pattern, flag)
    paths: list[str] = []
    for path in file_system.matching(pattern):
        name = os.path.basename(path)
        # Unlike the shell's "*", that of TensorFlow, for remote files, matches hidden names.
        if name.startswith(".") or (name == base.METADATA_FILE and path != pattern):
            continue
        paths += _files_of_folder(path, flag) if file_system.is_folder(path) else [path]
    return list(dict.fromkeys(paths))  # "**" finds a folder and the files in it


def _files_of_folder(folder: str, flag: str) -> list[str]:
    if metadata := _read_metadata(folder, flag):
        return [os.path.join(folder, shard["file"]) for shard in metadata.get("shards", ())]
    paths = file_system.matching(os.path.join(glob.escape(folder), "*.tfrecord*"))
    return [path for path in paths if not os.path.basename(path).startswith(".")]


def _read_metadata(folder: str, flag: str) -> base.Metadata:
    """The metadata of a folder; empty if it has none."""
    try:
        return read_metadata(folder)
    except UserError as error:
        raise UserError(f"--{flag}: {error}") from None


def _common_metadata(folders: Sequence[base.Metadata], flag: str) -> dict[str, Any]:
    """The metadata of all folders, which must agree: settings of the first one, counts of all."""
    formats = sorted(set(map(name_of, folders)))
    if len(formats) > 1:
        raise UserError(f"--{flag}: {' and '.join(formats)} records are mixed; give one kind")
    # Records of the original's script have none.
    first, *others = [metadata for metadata in folders if metadata] or [{}]
    keys = ("max_seq_length", "max_predictions_per_seq", "spm_sha256", "sentence_task")
    for other in others:
        same = {key: other.get(key) == first.get(key) for key in keys}
        in_both = {"do_lower_case", "keep_accents"} & first.keys() & other.keys()
        same["cleaning"] = all(other[key] == first[key] for key in in_both)
        same["settings of masks"] = base.mask_settings(other) == base.mask_settings(first)
        different = [key for key, is_same in same.items() if not is_same]
        if different:
            raise UserError(f"--{flag}: its folders were made with different {different[0]}")

    counts: dict[str, Any] = {}
    for metadata in folders:
        base.add_counts(counts, metadata.get("counts", {}))
    return {**first, "counts": counts}


def _num_records(flag: str, path: str, shard: Mapping | None) -> int:
    """Number of records in a file, from its metadata or by reading it."""
    if not file_system.exists(path) or file_system.is_folder(path):
        raise UserError(f"--{flag}: {path} is no file; expected TFRecord files")
    file_system.check_regular(path)
    if not shard:
        try:
            return int(tf.data.TFRecordDataset(path).reduce(np.int64(0), lambda n, _: n + 1))
        except tf.errors.OpError as error:
            file_system.check_content(path)  # perhaps it is only a pointer
            reason = f"is not a complete TFRecord file ({first_line(error)})"
            raise UserError(f"--{flag}: {path} {reason}") from None
    size, _ = file_system.size_and_time(path)
    if size != shard["bytes"]:
        file_system.check_content(path)
        reason = f"bytes, but {base.METADATA_FILE} lists {shard['bytes']}: truncated or changed"
        raise UserError(f"--{flag}: {path} has {size} {reason}; copy or make it again")
    return shard["records"]
