"""Feature tables: hand-made batches, invariants of the batch stream, damaged files, time."""

import itertools

import numpy as np
import pytest

from albert_tf.data import feature_table
from albert_tf.data.feature_table import FeatureTable


def small_table(choices: int = 1, part: slice = slice(None)) -> FeatureTable:
    """Six sequences of 3, 1, 4, 2, 5 and 2 pieces, with a column of two integers and one of a float; or a part."""
    lengths = [3, 1, 4, 2, 5, 2]
    rows = [[10 * row + position for position in range(n)] for row, n in enumerate(lengths, 1)]
    examples = range(len(rows) // choices)[part]
    rows = [rows[index * choices + choice] for index in examples for choice in range(choices)]
    return FeatureTable.from_rows(
        {"input_ids": rows, "p_mask": [[0] * len(row) for row in rows]},
        {
            "span": [[index, index + 7] for index in examples],
            "score": [index / 2 for index in examples],
        },
        choices,
    )


def assert_equal_tables(one: FeatureTable, other: FeatureTable):
    assert one.choices == other.choices
    assert list(one.sequences) == list(other.sequences)
    assert list(one.columns) == list(other.columns)
    np.testing.assert_array_equal(one.row_splits, other.row_splits)
    for name in one.sequences:
        np.testing.assert_array_equal(one.sequences[name], other.sequences[name], strict=True)
    for name in one.columns:
        np.testing.assert_array_equal(one.columns[name], other.columns[name], strict=True)


def test_rows_become_a_table():
    table = small_table()
    assert len(table) == 6
    assert table.row_splits.tolist() == [0, 3, 4, 8, 10, 15, 17]
    assert table.sequence("input_ids", 2).tolist() == [30, 31, 32, 33]
    assert table.lengths.tolist() == [3, 1, 4, 2, 5, 2]
    assert table.columns["span"].tolist() == [[index, index + 7] for index in range(6)]
    assert table.columns["span"].dtype == np.int32
    assert table.columns["score"].shape == (6, 1)
    assert table.columns["score"].dtype == np.float32


def test_a_batch_is_packed():
    names = ["input_ids", "p_mask", "score"]
    batch = small_table().packed_batch(np.array([1, 4, 0, 2]), 6, 2, names)
    assert {name: values.tolist() for name, values in batch.items()} == {
        # The longest first, each into the fullest row with room.
        "input_ids": [[50, 51, 52, 53, 54, 20], [30, 31, 32, 33, 0, 0], [10, 11, 12, 0, 0, 0]],
        "p_mask": [[0] * 6, [0] * 4 + [1] * 2, [0] * 3 + [1] * 3],
        "input_mask": [[1] * 6, [1] * 4 + [0] * 2, [1] * 3 + [0] * 3],
        "example_numbers": [[1] * 5 + [2], [1] * 4 + [0] * 2, [1] * 3 + [0] * 3],
        "position_ids": [[0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 0, 0], [0, 1, 2, 0, 0, 0]],
        "first_positions": [[0, 5], [0, 0], [0, 0]],
        "example_places": [1, 0, 4, 2],
        "score": [[0.5], [2.0], [0.0], [1.0]],
    }


def test_empty_rows_keep_the_shapes_of_packed_batches_few():
    batch = small_table().packed_batch(np.tile(np.arange(6), 8), 17, 16, ["input_ids", "p_mask"])
    assert batch["input_ids"].shape == (9, 17)  # 48 / 16 = 3, and 8 rows hold the 136 tokens
    assert [row.any() for row in batch["input_mask"]] == [True] * 8 + [False]
    assert batch["p_mask"][8].all()


def test_a_table_may_be_empty():
    table = FeatureTable.from_rows({"input_ids": []}, {"label_ids": []}, choices=4)
    assert len(table) == 0
    assert table.lengths.shape == (0,)
    assert table.columns["label_ids"].shape == (0, 1)
    assert table.columns["label_ids"].dtype == np.int32
    assert feature_table.evaluation_batches(table.lengths, (8,), 4) == []
    assert feature_table.lengths_to_pad_to(table.lengths, 64, 4) == (64,)
    full = FeatureTable.from_rows({"input_ids": [[3]] * 4}, {"label_ids": [1]}, choices=4)
    assert_equal_tables(FeatureTable.concatenate([table, full, table]), full)


def test_a_batch_is_padded():
    batch = small_table().batch(np.array([4, 1]), 7, ["input_ids", "p_mask", "score"])
    assert batch["input_ids"].tolist() == [[50, 51, 52, 53, 54, 0, 0], [20, 0, 0, 0, 0, 0, 0]]
    assert batch["input_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]]
    assert batch["p_mask"].tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 1, 1, 1]]
    assert batch["score"].tolist() == [[2.0], [0.5]]
    assert set(batch) == {"input_ids", "input_mask", "p_mask", "score"}
    assert {batch[name].dtype for name in ("input_ids", "input_mask", "p_mask")} == {
        np.dtype(np.int32)
    }


def test_a_batch_of_choices():
    batch = small_table(choices=2).batch(np.array([2, 0]), 5, ["input_ids", "span"])
    assert batch["input_ids"].tolist() == [
        [[50, 51, 52, 53, 54], [60, 61, 0, 0, 0]],
        [[10, 11, 12, 0, 0], [20, 0, 0, 0, 0]],
    ]
    assert batch["input_mask"].sum(axis=2).tolist() == [[5, 2], [3, 1]]
    assert batch["span"].tolist() == [[2, 9], [0, 7]]


