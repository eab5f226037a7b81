"""Record files: finds and checks them, and makes datasets that shuffle and batch their examples.

The order is a pure function of (seed, epoch), so that a run can be resumed at any example without replaying an epoch.
Every example has a number that does not depend on the order: epoch * examples in an epoch + its index among them.
Random numbers for an example, such as those for its masks, are a function of this number.
"""

import concurrent.futures
import dataclasses
import fnmatch
import functools
import glob
import gzip
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.core import files as file_system
from albert_tf.core.errors import UserError, first_line
from albert_tf.data import compact_records, packed_records, record_metadata
from albert_tf.data.record_metadata import METADATA_FILE

# float [B]: 1 = a real example, 0 = padding of an evaluation's last batch.
EXAMPLE_WEIGHTS = "example_weights"
_GZIP_MAGIC = b"\x1f\x8b"
_FILES_READ_TOGETHER = 16
# "original" is an earlier name of "full"; files of the original's script have no metadata.
_FULL, _COMPACT, _PACKED = ("full", "original"), "compact", record_metadata.PACKED
EVALUATION_SEED = 0  # seed of masks drawn while reading: every run evaluates the same masks

Schema = Mapping[str, tuple[int, tf.DType]]  # feature name -> (number of values, int64 or float32)


def pretraining_schema(max_seq_length: int, max_predictions_per_seq: int) -> Schema:
    """Features of a pretraining record (original create_pretraining_data.py:165-177).

    `next_sentence_labels` keeps its historic name: 0 = segments in order, 1 = swapped.
    """
    per_token = (max_seq_length, tf.int64)
    per_prediction = (max_predictions_per_seq, tf.int64)
    return {
        "input_ids": per_token,
        "input_mask": per_token,
        "segment_ids": per_token,
        "masked_lm_positions": per_prediction,
        "masked_lm_ids": per_prediction,
        "masked_lm_weights": (max_predictions_per_seq, tf.float32),
        "next_sentence_labels": (1, tf.int64),
    }


def packed_schema(row_length: int, slots: int, num_examples: int) -> Schema:
    """Features of a row of several examples, for `AlbertEncoder` and for the losses.

    Args:
      row_length: L.
      slots: P, predictions.
      num_examples: S.
    """
    schema = dict(pretraining_schema(row_length, slots))
    del schema["input_mask"]
    return {
        **schema,
        "example_numbers": (row_length, tf.int64),
        "position_ids": (row_length, tf.int64),
        "first_positions": (num_examples, tf.int64),
        "next_sentence_labels": (num_examples, tf.int64),
        packed_records.SENTENCE_WEIGHTS: (num_examples, tf.float32),
    }


# Columns of fine-tuning features whose values are floats.
_FLOAT_COLUMNS = frozenset({"label_scores"})


def feature_schema(
    columns: Mapping[str, int], names: Sequence[str], sequence_values: int
) -> Schema:
    """Features of a fine-tuning record.

    Args:
      columns: number of values of each column, by name; other names are sequences.
      names: the features to return.
      sequence_values: number of values of a sequence feature, choices x length.
    """
    types = {name: tf.float32 if name in _FLOAT_COLUMNS else tf.int64 for name in names}
    return {name: (columns.get(name, sequence_values), dtype) for name, dtype in types.items()}


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """A set of record files.

    Attributes:
      files: paths.
      counts: number of records in each file; a packed record is a row of several examples.
      compression: "" or "GZIP".
      metadata: the content of metadata.json; empty for files made by the original's script.
    """

    files: tuple[str, ...]
    counts: tuple[int, ...]
    compression: str
    metadata: Mapping

    @property
    def num_records(self) -> int:
        """Number of records in all files."""
        return sum(self.counts)

    @property
    def num_examples(self) -> int:
        """Number of examples in all files."""
        if not self.is_packed:
            return self.num_records
        examples = {shard["file"]: shard["examples"] for shard in self.metadata["shards"]}
        return sum(examples[_whole_path(path)] for path in self.files)

    @property
    def is_packed(self) -> bool:
        """Whether the records have the format of `packed_records`."""
        return self.metadata.get("record_format") == _PACKED

    @property
    def is_compact(self) -> bool:
        """Whether the records have the format of `compact_records`."""
        return self.metadata.get("record_format") == _COMPACT

    @property
    def has_dynamic_masks(self) -> bool:
        """Whether the records contain unmasked tokens, which are masked while reading."""
        return self.metadata.get("masking") == "dynamic"

    def require(self, flag: str, key: str, wanted: object) -> None:
        """Raises an error if the metadata of the records contradicts a setting.

        Raises:
          UserError: the metadata has another value for the key.
        """
        value = self.metadata.get(key, wanted)
        if value != wanted:
            folder = os.path.dirname(self.files[0])
            raise UserError(
                f"--{flag}={wanted} contradicts the records in {folder}, made with {key}={value}"
            )

    def require_vocabulary(self, flag: str, sha256: str, vocabulary: str, owner: str) -> None:
        """Raises an error if the records' metadata names another vocabulary.

        Args:
          flag: the flag that names the records.
          sha256: `Tokenizer.sha256` of the model's vocabulary.
          vocabulary: the file of the model's vocabulary, for the message.
          owner: the flag or word that stands for the model in the message.

        Raises:
          UserError: the vocabularies differ.
        """
        if self.metadata.get("spm_sha256", sha256) != sha256:
            raise UserError(
                f"--{flag}: the records were made with another vocabulary than {vocabulary}, that of"
                f" {owner}; make them with it, or give another checkpoint"
            )


