"""Features of a data set in memory, without padding, and the examples of each batch.

A batch is padded to the shortest of a few fixed lengths that is long enough. Its examples are a pure function of the
settings, the seed and the step, so that a run can be resumed at any step.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

# The values by which sequences are padded, if they are not 0.
PADDING = {"p_mask": 1}


@dataclasses.dataclass(frozen=True)
class FeatureTable:
    """Examples of one or more sequences each (`choices`); those of example i begin at i * choices."""

    row_splits: np.ndarray  # int64 [sequences + 1], where each sequence begins, and the end
    sequences: Mapping[str, np.ndarray]  # name -> int32 [values], sequence after sequence
    columns: Mapping[str, np.ndarray]  # name -> int32 or float32 [examples, values]
    choices: int = 1
    # Name of a setting that limits a length -> int64 [texts], the number of tokens that each text would have without
    # the limit. It is for reports: `sha256` does not include it.
    uncut_lengths: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

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
        """Features of the examples [B] with some indices, padded to a length L, which must be enough.

        Sequences are int32 [B, L], or [B, C, L] of several, with `input_mask` (1 = a token); columns [B, values].
        """
        rows = (np.asarray(examples)[:, None] * self.choices + np.arange(self.choices)).ravel()
        starts, ends = self.row_splits[rows], self.row_splits[rows + 1]
        positions = starts[:, None] + np.arange(length)
        is_token = positions < ends[:, None]
        shape = (-1, length) if self.choices == 1 else (-1, self.choices, length)
        taken = np.where(is_token, positions, 0)
        features = {"input_mask": is_token.astype(np.int32).reshape(shape)}
        for name in names:
            if name in self.columns:
                features[name] = self.columns[name][examples]
            else:
                values = np.where(is_token, self.sequences[name][taken], PADDING.get(name, 0))
                features[name] = values.astype(np.int32).reshape(shape)
        return features

    def packed_batch(
        self, examples: np.ndarray, length: int, most: int, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Features of the examples [B] with some indices, in rows of a length L, which fits each, of at most S.

        Sequences are int32 [R, L], with what `AlbertEncoder.call` needs of packed rows; columns are [B, values], and
        `example_places` [B] are row * S + place of each example. R is a multiple of B / 16: a CPU compiles each R.
        """
        from albert_tf.data.pretraining_examples import pack

        sizes = self.row_splits[examples + 1] - self.row_splits[examples]
        order, per_row = pack(sizes, length, most)
        padded = self.batch(examples[order], int(sizes.max()), names)
        example, position = np.nonzero(padded["input_mask"])
        row = np.repeat(np.arange(len(per_row)), per_row)
        place = np.concatenate([*map(np.arange, per_row)])
        first = np.cumsum(sizes[order]) - sizes[order]
        first -= np.repeat(first[place == 0], per_row)
        num_rows = len(per_row) + -len(per_row) % max(1, len(examples) // 16)
        tokens = {"example_numbers": place[example] + 1, "position_ids": position}
        for name in padded.keys() - self.columns.keys():
            tokens[name] = padded[name][example, position]
        features = {name: self.columns[name][examples] for name in names if name in self.columns}
        for name, values in tokens.items():
            features[name] = np.full((num_rows, length), PADDING.get(name, 0), np.int32)
            features[name][row[example], first[example] + position] = values
        features["first_positions"] = np.zeros((num_rows, most), np.int32)
        features["first_positions"][row, place] = first
        features["example_places"] = (row * most + place)[np.argsort(order)].astype(np.int32)
        return features

    @classmethod
    def from_rows(
        cls,
        sequences: Mapping[str, Sequence[Sequence[int]]],
        columns: Mapping[str, Sequence],
        choices: int = 1,
        uncut_lengths: Mapping[str, Sequence[int]] | None = None,
    ) -> "FeatureTable":
        """A table made from lists of token ids, and of a number or a list of numbers for each example.

        Example: ({"input_ids": [[2, 7, 3], [2, 3]]}, {"label_ids": [1, 0]}) has 2 examples and 5 tokens.
        """
        flat = {name: _joined(rows) for name, rows in sequences.items()}
        fixed = {name: _as_column(values) for name, values in columns.items()}
        uncut = {name: np.array(row, np.int64) for name, row in (uncut_lengths or {}).items()}
        lengths = list(map(len, next(iter(sequences.values()))))
        return cls(_row_splits(lengths), flat, fixed, choices, uncut)

    @classmethod
    def concatenate(cls, tables: Sequence["FeatureTable"]) -> "FeatureTable":
        """One table made of several, at least one, which must have the same names."""
        first = tables[0]
        lengths = np.concatenate([np.diff(table.row_splits) for table in tables])
        sequences, columns, uncut_lengths = (
            {
                name: np.concatenate([getattr(table, kind)[name] for table in tables])
                for name in getattr(first, kind)
            }
            for kind in ("sequences", "columns", "uncut_lengths")
        )
        return cls(_row_splits(lengths), sequences, columns, first.choices, uncut_lengths)

    def sha256(self) -> str:
        """Hexadecimal hash of the contents; it does not depend on the version of NumPy."""
        digest = hashlib.sha256(str(self.choices).encode())
        named = {"row_splits": self.row_splits, **self.sequences, **self.columns}
        for name, values in sorted(named.items()):
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def _row_splits(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])


