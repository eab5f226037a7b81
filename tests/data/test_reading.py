"""The order of reading: shuffling, batches, hosts, starts at any step."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data import reading
from albert_tf.data.datasets import RecordData
from albert_tf.data.record_formats.full import pretraining_schema
from albert_tf.data.record_set import RecordSet, find_pretraining_records, find_records
from albert_tf.training import loop
from albert_tf.training.settings import RunConfig
from tests.helpers import LENGTH, PREDICTIONS, random_features, write_records

ID_SCHEMA = {"id": (1, tf.int64)}


@pytest.fixture
def numbered(tmp_path):
    """21 files of 5, 3, 1 and 7 records that count up: 85 reading."""
    number = 0
    for index, size in enumerate([5, 3, 1, 7] * 5 + [5]):
        ids = np.arange(number, number + size)[:, None]
        write_records(tmp_path / f"part-{index:02d}.tfrecord", {"input_ids": ids, "id": ids})
        number += size
    return find_records(str(tmp_path), "input_file")


def read(record_set, batches, *, batch=4, first_step=0, shuffle=True, seed=7, context=None):
    order = reading.Reading(batch, shuffle, 6, seed, first_step)
    dataset = reading.training_dataset(record_set, ID_SCHEMA, order, context)
    return np.concatenate([batch["id"][:, 0] for batch in dataset.take(batches)])


def test_every_epoch_contains_every_example_once_in_a_new_order(numbered):
    found = read(numbered, 64)
    first = found[:85]
    second = found[85:170]
    assert sorted(first) == sorted(second) == list(range(85))
    assert not np.array_equal(first, second)
    assert np.mean(np.abs(np.diff(first)) > 1) > 0.8
    np.testing.assert_array_equal(read(numbered, 20), found[:80])
    assert not np.array_equal(read(numbered, 20, seed=8), found[:80])


def test_without_shuffling_the_files_order_is_kept(numbered):
    np.testing.assert_array_equal(read(numbered, 22, shuffle=False)[:87] % 85, np.arange(87) % 85)


@pytest.mark.parametrize(("shuffle", "starts"), [(True, (1, 17, 22, 43)), (False, (3, 21))])
def test_a_start_anywhere_continues_as_the_uninterrupted_stream(numbered, shuffle, starts):
    whole = read(numbered, 70, shuffle=shuffle)
    for first in starts:
        found = read(numbered, 12, first_step=first, shuffle=shuffle)
        np.testing.assert_array_equal(found, whole[4 * first : 4 * first + 48], err_msg=str(first))


def test_devices_of_one_pipeline_share_its_stream(numbered):
    two_devices = tf.distribute.InputContext(1, 0, 2)
    np.testing.assert_array_equal(read(numbered, 8, context=two_devices), read(numbered, 4))


@pytest.mark.parametrize("files", [slice(3, 4), slice(None)], ids=["one_file", "many_files"])
def test_workers_take_turns_in_one_stream(numbered, files):
    records = RecordSet(numbered.files[files], numbered.counts[files], 0, {})
    contexts = [tf.distribute.InputContext(2, index, 4) for index in range(2)]  # two devices each
    for first in (0, 3):
        whole = read(records, 6, batch=8, first_step=first).reshape(6, 2, 4)
        for index, context in enumerate(contexts):
            part = read(records, 12, batch=8, first_step=first, context=context).reshape(6, 4)
            np.testing.assert_array_equal(part, whole[:, index])


def test_evaluation_counts_every_example_once(numbered):
    for pipelines in (1, 2):
        ids = []
        weights = []
        for index in range(pipelines):
            context = tf.distribute.InputContext(pipelines, index, pipelines)
            for batch in reading.evaluation_dataset(numbered, ID_SCHEMA, 8, context):
                assert batch["id"].shape == (8 // pipelines, 1)
                ids.extend(batch["id"][:, 0].numpy())
                weights.extend(batch[reading.EXAMPLE_WEIGHTS].numpy())
        assert len(ids) == 88
        counted = [i for i, weight in zip(ids, weights, strict=True) if weight]
        assert sorted(counted) == list(range(85))


def test_the_originals_features_are_parsed_to_static_shapes(records_file):
    record_set = find_records(str(records_file), "input_file")
    schema = pretraining_schema(LENGTH, PREDICTIONS)
    order = reading.Reading(6, False, 1, 0)
    batch = next(iter(reading.training_dataset(record_set, schema, order)))
    for name, rows in random_features(60).items():
        np.testing.assert_array_equal(batch[name], rows[:6], err_msg=name)
        assert batch[name].dtype in (tf.int32, tf.float32)
    spec = reading.training_dataset(record_set, schema, order).element_spec
    assert all(value.shape.is_fully_defined() for value in spec.values())


def test_a_flipped_bit_is_reported(records_file):
    data = bytearray(records_file.read_bytes())
    data[40] ^= 1
    records_file.write_bytes(data)
    with pytest.raises(UserError, match="is not a complete TFRecord file .corrupted record"):
        find_pretraining_records(str(records_file), "input_file")


def test_the_damaged_file_of_several_is_named(tmp_path):
    paths = [write_records(tmp_path / f"{name}.tfrecord", random_features(9)) for name in "abc"]
    shards = [
        {"file": path.name, "bytes": path.stat().st_size, "examples": 9, "records": 9}
        for path in paths
    ]
    lengths = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
    (tmp_path / "metadata.json").write_text(json.dumps({"shards": shards, **lengths}))
    record_set = find_records(str(tmp_path), "input_file")
    content = bytearray(paths[1].read_bytes())
    content[-40] ^= 1
    paths[1].write_bytes(content)
    schema = pretraining_schema(LENGTH, PREDICTIONS)
    with pytest.raises(UserError, match=f"^{paths[1]}: damaged records .corrupted record"):
        list(reading.first_batches(record_set, schema, 4))
    data = RecordData(record_set, shuffle=False, buffer_examples=1, parts=1)
    assert data.damaged_file() == str(paths[1])
    task = types.SimpleNamespace(train_data=data, eval_data=None)
    with (
        pytest.raises(UserError, match=f"^{paths[1]}: damaged records .*create the file again"),
        loop._explained_errors(RunConfig(output_dir="run"), task),
    ):
        raise tf.errors.DataLossError(None, None, "corrupted record at 480")
    paths[1].write_bytes(paths[0].read_bytes())
    assert reading.damaged_file(record_set, schema) == ""
