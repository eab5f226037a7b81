"""Finding records, and checking them and their metadata.json."""

import json

import numpy as np
import pytest

from albert_tf.core.errors import UserError
from albert_tf.data.record_set import find_pretraining_records, find_records
from tests.helpers import LENGTH, PREDICTIONS, error_of, write_records


def test_counts(tmp_path):
    for index, size in enumerate((5, 3, 1)):
        ids = np.arange(size)[:, None]
        write_records(tmp_path / f"part-{index}.tfrecord", {"input_ids": ids})
    record_set = find(tmp_path)
    assert record_set.counts == (5, 3, 1)
    assert record_set.num_examples == record_set.num_records == 9


def write_metadata(path, **values):
    (path.parent / "metadata.json").write_text(json.dumps(values))


def test_metadata_gives_the_counts(records_file):
    shard = listed(records_file)
    write_metadata(records_file, shards=[shard], max_seq_length=LENGTH)
    record_set = find(records_file.parent)
    assert record_set.num_examples == 60
    write_metadata(records_file, shards=[{**shard, "bytes": shard["bytes"] + 1}])
    with pytest.raises(UserError, match="truncated or changed"):
        find_records(str(records_file.parent), "input_file")


@pytest.mark.parametrize("cut", [1, 17, 200])
def test_a_truncated_file_is_named(records_file, cut):
    records_file.write_bytes(records_file.read_bytes()[:-cut])
    with pytest.raises(UserError, match=f"--input_file: {records_file} is not a complete TFRecord"):
        find_records(str(records_file), "input_file")


def listed(path, **changes):
    """The entry of a shard."""
    size = path.stat().st_size
    return {"file": path.name, "bytes": size, "examples": 60, "records": 60, **changes}


def find(path):
    return find_records(str(path), "input_file")


def test_the_files_of_a_folder_are_those_that_its_metadata_lists(records_file):
    other = records_file.with_name("other.tfrecord")
    other.write_bytes(records_file.read_bytes())
    write_metadata(records_file, shards=[listed(records_file)])
    assert find(records_file.parent).files == (str(records_file),)
    assert find(records_file.parent / "*.tfrecord").num_examples == 120
    write_metadata(records_file, shards=[listed(records_file, file="gone.tfrecord")])
    with pytest.raises(UserError, match="gone.tfrecord is no file"):
        find(records_file.parent)


def test_a_glob_leaves_out_the_metadata_and_expands_folders(records_file):
    write_metadata(records_file, shards=[listed(records_file)], max_seq_length=LENGTH)
    folder = records_file.parent
    for pattern in ("*", "../*", "**", "*.tfrecord, "):
        record_set = find(folder / pattern)
        assert [len(record_set.files), record_set.num_examples] == [1, 60], pattern
        assert record_set.metadata["max_seq_length"] == LENGTH
    # A file that is named is taken at its word.
    with pytest.raises(UserError, match=r"metadata\.json is not a complete TFRecord file"):
        find(folder / "metadata.json")


def test_folders_must_agree_about_the_cleaning_of_text(records_file):
    write_metadata(records_file, do_lower_case=True)
    other = records_file.parent / "cased" / "b.tfrecord"
    other.parent.mkdir()
    other.write_bytes(records_file.read_bytes())
    both = f"{records_file},{other}"
    write_metadata(other, keep_accents=False)
    assert find(both).num_examples == 120  # each says what the other does not
    write_metadata(other, do_lower_case=False)
    with pytest.raises(UserError, match="different cleaning"):
        find(both)


def test_records_of_the_original_get_their_lengths_from_the_first_record(records_file):
    record_set = find_pretraining_records(str(records_file), "input_file")
    assert record_set.metadata["max_seq_length"] == LENGTH
    assert record_set.metadata["max_predictions_per_seq"] == PREDICTIONS


WRONG_METADATA = {
    "max_seq_length": [10**12, "9", True, None],
    "max_predictions_per_seq": [0, {}],
    "counts": [[], {"examples": {}}, {"examples": -1}, {"max_examples_per_row": LENGTH + 1}],
    "shards": ["x", [1], [{}]],
    "record_format": [[], "x", None],
    "do_lower_case": ["false"],
    "spm_sha256": [5],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, each) for name in WRONG_METADATA for each in WRONG_METADATA[name]]
)
def test_a_wrong_value_of_the_metadata_is_named(records_file, name, value):
    right = {"record_format": "full", "max_seq_length": LENGTH, "counts": {"examples": 60}}
    right |= {"max_predictions_per_seq": PREDICTIONS, "shards": [listed(records_file)]}
    write_metadata(records_file, **right)
    assert find(records_file.parent).num_examples == 60
    write_metadata(records_file, **{**right, name: value})
    line = error_of(find, records_file.parent)
    path = records_file.with_name("metadata.json")
    assert line.startswith(f"--input_file: {path}: ") and "again" in line


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"file": "../records/examples.tfrecord"}, "expected a file of its folder"),
        ({"file": ".."}, "expected a file of its folder"),
        ({"file": "/etc/hostname"}, "expected a file of its folder"),
        ({"records": [1]}, "records is .1., expected a count"),
        ({"records": 10**9}, "1,000,000,000 records do not fit into"),
    ],
)
def test_a_shard_is_a_file_of_its_folder_with_counts(records_file, changes, reason):
    write_metadata(records_file, shards=[listed(records_file, **changes)])
    with pytest.raises(UserError, match=reason):
        find(records_file.parent)


def test_a_pointer_of_git_lfs_in_place_of_records_is_named(records_file):
    entry = listed(records_file)
    records_file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(UserError, match=f"{records_file}: is only a pointer of Git LFS"):
        find(records_file)
    write_metadata(records_file, shards=[entry])
    with pytest.raises(UserError, match=f"{records_file}: is only a pointer of Git LFS"):
        find(records_file.parent)
