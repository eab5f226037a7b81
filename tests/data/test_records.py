"""Finding, checking, ordering and batching of records.

Covers: datasets.py, record_metadata.py.
"""

import gzip
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data import record_metadata, records
from tests.helpers import LENGTH, PREDICTIONS, random_features, write_records

ID_SCHEMA = {"id": (1, tf.int64)}


@pytest.fixture
def numbered(tmp_path):
    """21 files of 5, 3, 1 and 7 records that count up: 85 records."""
    number = 0
    for index, size in enumerate([5, 3, 1, 7] * 5 + [5]):
        ids = np.arange(number, number + size)[:, None]
        write_records(tmp_path / f"part-{index:02d}.tfrecord", {"input_ids": ids, "id": ids})
        number += size
    return records.find_records(str(tmp_path), "input_file")


def read(record_set, batches, *, batch=4, first_step=0, shuffle=True, seed=7, context=None):
    reading = records.Reading(batch, shuffle, 6, seed, first_step)
    dataset = records.training_dataset(record_set, ID_SCHEMA, reading, context)
    return np.concatenate([batch["id"][:, 0] for batch in dataset.take(batches)])


def test_counts(numbered):
    assert numbered.num_examples == 85
    assert numbered.counts[:4] == (5, 3, 1, 7)


def test_every_epoch_holds_every_example_once_in_a_new_order(numbered):
    found = read(numbered, 64)
    first, second = found[:85], found[85:170]
    assert sorted(first) == sorted(second) == list(range(85))
    assert not np.array_equal(first, second)
    assert np.mean(np.abs(np.diff(first)) > 1) > 0.8


def test_order_depends_on_the_seed_alone(numbered):
    np.testing.assert_array_equal(read(numbered, 30), read(numbered, 30))
    assert not np.array_equal(read(numbered, 30), read(numbered, 30, seed=8))


def test_without_shuffling_the_files_order_is_kept(numbered):
    np.testing.assert_array_equal(read(numbered, 22, shuffle=False)[:87] % 85, np.arange(87) % 85)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_start_anywhere_continues_as_the_uninterrupted_stream(numbered, shuffle):
    whole = read(numbered, 70, shuffle=shuffle)
    for first in (1, 3, 16, 17, 21, 22, 40, 43):
        found = read(numbered, 12, first_step=first, shuffle=shuffle)
        np.testing.assert_array_equal(found, whole[4 * first : 4 * first + 48], err_msg=str(first))


def test_devices_of_one_pipeline_share_its_stream(numbered):
    two_devices = tf.distribute.InputContext(1, 0, 2)
    np.testing.assert_array_equal(read(numbered, 8, context=two_devices), read(numbered, 4))


def test_workers_with_own_files_read_different_examples(numbered):
    contexts = [tf.distribute.InputContext(3, index, 3) for index in range(3)]
    parts = [read(numbered, 10, batch=6, context=context) for context in contexts]
    assert len(set(np.concatenate([part[:20] for part in parts]))) == 60


def test_workers_of_a_single_file_take_turns_in_one_stream(numbered):
    one = records.RecordSet(numbered.files[3:4], numbered.counts[3:4], "", {})
    contexts = [tf.distribute.InputContext(2, index, 4) for index in range(2)]  # two devices each
    for first in (0, 3):
        whole = read(one, 6, batch=8, first_step=first).reshape(6, 2, 4)
        for index, context in enumerate(contexts):
            part = read(one, 12, batch=8, first_step=first, context=context).reshape(6, 4)
            np.testing.assert_array_equal(part, whole[:, index])