# --- Finding and checking ---


def find_records(patterns: str, flag: str) -> RecordSet:
    """The records that a flag names.

    Args:
      patterns: files, globs or folders, separated by commas.
      flag: name of the flag, for messages.

    Raises:
      UserError: nothing matches; a file is empty, truncated or not a TFRecord file; the files do not belong together;
        or they are not the files that their metadata.json lists.
    """
    found = {pattern: _expand(pattern) for pattern in map(str.strip, patterns.split(","))}
    files = [path for paths in found.values() for path in paths]
    if not files:
        raise UserError(f"--{flag}={patterns}: no record files there (*.tfrecord*)")
    metadata = _common_metadata(files, flag)
    known = {shard["file"]: shard for shard in metadata["shards"]}
    _check_listed(found, known, flag)
    # A remote file answers slowly, but many can be read in parallel.
    with concurrent.futures.ThreadPoolExecutor(_FILES_READ_TOGETHER) as pool:
        shards = [known.get(_whole_path(path)) for path in files]
        examined = list(pool.map(functools.partial(_examine, flag), files, shards))
    counts, kinds = zip(*examined, strict=True)
    if len(set(kinds)) > 1:
        raise UserError(f"--{flag}: compressed and uncompressed files are mixed; give one kind")
    if not sum(counts):
        raise UserError(f"--{flag}={patterns}: the files hold no records")
    return RecordSet(tuple(files), counts, "GZIP" if kinds[0] else "", metadata)


def find_feature_records(folder: str, flag: str) -> RecordSet:
    """The fine-tuning records in a folder.

    Raises:
      UserError: see `find_records`; or they were not written with --write_records.
    """
    record_set = find_records(folder, flag)
    if "table_sha256" not in record_set.metadata:
        raise UserError(
            f"--{flag}={folder}: not written with --write_records of a fine-tuning program"
        )
    return record_set


def _expand(pattern: str) -> list[str]:
    pattern = _pattern_of(pattern)
    # Unlike the shell's "*", TensorFlow's "*" matches hidden names.
    paths = sorted(tf.io.gfile.glob(pattern))
    return [path for path in paths if not os.path.basename(path).startswith(".")]


def _pattern_of(pattern: str) -> str:
    """The pattern of the record files in a folder; any other pattern is returned unchanged."""
    is_folder = tf.io.gfile.isdir(pattern)
    return os.path.join(glob.escape(pattern), "*.tfrecord*") if is_folder else pattern


