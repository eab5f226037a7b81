"""Packed records: the examples of compact ones, in full rows; masked anew while reading; the same after a restart."""

import json

import numpy as np
import pytest

from albert_tf.core.errors import UserError
from albert_tf.data import pretraining_examples as examples
from albert_tf.data import records
from albert_tf.data.packed_records import SENTENCE_WEIGHTS
from albert_tf.data_prep.pretraining import shards
from albert_tf.data_prep.pretraining.packing import pack
from tests.data.test_compact_records import (  # noqa: F401 - make and pretrain are fixtures
    BATCH,
    LENGTH,
    assert_equal,
    evaluation_batches,
    find,
    folder_of,
    joined,
    make,
    pretrain,
    rule_of,
    schema_of,
    training_batches,
    unmasked,
)

SHORT = {"short_seq_prob": 1.0}  # examples of all lengths
PACKED = {"record_format": "packed", **SHORT}
DYNAMIC = {**PACKED, "masking": "dynamic"}


@pytest.fixture(scope="module")
def static(make):  # noqa: F811
    return find(make("packed", **PACKED))


@pytest.fixture(scope="module")
def dynamic(make):  # noqa: F811
    return find(make("packed-dynamic", **DYNAMIC))


@pytest.fixture(scope="module")
def single(make):  # noqa: F811
    return find(make("single", record_format="compact", **SHORT))


def examples_in(features: dict) -> list[tuple]:
    """Every example in batches of packed rows: tokens, segments, label, and its predictions by position."""
    found = []
    for row, number in zip(*np.nonzero(features[SENTENCE_WEIGHTS]), strict=True):
        places = np.flatnonzero(features["example_numbers"][row] == number + 1)
        start, size = places[0], len(places)
        assert places.tolist() == list(range(start, start + size))
        assert features["first_positions"][row, number] == start
        assert features["position_ids"][row, places].tolist() == list(range(size))
        positions = features["masked_lm_positions"][row]
        is_own = (features["masked_lm_weights"][row] > 0) & np.isin(positions, places)
        found.append(
            (
                features["input_ids"][row, places].tolist(),
                features["segment_ids"][row, places].tolist(),
                int(features["next_sentence_labels"][row, number]),
                (positions[is_own] - start).tolist(),
                features["masked_lm_ids"][row, is_own].tolist(),
            )
        )
    return found


def single_examples(features: dict) -> list[tuple]:
    """The same of batches of single examples."""
    found = []
    for row, size in enumerate(features["input_mask"].sum(axis=1)):
        is_used = features["masked_lm_weights"][row] > 0
        found.append(
            (
                features["input_ids"][row, :size].tolist(),
                features["segment_ids"][row, :size].tolist(),
                int(features["next_sentence_labels"][row, 0]),
                features["masked_lm_positions"][row, is_used].tolist(),
                features["masked_lm_ids"][row, is_used].tolist(),
            )
        )
    return found


def of_real_rows(batches: list[dict]) -> dict:
    """Evaluation batches without the rows that fill up the last one."""
    features = joined(batches)
    is_real = features[records.EXAMPLE_WEIGHTS] > 0
    return {name: values[is_real] for name, values in features.items()}


# --- Packing ---


@pytest.mark.parametrize("most_examples", [1, 3, 16])
def test_rows_hold_every_example_once_and_are_not_too_long(most_examples):
    lengths = np.random.default_rng(3).integers(4, 513, 2000)
    order, per_row = pack(lengths, 512, most_examples)
    assert sorted(order.tolist()) == list(range(2000))
    assert per_row.sum() == 2000 and per_row.min() >= 1 and per_row.max() <= most_examples
    tokens = np.add.reduceat(lengths[order], np.cumsum([0, *per_row[:-1]]))
    assert tokens.max() <= 512


def test_rows_are_full():
    # Wikipedia at length 512: half of the examples are shorter than 200 tokens, and a quarter fill a row.
    rng = np.random.default_rng(3)
    lengths = np.minimum(512, 8 + rng.gamma(1.2, 250, 4000)).astype(int)
    _, per_row = pack(lengths, 512, shards.MOST_EXAMPLES_OF_ROW)
    assert lengths.sum() / (512 * len(per_row)) > 0.98


def test_each_example_goes_to_the_fullest_row_with_room():
    order, per_row = pack(np.array([3, 6, 4, 7, 2]), 10, 16)
    # 7, then 6; 4 fits the 6 only, 3 the 7; 2 gets a row of its own.
    assert (order.tolist(), per_row.tolist()) == ([3, 0, 1, 2, 4], [2, 2, 1])


# --- Records ---


