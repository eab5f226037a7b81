"""Compact records: equal to full ones, or masked anew while reading; the same again after a restart; wrong settings."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core import checksums
from albert_tf.core.errors import UserError
from albert_tf.data import compact_records, records
from albert_tf.data import pretraining_examples as examples
from albert_tf.data.pretraining_examples import Sequences
from albert_tf.data_prep.pretraining import record_formats, record_writer
from albert_tf.data_prep.pretraining.run import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings, dynamic_defaults
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.settings import RunConfig
from tests.data_prep.test_create_pretraining_data import made_up_text
from tests.helpers import pretrain_here, train_spm

LENGTH, PREDICTIONS, BATCH = 64, 10, 7
DYNAMIC = {"record_format": "compact", "masking": "dynamic"}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that makes records of always the same text, once; returns their folder."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text(made_up_text(120, seed=2))
    model = train_spm(
        folder / "spiece.model", made_up_text(200, seed=1).splitlines(), vocab_size=200
    )

    def make_records(name, **changes):
        settings = {
            "input_file": str(folder / "text.txt"),
            "output_dir": str(folder / name),
            "spm_model_file": model,
            "max_seq_length": LENGTH,
            "max_predictions_per_seq": PREDICTIONS,
            "dupe_factor": 1,
            "num_shards": 4,
            "num_workers": 1,
        }
        create_pretraining_data(PretrainingDataSettings(**{**settings, **changes}))
        return folder / name

    return make_records


@pytest.fixture(scope="module")
def full(make):
    return find(make("full", record_format="full"))


@pytest.fixture(scope="module")
def compact(make):
    return find(make("compact", record_format="compact"))


@pytest.fixture(scope="module")
def dynamic(make):
    return find(make("dynamic", **DYNAMIC))


def find(folder):
    return records.find_records(str(folder), "input_file")


def schema_of(record_set, max_predictions_per_seq=0):
    return records.schema_of(record_set, "input_file", max_predictions_per_seq)


def training_batches(record_set, num_batches, *, first_step=0, batch=BATCH, seed=3, **options):
    """Batches of training as NumPy arrays."""
    reading = records.Reading(batch, options.pop("shuffle", True), 50, seed, first_step)
    schema = options.pop("schema", None) or schema_of(record_set)
    dataset = records.training_dataset(record_set, schema, reading, **options)
    return list(dataset.take(num_batches).as_numpy_iterator())


def evaluation_batches(record_set, batch=BATCH):
    dataset = records.evaluation_dataset(record_set, schema_of(record_set), batch)
    return list(dataset.as_numpy_iterator())


def joined(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def unmasked(features):
    """The pieces before masking, [B, L]."""
    ids = features["input_ids"].copy()
    rows, slots = np.nonzero(features["masked_lm_weights"])
    positions = features["masked_lm_positions"][rows, slots]
    ids[rows, positions] = features["masked_lm_ids"][rows, slots]
    return ids


def masks_of_examples(batches):
    """Unmasked pieces of every example -> its masked pieces, positions and labels."""
    features = joined(batches)
    names = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    return {
        pieces.tobytes(): [features[name][row].tolist() for name in names]
        for row, pieces in enumerate(unmasked(features))
    }


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for batch, wanted in zip(found, expected, strict=True):
        assert batch.keys() == wanted.keys()
        for name in wanted:
            np.testing.assert_array_equal(batch[name], wanted[name], err_msg=name)
            assert batch[name].dtype == wanted[name].dtype


# --- Compact records hold what full ones hold.


def test_training_and_evaluation_batches_equal_those_of_full_records(full, compact):
    steps = compact.num_examples // BATCH + 5  # into the second epoch
    assert_equal(training_batches(compact, steps), training_batches(full, steps))
    assert_equal(evaluation_batches(compact), evaluation_batches(full))


@pytest.mark.parametrize(
    "changes",
    [
        {"do_permutation": True, "masked_lm_prob": 0.3},
        {"masked_lm_prob": 0.0, "compression": "gzip"},
        {"sentence_task": "nsp", "max_predictions_per_seq": 3, "dupe_factor": 2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_of_masks_and_pairs_are_kept(make, changes):
    name = "-".join(changes)
    full, compact = (
        find(make(f"{name}-{record_format}", record_format=record_format, **changes))
        for record_format in ("full", "compact")
    )
    assert_equal(evaluation_batches(compact), evaluation_batches(full))


def test_shapes_are_static(full, compact, dynamic):
    reading = records.Reading(BATCH, True, 5, 0)
    specs = [
        records.training_dataset(found, schema_of(found), reading).element_spec
        for found in (full, compact, dynamic)
    ]
    assert specs[0] == specs[1] == specs[2]
    assert all(spec.shape.is_fully_defined() for spec in specs[0].values())


@pytest.mark.parametrize("max_seq_length, most", [(128, 0.3), (512, 1 / 3)])
def test_a_third_of_the_bytes_or_less(max_seq_length, most):
    # Full sequences, the worst case, of pieces as frequent as those of English text and a vocabulary of 30,000.
    rng = np.random.default_rng(0)
    pieces = np.minimum(5 + rng.zipf(1.25, (200, max_seq_length)), 29_999).astype(np.int32)
    rule = examples.masking_rule(
        examples.Vocabulary(np.ones(30_000, bool), 2, 3, 4), max_predictions_per_seq=77
    )
    sizes = []
    for key, make_records in record_formats.RECORD_MAKERS.items():
        lengths = np.full(200, max_seq_length, np.int32)
        seeds = examples.seeds_of(1, np.arange(200))
        sequences = Sequences(pieces.copy(), lengths, lengths // 2, lengths[:, None] % 2, seeds)
        batch = make_records(sequences, rule)
        sizes.append(len(record_writer.encode_examples(batch.features, batch.lengths)))
        assert batch.num_masked == (0 if "dynamic" in key else 200 * round(0.15 * max_seq_length))
    full_bytes, compact_bytes, unmasked_bytes = sizes
    assert unmasked_bytes < compact_bytes <= most * full_bytes


# --- Masks that are drawn while reading.


def test_unmasked_tokens_are_those_of_static_records(full, dynamic):
    expected = joined(evaluation_batches(full))
    found = joined(evaluation_batches(dynamic))
    np.testing.assert_array_equal(unmasked(found), unmasked(expected))
    for name in ("input_mask", "segment_ids", "next_sentence_labels", records.EXAMPLE_WEIGHTS):
        np.testing.assert_array_equal(found[name], expected[name])
    assert not np.array_equal(found["input_ids"], expected["input_ids"])


def test_masks_are_a_function_of_seed_epoch_and_example(dynamic):
    # Without shuffling, the number of an example, epoch * examples + place, counts up.
    num_batches = 2 * dynamic.num_examples // BATCH
    features = joined(training_batches(dynamic, num_batches, shuffle=False, seed=11))
    expected = unmasked(features)
    rule = rule_of(dynamic)
    seeds = examples.seeds_of(11, np.arange(len(expected)))
    num_tokens = features["input_mask"].sum(axis=1, dtype=np.int32)
    predictions = examples.mask_batch(expected, num_tokens, seeds, rule)
    np.testing.assert_array_equal(features["input_ids"], expected)
    np.testing.assert_array_equal(features["masked_lm_positions"], predictions.positions)
    np.testing.assert_array_equal(features["masked_lm_ids"], predictions.ids)
    np.testing.assert_array_equal(features["masked_lm_weights"].sum(axis=1), predictions.counts)


def rule_of(record_set):
    """The rule of the masks, from the vocabulary itself."""
    metadata = record_set.metadata
    tokenizer = Tokenizer.from_file(str(folder_of(record_set).parent / "spiece.model"))
    vocabulary = examples.Vocabulary(
        tokenizer.word_starts(), tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    )
    settings = {name: metadata[name] for name in examples.MASKING_SETTINGS}
    return examples.masking_rule(vocabulary, **settings)


def folder_of(record_set):
    return pathlib.Path(record_set.files[0]).parent


def test_every_epoch_has_other_masks_at_the_rates_of_the_settings(make):
    dynamic = find(make("rates", max_predictions_per_seq=20, **DYNAMIC))
    rule = rule_of(dynamic)
    steps = dynamic.num_examples // BATCH
    assert dynamic.num_examples % BATCH  # so that the last batch of an epoch is left out below
    features = joined(training_batches(dynamic, 20 * steps))
    positions, labels = features["masked_lm_positions"], features["masked_lm_ids"]
    rows, slots = np.nonzero(features["masked_lm_weights"])
    replaced = features["input_ids"][rows, positions[rows, slots]]
    labels = labels[rows, slots]
    assert len(labels) > 20_000
    assert len(labels) / features["input_mask"].sum() == pytest.approx(0.15, abs=0.005)
    assert np.mean(replaced == rule.mask_id) == pytest.approx(0.8, abs=0.01)
    # Of the 10 % that become a random piece, 1 in 200 becomes the same.
    assert np.mean(replaced == labels) == pytest.approx(0.1005, abs=0.008)
    originals = unmasked(features)
    for row in range(0, len(originals), 10):
        pieces = originals[row, : features["input_mask"][row].sum()]
        places, offsets = examples.find_words(pieces, rule)
        masked = np.isin(places, positions[row, features["masked_lm_weights"][row] > 0])
        words = np.split(masked, offsets[1:-1])
        assert all(word.all() or not word.any() for word in words)
    first, second = (
        masks_of_examples(training_batches(dynamic, steps, first_step=first))
        for first in (0, 3 * steps)
    )
    both = first.keys() & second.keys()
    assert len(both) > 0.9 * steps * BATCH
    assert np.mean([first[example] == second[example] for example in both]) < 0.02


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_start_at_any_step_continues_as_the_uninterrupted_stream(dynamic, shuffle):
    steps = dynamic.num_examples // BATCH
    whole = training_batches(dynamic, 2 * steps + 6, shuffle=shuffle)
    for first_step in (1, 13, steps - 1, steps, steps + 1, 2 * steps + 3):
        found = training_batches(dynamic, 3, first_step=first_step, shuffle=shuffle)
        assert_equal(found, whole[first_step : first_step + 3])


def test_neither_batches_nor_hosts_nor_the_order_change_the_masks(dynamic):
    whole = masks_of_examples(evaluation_batches(dynamic))
    seed = records.EVALUATION_SEED
    hosts = [tf.distribute.InputContext(4, index, 4) for index in range(4)]  # own files each
    readings = {
        "large batches": training_batches(dynamic, 3, batch=dynamic.num_examples // 3, seed=seed),
        "in order": training_batches(dynamic, 20, seed=seed, shuffle=False),
        "four hosts": sum(
            (training_batches(dynamic, 3, seed=seed, batch=20, context=host) for host in hosts), []
        ),
    }
    for name, batches in readings.items():
        masks = masks_of_examples(batches)
        assert len(masks) > 50, name
        assert all(whole[example] == mask for example, mask in masks.items()), name
    others = masks_of_examples(training_batches(dynamic, 20, seed=seed + 1))
    assert np.mean([whole[example] == mask for example, mask in others.items()]) < 0.05


def test_evaluation_masks_the_same_at_any_time_and_batch_size(dynamic):
    first = evaluation_batches(dynamic)
    assert_equal(evaluation_batches(dynamic), first)
    assert masks_of_examples(evaluation_batches(dynamic, batch=31)) == masks_of_examples(first)
    batch = next(records.first_batches(dynamic, schema_of(dynamic), BATCH))
    batch = {name: value.numpy() for name, value in batch.items()}
    assert_equal([{**batch, records.EXAMPLE_WEIGHTS: np.ones(BATCH, np.float32)}], first[:1])


@pytest.mark.parametrize("permutes", [False, True])
def test_training_may_mask_more_or_less(make, permutes):
    dynamic = find(make(f"dynamic-{permutes}", do_permutation=permutes, **DYNAMIC))
    masked = {}
    for predictions in (2, 9):
        schema = schema_of(dynamic, predictions)
        (batch,) = training_batches(dynamic, 1, schema=schema)
        assert batch["masked_lm_ids"].shape == (BATCH, predictions * (1 + permutes))
        masked[predictions] = batch["masked_lm_weights"].sum(axis=1).max()
    assert masked[2] == 2 * (1 + permutes) < masked[9]


def test_damage_is_reported(dynamic, tmp_path):
    folder = shutil.copytree(folder_of(dynamic), tmp_path / "damaged")
    path = sorted(folder.glob("*.tfrecord"))[2]
    whole = find(folder)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    (damaged,) = records.damaged_files(whole, schema_of(dynamic))
    assert damaged.startswith(str(path))
    with pytest.raises(UserError, match=f"damaged records: {path}"):
        list(records.first_batches(whole, schema_of(dynamic), BATCH))


# --- Whole runs.


@pytest.fixture
def pretrain(config_file, tmp_path):
    """A function that pretrains in this process; returns the lines of the log, without timings."""
    config = json.loads(config_file.read_text())
    config.update(vocab_size=200, max_position_embeddings=LENGTH, num_hidden_layers=1)
    config_file.write_text(json.dumps(config))

    def run(record_set, *flags, name="run"):
        folder = tmp_path / name
        pretrain_here(
            *(f"--input_file={folder_of(record_set)}", f"--output_dir={folder}"),
            *(f"--albert_config_file={config_file}", "--train_batch_size=4", "--deterministic"),
            *("--num_train_steps=4", "--num_warmup_steps=2", "--log_every_steps=1", *flags),
        )
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [{**line, "examples_per_second": 0} for line in lines]

    return run


def test_a_resumed_run_has_the_masks_of_an_uninterrupted_one(pretrain, dynamic, full):
    whole = pretrain(dynamic, name="whole")
    pretrain(dynamic, "--stop_after_steps=2")
    with pytest.raises(UserError, match="holds a run with masking="):
        pretrain(full)
    assert pretrain(dynamic) == whole
    assert len({line["masked_lm_loss"] for line in whole}) == 4


# --- Wrong settings.


def wrong(message, *flags):
    with pytest.raises(UserError, match=message) as caught:
        pretrain_here("--model=albert-base-v2", "--output_dir=/nowhere", *flags)
    assert "\n" not in str(caught.value)


def test_other_predictions_than_the_records_hold(compact):
    wrong(
        "--max_predictions_per_seq=9 contradicts the records",
        f"--input_file={folder_of(compact)}",
        "--max_predictions_per_seq=9",
    )


def test_masks_cannot_be_drawn_on_other_hosts(dynamic):
    config = PretrainingConfig(input_file=str(folder_of(dynamic)), model="albert-base-v2")
    run = RunConfig(output_dir="/nowhere", distribution_strategy="tpu", tpu_name="grpc://x")
    with pytest.raises(UserError, match="masked in this process, not on the hosts of --tpu_name"):
        PretrainingTask(config, run)


def test_compact_records_need_their_metadata(compact, tmp_path):
    shutil.copy(compact.files[0], tmp_path / "a.tfrecord")
    wrong("--input_file: compact records need the metadata.json", f"--input_file={tmp_path}")


def test_formats_and_masks_are_not_mixed(make, full, compact, dynamic):
    with pytest.raises(UserError, match="full and compact records are mixed"):
        find(f"{folder_of(full)},{folder_of(compact)}")
    with pytest.raises(UserError, match="different settings of masks"):
        find(f"{folder_of(compact)},{folder_of(dynamic)}")
    other = make("other-ngram", ngram=2, **DYNAMIC)
    with pytest.raises(UserError, match="different settings of masks"):
        find(f"{other},{folder_of(dynamic)}")
    again = make("other-seed", random_seed=2, **DYNAMIC)
    both = find(f"{again},{folder_of(dynamic)}")
    assert both.num_examples > dynamic.num_examples


def test_records_of_a_later_version(full, tmp_path):
    folder = shutil.copytree(folder_of(full), tmp_path / "later")
    metadata = checksums.read_json(str(folder / "metadata.json"))
    later = checksums.json_file({**metadata, "record_format": "tiny"})
    (folder / "metadata.json").write_bytes(later)
    with pytest.raises(UserError, match="the format 'tiny', which this version does not know"):
        find(folder)


def test_dynamic_masking_needs_one_pass_only():
    assert dynamic_defaults({"masking": "dynamic"}) == {"dupe_factor": 1}
    assert dynamic_defaults({"masking": "static"}) == {}


def test_number_of_slots():
    assert compact_records.num_slots({"do_permutation": False}, 7) == 7
    assert compact_records.num_slots({"do_permutation": True}, 7) == 14