def _check_listed(
    found: Mapping[str, Sequence[str]], known: Mapping[str, Mapping], flag: str
) -> None:
    """Checks that the files are those that the metadata of their folders lists.

    Args:
      found: the files of each pattern.
      known: the listed files.
      flag: the flag that names the patterns.

    Raises:
      UserError: a file is not listed, or a listed one that matches a pattern is missing.
    """
    folders = {os.path.dirname(path) for path in known}
    for pattern, paths in found.items():
        whole = {_whole_path(path) for path in paths}
        for path in sorted(whole - known.keys()):
            if os.path.dirname(path) in folders:
                raise UserError(
                    f"--{flag}: {path} is not one of the files that {METADATA_FILE} in its folder lists; move it to"
                    " another folder, or delete it"
                )
        folders_of_pattern = {os.path.dirname(path) for path in whole}
        for path in sorted(known.keys() - whole):
            is_meant = fnmatch.fnmatch(path, _whole_path(_pattern_of(pattern)))
            if is_meant and os.path.dirname(path) in folders_of_pattern:
                raise UserError(
                    f"--{flag}: {path} is missing, but {METADATA_FILE} lists it; copy it again, or name each of the"
                    " files to be read"
                )


def _common_metadata(files: Sequence[str], flag: str) -> Mapping:
    metadata_of = {}
    folders = sorted({os.path.dirname(path) for path in files})
    for folder in folders:
        path = os.path.join(folder, METADATA_FILE)
        if file_system.exists(path):
            try:
                metadata_of[folder] = record_metadata.read(path)
            except UserError as error:
                raise UserError(f"--{flag}: {error}") from None
    _check_agreement(metadata_of, folders, flag)
    # Files of different folders may have the same names.
    shards = [
        {**shard, "file": _whole_path(os.path.join(folder, shard["file"]))}
        for folder, metadata in metadata_of.items()
        for shard in metadata.get("shards", ())
    ]
    common = {**next(iter(metadata_of.values()), {}), "shards": shards}
    if common.get("record_format") == _PACKED:
        counts = [metadata["counts"] for metadata in metadata_of.values()]
        names = (record_metadata.MOST_EXAMPLES, record_metadata.MOST_PREDICTIONS)
        common["counts"] = {name: max(of[name] for of in counts) for name in names}
    return common


def _whole_path(path: str) -> str:
    """A path with a single `/` before the name; paths from a glob may contain `//`."""
    return os.path.join(os.path.dirname(path), os.path.basename(path))


def _check_agreement(metadata_of: Mapping[str, Mapping], folders: Sequence[str], flag: str) -> None:
    """Checks the metadata of folders that are read together; a folder may have no metadata.

    Raises:
      UserError: the records differ in a setting that must be equal, or their format is unknown.
    """
    formats = [metadata_of.get(folder, {}).get("record_format", "full") for folder in folders]
    for folder, record_format in zip(folders, formats, strict=True):
        if record_format not in (*_FULL, _COMPACT, _PACKED):
            raise UserError(
                f"--{flag}: {folder} holds records of the format {record_format!r}, which this version does not know"
            )
    kinds = {"full" if record_format in _FULL else record_format for record_format in formats}
    if len(kinds) > 1:
        names = " and ".join(kind for kind in ("full", _COMPACT, _PACKED) if kind in kinds)
        raise UserError(f"--{flag}: {names} records are mixed; give one kind")
    first, *others = metadata_of.values() if metadata_of else ({},)
    for key in ("max_seq_length", "max_predictions_per_seq", "spm_sha256", "sentence_task"):
        if any(other.get(key) != first.get(key) for other in others):
            raise UserError(f"--{flag}: its folders were made with different {key}")
    masks = compact_records.mask_settings(first)
    if any(compact_records.mask_settings(other) != masks for other in others):
        raise UserError(f"--{flag}: its folders were made with different settings of masks")


def _examine(flag: str, path: str, shard: Mapping | None) -> tuple[int, bool]:
    """Number of records in a file, and whether it is compressed.

    The number comes from the metadata if there is any, otherwise from counting the file's frames.
    """
    if tf.io.gfile.isdir(path):
        raise UserError(f"--{flag}: {path} is a folder; expected TFRecord files")
    file_system.check_regular(path)
    try:
        size = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file:
            is_gzip = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if shard and not record_metadata.is_shard(shard, size, file):
                raise UserError(
                    f"--{flag}: {path} is not the file that {METADATA_FILE} lists ({size} bytes, listed are"
                    f" {shard['bytes']}): truncated or changed; make it again"
                )
    except tf.errors.OpError as error:
        raise UserError(f"--{flag}: {path} cannot be read ({first_line(error)})") from None
    if shard:
        return shard.get("rows", shard["examples"]), is_gzip
    try:
        with gzip.open(path) if is_gzip else tf.io.gfile.GFile(path, "rb") as file:
            return _count_frames(file, None if is_gzip else size), is_gzip
    except (EOFError, OSError, ValueError, zlib.error, tf.errors.OpError) as error:
        reason = first_line(error)
        raise UserError(f"--{flag}: {path} is not a complete TFRecord file ({reason})") from None