def test_packed_records_hold_the_examples_of_single_ones(static, single):
    assert static.num_examples == single.num_examples > static.num_records
    found = examples_in(of_real_rows(evaluation_batches(static)))
    expected = single_examples(of_real_rows(evaluation_batches(single)))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"do_permutation": True, "masked_lm_prob": 0.3},
        {"masked_lm_prob": 0.0, "compression": "gzip"},
        {"sentence_task": "nsp", "max_predictions_per_seq": 3, "dupe_factor": 2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_of_masks_and_pairs_are_kept(make, changes):  # noqa: F811
    name = "-".join(changes)
    packed = find(make(f"packed-{name}", **PACKED, **changes))
    single = find(make(f"single-{name}", record_format="compact", **SHORT, **changes))
    found = examples_in(of_real_rows(evaluation_batches(packed)))
    assert sorted(found) == sorted(single_examples(of_real_rows(evaluation_batches(single))))


def test_the_metadata_says_how_large_rows_are(static):
    features = of_real_rows(evaluation_batches(static))
    metadata = json.loads((folder_of(static) / "metadata.json").read_text())
    counts = metadata["counts"]
    assert (
        counts["rows"] == static.num_records == sum(shard["rows"] for shard in metadata["shards"])
    )
    assert counts["most_examples_of_row"] == features[SENTENCE_WEIGHTS].sum(axis=1).max()
    assert counts["most_predictions_of_row"] >= features["masked_lm_weights"].sum(axis=1).max()
    is_token = features["example_numbers"] > 0
    assert is_token.sum() == counts["pieces_in_records"] and is_token.mean() > 0.8


def test_shapes_are_static(static, dynamic):
    reading = records.Reading(BATCH, True, 5, 0)
    specs = [
        records.training_dataset(found, schema_of(found), reading).element_spec
        for found in (static, dynamic)
    ]
    assert specs[0] == specs[1]
    assert all(spec.shape.is_fully_defined() for spec in specs[0].values())


# --- Masks that are drawn while reading ---


def test_masks_are_a_function_of_seed_epoch_row_and_place(dynamic):
    most = records.most_examples(dynamic)
    num_batches = 2 * dynamic.num_records // BATCH
    features = joined(training_batches(dynamic, num_batches, shuffle=False, seed=11))
    rows, places = np.nonzero(features[SENTENCE_WEIGHTS])
    found = examples_in(features)
    ids = np.zeros((len(found), LENGTH), np.int32)
    num_tokens = np.array([len(example[0]) for example in found], np.int32)
    originals = unmasked(features)
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        is_own = features["example_numbers"][row] == place + 1
        ids[index, : num_tokens[index]] = originals[row, is_own]
    seeds = examples.seeds_of(11, rows * most + places)
    predictions = examples.mask_batch(ids, num_tokens, seeds, rule_of(dynamic))
    for index, (tokens, _, _, positions, labels) in enumerate(found):
        count = predictions.counts[index]
        assert tokens == ids[index, : num_tokens[index]].tolist()
        assert positions == predictions.positions[index, :count].tolist()
        assert labels == predictions.ids[index, :count].tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_start_at_any_step_continues_as_the_uninterrupted_stream(dynamic, shuffle):
    steps = dynamic.num_records // BATCH
    whole = training_batches(dynamic, 2 * steps + 6, shuffle=shuffle)
    for first_step in (1, steps - 1, steps, steps + 1, 2 * steps + 3):
        found = training_batches(dynamic, 3, first_step=first_step, shuffle=shuffle)
        assert_equal(found, whole[first_step : first_step + 3])


# --- Whole runs ---


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_a_run_trains_on_rows_of_about_the_batch(kind, request, pretrain, capfd):  # noqa: F811
    record_set = request.getfixturevalue(kind)
    pretrain(
        record_set,
        *("--num_train_steps=2", "--train_batch_size=16", f"--eval_file={folder_of(record_set)}"),
    )
    rows = round(16 * record_set.num_records / record_set.num_examples)
    assert rows < 16
    assert f"16 in {rows} rows = 1 device(s) x 1 accumulated x {rows};" in capfd.readouterr().out


def test_two_devices_and_accumulation_give_the_losses_of_one(static, pretrain):  # noqa: F811
    rows_of_example = static.num_records / static.num_examples
    batch = next(size for size in range(16, 64, 4) if round(size * rows_of_example) % 4 == 0)
    flags = ["--num_train_steps=2", f"--train_batch_size={batch}", "--num_warmup_steps=1"]
    one = pretrain(static, *flags, name="one")
    devices = ["--distribution_strategy=mirrored", "--num_devices=2"]
    two = pretrain(static, *flags, *devices, "--gradient_accumulation_steps=2", name="two")
    assert len(one) == len(two) == 2
    for line, other in zip(one, two, strict=True):
        for name in ("masked_lm_loss", "sentence_order_loss"):
            np.testing.assert_allclose(line[name], other[name], rtol=1e-5)


def test_packed_and_other_records_are_not_mixed(static, single):
    paths = f"{folder_of(static)},{folder_of(single)}"
    with pytest.raises(UserError, match="compact and packed records are mixed"):
        records.find_records(paths, "input_file")


def test_folders_of_packed_records_are_read_together(static, make):  # noqa: F811
    other = find(make("packed-nsp", **PACKED, max_predictions_per_seq=10, random_seed=5))
    both = records.find_records(f"{folder_of(static)},{folder_of(other)}", "input_file")
    assert both.num_examples == static.num_examples + other.num_examples
    sizes = [records.most_examples(found) for found in (static, other)]
    assert records.most_examples(both) == max(sizes)
    dataset = records.training_dataset(both, schema_of(both), records.Reading(3, True, 9, 1))
    assert next(iter(dataset))["first_positions"].shape == (3, max(sizes))