def _joined(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """The values of all rows, int32; each of the two methods is many times slower for the other kind of rows."""
    if len(rows) and isinstance(rows[0], np.ndarray):
        return np.concatenate(rows).astype(np.int32)
    return np.fromiter(itertools.chain.from_iterable(rows), np.int32)


def _as_column(values: Sequence) -> np.ndarray:
    array = np.asarray(values)
    array = array.astype(np.float32 if array.dtype.kind == "f" and array.size else np.int32)
    return array if array.ndim == 2 else array.reshape(len(array), 1)


class Batch(NamedTuple):
    """Some examples and the length that their sequences are padded to."""

    examples: np.ndarray  # int64 [B], indices; -1 pads an evaluation's batch
    length: int  # L


def training_batches(
    lengths: np.ndarray,
    buckets: Sequence[int],
    batch_size: int,
    seed: int,
    *,
    by_length: bool = False,
) -> Iterator[Batch]:
    """An endless stream of batches; each epoch contains every example once, in a new order.

    The buckets are ascending lengths to pad to. The examples at the end of an epoch that do not fill a batch come first
    in the next epoch; no example is dropped, repeated or delayed further. With `by_length`, a batch has examples of one
    bucket, which saves padding; a bucket's last batch is completed with examples of the next shorter bucket.
    """
    if not len(lengths):
        raise ValueError("there are no examples to make batches of")
    bucket = np.searchsorted(buckets, lengths)  # the shortest with room for each example
    remaining = np.zeros(0, np.int64)
    for epoch in itertools.count():
        rng = np.random.default_rng([seed, epoch])
        waiting = np.concatenate([remaining, rng.permutation(len(lengths))])
        whole = len(waiting) // batch_size * batch_size
        chosen, remaining = waiting[:whole], waiting[whole:]
        chosen = _long_to_short(chosen, bucket) if by_length else chosen
        batches = _cut(chosen, bucket, buckets, batch_size)
        yield from (batches[index] for index in rng.permutation(len(batches)))


def evaluation_batches(lengths: np.ndarray, buckets: Sequence[int], batch_size: int) -> list[Batch]:
    """Batches that contain every example once, from long to short; the last batch is padded with -1."""
    bucket = np.searchsorted(buckets, lengths)
    order = _long_to_short(np.arange(len(bucket)), bucket)
    filled = np.concatenate([order, np.full(-len(order) % batch_size, -1)])
    return _cut(filled, bucket, buckets, batch_size)


def _long_to_short(examples: np.ndarray, bucket: np.ndarray) -> np.ndarray:
    """The examples ordered by bucket, the longest first; the examples of a bucket keep their order."""
    return examples[np.argsort(-bucket[examples].astype(np.int16), kind="stable")]


def _cut(
    examples: np.ndarray, bucket: np.ndarray, buckets: Sequence[int], batch_size: int
) -> list[Batch]:
    """Cuts examples into batches; the longest example's bucket gives a batch's length."""
    rows = examples.reshape(-1, batch_size)
    longest = np.where(rows < 0, 0, bucket[rows]).max(axis=1)
    return [Batch(row, buckets[index]) for row, index in zip(rows, longest, strict=True)]


def lengths_to_pad_to(lengths: Iterable[int], max_length: int, num_buckets: int) -> tuple[int, ...]:
    """At most `num_buckets` lengths, multiples of 8, chosen to minimize the padding of the examples, and `max_length`.

    The longest chosen length fits the longest example; `max_length` is for longer examples of other data. A single
    bucket pads everything to `max_length`. Example: ([3, 5, 9, 12, 30, 31], 64, 2) -> (16, 32, 64)
    """
    rounded = -(-np.fromiter(lengths, np.int64) // 8) * 8
    if num_buckets == 1 or not rounded.size:
        return (max_length,)
    bounds, counts = np.unique(np.minimum(rounded, max_length), return_counts=True)
    chosen = bounds[_bounds_of_least_padding(bounds, counts, num_buckets)].tolist()
    return (*(length for length in chosen if length < max_length), max_length)


def _bounds_of_least_padding(bounds: np.ndarray, counts: np.ndarray, num_buckets: int) -> list[int]:
    """Indices of the chosen bounds, including the last; `bounds` ascend, and `counts` examples need each of them."""
    num_below = np.cumsum(counts)
    # tokens[i, j]: the number of tokens if all examples longer than bound i, up to bound j, are padded to bound j.
    tokens = ((num_below - num_below[:, None]) * bounds).astype(np.float64)
    tokens[np.tri(len(bounds), dtype=bool)] = np.inf
    least = num_below * bounds  # with a single bucket, up to each bound
    previous = []  # for two buckets, three, ...: the bound before each bound, or the bound itself
    for _ in range(num_buckets - 1):
        with_one_more = least[:, None] + tokens
        best = np.argmin(with_one_more, axis=0)
        fewest = with_one_more[best, np.arange(len(bounds))]
        previous.append(np.where(fewest < least, best, np.arange(len(bounds))))
        least = np.minimum(fewest, least)
    chosen = [len(bounds) - 1]
    for before in reversed(previous):
        chosen.append(int(before[chosen[-1]]))
    return sorted(set(chosen))
