"""--eval_fraction: which examples are held out, for every task with one training file; and rows without labels."""

import json
from collections import Counter

import numpy as np
import pandas
import pytest

from albert_tf.tasks.held_out import held_out
from tests.helpers import error_of, fine_tuning_settings, made_up_text, make_task


def test_each_label_is_held_out_in_the_same_proportion():
    labels = [0] * 60 + [1] * 30 + [2] * 10
    chosen = held_out(labels, range(100), 0.2)
    assert Counter(np.array(labels)[chosen]) == {0: 12, 1: 6, 2: 2}
    np.testing.assert_array_equal(chosen, held_out(labels, range(100), 0.2))
    assert np.flatnonzero(chosen)[0] > 0 and np.diff(np.flatnonzero(chosen)).max() > 1


def test_a_rare_label_is_on_both_sides_and_a_single_one_is_trained_on():
    chosen = held_out([0] * 20 + [1, 1] + [2], range(23), 0.1)
    assert chosen[20:22].sum() == 1 and not chosen[22]
    assert held_out([0, 0], range(2), 0.9).sum() == 1
    assert not held_out([0, 0], ["a", "a"], 0.5).any()


def test_a_group_is_on_one_side():
    groups = np.arange(90) // 3
    chosen = held_out([0] * 90, groups.tolist(), 0.3)
    assert chosen.sum() == 27
    assert {*groups[chosen]}.isdisjoint({*groups[~chosen]})


@pytest.fixture
def flags(tiny_pretrained):
    return [f"--init_checkpoint={tiny_pretrained}", "--eval_fraction=0.25", "--max_seq_length=32"]


def test_a_table_is_divided(flags, tmp_path, capsys):
    texts = made_up_text(40, seed=2, num_sentences=(1, 1)).split("\n\n")
    frame = pandas.DataFrame({"text": texts * 2, "label": ["a", "b"] * 40})
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = [f"--train_file={tmp_path / 't.csv'}", "--text_columns=text"]
    task = make_task("classifier", *table, *flags)
    sizes = {split: len(items) for split, items in task.items.items()}
    assert sizes == {"train": 60, "eval": 20}
    sides = [{item.text_a for item in task.items[split]} for split in ("train", "eval")]
    assert sides[0].isdisjoint(sides[1]) and sides[0] | sides[1] == {*texts}
    assert {item.label for item in task.items["eval"]} == {0, 1}
    output = capsys.readouterr().out
    assert "held out: 20 of 80 examples" in output
    assert "warning: 80 examples have 40 different texts; each of these is on one side" in output


def test_other_tasks_are_divided_too(flags, task_files, tmp_path):
    words = f"--train_file={task_files / 'tagging' / 'train.conll'}"
    task = make_task("tagger", words, *flags, "--doc_stride=8")
    numbers = [number for number, _ in task.items["eval"]]
    assert numbers == list(range(len(numbers))) and len(numbers) > 2

    questions = f"--train_file={task_files / 'squad' / 'train-v2.0.json'}"
    lengths = ["--max_query_length=9", "--doc_stride=9"]
    task = make_task("squad", questions, *flags, *lengths)
    contexts = [{question.context for _, question in task.items[split]} for split in task.items]
    assert len(contexts) == 2 and contexts[0].isdisjoint(contexts[1])

    rows = [{"a": f"who is {n}", "b": f"it is {n}"} for n in ("anna", "bert", "carl", "dora")]
    (tmp_path / "pairs.json").write_text(json.dumps(rows))
    pairs = [f"--train_file={tmp_path / 'pairs.json'}", "--text_columns=a,b"]
    task = make_task("embedder", *pairs, *flags)
    assert len(task.items["train"]) == 3
    assert [item.texts[0][:6] for item in task.items["eval"]] == ["who is", "it is "]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--eval_file=t.csv"], "--eval_fraction and --eval_file contradict each other"),
        (["--do_eval=false"], "--eval_fraction needs --do_train and --do_eval"),
        (["--eval_fraction=1"], "--eval_fraction must be below 1"),
        (["--label_separator=,", "--skip_unlabeled"], "--skip_unlabeled is for --task_name=table"),
    ],
)
def test_contradictions_are_one_line(more, message, flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\na,b\n")
    table = ["--train_file=t.csv", "--text_columns=text", "--output_dir=run"]
    assert message in error_of(fine_tuning_settings, "classifier", *table, *flags, *more)


def test_nothing_to_hold_out_is_one_line(flags, tmp_path):
    (tmp_path / "t.csv").write_text("text,label\nanna,b\nanna,c\n")
    table = [f"--train_file={tmp_path / 't.csv'}", "--text_columns=text"]
    line = error_of(make_task, "classifier", *table, *flags)
    assert "--eval_fraction=0.25: nothing can be held out of 2 examples" in line


def test_rows_without_a_label_are_an_error_or_left_out(flags, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("text,label\nanna,b\nbert,\ncarl,c\ndora, \nemil,b\nfran,c\n")
    table = [f"--train_file={tmp_path / 't.csv'}", "--text_columns=text"]
    line = error_of(make_task, "classifier", *table, *flags)
    reason = "has no label, nor have 1 other rows; --skip_unlabeled leaves such rows out"
    assert f"row 2 (line 3): {reason}" in line
    task = make_task("classifier", *table, *flags, "--skip_unlabeled")
    assert task.labels == ("b", "c")
    assert sum(len(items) for items in task.items.values()) == 4
    assert "2 of 6 rows have no label; left out" in capsys.readouterr().out


def test_texts_of_both_files_are_counted(tiny_pretrained, tmp_path, capsys):
    (tmp_path / "train.csv").write_text("text,label\nanna,b\nbert,c\ncarl,c\n")
    (tmp_path / "eval.csv").write_text("text,label\nanna,c\ndora,b\nbert,c\nemil,b\nanna,b\n")
    files = [f"--{name}_file={tmp_path / name}.csv" for name in ("train", "eval")]
    flags = ["--text_columns=text", f"--init_checkpoint={tiny_pretrained}"]
    make_task("classifier", *files, *flags)
    expected = "warning: 3 of 5 examples of --eval_file have texts that are also in --train_file\n"
    assert expected in capsys.readouterr().out
    (tmp_path / "eval.csv").write_text("text,label\ndora,b\nemil,c\n")
    make_task("classifier", *files, *flags)
    assert "also in" not in capsys.readouterr().out