def _count_frames(file, size: int | None) -> int:
    """Counts TFRecord frames: length (8 bytes), its checksum (4), data, its checksum (4).

    Raises:
      ValueError: the file ends inside a frame.
    """
    count = 0
    position = 0
    while header := file.read(12):
        length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else None
        if length is None or (size is not None and position + 16 + length > size):
            raise ValueError(f"record {count} at byte {position} does not end inside the file")
        position += 16 + length
        file.seek(position)
        count += 1
    return count


def feature_lengths(record_set: RecordSet, flag: str) -> dict[str, int]:
    """Number of values of every feature of the first record.

    Raises:
      UserError: the record is damaged or not a tf.train.Example.
    """
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


def pretraining_lengths(
    record_set: RecordSet, flag: str, max_predictions_per_seq: int = 0
) -> tuple[int, int]:
    """L and P of pretraining records.

    Args:
      record_set: the records.
      flag: the flag that names the records, for messages.
      max_predictions_per_seq: maximum number of masked tokens if masks are drawn while reading; 0 uses the metadata's.

    Raises:
      UserError: they are not pretraining records.
    """
    metadata = record_set.metadata
    if record_set.is_packed:
        return metadata["max_seq_length"], metadata["counts"][record_metadata.MOST_PREDICTIONS]
    if record_set.is_compact:
        predictions = record_set.has_dynamic_masks and max_predictions_per_seq
        predictions = predictions or metadata["max_predictions_per_seq"]
        return metadata["max_seq_length"], compact_records.num_slots(metadata, predictions)
    lengths = feature_lengths(record_set, flag)
    if "pieces" in lengths:
        folder = os.path.dirname(record_set.files[0])
        raise UserError(
            f"--{flag}: compact records need the {METADATA_FILE} that was written with them, in {folder}"
        )
    for name in pretraining_schema(0, 0):
        if name not in lengths:
            raise UserError(
                f"--{flag}: {record_set.files[0]} has no feature {name!r}: no pretraining records"
            )
    return lengths["input_ids"], lengths["masked_lm_positions"]


def schema_of(record_set: RecordSet, flag: str, max_predictions_per_seq: int = 0) -> Schema:
    """The features of pretraining records, in any format; for the arguments see `pretraining_lengths`."""
    length, slots = pretraining_lengths(record_set, flag, max_predictions_per_seq)
    if record_set.is_packed:
        return packed_schema(length, slots, most_examples(record_set))
    return pretraining_schema(length, slots)


def most_examples(record_set: RecordSet) -> int:
    """S: the largest number of examples in a row of packed records."""
    return record_set.metadata["counts"][record_metadata.MOST_EXAMPLES]


def damaged_files(record_set: RecordSet, schema: Schema) -> list[str]:
    """The files with a record that cannot be read or parsed, each with the record's number; reads all files."""
    parse = parser(record_set, schema, EVALUATION_SEED)
    damaged = []
    for path in record_set.files:
        count = 0
        try:
            for record in tf.data.TFRecordDataset(path, record_set.compression):
                parse(tf.constant([count], tf.int64), record[None])
                count += 1
        except tf.errors.OpError as error:
            damaged.append(f"{path} (record {count}: {first_line(error)})")
    return damaged


# --- Reading ---


def parse_batch(serialized: tf.Tensor, schema: Schema) -> dict[str, tf.Tensor]:
    """Serialised examples, string [B] -> features [B, values], int32 (a TPU's integer) or float32."""
    fixed = {name: tf.io.FixedLenFeature([size], dtype) for name, (size, dtype) in schema.items()}
    features = tf.io.parse_example(serialized, fixed)
    integers = {name: value for name, value in features.items() if value.dtype == tf.int64}
    return features | {name: tf.cast(value, tf.int32) for name, value in integers.items()}


