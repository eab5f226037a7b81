"""Packed records: the examples of full ones, in full rows; masked anew while reading; the same after a restart."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data import pretraining_examples as examples
from albert_tf.data import reading
from albert_tf.data.packing import pack
from albert_tf.data.record_formats import FORMATS, packed
from albert_tf.data.record_formats.packed import (
    MAX_EXAMPLES_PER_ROW,
    SENTENCE_WEIGHTS,
    PackedFormat,
)
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.settings import RunConfig
from tests.data.test_pretraining_examples import MASKING
from tests.helpers import eagerly, error_of, lines, made_up_text, pretrain_here, train_spm

LENGTH, PREDICTIONS, BATCH = 64, 10, 7
SHORT = {"short_seq_prob": 1.0}  # examples of all lengths
PACKED = {"record_format": "packed", **SHORT}
DYNAMIC = {**PACKED, "masking": "dynamic"}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that makes records of always the same text, once; returns their folder."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text(made_up_text(120, seed=2))
    sentences = made_up_text(200, seed=1).splitlines()
    model = train_spm(folder / "spiece.model", sentences, vocab_size=200)

    def make_records(name, **changes):
        settings = {"input_file": f"{folder}/text.txt", "output_dir": f"{folder}/{name}"}
        settings |= {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
        settings |= {"dupe_factor": 1, "num_shards": 4, "num_workers": 1, "spm_model_file": model}
        create_pretraining_data(PretrainingDataSettings(**{**settings, **changes}))
        return folder / name

    return make_records


@pytest.fixture(scope="module")
def static(make):
    return find(make("packed", **PACKED))


@pytest.fixture(scope="module")
def dynamic(make):
    return find(make("packed-dynamic", **DYNAMIC))


@pytest.fixture(scope="module")
def full(make):
    return find(make("full", record_format="full", **SHORT))


def find(folder):
    return find_pretraining_records(str(folder), "input_file")


def folder_of(record_set):
    return pathlib.Path(record_set.files[0]).parent


def training_batches(record_set, num_batches, *, first_step=0, batch=BATCH, seed=3, **options):
    """Batches of training as NumPy arrays."""
    order = reading.Reading(batch, options.pop("shuffle", True), 50, seed, first_step)
    dataset = reading.training_dataset(record_set, record_set.schema, order, **options)
    return list(dataset.take(num_batches).as_numpy_iterator())


def evaluation_batches(record_set, batch=BATCH):
    dataset = reading.evaluation_dataset(record_set, record_set.schema, batch)
    return list(dataset.as_numpy_iterator())


def joined(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def unmasked(features):
    """The tokens before masking, [B, L]."""
    ids = features["input_ids"].copy()
    rows, slots = np.nonzero(features["masked_lm_weights"])
    positions = features["masked_lm_positions"][rows, slots]
    ids[rows, positions] = features["masked_lm_ids"][rows, slots]
    return ids


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for batch, expected_batch in zip(found, expected, strict=True):
        assert batch.keys() == expected_batch.keys()
        for name in expected_batch:
            np.testing.assert_array_equal(batch[name], expected_batch[name], err_msg=name)
            assert batch[name].dtype == expected_batch[name].dtype


def examples_in(features: dict) -> list[tuple]:
    """Every example in batches of packed rows: tokens, segments, label, and its predictions by position."""
    found = []
    for row, number in zip(*np.nonzero(features[SENTENCE_WEIGHTS]), strict=True):
        places = np.flatnonzero(features["example_numbers"][row] == number + 1)
        start = places[0]
        size = len(places)
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
    """The same of batches of full records."""
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


def unmasked_examples(batches: list[dict]) -> list[tuple]:
    """Tokens before masking, segments and label of every example in packed rows."""
    features = joined(batches)
    return [example[:3] for example in examples_in({**features, "input_ids": unmasked(features)})]


def masks_of_rows(batches: list[dict]) -> dict:
    """Unmasked tokens of every row -> its masked tokens, positions and labels."""
    features = joined(batches)
    names = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    return {
        tokens.tobytes(): [features[name][row].tolist() for name in names]
        for row, tokens in enumerate(unmasked(features))
    }


def real_rows(batches: list[dict]) -> dict:
    """Evaluation batches without the rows that fill up the last one."""
    features = joined(batches)
    is_real = features[reading.EXAMPLE_WEIGHTS] > 0
    return {name: values[is_real] for name, values in features.items()}


@pytest.mark.parametrize("max_examples", [1, 3, 16])
def test_rows_contain_every_example_once_and_are_not_too_long(max_examples):
    lengths = np.random.default_rng(3).integers(4, 513, 2000)
    order, per_row = pack(lengths, 512, max_examples)
    assert sorted(order.tolist()) == list(range(2000))
    assert per_row.sum() == 2000 and per_row.min() >= 1 and per_row.max() <= max_examples
    tokens = np.add.reduceat(lengths[order], np.cumsum([0, *per_row[:-1]]))
    assert tokens.max() <= 512


def test_rows_are_full_and_shuffled():
    # Wikipedia at length 512: half of the examples are shorter than 200 tokens, and a quarter fill a row.
    rng = np.random.default_rng(3)
    lengths = np.minimum(512, 8 + rng.gamma(1.2, 250, 4000)).astype(int)
    order, per_row = PackedFormat().rows(lengths, 512, np.uint64(5))
    assert sorted(order.tolist()) == list(range(4000)) and per_row.max() <= MAX_EXAMPLES_PER_ROW
    firsts = np.cumsum([0, *per_row[:-1]])
    tokens = np.add.reduceat(lengths[order], firsts)
    assert tokens.max() <= 512 and tokens.mean() / 512 > 0.98
    lengths_of_firsts = lengths[order[firsts]]
    assert abs(np.corrcoef(lengths_of_firsts, np.arange(len(firsts)))[0, 1]) < 0.1


def test_each_example_goes_to_the_fullest_row_with_room():
    order, per_row = pack(np.array([3, 6, 4, 7, 2]), 10, 16)
    # 7, then 6; 4 fits the 6 only, 3 the 7; 2 gets a row of its own.
    assert (order.tolist(), per_row.tolist()) == ([3, 0, 1, 2, 4], [2, 2, 1])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"masked_lm_prob": 0.0},
        {"sentence_task": "nsp", "max_predictions_per_seq": 3, "dupe_factor": 2},
    ],
    ids=lambda changes: next(iter(changes), "defaults"),
)
def test_packed_records_contain_the_examples_of_full_ones(make, changes):
    name = "-".join(changes)
    packed = find(make(f"packed-{name}", **PACKED, **changes))
    full = find(make(f"full-{name}", record_format="full", **SHORT, **changes))
    assert packed.num_examples == full.num_examples > packed.num_records
    found = examples_in(real_rows(evaluation_batches(packed)))
    assert sorted(found) == sorted(single_examples(real_rows(evaluation_batches(full))))


def test_a_row_with_more_values_than_its_width_is_an_error():
    values = np.arange(12).reshape(3, 4)
    counts = np.array([4, 4, 2])
    rows, counts_of_rows = packed._joined_values(values, counts, np.array([2, 1]), 8)
    assert rows.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 0, 0, 0, 0, 0, 0]]
    assert counts_of_rows.tolist() == [8, 2]
    with pytest.raises(ValueError, match="a row has 8 values, expected at most 7"):
        packed._joined_values(values, counts, np.array([2, 1]), 7)


def test_packed_records_take_a_third_of_the_bytes_or_less():
    # Sequences without padding, the worst case, of tokens as frequent as those of English and a vocabulary of 30,000.
    tokens = 5 + np.random.default_rng(0).zipf(1.25, (200, 512))
    tokens = np.minimum(tokens, 29_999).astype(np.int32)
    lengths = np.full(200, 512, np.int32)
    seeds = examples.seeds_of(1, np.arange(200))
    sequences = examples.Sequences(tokens, lengths, lengths // 2, lengths[:, None] % 2, seeds)
    vocabulary = examples.Vocabulary(np.ones(30_000, bool), 2, 3, 4)
    rule = examples.masking_rule(vocabulary, MASKING)
    sizes = []
    for name, masking in (("packed", "dynamic"), ("packed", "static"), ("full", "static")):
        content, counts = FORMATS[name].encode(sequences, np.ones(200, int), rule, masking)
        assert counts["masked_tokens_in_records"] == (0 if masking == "dynamic" else 200 * 77)
        sizes.append(len(content))
    assert sizes[0] < sizes[1] <= sizes[2] / 3


def test_the_metadata_says_how_large_rows_are(static):
    features = real_rows(evaluation_batches(static))
    metadata = json.loads((folder_of(static) / "metadata.json").read_text())
    counts = metadata["counts"]
    records = sum(shard["records"] for shard in metadata["shards"])
    assert counts["records"] == static.num_records == records
    assert counts["max_examples_per_row"] == features[SENTENCE_WEIGHTS].sum(axis=1).max()
    assert counts["max_predictions_per_row"] >= features["masked_lm_weights"].sum(axis=1).max()
    assert counts["masked_tokens_in_records"] == features["masked_lm_weights"].sum()
    is_token = features["example_numbers"] > 0
    assert is_token.sum() == counts["tokens_in_records"] and is_token.mean() > 0.8


def test_shapes_are_static(static, dynamic):
    order = reading.Reading(BATCH, True, 5, 0)
    specs = [
        reading.training_dataset(found, found.schema, order).element_spec
        for found in (static, dynamic)
    ]
    assert specs[0] == specs[1]
    assert all(spec.shape.is_fully_defined() for spec in specs[0].values())


def test_unmasked_tokens_are_those_of_static_records(static, dynamic):
    found = evaluation_batches(dynamic)
    expected = evaluation_batches(static)
    assert unmasked_examples(found) == unmasked_examples(expected)
    assert not np.array_equal(joined(found)["input_ids"], joined(expected)["input_ids"])


def rule_of(record_set):
    """The rule of the masks, from the vocabulary itself."""
    metadata = record_set.metadata
    tokenizer = Tokenizer.from_file(str(folder_of(record_set).parent / "spiece.model"))
    vocabulary = examples.Vocabulary(
        tokenizer.word_starts(), tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    )
    return examples.masking_rule(vocabulary, metadata)


def test_masks_are_a_function_of_seed_epoch_row_and_place(dynamic):
    # Without shuffling, the number of a row, epoch * rows + index, counts up.
    num_batches = 2 * dynamic.num_records // BATCH
    features = joined(training_batches(dynamic, num_batches, shuffle=False, seed=11))
    rows, places = np.nonzero(features[SENTENCE_WEIGHTS])
    found = examples_in(features)
    ids = np.zeros((len(found), LENGTH), np.int32)
    num_tokens = np.array([len(example[0]) for example in found], np.int32)
    for index, (tokens, *_) in enumerate(unmasked_examples([features])):
        ids[index, : num_tokens[index]] = tokens
    max_examples = dynamic.metadata["counts"]["max_examples_per_row"]
    seeds = examples.seeds_of(11, rows * max_examples + places)
    masked = examples.mask_batch(ids, num_tokens, seeds, rule_of(dynamic))
    for index, (tokens, _, _, positions, labels) in enumerate(found):
        count = masked.counts[index]
        assert tokens == masked.input_ids[index, : num_tokens[index]].tolist()
        assert positions == masked.positions[index, :count].tolist()
        assert labels == masked.ids[index, :count].tolist()


def test_a_start_at_any_step_continues_as_the_uninterrupted_stream(dynamic):
    steps = dynamic.num_records // BATCH
    whole = training_batches(dynamic, 2 * steps + 6)
    for first_step in (1, steps, 2 * steps + 3):
        found = training_batches(dynamic, 3, first_step=first_step)
        assert_equal(found, whole[first_step : first_step + 3])


def test_neither_batches_nor_hosts_nor_the_order_change_the_masks(dynamic):
    whole = masks_of_rows(evaluation_batches(dynamic))
    seed = reading.EVALUATION_SEED
    hosts = [tf.distribute.InputContext(4, index, 4) for index in range(4)]  # own files each
    readings = {
        "large batches": training_batches(dynamic, 3, batch=dynamic.num_records // 3, seed=seed),
        "in order": training_batches(dynamic, 8, seed=seed, shuffle=False),
        "four hosts": sum(
            (training_batches(dynamic, 3, seed=seed, batch=16, context=host) for host in hosts), []
        ),
    }
    for name, batches in readings.items():
        masks = masks_of_rows(batches)
        assert len(masks) > 40, name
        assert all(whole[row] == mask for row, mask in masks.items()), name
    others = masks_of_rows(training_batches(dynamic, 8, seed=seed + 1))
    assert np.mean([whole[row] == mask for row, mask in others.items()]) < 0.05


def test_a_batch_that_does_not_divide_evenly_has_empty_rows_without_masks(dynamic):
    """5 rows in 4 parts: one part has two rows, each of the others a row and an empty one."""
    whole = masks_of_rows(evaluation_batches(dynamic))
    order = reading.Reading(5, True, 50, reading.EVALUATION_SEED, parts=4)
    dataset = reading.training_dataset(dynamic, dynamic.schema, order)
    (batch,) = dataset.take(1).as_numpy_iterator()
    is_empty = (batch[SENTENCE_WEIGHTS] == 0).all(axis=1)
    assert is_empty.tolist() == [False, False, False, True, False, True, False, True]
    assert not batch["masked_lm_weights"][is_empty].any()
    rows = masks_of_rows([{name: values[~is_empty] for name, values in batch.items()}])
    assert len(rows) == 5
    assert all(whole[row] == mask for row, mask in rows.items())


def test_evaluation_masks_the_same_at_any_time_and_batch_size(dynamic):
    first = evaluation_batches(dynamic)
    assert_equal(evaluation_batches(dynamic), first)
    assert masks_of_rows(evaluation_batches(dynamic, batch=31)) == masks_of_rows(first)
    batch = next(reading.first_batches(dynamic, dynamic.schema, BATCH))
    batch = {name: value.numpy() for name, value in batch.items()}
    assert_equal([{**batch, reading.EXAMPLE_WEIGHTS: np.ones(BATCH, np.float32)}], first[:1])


@pytest.mark.slow
def test_a_resumed_run_has_the_masks_of_an_uninterrupted_one(
    dynamic, full, config_file, tmp_path, capfd
):
    config = json.loads(config_file.read_text())
    config.update(vocab_size=200, max_position_embeddings=LENGTH, num_hidden_layers=1)
    config_file.write_text(json.dumps(config))

    def pretrain(record_set, name, *flags):
        """Pretrains in this process; returns the lines of the log, without timings."""
        folder = tmp_path / name
        with eagerly():  # tracing takes the most time of a run of a few steps
            pretrain_here(
                f"--input_file={folder_of(record_set)}",
                f"--output_dir={folder}",
                f"--albert_config_file={config_file}",
                "--train_batch_size=16",
                "--num_train_steps=4",
                "--num_warmup_steps=2",
                "--log_every_steps=1",
                *flags,
            )
        return lines(folder / "metrics.jsonl")

    whole = pretrain(dynamic, "whole")
    rows = round(16 * dynamic.num_records / dynamic.num_examples)
    assert rows < 16
    assert f"16 in {rows} rows = 1 device(s) x 1 accumulated x {rows};" in capfd.readouterr().out
    pretrain(dynamic, "run", "--stop_after_steps=2")
    with pytest.raises(UserError, match="contains a run with masking="):
        pretrain(full, "run")
    assert pretrain(dynamic, "run") == whole
    assert len({line["masked_lm_loss"] for line in whole}) == 4


def test_masks_cannot_be_drawn_on_other_hosts(dynamic):
    config = PretrainingConfig(input_file=str(folder_of(dynamic)), model="albert-base-v2")
    run = RunConfig(output_dir="/nowhere", distribution_strategy="tpu", tpu_name="grpc://x")
    with pytest.raises(UserError, match="needs records of --masking=static with --tpu_name"):
        PretrainingTask(config, run)


def test_packed_records_need_their_metadata(static, tmp_path):
    shutil.copy(static.files[0], tmp_path / "a.tfrecord")
    flags = ["--model=albert-base-v2", "--output_dir=/nowhere", f"--input_file={tmp_path}"]
    line = error_of(pretrain_here, *flags)
    assert "--input_file: " in line and "without its metadata.json" in line


def test_formats_and_masks_are_not_mixed(make, full, static, dynamic):
    with pytest.raises(UserError, match="full and packed records are mixed"):
        find(f"{folder_of(full)},{folder_of(static)}")
    with pytest.raises(UserError, match="different settings of masks"):
        find(f"{folder_of(static)},{folder_of(dynamic)}")
    other = make("other-ngram", ngram=2, **DYNAMIC)
    with pytest.raises(UserError, match="different settings of masks"):
        find(f"{other},{folder_of(dynamic)}")


def test_folders_of_packed_records_are_read_together(static, make):
    other = find(make("other-seed", **PACKED, random_seed=5))
    both = find(f"{folder_of(static)},{folder_of(other)}")
    assert both.num_examples == static.num_examples + other.num_examples
    sizes = [found.metadata["counts"]["max_examples_per_row"] for found in (static, other)]
    assert both.metadata["counts"]["max_examples_per_row"] == max(sizes)
    assert both.metadata["counts"]["examples"] == both.num_examples
    dataset = reading.training_dataset(both, both.schema, reading.Reading(3, True, 9, 1))
    assert next(iter(dataset))["first_positions"].shape == (3, max(sizes))
