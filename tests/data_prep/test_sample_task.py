"""Passages of packages with their names as labels."""

import csv

import pytest

from albert_tf.core.errors import UserError
from albert_tf.data_prep import sample_task
from albert_tf.data_prep.sample_task import SampleTaskSettings
from tests.helpers import write_files

NAMES = ("ant", "bee", "cow")


def module(package, number):
    lines = [
        f"The method {number} of {package} {verb} a long list of numbers.\n\n"
        for verb in ("reads", "writes")
    ]
    lines += [
        f"It {verb} row {number} of the {size} tables in turn.\n\n"
        for verb in ("sorts", "joins")
        for size in (len(package) * 11 + ord(package[0]), 7 + ord(package[0]))
    ]
    return f'"""{"".join(lines)}"""\n'


def sample(tmp_path, **settings):
    """The rows of train.tsv and dev.tsv from three packages with 24, 12 and 6 modules."""
    counts = dict(zip(NAMES, (24, 12, 6), strict=True))
    sources = {
        f"{name}/m{number}.py": module(name, number)
        for name in NAMES
        for number in range(counts[name])
    }
    write_files(tmp_path / "packages", sources | {"alone.py": module("dog", 1)})
    output = tmp_path / "task"
    fixed = {"input_file": str(tmp_path / "packages"), "output_dir": str(output), "num_workers": 1}
    sample_task.main(SampleTaskSettings(**fixed | settings))
    rows = []
    for name in ("train.tsv", "dev.tsv"):
        with open(output / name, encoding="utf-8", newline="") as file:
            rows.append(list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)))
    return rows


def test_labels_are_the_packages_with_the_most_passages(tmp_path):
    train, dev = sample(tmp_path, num_packages=2)
    assert {row["package"] for row in train} == {row["package"] for row in dev} == {"ant", "bee"}
    assert 0.05 < len(dev) / len(train + dev) < 0.35


def test_passages_do_not_name_their_package(tmp_path):
    train, dev = sample(tmp_path, num_packages=3, num_sentences=1)
    assert train and not any(row["package"] in row["text"] for row in train + dev)


def test_a_module_is_in_one_file_and_there_are_at_most_so_many_passages(tmp_path):
    train, dev = sample(tmp_path, num_packages=3, num_sentences=1, max_passages=20)
    row_numbers = [
        {row["package"] + row["text"].split()[3] for row in rows} for rows in (train, dev)
    ]
    assert not row_numbers[0] & row_numbers[1]
    assert max(sum(row["package"] == name for row in train + dev) for name in NAMES) == 20


def test_the_same_command_gives_the_same_files(tmp_path):
    assert sample(tmp_path / "a", num_packages=3) == sample(
        tmp_path / "b", num_packages=3, num_workers=2
    )


def test_a_folder_that_cannot_be_written_is_rejected_before_anything_is_read(monkeypatch):
    monkeypatch.setattr("albert_tf.data_prep.sample_corpus.find_modules", pytest.fail)
    with pytest.raises(UserError, match="--output_dir=/proc/x cannot be written"):
        sample_task.main(SampleTaskSettings(output_dir="/proc/x"))


def test_too_few_packages_are_refused(tmp_path):
    with pytest.raises(UserError, match="--num_packages=4: only 3 packages"):
        sample(tmp_path, num_packages=4)
