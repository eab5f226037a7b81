"""The order in which records are read: datasets that shuffle and batch them.

The order is a pure function of (seed, epoch), so that a run can be resumed at any example without replaying an epoch.
Every record has a number that does not depend on the order: epoch * records in an epoch + its index among them. Random
numbers for a record, such as those for its masks, are a function of this number.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError, first_line
from albert_tf.data.record_formats.base import Schema
from albert_tf.data.record_set import RecordSet

# float [B]: 1 = a real example, 0 = padding of an evaluation's last batch.
EXAMPLE_WEIGHTS = "example_weights"
EVALUATION_SEED = 0  # seed of masks drawn while reading: every run evaluates the same masks
_FILES_READ_TOGETHER = 16
_RECORDS_CHECKED_TOGETHER = 64


def example_weights(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """float32 [B]: 0 for examples that only pad an evaluation's batch."""
    rows = features.get("example_places", features["input_ids"])  # packed: not as many as examples
    return features.get(EXAMPLE_WEIGHTS, tf.ones(tf.shape(rows)[:1]))


def first_batches(
    record_set: RecordSet, schema: Schema, batch_size: int
) -> Iterator[dict[str, tf.Tensor]]:
    """All records in order, in batches, parsed as in `evaluation_dataset`; the last batch may be smaller."""
    parse = record_set.format.parser(record_set.metadata, schema, EVALUATION_SEED)
    try:
        yield from _ordered_records(record_set).batch(batch_size).map(parse)
    except tf.errors.OpError as error:
        path = damaged_file(record_set, schema) or record_set.files[0]
        raise UserError(f"{path}: damaged records ({first_line(error)})") from None


def damaged_file(record_set: RecordSet, schema: Schema) -> str:
    """The first file with a record that cannot be read; "" if there is none. TensorFlow's errors do not name it."""
    parse = record_set.format.parser(record_set.metadata, schema, EVALUATION_SEED)
    for path in record_set.files:
        records = tf.data.TFRecordDataset(path).enumerate()
        try:
            for _ in records.batch(_RECORDS_CHECKED_TOGETHER).map(parse):
                pass
        except tf.errors.OpError:
            return path
    return ""


def _ordered_records(record_set: RecordSet) -> tf.data.Dataset:
    """The numbers and serialized examples of the first epoch, in order."""
    return tf.data.TFRecordDataset(list(record_set.files)).enumerate()


@dataclasses.dataclass(frozen=True)
class Reading:
    """How records are read for training."""

    global_batch_size: int  # records per step, over all devices
    shuffle: bool  # files and records, differently in each epoch
    buffer_examples: int  # number of records that are shuffled together
    seed: int  # of the order, and of the masks if they are drawn while reading
    first_step: int = 0  # the records of earlier steps are skipped
    parts: int = 1  # devices x micro-batches, among which the records of a step are divided