@pytest.mark.parametrize("choices", [1, 2])
def test_parts_put_together_are_the_whole(choices):
    table = small_table(choices)
    parts = [small_table(choices, slice(start, start + 2)) for start in (0, 2, 4)]
    parts = [part for part in parts if len(part)]
    assert_equal_tables(FeatureTable.concatenate(parts), table)


LENGTHS = np.random.default_rng(1).integers(3, 41, 203)
BUCKETS = (8, 24, 40)
BATCH_SIZE = 16


def stream(lengths=LENGTHS, buckets=BUCKETS, batch_size=BATCH_SIZE, seed=5, **options):
    return feature_table.training_batches(lengths, buckets, batch_size, seed, **options)


def as_lists(batches):
    return [(batch.length, batch.examples.tolist()) for batch in batches]


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize(
    "lengths, buckets, batch_size",
    [
        (LENGTHS, BUCKETS, BATCH_SIZE),
        (LENGTHS, (40,), 1),
        # One example of the longest bucket: it must not wait until the bucket is full.
        (np.array([40] + [5] * 202), BUCKETS, 32),
        # Three of the shortest, and more left over than those.
        (np.array([5] * 3 + [20] * 20), BUCKETS, 8),
    ],
    ids=["three", "one", "one_long", "few_short"],
)
def test_each_epoch_has_every_example_once(lengths, buckets, batch_size, by_length):
    seen = np.zeros(len(lengths), int)
    batches = stream(lengths, buckets, batch_size, by_length=by_length)
    for epoch in range(1, 12):
        # The epoch's last whole batch: what is missing is less than a batch, and comes in the next epoch.
        while seen.sum() + batch_size <= epoch * len(lengths):
            batch = next(batches)
            np.add.at(seen, batch.examples, 1)
            assert batch.examples.shape == (batch_size,)
            assert batch.length == buckets[np.searchsorted(buckets, lengths[batch.examples].max())]
        assert set(seen) <= {epoch - 1, epoch}
        assert np.sum(seen == epoch - 1) == epoch * len(lengths) % batch_size


def test_batches_are_random_unless_they_are_made_by_length():
    """Mean lengths of random batches spread by the standard error of the mean; those by length, far more."""
    number = 200 * len(LENGTHS) // BATCH_SIZE
    spreads = {
        by_length: np.std(
            [
                LENGTHS[batch.examples].mean()
                for batch in itertools.islice(stream(by_length=by_length), number)
            ]
        )
        for by_length in (False, True)
    }
    assert spreads[False] == pytest.approx(np.std(LENGTHS) / np.sqrt(BATCH_SIZE), rel=0.1)
    assert spreads[True] > 2 * spreads[False]


def test_the_stream_is_a_function_of_the_seed_and_the_step():
    whole = as_lists(itertools.islice(stream(), 60))
    assert as_lists(itertools.islice(stream(), 13, 60)) == whole[13:]
    assert as_lists(itertools.islice(stream(seed=6), 60)) != whole


def test_epochs_differ_and_are_mixed():
    epoch = len(LENGTHS) // BATCH_SIZE
    whole = LENGTHS[: epoch * BATCH_SIZE]  # nothing is left over, which alone would differ
    batches = as_lists(itertools.islice(stream(whole, by_length=True), 2 * epoch))
    assert batches[:epoch] != batches[epoch:]
    lengths = [length for length, _ in batches[:epoch]]
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))


@pytest.mark.parametrize("batch_size", [1, 16, 203, 300])
def test_evaluation_has_every_example_once(batch_size):
    batches = feature_table.evaluation_batches(LENGTHS, BUCKETS, batch_size)
    examples = np.concatenate([batch.examples for batch in batches])
    assert len(batches) == -(-len(LENGTHS) // batch_size)
    assert sorted(examples[examples >= 0]) == list(range(len(LENGTHS)))
    assert np.all(examples[len(LENGTHS) :] == -1)
    for batch in batches:
        assert batch.examples.shape == (batch_size,)
        assert LENGTHS[batch.examples[batch.examples >= 0]].max() <= batch.length


@pytest.mark.parametrize(
    "lengths, max_length, num_buckets, expected",
    [
        ([3, 5, 9, 12, 30, 31], 64, 1, (64,)),
        ([3, 5, 9, 12, 30, 31], 64, 2, (16, 32, 64)),
        ([3, 5, 9, 12, 30, 31], 64, 3, (8, 16, 32, 64)),
        ([5], 64, 3, (8, 64)),
        ([61, 6], 62, 3, (8, 62)),  # the longest need not be a multiple of 8
        ([8] * 9 + [16] * 90 + [56], 64, 2, (16, 56, 64)),
    ],
)
def test_lengths_of_least_padding(lengths, max_length, num_buckets, expected):
    assert feature_table.lengths_to_pad_to(lengths, max_length, num_buckets) == expected


def padded(lengths: np.ndarray, buckets) -> int:
    return int(np.array(buckets)[np.searchsorted(buckets, lengths)].sum())


def test_no_other_lengths_need_less_padding():
    rng = np.random.default_rng(4)
    for _ in range(60):
        lengths = rng.integers(1, rng.integers(3, 90), rng.integers(1, 50))
        num_buckets = int(rng.integers(2, 6))
        possible = np.unique(-(-lengths // 8) * 8)
        others = [
            padded(lengths, [*others, possible[-1]])
            for size in range(num_buckets)
            for others in itertools.combinations(possible[:-1], size)
        ]
        found = feature_table.lengths_to_pad_to(lengths, 96, num_buckets)
        assert len(found) <= num_buckets + 1
        assert padded(lengths, found) == min(others)
