"""Features of a data set in memory, and which of its examples make up which batch.

Sequences stand end to end without padding; they are padded when a batch is made, to the shortest of a few fixed lengths
that holds them. What a batch consists of is a pure function of the settings, the seed and the step, so that a run
can be taken up at any step.
"""

import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

# What a sequence is filled up with, where it is not 0.
PADDING = {"p_mask": 1}
_FILE_VERSION = 1


@dataclasses.dataclass(frozen=True)
class FeatureTable:
    """Examples of one or more sequences each.

    Attributes:
      row_splits: int64 [sequences + 1]; sequence i holds the values from row_splits[i] to row_splits[i + 1].
      sequences: name -> int32 [values]; one value a piece, in the order of the sequences.
      columns: name -> int32 or float32 [examples, values].
      choices: sequences of an example; example i has the sequences from i * choices on.

    Raises:
      ValueError: the arrays do not fit together.
    """

    row_splits: np.ndarray
    sequences: Mapping[str, np.ndarray]
    columns: Mapping[str, np.ndarray]
    choices: int = 1

    def __post_init__(self):
        for name, values in self.sequences.items():
            if values.shape != (self.row_splits[-1],) or values.dtype != np.int32:
                raise ValueError(
                    f"{name} must be int32 [{self.row_splits[-1]}], got {values.dtype} {values.shape}"
                )
        for name, values in self.columns.items():
            if values.ndim != 2 or len(values) != len(self):
                raise ValueError(f"{name} must be [{len(self)}, values], got {values.shape}")

    def __len__(self) -> int:
        return (len(self.row_splits) - 1) // self.choices

    @property
    def lengths(self) -> np.ndarray:
        """Length of the longest sequence of each example, int64 [examples]."""
        return np.diff(self.row_splits).reshape(-1, self.choices).max(axis=1)

    def sequence(self, name: str, index: int) -> np.ndarray:
        """The values of one sequence."""
        return self.sequences[name][self.row_splits[index] : self.row_splits[index + 1]]

    def batch(
        self, examples: np.ndarray, length: int, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Padded features of some examples.

        Args:
          examples: int [B], their indices.
          length: L, at least their longest sequence's.
          names: sequences and columns wanted.

        Returns:
          Sequences int32 [B, L], or [B, C, L] where an example has several, with `input_mask` (1 = a piece);
          columns [B, values].
        """
        rows = (np.asarray(examples)[:, None] * self.choices + np.arange(self.choices)).ravel()
        starts, ends = self.row_splits[rows], self.row_splits[rows + 1]
        positions = starts[:, None] + np.arange(length)
        is_piece = positions < ends[:, None]
        shape = (-1, length) if self.choices == 1 else (-1, self.choices, length)
        taken = np.where(is_piece, positions, 0)
        features = {"input_mask": is_piece.astype(np.int32).reshape(shape)}
        for name in names:
            if name in self.columns:
                features[name] = self.columns[name][examples]
            else:
                values = np.where(is_piece, self.sequences[name][taken], PADDING.get(name, 0))
                features[name] = values.astype(np.int32).reshape(shape)
        return features

    def select(self, examples: np.ndarray) -> "FeatureTable":
        """The table of some examples, in the order given."""
        rows = (np.asarray(examples)[:, None] * self.choices + np.arange(self.choices)).ravel()
        pieces = [np.arange(self.row_splits[row], self.row_splits[row + 1]) for row in rows]
        taken = np.concatenate([np.zeros(0, np.int64), *pieces])
        lengths = np.diff(self.row_splits)[rows]
        return FeatureTable(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            {name: values[taken] for name, values in self.sequences.items()},
            {name: values[examples] for name, values in self.columns.items()},
            self.choices,
        )

    @classmethod
    def from_rows(
        cls,
        sequences: Mapping[str, Sequence[Sequence[int]]],
        columns: Mapping[str, Sequence],
        choices: int = 1,
    ) -> "FeatureTable":
        """A table of Python lists.

        Example:
          from_rows({"input_ids": [[2, 7, 3], [2, 3]]}, {"label_ids": [1, 0]}) has 2 examples and 5 pieces.

        Args:
          sequences: name -> for each sequence its values.
          columns: name -> for each example a number or a list of numbers; floats make a float32 column.
          choices: sequences of an example.
        """
        rows = next(iter(sequences.values()))
        row_splits = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        flat = {
            name: np.fromiter((value for row in rows for value in row), np.int32)
            for name, rows in sequences.items()
        }
        fixed = {name: _as_column(values) for name, values in columns.items()}
        return cls(row_splits, flat, fixed, choices)

    @classmethod
    def concatenate(cls, tables: Sequence["FeatureTable"]) -> "FeatureTable":
        """One table of several, which must have the same names; at least one."""
        first = tables[0]
        offsets = np.cumsum([0, *(table.row_splits[-1] for table in tables)])
        splits = [
            table.row_splits[1:] + offset
            for table, offset in zip(tables, offsets[:-1], strict=True)
        ]
        return cls(
            np.concatenate([[0], *splits]).astype(np.int64),
            {
                name: np.concatenate([table.sequences[name] for table in tables])
                for name in first.sequences
            },
            {
                name: np.concatenate([table.columns[name] for table in tables])
                for name in first.columns
            },
            first.choices,
        )

    def to_bytes(self) -> bytes:
        """The table as the bytes of an .npz file."""
        arrays = {"row_splits": self.row_splits, "choices": np.array([self.choices, _FILE_VERSION])}
        arrays.update({f"sequence/{name}": values for name, values in self.sequences.items()})
        arrays.update({f"column/{name}": values for name, values in self.columns.items()})
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def from_file(cls, path: str) -> "FeatureTable":
        """Reads what `to_bytes` gave.

        Raises:
          ValueError: the file is damaged or of another version.
          OSError: it cannot be read.
        """
        with np.load(path, allow_pickle=False) as arrays:
            if "choices" not in arrays or arrays["choices"][1] != _FILE_VERSION:
                raise ValueError("not a table of this version")
            named = {"sequence": {}, "column": {}}
            for name in arrays.files:
                kind, _, rest = name.partition("/")
                if rest:
                    named[kind][rest] = arrays[name]
            choices = int(arrays["choices"][0])
            return cls(arrays["row_splits"], named["sequence"], named["column"], choices)


def _as_column(values: Sequence) -> np.ndarray:
    array = np.asarray(values)
    array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    return array.reshape(len(array), -1)


# --- Which examples make up which batch ---


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some examples and the length that their sequences are padded to.

    Attributes:
      examples: int64 [B], indices; -1 fills up an evaluation's batch.
      length: L.
    """

    examples: np.ndarray
    length: int


def bucket_of(lengths: np.ndarray, buckets: Sequence[int]) -> np.ndarray:
    """Index of the shortest bucket that holds each example, int64 [examples]; buckets ascend."""
    return np.searchsorted(np.asarray(buckets), lengths, side="left")


def training_batches(
    lengths: np.ndarray,
    buckets: Sequence[int],
    batch_size: int,
    seed: int,
    shuffle: bool = True,
) -> Iterator[Batch]:
    """An endless stream of batches; each epoch has every example once, in a new order.

    What does not fill a batch of its bucket goes on to the next longer one, and what is left of the longest bucket
    comes first in the next epoch, so that no example is dropped or repeated.

    Args:
      lengths: of the examples, int [examples].
      buckets: ascending lengths to pad to; the last holds every example.
      batch_size: examples in a batch.
      seed: of the order.
      shuffle: whether there is an order other than the table's.
    """
    bucket = bucket_of(lengths, buckets)
    left = np.zeros(0, np.int64)
    epoch = 0
    while True:
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(lengths)) if shuffle else np.arange(len(lengths))
        order = np.concatenate([left, order])
        batches = []
        left = np.zeros(0, np.int64)
        for index, length in enumerate(buckets):
            waiting = np.concatenate([left, order[bucket[order] == index]])
            whole = len(waiting) // batch_size * batch_size
            batches += [
                Batch(examples, length) for examples in waiting[:whole].reshape(-1, batch_size)
            ]
            left = waiting[whole:]
        if shuffle:
            batches = [batches[index] for index in rng.permutation(len(batches))]
        yield from batches
        epoch += 1