def test_evaluation_counts_every_example_once(numbered):
    for pipelines in (1, 2):
        ids, weights = [], []
        for index in range(pipelines):
            context = tf.distribute.InputContext(pipelines, index, pipelines)
            for batch in records.evaluation_dataset(numbered, ID_SCHEMA, 8, context):
                assert batch["id"].shape == (8 // pipelines, 1)
                ids.extend(batch["id"][:, 0].numpy())
                weights.extend(batch[records.EXAMPLE_WEIGHTS].numpy())
        assert len(ids) == 88
        counted = [i for i, weight in zip(ids, weights, strict=True) if weight]
        assert sorted(counted) == list(range(85))


def test_the_originals_features_are_parsed_to_static_shapes(records_file):
    record_set = records.find_records(str(records_file), "input_file")
    schema = records.pretraining_schema(LENGTH, PREDICTIONS)
    reading = records.Reading(6, False, 1, 0)
    batch = next(iter(records.training_dataset(record_set, schema, reading)))
    for name, rows in random_features(60).items():
        np.testing.assert_array_equal(batch[name], rows[:6], err_msg=name)
        assert batch[name].dtype in (tf.int32, tf.float32)
    spec = records.training_dataset(record_set, schema, reading).element_spec
    assert all(value.shape.is_fully_defined() for value in spec.values())


def test_compressed_files_are_known_by_their_first_bytes(tmp_path, records_file):
    (tmp_path / "a.tfrecord").write_bytes(gzip.compress(records_file.read_bytes()))
    record_set = records.find_records(str(tmp_path / "a.tfrecord"), "input_file")
    assert (record_set.num_examples, record_set.compression) == (60, "GZIP")
    lengths = records.feature_lengths(record_set, "input_file")
    assert lengths["input_ids"] == LENGTH
    (tmp_path / "b.tfrecord").write_bytes(records_file.read_bytes())
    with pytest.raises(UserError, match="compressed and uncompressed"):
        records.find_records(f"{tmp_path}/a.tfrecord,{tmp_path}/b.tfrecord", "input_file")


def write_metadata(path, **values):
    (path.parent / "metadata.json").write_text(json.dumps(values))


def test_metadata_gives_the_counts_and_is_held_against_the_settings(records_file):
    size = records_file.stat().st_size
    shard = {"file": records_file.name, "bytes": size, "examples": 60}
    write_metadata(records_file, shards=[shard], max_seq_length=LENGTH)
    record_set = records.find_records(str(records_file.parent), "input_file")
    assert record_set.num_examples == 60
    record_set.require("max_seq_length", "max_seq_length", LENGTH)
    with pytest.raises(UserError, match="--max_seq_length=12 contradicts .* max_seq_length=11"):
        record_set.require("max_seq_length", "max_seq_length", 12)
    write_metadata(records_file, shards=[{**shard, "bytes": size + 1}])
    with pytest.raises(UserError, match="truncated or changed"):
        records.find_records(str(records_file.parent), "input_file")


@pytest.mark.parametrize("cut", [1, 17, 200])
def test_a_truncated_file_is_named(records_file, cut):
    records_file.write_bytes(records_file.read_bytes()[:-cut])
    with pytest.raises(UserError, match=f"--input_file: {records_file} is not a complete TFRecord"):
        records.find_records(str(records_file), "input_file")


def test_a_truncated_compressed_file_is_named(tmp_path, records_file):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(records_file.read_bytes())[:-100])
    with pytest.raises(UserError, match="not a complete TFRecord"):
        records.find_records(str(path), "input_file")


def test_a_flipped_bit_is_reported(records_file):
    data = bytearray(records_file.read_bytes())
    data[40] ^= 1
    records_file.write_bytes(data)
    record_set = records.find_records(str(records_file), "input_file")
    (damaged,) = records.damaged_files(record_set, records.pretraining_schema(LENGTH, PREDICTIONS))
    assert damaged.startswith(f"{records_file} (record 0: corrupted record")
    with pytest.raises(UserError, match="damaged record 0"):
        records.feature_lengths(record_set, "input_file")


@pytest.mark.parametrize("content", [b"", b"just a text file, no records in it"])
def test_what_is_no_record_file_is_refused(tmp_path, content):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    with pytest.raises(UserError, match="--eval_file"):
        records.find_records(str(path), "eval_file")


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(UserError, match="no record files"):
        records.find_records(str(tmp_path), "input_file")


