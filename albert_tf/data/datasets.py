"""Datasets of the training loop, which read batches from record files or from a table of features.

Training batches are a function of (seed, step), so that a run can be resumed at any step. Evaluation batches contain
every example once. With several input pipelines (workers), each pipeline provides its part of a batch.
"""

import abc
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data import feature_table, reading
from albert_tf.data.feature_table import Batch, FeatureTable
from albert_tf.data.reading import EXAMPLE_WEIGHTS
from albert_tf.data.record_formats.packed import MAX_EXAMPLES_PER_ROW
from albert_tf.data.record_set import RecordSet

# int32 [B]: index of the example in the table; -1 pads an evaluation's last batches.
EXAMPLE_INDEX = "example_index"
_SHORTEST_ROW = 64  # of packed examples
Spec = Mapping[str, tf.TensorSpec]


class Data(abc.ABC):
    """A source of batches."""

    num_examples: int

    def records_in(self, batch_size: int) -> int:
        """Number of records in a batch of about `batch_size` examples; with packed records, it is smaller."""
        return batch_size

    def examples_in(self, batch_size: int) -> float:
        """Average number of examples in such a batch."""
        return batch_size

    @abc.abstractmethod
    def spec(self, batch_size: int) -> Spec:
        """Shapes and types of a training batch."""

    @abc.abstractmethod
    def training_dataset(
        self, batch_size: int, *, seed: int, first_step: int, context: tf.distribute.InputContext
    ) -> tf.data.Dataset:
        """An endless stream of one device's parts of the global batches, beginning at a step."""

    @abc.abstractmethod
    def evaluation_dataset(
        self, batch_size: int, context: tf.distribute.InputContext
    ) -> tf.data.Dataset:
        """One device's parts of the global batches that contain every example once; repeated endlessly."""

    @abc.abstractmethod
    def evaluation_steps(self, batch_size: int) -> int:
        """Number of global batches that contain every example once."""

    def damaged_file(self) -> str:
        """The path of the first file that cannot be read to its end; "" if there is none."""
        return ""