def evaluation_batches(lengths: np.ndarray, buckets: Sequence[int], batch_size: int) -> list[Batch]:
    """Batches that hold every example once; a bucket's last one is filled up with -1."""
    bucket = bucket_of(lengths, buckets)
    batches = []
    for index, length in enumerate(buckets):
        of_bucket = np.flatnonzero(bucket == index)
        filled = np.concatenate([of_bucket, np.full(-len(of_bucket) % batch_size, -1)])
        batches += [Batch(examples, length) for examples in filled.reshape(-1, batch_size)]
    return batches


def lengths_to_pad_to(lengths: Iterable[int], max_length: int, num_buckets: int) -> tuple[int, ...]:
    """A few lengths, multiples of 8 below `max_length`, that hold about as many examples each.

    Example:
      ([3, 5, 9, 12, 30, 31], 64, 3) -> (8, 24, 64)

    Args:
      lengths: of the examples.
      max_length: the longest bucket.
      num_buckets: most buckets; 1 pads everything to `max_length`.
    """
    shares = np.arange(1, num_buckets) / num_buckets
    inner = np.quantile(np.fromiter(lengths, np.int64), shares) if num_buckets > 1 else []
    rounded = {int(-(-length // 8) * 8) for length in inner}
    return (*sorted(length for length in rounded if length < max_length), max_length)