# --- metadata.json ---


def listed(path, **changes):
    """The entry of a shard."""
    entry = {"file": path.name, "bytes": path.stat().st_size, "examples": 60}
    return {**entry, **changes}


def find(path):
    return records.find_records(str(path), "input_file")


def test_a_file_that_is_not_listed_is_refused_by_name(records_file):
    write_metadata(records_file, shards=[listed(records_file)])
    copy = records_file.with_name("examples.tfrecord.copy")
    copy.write_bytes(records_file.read_bytes())
    for pattern in (records_file.parent, records_file.parent / "*", copy):
        with pytest.raises(UserError, match=f"--input_file: {copy} is not one of the files that"):
            find(pattern)
    assert find(records_file).num_examples == 60


def test_a_listed_file_that_is_missing_is_refused_unless_files_are_named(records_file):
    gone = {"file": "b.tfrecord", "bytes": 9, "examples": 1}
    write_metadata(records_file, shards=[listed(records_file), gone])
    for pattern in (records_file.parent, records_file.parent / "*.tfrecord"):
        with pytest.raises(UserError, match="b.tfrecord is missing, but metadata.json lists it"):
            find(pattern)
    assert find(records_file).num_examples == 60
    assert find(records_file.parent / "ex*").num_examples == 60


DYNAMIC = {
    "record_format": "compact",
    "masking": "dynamic",
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "do_permutation": False,
    "favor_shorter_ngram": True,
    "do_whole_word_mask": True,
    "ngram": 3,
    "masked_lm_prob": 0.15,
    "word_start_rule": "piece",
    "vocab_size": 8,
    "vocabulary": {"cls_id": 2, "sep_id": 3, "mask_id": 4, "word_starts": "AA=="},
}
FEATURES = {
    "task_name": "mrpc",
    "labels": ["a", "b"],
    "max_seq_length": 32,
    "choices": 1,
    "columns": {"label_ids": 1},
    "do_lower_case": True,
    "spm_sha256": "0",
    "table_sha256": "0",
}
WRONG = ("x", -1, 10**30, 1.5, None, True, [], {}, [1], {"a": "b"})


def is_plausible(name, value, correct):
    if name == "masked_lm_prob":
        return value in (0, 1) and value is not True
    if name in ("labels", "shards") and value == []:
        return True
    if name == "columns" and value == {}:
        return True
    return type(value) is type(correct) and not (type(value) is int and value in (-1, 10**30))


@pytest.mark.parametrize("whole", [DYNAMIC, FEATURES], ids=["dynamic", "features"])
def test_metadata_without_checksum_is_checked_entry_by_entry(whole, tmp_path):
    path = tmp_path / "metadata.json"
    shard = {"file": "a.tfrecord", "bytes": 100, "examples": 2}
    whole = {**whole, "shards": [shard]}
    record_metadata.check(whole, str(path))
    places = [(whole, name) for name in whole] + [(whole["shards"][0], name) for name in shard]
    places += [(whole["vocabulary"], name) for name in whole.get("vocabulary", ())]
    for values, name in places:
        correct = values.pop(name)
        missing = not is_missing_refused(whole, path)
        assert not missing or name in ("shards", "record_format", "masking", "table_sha256"), name
        for value in WRONG:
            if not is_plausible(name, value, correct):
                values[name] = value
                with pytest.raises(UserError, match=f"metadata.json: {name}: expected .* got"):
                    record_metadata.check(whole, str(path))
        values[name] = correct
    with pytest.raises(UserError, match="shards: expected a list, got 'x'"):
        record_metadata.check({"shards": "x"}, "metadata.json")


def is_missing_refused(whole, path) -> bool:
    try:
        record_metadata.check(whole, str(path))
    except UserError:
        return True
    return False