class RecordData(Data):
    """Pretraining examples in record files; training shuffles `buffer_examples` at a time, in each epoch differently.

    `parts`: devices x accumulated micro-batches, to which the records of a training batch are dealt out.
    """

    def __init__(self, record_set: RecordSet, shuffle: bool, buffer_examples: int, *, parts: int):
        self.record_set = record_set
        self.schema = record_set.schema
        self.num_examples = record_set.num_examples
        self._order = {"shuffle": shuffle, "buffer_examples": buffer_examples, "parts": parts}

    def records_in(self, batch_size: int) -> int:
        # Rounded for the whole batch: how it is divided must not change it.
        records = batch_size * self.record_set.num_records / self.num_examples
        return max(1, round(records))

    def examples_in(self, batch_size: int) -> float:
        return self.records_in(batch_size) * self.num_examples / self.record_set.num_records

    def spec(self, batch_size: int) -> Spec:
        integer = {tf.int64: tf.int32}  # as in full.parse_batch
        return {
            name: tf.TensorSpec([batch_size, size], integer.get(dtype, dtype))
            for name, (size, dtype) in self.schema.items()
        }

    def training_dataset(self, batch_size, *, seed, first_step, context):
        size = self.records_in(batch_size)
        order = reading.Reading(size, seed=seed, first_step=first_step, **self._order)
        return reading.training_dataset(self.record_set, self.schema, order, context)

    def evaluation_dataset(self, batch_size, context):
        # The caller knows the number of steps; an endless dataset keeps its static shapes under every strategy.
        size = self.records_in(batch_size)
        dataset = reading.evaluation_dataset(self.record_set, self.schema, size, context)
        return dataset.repeat()

    def evaluation_steps(self, batch_size: int) -> int:
        return -(-self.record_set.num_records // self.records_in(batch_size))

    def damaged_file(self) -> str:
        return reading.damaged_file(self.record_set, self.schema)


class TableData(Data):
    """The `names` of examples in memory, padded to one of a few ascending lengths, the last of which fits all.

    `by_length` says whether a training batch has examples of similar length (`feature_table.training_batches`), and
    `packed` whether they are packed into rows of the batch's length, or of 64.
    """

    def __init__(
        self,
        table: FeatureTable,
        names: Sequence[str],
        buckets: Sequence[int],
        *,
        by_length: bool = False,
        packed: bool = False,
    ):
        self.table = table
        self.num_examples = len(table)
        self._by_length = by_length
        self._names = tuple(names)
        self._buckets = tuple(buckets)
        self._packed = packed

    def spec(self, batch_size: int) -> Spec:
        if not self._packed:
            return self._spec_of_padded(batch_size)
        names = ["input_mask", "example_numbers", "position_ids", *self._names]
        of_row = tf.TensorSpec([None, None], tf.int32)
        rows = {name: of_row for name in names if name not in self.table.columns}
        rows["first_positions"] = tf.TensorSpec([None, MAX_EXAMPLES_PER_ROW], tf.int32)
        places = tf.TensorSpec([batch_size], tf.int32)
        return {**self._spec_of_padded(batch_size), **rows, "example_places": places}

    def _spec_of_padded(self, batch_size: int) -> Spec:
        # A sequence has length None if there are several buckets.
        length = self._buckets[0] if len(self._buckets) == 1 else None
        choices = [] if self.table.choices == 1 else [self.table.choices]
        of_sequence = tf.TensorSpec([batch_size, *choices, length], tf.int32)
        columns = {
            name: tf.TensorSpec([batch_size, column.shape[1]], column.dtype)
            for name, column in self.table.columns.items()
        }
        features = {name: columns.get(name, of_sequence) for name in self._names}
        of_any_table = {
            "input_mask": of_sequence,
            EXAMPLE_INDEX: tf.TensorSpec([batch_size], tf.int32),
        }
        return of_any_table | features

    def training_dataset(self, batch_size, *, seed, first_step, context):
        def parts():
            batches = feature_table.training_batches(
                self.table.lengths, self._buckets, batch_size, seed, by_length=self._by_length
            )
            for batch in itertools.islice(batches, first_step, None):
                yield from self._parts(batch, context, packed=self._packed)

        signature = self.spec(batch_size // context.num_replicas_in_sync)
        return reading.endless(tf.data.Dataset.from_generator(parts, output_signature=signature))

    def evaluation_dataset(self, batch_size, context):
        batches = feature_table.evaluation_batches(self.table.lengths, self._buckets, batch_size)
        device_batch = batch_size // context.num_replicas_in_sync

        def parts():
            for batch in itertools.cycle(batches):
                for part in self._parts(batch, context, packed=False):
                    part[EXAMPLE_WEIGHTS] = (part[EXAMPLE_INDEX] >= 0).astype(np.float32)
                    yield part

        weights = tf.TensorSpec([device_batch], tf.float32)
        signature = {**self._spec_of_padded(device_batch), EXAMPLE_WEIGHTS: weights}
        return reading.endless(tf.data.Dataset.from_generator(parts, output_signature=signature))

    def evaluation_steps(self, batch_size: int) -> int:
        return -(-self.num_examples // batch_size)

    def _parts(
        self, batch: Batch, context: tf.distribute.InputContext, *, packed: bool
    ) -> Iterator[dict[str, np.ndarray]]:
        """For each device of this pipeline, its part of a batch."""
        pipelines = context.num_input_pipelines
        of_pipeline = np.split(batch.examples, pipelines)[context.input_pipeline_id]
        for examples in np.split(of_pipeline, context.num_replicas_in_sync // pipelines):
            if packed:
                row_length = max(_SHORTEST_ROW, batch.length)
                part = self.table.packed_batch(
                    examples, row_length, MAX_EXAMPLES_PER_ROW, self._names
                )
            else:
                part = self.table.batch(np.maximum(examples, 0), batch.length, self._names)
            part[EXAMPLE_INDEX] = examples.astype(np.int32)
            yield part
