"""GLUE: the layout of every task's files, wrong input, the leaderboard's files, and the real data's counts."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification import glue
from albert_tf.tasks.classification.glue import GLUE_TASKS, find_task, read_glue, submission_tsv
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.metrics import METRICS
from tests.helpers import write_files

MNLI_COLUMNS = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2"
)
MNLI_START = '31\t5\t5e\tfiction\tq1\tq2\tp1\tp2\tA "man.\tNo man.'
PLAIN = "index\tsentence1\tsentence2"
STS_COLUMNS = f"index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t{PLAIN[6:]}"

# A row of every kind of file, in the official columns: its path, content -> id, texts, label, group, line.
LAYOUTS = {
    "CoLA/train.tsv": ("gj04\t0\t*\tCat the.\n", "0", "Cat the.", None, 0, "", 1),
    "CoLA/test.tsv": ("index\tsentence\n7\tA cat.\n", "7", "A cat.", None, None, "", 2),
    "SST-2/dev.tsv": ("sentence\tlabel\nbad \t0\n", "0", "bad ", None, 0, "", 2),
    "SST-2/test.tsv": ("index\tsentence\n4\tbad\n", "4", "bad", None, None, "", 2),
    "MRPC/train.tsv": (
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\tHe " said .\tHe .\r\n',
        "0",
        'He " said .',
        "He .",
        1,
        "",
        2,
    ),
    "MRPC/test.tsv": (
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n6\t70\t71\tA\tB",
        "6",
        "A",
        "B",
        None,
        "",
        2,
    ),
    "STS-B/dev.tsv": (
        f"{STS_COLUMNS}\tscore\n12\tg\tf\t2012\t0004\tn\tm\tA man\tA boy\t3.250\n",
        "12",
        "A man",
        "A boy",
        3.25,
        "",
        2,
    ),
    "QQP/train.tsv": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n133\t2\t3\tWhy?\tWho?\t1\n",
        "133",
        "Why?",
        "Who?",
        1,
        "",
        2,
    ),
    "QQP/test.tsv": (
        "id\tquestion1\tquestion2\n5\tWhy?\tWho?\n",
        "5",
        "Why?",
        "Who?",
        None,
        "",
        2,
    ),
    "MNLI/train.tsv": (
        f"{MNLI_COLUMNS}\tlabel1\tgold_label\n{MNLI_START}\tentailment\tneutral\n",
        "31",
        'A "man.',
        "No man.",
        2,
        "",
        2,
    ),
    "MNLI/dev_mismatched.tsv": (
        f"{MNLI_COLUMNS}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        f"{MNLI_START}\tx\tx\tx\tx\tneutral\tcontradiction\n",
        "31",
        'A "man.',
        "No man.",
        0,
        "mismatched",
        2,
    ),
    "MNLI/test_matched.tsv": (
        f"{MNLI_COLUMNS}\n{MNLI_START}\n",
        "31",
        'A "man.',
        "No man.",
        None,
        "matched",
        2,
    ),
    "QNLI/dev.tsv": (
        "index\tquestion\tsentence\tlabel\n8\tWho?\tHe.\tnot_entailment\n",
        "8",
        "Who?",
        "He.",
        1,
        "",
        2,
    ),
    "RTE/train.tsv": (f"{PLAIN}\tlabel\n8\tA.\tB.\tentailment\n", "8", "A.", "B.", 0, "", 2),
    "WNLI/dev.tsv": (f"{PLAIN}\tlabel\n8\tA.\tB.\t1\n", "8", "A.", "B.", 1, "", 2),
    "diagnostic/diagnostic.tsv": (f"{PLAIN}\n8\tA.\tB.\n", "8", "A.", "B.", None, "", 2),
}


@pytest.mark.parametrize("in_task_folder", [False, True], ids=["root", "task_folder"])
@pytest.mark.parametrize("file", LAYOUTS)
def test_layout(tmp_path, in_task_folder, file):
    content, *expected = LAYOUTS[file]
    write_files(tmp_path, {file: content})
    folder = (tmp_path / file).parent if in_task_folder else tmp_path
    name, split = file.replace("diagnostic/diagnostic", "AX/test").split("/")
    split = re.match("[a-z]+", split)[0]
    (example,) = read_glue(GLUE_TASKS[name], str(folder), split)
    assert list(dataclasses.astuple(example))[:-1] == expected[:-1]
    assert f"(line {expected[-1]}" in example.row
    assert type(example.label) is type(expected[3])


def test_the_two_groups_of_mnli_are_read_together(tmp_path, capsys):
    columns = f"{MNLI_COLUMNS}\tlabel1\tgold_label"
    row = f"{MNLI_START}\tneutral\tneutral"
    matched = f"{columns}\n{row}\n{row}\n"
    mismatched = f"{columns}\n{row}\n"
    write_files(tmp_path, {"MNLI/dev_matched.tsv": matched, "MNLI/dev_mismatched.tsv": mismatched})
    examples = read_glue(GLUE_TASKS["MNLI"], str(tmp_path), "dev")
    assert [example.group for example in examples] == ["matched", "matched", "mismatched"]
    source = TextSource(ClassifierConfig(task_name="MNLI"))
    assert source.rows(examples)["group"].tolist() == ["matched", "matched", "mismatched"]
    assert capsys.readouterr().out == ""
    (tmp_path / "MNLI" / "dev_mismatched.tsv").unlink()
    assert len(read_glue(GLUE_TASKS["MNLI"], str(tmp_path), "dev")) == 2
    assert "MNLI: continues without dev_mismatched.tsv" in capsys.readouterr().out


QQP_ROWS = "1\t2\t3\tWhy?\tWho?\t1\n2\t3\t4\tis it\nbroken?\tYes?\t0\n3\t4\t5\tHow?\tWhen?\t0\n"


def test_broken_rows_of_qqp_are_left_out_and_counted(tmp_path, capsys):
    columns = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write_files(tmp_path, {"QQP/train.tsv": columns + QQP_ROWS})
    examples = read_glue(GLUE_TASKS["QQP"], str(tmp_path), "train")
    assert [(example.id, example.label, example.row) for example in examples] == [
        ("1", 1, "row 1 (line 2, id 1)"),
        ("3", 0, "row 4 (line 5, id 3)"),
    ]
    assert "QQP/train.tsv: 2 rows without enough columns are left out" in capsys.readouterr().out


def test_names():
    names = {"cola": "CoLA", "SST2": "SST-2", "sts_b": "STS-B", " mnli ": "MNLI"}
    names["Diagnostic"] = "AX"
    assert {name: find_task(name).name for name in names} == names
    assert find_task("snli") is None


HEADER = f"{PLAIN}\tlabel\n"


WRONG = {
    "RTE dev": ({}, r"^--data_dir=\S+: has no RTE/dev.tsv, and no dev.tsv$"),
    "QQP dev": (
        {"QQP/dev.tsv": "id\tquestion1\tquestion2\tis_duplicate\nx\n"},
        r"contains no rows with",
    ),
    "CoLA dev": (
        {"CoLA/dev.tsv": "source\tlabel\tstar\tsentence\nx\t1\t\ty\n"},
        r"dev.tsv: row 1 \(line 1\): expected a label",
    ),
    "MNLI train": (
        {"MNLI/train.tsv": f"{MNLI_COLUMNS}\tgold_label\n{MNLI_START}\t-\n"},
        r"MNLI/train.tsv: row 1 \(line 2\): expected a label \(contradiction, entailment, neutral\), got '-'$",
    ),
    # Both have the columns of the other's test set: nothing in the file would show the mistake.
    "WNLI test": (
        {"RTE/test.tsv": f"{PLAIN}\n0\ta\tb\n"},
        r"RTE: is the folder of RTE, not of WNLI$",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line(tmp_path, case):
    name, split = case.split()
    files, message = WRONG[case]
    write_files(tmp_path, files)
    folder = tmp_path / "RTE" if name == "WNLI" else tmp_path
    with pytest.raises(UserError, match=message) as error:
        read_glue(GLUE_TASKS[name], str(folder), split)
    assert len(str(error.value).splitlines()) == 1


def test_the_metric_of_the_paper_comes_first():
    first = {name: task.metrics[0] for name, task in GLUE_TASKS.items()}
    other = {"CoLA": "matthews", "STS-B": "pearson", "AX": "matthews"}
    assert first == {name: other.get(name, "accuracy") for name in GLUE_TASKS}
    assert all(metric in METRICS for task in GLUE_TASKS.values() for metric in task.metrics)


def test_a_remote_folder():
    # TensorFlow's file system of this name is the memory of the process.
    tf.io.gfile.makedirs("ram://glue/RTE")
    with tf.io.gfile.GFile("ram://glue/RTE/dev.tsv", "w") as file:
        file.write(f"{HEADER}0\ta\tb\tentailment\n")
    for folder in ("ram://glue", "ram://glue/RTE"):
        assert len(read_glue(GLUE_TASKS["RTE"], folder, "dev")) == 1
    with pytest.raises(UserError, match=r"^--data_dir=ram://glue: has no RTE/train.tsv, and no"):
        read_glue(GLUE_TASKS["RTE"], "ram://glue", "train")


def test_answers_are_words_and_scores_are_clipped():
    name, text = submission_tsv(GLUE_TASKS["MNLI"], "mismatched", ["0", "1"], np.array([2, 0]))
    assert (name, text) == ("MNLI-mm.tsv", "index\tprediction\n0\tneutral\n1\tcontradiction\n")
    name, text = submission_tsv(GLUE_TASKS["CoLA"], "", ["0"], np.array([1]))
    assert (name, text) == ("CoLA.tsv", "index\tprediction\n0\t1\n")
    scores = np.array([-0.5, 2.12345, 5.2], np.float32)
    _, text = submission_tsv(GLUE_TASKS["STS-B"], "", ["0", "1", "2"], scores)
    assert text == "index\tprediction\n0\t0.000\n1\t2.123\n2\t5.000\n"


OFFICIAL_COUNTS = {
    "CoLA": (8551, 1043, 1063),
    "SST-2": (67349, 872, 1821),
    "MRPC": (3668, 408, 1725),
    "STS-B": (5749, 1500, 1379),
    "RTE": (2490, 277, 3000),
    "WNLI": (635, 71, 146),
    "QNLI": (None, 5463, 5463),
    "AX": (None, None, 1104),
}


@pytest.mark.parametrize("name", OFFICIAL_COUNTS)
def test_real_data_is_read_whole(real_data, name):
    task = GLUE_TASKS[name]
    for split, count in zip(glue.SPLITS, OFFICIAL_COUNTS[name], strict=True):
        if count is None:
            continue
        examples = read_glue(task, str(real_data / "glue"), split)
        assert len(examples) == count
        assert all(example.text_a.strip() for example in examples)
        labels = {example.label for example in examples}
        if split == "test":
            assert labels == {None}
            assert [example.id for example in examples] == [str(i) for i in range(count)]
        elif task.is_regression:
            assert 0 <= min(labels) < max(labels) <= 5
        else:
            assert labels == set(range(len(task.labels)))


@pytest.mark.parametrize("name", ["MNLI", "QQP", "QNLI"])
def test_real_parts_of_the_large_tasks(real_data, name):
    folder = str(real_data / "glue_partial")
    task = GLUE_TASKS[name]
    counts = {}
    for split in ("train", "dev"):
        examples = read_glue(task, folder, split)
        counts[split] = len(examples)
        assert {example.label for example in examples} == set(range(len(task.labels)))
    assert counts == {"train": 8999, "dev": 1000}
