"""Records for fine-tuning: the features of the text itself, and refusals where settings contradict each other."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError
from albert_tf.core import checksums
from albert_tf.data.feature_records import find_feature_records
from albert_tf.data_prep import create_finetuning_data
from albert_tf.data_prep.create_finetuning_data import FineTuningDataSettings
from tests.helpers import fine_tune_here, make_task, random_features, write_records

TASKS = ["mrpc", "stsb", "tsv", "labels", "squad1.1", "squad2.0", "race", "tagging"]


@pytest.fixture
def write(task_files, tiny_pretrained, tmp_path):
    """A function that makes the records of a task with the settings of `task_flags`; returns their folder."""
    tsv, squad = task_files / "tsv" / "train.tsv", task_files / "squad"
    glue = {"data_dir": str(task_files / "glue"), "max_seq_length": 33}
    windows = {"max_seq_length": 40, "doc_stride": 13, "max_query_length": 9}
    own = {"train_file": str(tsv), "text_columns": "review", "label_column": "mood"}
    settings = {
        "mrpc": {"task_name": "MRPC", **glue},
        "stsb": {"task_name": "STS-B", **glue},
        "tsv": {"task_name": "tsv", "max_seq_length": 33, **own},
        "labels": {
            "task_name": "tsv",
            "train_file": str(task_files / "labels" / "train.tsv"),
            "text_columns": "review",
            "label_column": "topics",
            "label_separator": ";",
            "max_seq_length": 23,
        },
        "tagging": {
            "task_name": "tagging",
            "train_file": str(task_files / "tagging" / "train.conll"),
            "max_seq_length": 21,
            "doc_stride": 7,
        },
        "race": {
            "task_name": "race",
            "data_dir": str(task_files / "RACE"),
            "max_seq_length": 48,
            "max_qa_length": 17,
        },
    }
    for version in ("1.1", "2.0"):
        file = {"train_file": str(squad / f"train-v{version}.json")}
        settings[f"squad{version}"] = {"task_name": f"squad{version}", **file, **windows}

    def run(task, **changes):
        common = {
            "output_dir": str(tmp_path / "records"),
            "spm_model_file": str(tiny_pretrained / "spiece.model"),
            "num_shards": 3,
            "num_workers": 1,
        }
        create_finetuning_data.main(
            FineTuningDataSettings(**{**common, **settings[task], **changes})
        )
        return tmp_path / "records"

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
def test_records_hold_what_the_text_gives(task, write, task_flags, capsys):
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


def test_a_run_on_records_has_the_losses_of_the_text(write, task_flags, tmp_path):
    folder = write("race")
    runner, flags = task_flags["race"]
    # A batch holds all of the ten examples, so that their order does not matter.
    short = ["--train_batch_size=10", "--stop_after_steps=3", "--classifier_dropout_prob=0"]
    fine_tune_here(runner, *flags, *short, "--do_eval=false", f"--output_dir={tmp_path / 'text'}")
    runner, flags = with_records(task_flags, "race", folder, *short)
    fine_tune_here(runner, *flags, f"--output_dir={tmp_path / 'run'}")
    losses = {}
    for name in ("text", "run"):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses[name] = [json.loads(line)["loss"] for line in lines]
    assert losses["run"] == pytest.approx(losses["text"], rel=1e-5)
    assert len(set(losses["run"])) == 3


def test_what_the_metadata_says(write, capsys):
    folder = write("squad2.0")
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["task_name"], metadata["max_seq_length"], metadata["choices"]) == (
        "squad2.0",
        40,
        1,
    )
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


def test_lengths_are_the_runners_unless_given(write, tmp_path):
    for task, length in {"mrpc": 128, "squad1.1": 384, "race": 512}.items():
        changes = {"max_seq_length": 0, "output_dir": str(tmp_path / task)}
        write(task, **changes)
        metadata = json.loads((tmp_path / task / "metadata.json").read_text())
        assert metadata["max_seq_length"] == length


def refused(task_flags, task, folder, *more):
    runner, flags = with_records(task_flags, task, folder, *more)
    with pytest.raises(UserError) as caught:
        make_task(runner, *flags)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_records_that_contradict_the_flags_are_refused(write, task_flags, tmp_path):
    folder = write("mrpc")
    line = refused(task_flags, "mrpc", folder, "--max_seq_length=32")
    assert (
        line
        == f"--max_seq_length=32 contradicts the records in {folder}, made with max_seq_length=33"
    )
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
    assert (
        line
        == f"--train_records={tmp_path / 'other'}: not written by data_prep.create_finetuning_data"
    )
    (tmp_path / "empty").mkdir()
    line = refused(task_flags, "mrpc", tmp_path / "empty")
    assert line == f"--train_records={tmp_path / 'empty'}: no record files there (*.tfrecord*)"


def test_a_truncated_shard_is_refused(write, task_flags):
    folder = write("mrpc")
    shard = next(folder.glob("*.tfrecord"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "truncated or changed; make it again" in refused(task_flags, "mrpc", folder)


def test_settings_that_make_no_records(write, tmp_path):
    def line(task, **changes):
        with pytest.raises(UserError) as caught:
            write(task, **changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert line("mrpc", task_name="MRCP").startswith("--task_name must be one of CoLA, SST-2, MRPC")
    assert line("tsv", text_columns="") == "--text_columns is required with --task_name=tsv"
    assert (
        line("mrpc", train_file="x") == "--train_file belongs to --task_name=tsv, tagging and SQuAD"
    )
    assert line("squad2.0", train_file="") == "--train_file is required for --task_name=squad2.0"
    assert line("tsv", label_column="stars").endswith(
        "has no column 'stars', only 'name', 'review', 'mood'"
    )
    assert not (tmp_path / "records").exists()
    write("mrpc")
    assert line("mrpc").endswith("holds records: give another folder")


def test_records_of_another_kind_of_labels_are_refused(write, task_flags):
    folder = write("tsv", task_name="tsv", max_seq_length=23)
    line = refused(task_flags, "labels", folder)
    assert line == (
        f"--train_records={folder}: have no label_sets, which this kind of labels needs; were they made with the same"
        " --kind and --label_separator?"
    )


def test_a_separator_inside_the_labels_of_records_is_refused(write, task_flags):
    folder = write("labels")
    line = refused(task_flags, "labels", folder, "--label_separator=o")
    assert line == "--label_separator=o is in the label 'colour'; choose another"
