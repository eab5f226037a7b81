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
        # [B] -> [B * C], the sequences of the examples: [2, 0] of 3 choices each -> [6, 7, 8, 0, 1, 2].
        rows = (np.asarray(examples)[:, None] * self.choices + np.arange(self.choices)).ravel()
        starts = self.row_splits[rows]
        ends = self.row_splits[rows + 1]

        # [B * C] -> [B * C, L], where each token is in the table: a sequence of 2 that starts at 7 -> [7, 8, 0, 0].
        positions = starts[:, None] + np.arange(length)
        is_token = positions < ends[:, None]
        positions_or_0 = np.where(is_token, positions, 0)

        shape = (-1, length) if self.choices == 1 else (-1, self.choices, length)
        features = {"input_mask": is_token.astype(np.int32).reshape(shape)}
        for name in names:
            if name in self.columns:
                features[name] = self.columns[name][examples]
            else:
                tokens = self.sequences[name][positions_or_0]
                padded = np.where(is_token, tokens, PADDING.get(name, 0))
                features[name] = padded.astype(np.int32).reshape(shape)
        return features

    def packed_batch(
        self, examples: np.ndarray, length: int, most: int, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Features of the examples [B] with some indices, in rows of a length L, which fits each, of at most S.

        Sequences are int32 [R, L], with what `AlbertEncoder.call` needs of packed rows; columns are [B, values], and
        `example_places` [B] are row * S + place of each example. R is a multiple of B / 16: a CPU compiles each R.
        """
        from albert_tf.data.packing import pack

        # Which examples share a row. An example for all steps: B = 4 examples of 3, 6, 2 and 4 tokens, L = 6, S = 2
        # -> order [1, 3, 2, 0] and examples_per_row [1, 2, 1].
        sizes = self.row_splits[examples + 1] - self.row_splits[examples]
        order, examples_per_row = pack(sizes, length, most)
        num_filled_rows = len(examples_per_row)

        # [B], in that order, the row of each example [0, 1, 1, 2] and its place there [0, 0, 1, 0].
        row = np.repeat(np.arange(num_filled_rows), examples_per_row)
        place = np.concatenate([np.arange(number) for number in examples_per_row])

        # [B], where each example begins: [0, 6, 10, 12] in all rows joined -> [0, 0, 4, 0] in its own row.
        sizes_in_order = sizes[order]
        starts = np.cumsum(sizes_in_order) - sizes_in_order
        starts_of_rows = np.repeat(starts[place == 0], examples_per_row)
        first_positions = starts - starts_of_rows

        # [15], for each token of the batch: its example in that order [0, ..., 3], and its position there.
        padded = self.batch(examples[order], int(sizes.max()), names)
        example, position = np.nonzero(padded["input_mask"])
        tokens = {"example_numbers": place[example] + 1, "position_ids": position}
        for name in padded.keys() - self.columns.keys():
            tokens[name] = padded[name][example, position]

        # [15] -> [R, L]: example_numbers are [1 1 1 1 1 1], [1 1 1 1 2 2] and [1 1 1 0 0 0].
        step = max(1, len(examples) // 16)
        num_empty_rows = -num_filled_rows % step
        num_rows = num_filled_rows + num_empty_rows
        features = {name: self.columns[name][examples] for name in names if name in self.columns}
        for name, values in tokens.items():
            features[name] = np.full((num_rows, length), PADDING.get(name, 0), np.int32)
            features[name][row[example], first_positions[example] + position] = values

        # [B] -> [R, S]: [0 0], [0 4] and [0 0].
        features["first_positions"] = np.zeros((num_rows, most), np.int32)
        features["first_positions"][row, place] = first_positions

        # [B], row * S + place, back in the order of `examples`: [0, 2, 3, 4] -> [4, 0, 3, 2].
        examples_order = np.argsort(order)
        features["example_places"] = (row * most + place)[examples_order].astype(np.int32)
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
        rows_of_any_name = next(iter(sequences.values()))
        lengths = [len(row) for row in rows_of_any_name]
        uncut_lengths = uncut_lengths or {}
        return cls(
            _row_splits(lengths),
            {name: _joined(rows) for name, rows in sequences.items()},
            {name: _as_column(values) for name, values in columns.items()},
            choices,
            {name: np.array(numbers, np.int64) for name, numbers in uncut_lengths.items()},
        )

    @classmethod
    def concatenate(cls, tables: Sequence["FeatureTable"]) -> "FeatureTable":
        """One table made of several, at least one, which must have the same names."""
        first = tables[0]
        lengths = np.concatenate([np.diff(table.row_splits) for table in tables])
        return cls(
            _row_splits(lengths),
            _concatenated([table.sequences for table in tables]),
            _concatenated([table.columns for table in tables]),
            first.choices,
            _concatenated([table.uncut_lengths for table in tables]),
        )

    def sha256(self) -> str:
        """Hexadecimal hash of the contents; it does not depend on the version of NumPy."""
        digest = hashlib.sha256(str(self.choices).encode())
        arrays = {"row_splits": self.row_splits, **self.sequences, **self.columns}
        for name, values in sorted(arrays.items()):
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def _concatenated(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of each name, which every part has, joined along their first dimension."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _row_splits(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where each row begins, and the end: the lengths [3, 2] -> [0, 3, 5], int64."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])


def _joined(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """The values of all rows, int32; each of the two methods is many times slower for the other kind of rows."""
    if len(rows) and isinstance(rows[0], np.ndarray):
        return np.concatenate(rows).astype(np.int32)
    return np.fromiter(itertools.chain.from_iterable(rows), np.int32)


def _as_column(values: Sequence) -> np.ndarray:
    """Numbers of each example, float32 or int32 [examples, values]; one number makes a column of one value."""
    array = np.asarray(values)
    has_floats = array.dtype.kind == "f" and array.size > 0
    array = array.astype(np.float32 if has_floats else np.int32)
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

        # 10 examples in batches of 4: 8 in this epoch, 2 remain for the next.
        num_in_batches = len(waiting) // batch_size * batch_size
        in_batches = waiting[:num_in_batches]
        remaining = waiting[num_in_batches:]

        if by_length:
            in_batches = _long_to_short(in_batches, bucket)
        batches = _cut(in_batches, bucket, buckets, batch_size)
        for index in rng.permutation(len(batches)):
            yield batches[index]


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
    # [8] -> [2, 4]
    batches = examples.reshape(-1, batch_size)
    # [2, 4] -> [2]; the index -1 of padding counts as the shortest bucket.
    longest = np.where(batches < 0, 0, bucket[batches]).max(axis=1)
    return [Batch(batch, buckets[index]) for batch, index in zip(batches, longest, strict=True)]


def lengths_to_pad_to(lengths: Iterable[int], max_length: int, num_buckets: int) -> tuple[int, ...]:
    """At most `num_buckets` lengths, multiples of 8, chosen to minimize the padding of the examples, and `max_length`.

    The longest chosen length fits the longest example; `max_length` is for longer examples of other data. A single
    bucket pads everything to `max_length`. Example: ([3, 5, 9, 12, 30, 31], 64, 2) -> (16, 32, 64)
    """
    # Rounded up: [3, 5, 9, 12, 30, 31] -> [8, 8, 16, 16, 32, 32].
    rounded = -(-np.fromiter(lengths, np.int64) // 8) * 8
    if num_buckets == 1 or not rounded.size:
        return (max_length,)

    # [8, 16, 32], each for 2 examples -> [16, 32].
    bounds, counts = np.unique(np.minimum(rounded, max_length), return_counts=True)
    chosen = bounds[_bounds_of_least_padding(bounds, counts, num_buckets)].tolist()
    below = [length for length in chosen if length < max_length]
    return (*below, max_length)


def _bounds_of_least_padding(bounds: np.ndarray, counts: np.ndarray, num_buckets: int) -> list[int]:
    """Indices of the chosen bounds, including the last; `bounds` ascend, and `counts` examples need each of them."""
    # [3], for the bounds 8, 16, 32 of 2 examples each: as many examples as [2, 4, 6] are not longer.
    num_below = np.cumsum(counts)

    # [3, 3]: the number of tokens if all examples longer than bound i, up to bound j, are padded to bound j;
    # from the first bound to the last, 4 examples of 32 tokens.
    tokens = ((num_below - num_below[:, None]) * bounds).astype(np.float64)
    tokens[np.tri(len(bounds), dtype=bool)] = np.inf

    # [3], the fewest tokens of the examples up to each bound: with a single bucket [16, 64, 192], and with two
    # [16, 48, 128]; the buckets 16 and 32 take 64 + 64 tokens, and 8 and 32 take 16 + 128.
    least = num_below * bounds
    previous_bounds = []  # for two buckets, three, ...: the bound before each bound, or the bound itself
    all_bounds = np.arange(len(bounds))
    for _ in range(num_buckets - 1):
        with_one_more = least[:, None] + tokens
        best = np.argmin(with_one_more, axis=0)
        fewest = with_one_more[best, all_bounds]
        previous_bounds.append(np.where(fewest < least, best, all_bounds))
        least = np.minimum(fewest, least)

    # Back from the last bound: 32, and before it 16.
    chosen = [len(bounds) - 1]
    for previous in reversed(previous_bounds):
        chosen.append(int(previous[chosen[-1]]))
    return sorted(set(chosen))