def parser(record_set: RecordSet, schema: Schema, seed: int) -> compact_records.Parser:
    """The function that parses the records of a set, in any format.

    Args:
      record_set: the records.
      schema: the features to return.
      seed: seed of the masks, if they are drawn while reading.
    """
    if not record_set.is_compact and not record_set.is_packed:
        return lambda _numbers, serialized: parse_batch(serialized, schema)
    max_seq_length, slots = schema["input_ids"][0], schema["masked_lm_positions"][0]
    metadata = record_set.metadata
    if record_set.is_packed:
        sizes = max_seq_length, slots, most_examples(record_set)
        if record_set.has_dynamic_masks:
            return packed_records.dynamic_parser(metadata, *sizes, seed)
        return packed_records.static_parser(*sizes)
    if record_set.has_dynamic_masks:
        return compact_records.dynamic_parser(metadata, max_seq_length, slots, seed)
    return compact_records.static_parser(max_seq_length, slots)


def first_batches(
    record_set: RecordSet, schema: Schema, batch_size: int
) -> Iterator[dict[str, tf.Tensor]]:
    """All records in order, in batches, parsed as in `evaluation_dataset`; the last batch may be smaller.

    Raises:
      UserError: a record is damaged; the error names its file.
    """
    parse = parser(record_set, schema, EVALUATION_SEED)
    try:
        yield from _ordered_records(record_set).batch(batch_size).map(parse)
    except tf.errors.OpError as error:
        damaged = ", ".join(damaged_files(record_set, schema))
        raise UserError(f"damaged records: {damaged or first_line(error)}") from None


def _ordered_records(record_set: RecordSet) -> tf.data.Dataset:
    """The numbers and serialised examples of the first epoch, in order."""
    return tf.data.TFRecordDataset(list(record_set.files), record_set.compression).enumerate()


@dataclasses.dataclass(frozen=True)
class Reading:
    """How records are read for training.

    Attributes:
      global_batch_size: records per step, over all devices.
      shuffle: whether files and examples are shuffled, differently in each epoch.
      buffer_examples: number of examples that are shuffled together.
      seed: seed of the order, and of the masks if they are drawn while reading.
      first_step: step to start at; the examples of earlier steps are skipped.
    """

    global_batch_size: int
    shuffle: bool
    buffer_examples: int
    seed: int
    first_step: int = 0