def training_dataset(
    record_set: RecordSet,
    schema: Schema,
    reading: Reading,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """An endless stream of batches for one device, [B, values], in an order that depends only on the settings.

    Several input pipelines (workers) all read the same stream and take their shares of it in turn, so that the batches
    of a step do not depend on their number; only the records of its share are parsed by a worker. If the records of a
    step cannot be divided evenly, parts differ by one record, and shorter ones have an empty record.
    """
    context = context or tf.distribute.InputContext()
    pipelines = context.num_input_pipelines
    index = context.input_pipeline_id
    size = reading.global_batch_size
    parts = max(reading.parts, context.num_replicas_in_sync)
    # 7 records of a step for 2 pipelines: 4 and 3; the second takes those from 4 on.
    shares = [len(share) for share in np.array_split(np.arange(size), pipelines)]
    first = sum(shares[:index])
    share = shares[index]
    dataset = _endless_records(record_set, reading)
    if pipelines > 1:
        dataset = _share(dataset, size, np.arange(first, first + share))
    width = -(-size // parts)
    if size % parts:
        dataset = _share(dataset, share, _places(share, parts // pipelines, width))
    parse = record_set.format.parser(record_set.metadata, schema, reading.seed)
    device_batch = width * parts // context.num_replicas_in_sync
    return endless(_parsed_batches(dataset, device_batch, parse))


def _places(size: int, parts: int, width: int) -> np.ndarray:
    """For each part, the indices of its `width` records among the `size` of a batch; -1 where it has no record."""
    pieces = np.array_split(np.arange(size), parts)
    padded = [np.pad(piece, (0, width - len(piece)), constant_values=-1) for piece in pieces]
    return np.concatenate(padded)


def _share(dataset: tf.data.Dataset, size: int, places: np.ndarray) -> tf.data.Dataset:
    """Of each `size` elements those at some places, in their order; an element of zeros and "" at a place of -1."""

    def take(*columns):
        with_zero = (tf.concat([column, tf.zeros_like(column[:1])], 0) for column in columns)
        return tuple(tf.gather(column, places % (size + 1)) for column in with_zero)

    return dataset.batch(size, drop_remainder=True).map(take).unbatch()


def evaluation_dataset(
    record_set: RecordSet,
    schema: Schema,
    global_batch_size: int,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """All records once, in order; the last batch is padded with records of weight 0 (`example_weights` [B])."""
    context = context or tf.distribute.InputContext()
    pipelines = context.num_input_pipelines
    index = context.input_pipeline_id
    size = global_batch_size
    devices = context.num_replicas_in_sync

    # 10 records, batches of 4 -> 12 records, of which the last two, copies of the first, have the weight 0.
    records = _ordered_records(record_set)
    padding = records.take(1).repeat(-record_set.num_records % size)
    ones = tf.data.Dataset.from_tensors(1.0).repeat()
    zeros = tf.data.Dataset.from_tensors(0.0).repeat()
    zip_datasets = tf.data.Dataset.zip
    weighted = zip_datasets(records, ones).concatenate(zip_datasets(padding, zeros))
    weighted = weighted.map(lambda numbered, weight: (*numbered, weight))

    # A batch of 4 on 3 devices -> 2 places on each, of which those of this pipeline are read.
    width = -(-size // devices)
    places = _places(size, devices, width).reshape(pipelines, -1)[index]
    if pipelines > 1 or size % devices:
        weighted = _share(weighted, size, places)
    parse_records = record_set.format.parser(record_set.metadata, schema, EVALUATION_SEED)

    def parse(numbers, serialized, weights):
        return {**parse_records(numbers, serialized), EXAMPLE_WEIGHTS: weights}

    return _prefetched(_parsed_batches(weighted, width, parse))


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


def _file_order(num_files: int, reading: Reading, epoch) -> tf.Tensor:
    """Order in which an epoch takes the files, int64 [number of files]."""
    order = tf.range(num_files, dtype=tf.int64)
    if not reading.shuffle:
        return order
    seed = [tf.cast(reading.seed, tf.int64), epoch]
    return tf.random.experimental.stateless_shuffle(order, seed)


def _endless_records(record_set: RecordSet, reading: Reading) -> tf.data.Dataset:
    """The serialized examples of all files with their numbers, epoch after epoch, beginning with the first step.

    An epoch reads its files in groups. The records of a group are interleaved and shuffled. A start in the middle of an
    epoch therefore skips whole groups without reading them, and replays at most one group.
    """
    # 5 files in groups of 2 -> 3 groups in an epoch, the last of 1 file.
    counts = record_set.counts
    num_files = len(counts)
    group_size = min(_FILES_READ_TOGETHER, num_files) if reading.shuffle else 1
    groups_per_epoch = -(-num_files // group_size)

    # Files of [7, 3, 4, 4, 9] records begin at the records [0, 7, 10, 14, 18] of an epoch.
    files = tf.constant(record_set.files)
    first_indices = tf.constant(np.cumsum([0, *counts])[:-1], tf.int64)
    first_example = reading.first_step * reading.global_batch_size
    first_group, skipped = _locate(counts, reading, group_size, first_example)

    def file_records(path, first_number):
        return tf.data.TFRecordDataset(path).enumerate(first_number)

    def group_records(group):
        # Group 4 is the second of epoch 1: of its files' order [3, 0, 2, 4, 1], the files [2, 4].
        epoch = group // groups_per_epoch
        group_of_epoch = group % groups_per_epoch
        order = _file_order(num_files, reading, epoch)
        group_files = order[group_of_epoch * group_size : (group_of_epoch + 1) * group_size]
        # Records are numbered over all epochs: those of the files [2, 4] from [10 + 27, 18 + 27].
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
    order = _file_order(num_files, reading, tf.constant(epoch, tf.int64))
    # Files of 10, 20, 30 and 40 records in groups of 2 -> the groups end before [30, 100]; before example 35, group 1
    # has 5 others.
    firsts_of_groups = range(0, num_files, group_size)
    ends = np.cumsum(np.add.reduceat(np.array(counts)[order.numpy()], firsts_of_groups))
    group = int(np.searchsorted(ends, rest, side="right"))
    start_of_group = int(ends[group - 1]) if group else 0
    return epoch * len(ends) + group, rest - start_of_group
