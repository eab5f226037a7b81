"""Records for fine-tuning: the features of the text itself, and errors where settings contradict each other."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core import checksums
from albert_tf.data.record_set import find_feature_records
from tests.helpers import error_of, fine_tune_here, make_task, random_features, write_records

TASKS = ["mrpc", "stsb", "tsv", "labels", "squad1.1", "squad2.0", "race", "tagging"]


@pytest.fixture
def write(task_flags, tmp_path):
    """A function that writes the records of a task with its flags and more; returns their folder."""

    def run(task, *more, folder=tmp_path / "records"):
        runner, flags = task_flags[task]
        flags = [flag for flag in flags if flag != "--class_weights=balanced"]
        fine_tune_here(runner, *flags, f"--write_records={folder}", "--num_shards=3", *more)
        return folder

    return run


def with_records(task_flags, task, folder, *more):
    """Runner and flags of a task that is trained on records; evaluated on the text as ever."""
    runner, flags = task_flags[task]
    flags = [flag for flag in flags if flag != "--class_weights=balanced"]  # needs the text
    return runner, [*flags, f"--train_records={folder}", "--do_eval=false", *more]


def whole_epoch(task) -> dict[str, np.ndarray]:
    """All training examples of a task, as the loop gets them."""
    data = task.train_data
    context = tf.distribute.InputContext()
    dataset = data.training_dataset(data.num_examples, seed=3, first_step=0, context=context)
    batch = next(iter(dataset))
    assert {name: spec.shape for name, spec in data.spec(data.num_examples).items()} == {
        name: value.shape for name, value in batch.items()
    }
    return {name: value.numpy() for name, value in batch.items()}


def rows(features: dict[str, np.ndarray], names) -> list[bytes]:
    """The examples as bytes, sorted."""
    count = len(features["input_ids"])
    return sorted(
        b"|".join(features[name][row].tobytes() for name in names) for row in range(count)
    )


@pytest.mark.parametrize("task", TASKS)
def test_records_contain_the_features_of_the_text(task, write, task_flags, capsys):
    folder = write(task)
    runner, flags = with_records(task_flags, task, "")
    of_text = make_task(runner, *flags, "--length_buckets=1")
    runner, flags = with_records(task_flags, task, folder)
    of_records = make_task(runner, *flags)
    assert of_records.train_data.num_examples == of_text.train_data.num_examples
    assert of_records.labels == of_text.labels
    assert of_records.settings()["data"] == of_text.settings()["data"]
    first, second = whole_epoch(of_text), whole_epoch(of_records)
    names = sorted(second)
    assert set(names) == set(first) - {"example_index"}
    for name in names:
        assert first[name].shape == second[name].shape and first[name].dtype == second[name].dtype
    assert rows(first, names) == rows(second, names)
    model = of_text.build_model(dtype="float32", recompute_activations=False, seed=1)
    losses = []
    for made, features in ((of_text, first), (of_records, second)):
        features = {name: tf.constant(value) for name, value in features.items()}
        found = made.losses(model(features), features)
        losses.append({name: float(ratio.sum) for name, ratio in found.items()})
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_what_the_metadata_says(write, capsys):
    folder = write("squad2.0")
    metadata = json.loads((folder / "metadata.json").read_text())
    wanted = {"task_name": "squad2.0", "max_seq_length": 40, "choices": 1}
    assert wanted.items() <= metadata.items()
    assert metadata["columns"]["is_impossible"] == 1 and metadata["labels"] == ["start", "end"]
    counts = [shard["examples"] for shard in metadata["shards"]]
    assert sum(counts) == 21 and max(counts) - min(counts) <= 1
    assert {path.name for path in folder.iterdir()} == {
        "metadata.json",
        *(f"train-0000{shard}-of-00003.tfrecord" for shard in range(3)),
    }
    assert find_feature_records(str(folder), "train_records").num_examples == 21
    size = sum(path.stat().st_size for path in folder.glob("*.tfrecord"))
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith(f"21 examples of 40 tokens, {size:,} bytes in 3 files in {folder}")


def test_records_do_not_depend_on_the_number_of_workers(write, tmp_path):
    contents = []
    for workers in (1, 2):
        folder = write("tagging", f"--num_workers={workers}", folder=tmp_path / f"{workers}")
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1] and len(contents[0]) == 4


def refused(task_flags, task, folder, *more):
    runner, flags = with_records(task_flags, task, folder, *more)
    return error_of(make_task, runner, *flags)


def test_records_that_contradict_the_flags_are_refused(write, task_flags, tmp_path):
    folder = write("mrpc")
    line = refused(task_flags, "mrpc", folder, "--max_seq_length=32")
    contradiction = f"contradicts the records in {folder}, made with max_seq_length=33"
    assert line == f"--max_seq_length=32 {contradiction}"
    line = refused(task_flags, "stsb", folder)
    assert "were made with task_name='mrpc', expected 'stsb'" in line
    path = folder / "metadata.json"
    metadata = checksums.read_json(str(path))
    path.write_bytes(checksums.json_file({**metadata, "do_lower_case": False}))
    line = refused(task_flags, "mrpc", folder)
    assert "were made with do_lower_case=False, expected True" in line
    path.write_bytes(checksums.json_file({**metadata, "spm_sha256": "0" * 64}))
    line = refused(task_flags, "mrpc", folder)
    assert f"were made with spm_sha256='{'0' * 64}', expected" in line
    assert line.startswith(f"--train_records={folder}: ")


def test_other_records_are_refused(task_flags, tmp_path):
    write_records(tmp_path / "other" / "a.tfrecord", random_features(5))
    line = refused(task_flags, "mrpc", tmp_path / "other")
    wanted = "not written with --write_records of a fine-tuning program"
    assert line == f"--train_records={tmp_path / 'other'}: {wanted}"


def test_settings_that_write_no_records(write, tmp_path):
    assert error_of(write, "mrpc", "--do_train=false").startswith(
        "--write_records needs --do_train"
    )
    expected = "--write_records and --ensemble contradict each other"
    assert error_of(write, "mrpc", f"--ensemble={tmp_path}") == expected
    assert not (tmp_path / "records").exists()
    write("mrpc")
    assert error_of(write, "mrpc").endswith("contains records: choose another folder")


def test_records_of_another_kind_of_labels_are_refused(write, task_flags):
    folder = write("tsv", "--max_seq_length=23")
    line = refused(task_flags, "labels", folder)
    assert line == (
        f"--train_records={folder}: have no label_sets, which this kind of labels needs; were they made with the same"
        " --kind and --label_separator?"
    )


def test_a_separator_inside_the_labels_of_records_is_refused(write, task_flags):
    folder = write("labels")
    line = refused(task_flags, "labels", folder, "--label_separator=o")
    assert line == "--label_separator=o is in the label 'colour'; choose another"