def training_dataset(
    record_set: RecordSet,
    schema: Schema,
    reading: Reading,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """An endless stream of batches for one device, in an order that depends only on the settings.

    With several input pipelines (workers) and enough files, each pipeline reads its own files; otherwise all read the
    same stream and take their batches in turn.

    Args:
      record_set: the records.
      schema: how to parse them.
      reading: batch size, order and start.
      context: index and number of input pipelines; None means a single pipeline.

    Returns:
      Dataset of dictionaries of [B, values] tensors with static shapes.
    """
    context = context or tf.distribute.InputContext()
    pipelines, index = context.num_input_pipelines, context.input_pipeline_id
    device_batch = context.get_per_replica_batch_size(reading.global_batch_size)
    pipeline_batch = reading.global_batch_size // pipelines
    own_files = pipelines == 1 or len(record_set.files) >= pipelines
    if own_files:
        files = slice(index, None, pipelines)
        dataset = _endless_records(record_set, files, reading, reading.first_step * pipeline_batch)
    else:
        first = reading.first_step * reading.global_batch_size
        dataset = _endless_records(record_set, slice(None), reading, first)
        dataset = dataset.batch(pipeline_batch).shard(pipelines, index).unbatch()
    parse = parser(record_set, schema, reading.seed)
    return endless(_parsed_batches(dataset, device_batch, parse))


def evaluation_dataset(
    record_set: RecordSet,
    schema: Schema,
    global_batch_size: int,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """All records once, in order; the last batch is padded with examples of weight 0.

    Args:
      record_set: the records.
      schema: how to parse them.
      global_batch_size: records per step, over all devices.
      context: index and number of input pipelines; None means a single pipeline.

    Returns:
      Dataset of dictionaries of [B, values] tensors with `example_weights` [B]; static shapes.
    """
    context = context or tf.distribute.InputContext()
    pipelines, index = context.num_input_pipelines, context.input_pipeline_id
    device_batch = context.get_per_replica_batch_size(global_batch_size)
    records = _ordered_records(record_set)
    padding = records.take(1).repeat(-record_set.num_records % global_batch_size)
    ones, zeros = (tf.data.Dataset.from_tensors(weight).repeat() for weight in (1.0, 0.0))
    zip_datasets = tf.data.Dataset.zip
    weighted = zip_datasets(records, ones).concatenate(zip_datasets(padding, zeros))
    if pipelines > 1:
        weighted = weighted.batch(global_batch_size // pipelines).shard(pipelines, index).unbatch()
    parse_records = parser(record_set, schema, EVALUATION_SEED)

    def parse(numbered, weights):
        return {**parse_records(*numbered), EXAMPLE_WEIGHTS: weights}

    return _prefetched(_parsed_batches(weighted, device_batch, parse))


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """An endless dataset that is read ahead in a fixed order and not sharded by workers."""
    # Without this, multi-worker strategies would look for an end of the data and lose the static shapes.
    asserted = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return _prefetched(dataset.apply(asserted))


def _prefetched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)


def _parsed_batches(dataset: tf.data.Dataset, size: int, parse: Callable) -> tf.data.Dataset:
    batches = dataset.batch(size, drop_remainder=True)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def _file_order(num_files: int, shuffle: bool, seed: int, epoch) -> tf.Tensor:
    """Order in which an epoch takes the files, int64 [number of files]."""
    order = tf.range(num_files, dtype=tf.int64)
    if not shuffle:
        return order
    return tf.random.experimental.stateless_shuffle(order, seed=[tf.cast(seed, tf.int64), epoch])


def _endless_records(
    record_set: RecordSet, chosen: slice, reading: Reading, first_example: int
) -> tf.data.Dataset:
    """The serialised examples of some files with their numbers, epoch after epoch, beginning at an example.

    An epoch reads its files in groups. The records of a group are interleaved and shuffled. A start in the middle of an
    epoch therefore skips whole groups without reading them, and replays at most one group.
    """
    counts = record_set.counts[chosen]
    num_files = len(counts)
    group_size = min(_FILES_READ_TOGETHER, num_files) if reading.shuffle else 1
    groups_per_epoch = -(-num_files // group_size)
    files = tf.constant(record_set.files[chosen])
    # Indices among the examples of all files, even if only some files are read here.
    first_indices = tf.constant(np.cumsum([0, *record_set.counts])[:-1][chosen], tf.int64)
    first_group, skipped = _locate(counts, reading, group_size, first_example)

    def file_records(path, first_number):
        return tf.data.TFRecordDataset(path, record_set.compression).enumerate(first_number)

    def group_records(group):
        epoch, group_of_epoch = group // groups_per_epoch, group % groups_per_epoch
        order = _file_order(num_files, reading.shuffle, reading.seed, epoch)
        group_files = order[group_of_epoch * group_size : (group_of_epoch + 1) * group_size]
        first_numbers = tf.gather(first_indices, group_files) + epoch * record_set.num_records
        sources = (tf.gather(files, group_files), first_numbers)
        records = tf.data.Dataset.from_tensor_slices(sources).interleave(
            file_records,
            cycle_length=group_size,
            num_parallel_calls=tf.data.AUTOTUNE if group_size > 1 else None,
        )
        if reading.shuffle:
            seed = tf.cast(reading.seed, tf.int64) + 1_000_003 * group
            size = reading.buffer_examples
            records = records.shuffle(size, seed=seed, reshuffle_each_iteration=False)
        skip = tf.constant(skipped, tf.int64) * tf.cast(group == first_group, tf.int64)
        return records.skip(skip)

    groups = tf.data.Dataset.range(first_group, np.iinfo(np.int64).max)
    return groups.flat_map(group_records)


def _locate(
    counts: Sequence[int], reading: Reading, group_size: int, first_example: int
) -> tuple[int, int]:
    """The group of an example, counted over all epochs, and how many examples of the group come before it."""
    num_files = len(counts)
    epoch, rest = divmod(first_example, sum(counts))
    order = _file_order(num_files, reading.shuffle, reading.seed, tf.constant(epoch, tf.int64))
    firsts_of_groups = range(0, num_files, group_size)
    ends = np.cumsum(np.add.reduceat(np.array(counts)[order.numpy()], firsts_of_groups))
    group = int(np.searchsorted(ends, rest, side="right"))
    return epoch * len(ends) + group, rest - (int(ends[group - 1]) if group else 0)
