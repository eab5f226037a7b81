"""Tasks as functions of `albert_tf`: data in memory gives the results of the files, and nothing stays behind."""

import json
import random

import numpy as np
import pandas
import pytest

import albert_tf
from albert_tf.core import memory_files
from albert_tf.functions import Run
from albert_tf.tasks.tagging.conll import read_tagged
from tests.helpers import FinishedRun, error_of, label_of


def keywords_of(finished: FinishedRun) -> dict:
    """The arguments of a function with the flags of a run; numbers and truth values as Python has them."""
    keywords = {}
    for flag in finished.flags:
        name, _, word = flag.removeprefix("--").partition("=")
        if not word:
            is_off = name.startswith("no")
            keywords[name.removeprefix("no") if is_off else name] = not is_off
            continue
        try:
            keywords[name] = json.loads(word)
        except ValueError:
            keywords[name] = word
    if "version" in keywords:
        keywords["version"] = str(keywords["version"])
    return keywords


def table(path) -> pandas.DataFrame:
    return pandas.read_csv(path, sep="\t", quoting=3)


def sentences(path: str, *, need_tags: bool = True):
    """The words of each sentence of a file, and their tags."""
    columns = {"token_column": "first", "tag_column": "last"}
    file = read_tagged(path, **columns, need_tags=need_tags, flag="train_file")
    return [list(sentence.words) for sentence in file.sentences], file.tags


def as_data(task: str, keywords: dict) -> dict:
    """The arguments with data in the place of the files."""
    train, test, new = (keywords.pop(f"{name}_file") for name in ("train", "eval", "predict"))
    if task == "tsv":
        frame = table(train)
        keywords["train"] = (list(frame["review"]), np.array(frame["mood"]))
        keywords["eval"] = table(test)
        keywords["predict_file"] = list(table(new)["review"])
        del keywords["task_name"]
    elif task == "tagging":
        keywords["train"] = sentences(train)
        words, tags = sentences(test)
        keywords["eval"] = [
            {"tokens": row, "tags": list(of_row)} for row, of_row in zip(words, tags, strict=True)
        ]
        keywords["predict_file"] = sentences(new, need_tags=False)[0]
    else:
        for name, path in (("train", train), ("eval", test), ("predict_file", new)):
            with open(path) as file:
                keywords[name] = json.load(file)
    return keywords


@pytest.mark.parametrize(
    "task",
    [
        "tsv",
        pytest.param("tagging", marks=pytest.mark.slow),
        pytest.param("squad2.0", marks=pytest.mark.slow),
    ],
)
def test_data_in_memory_gives_the_results_of_files(task, finished, tmp_path, eager):
    in_shell = finished(task)
    function = {"tsv": albert_tf.classify, "tagging": albert_tf.tag, "squad2.0": albert_tf.squad}
    keywords = as_data(task, keywords_of(in_shell))
    run = function[task](**keywords, output_dir=tmp_path / "run")
    assert isinstance(run, Run)
    assert run.results["eval"] == pytest.approx(in_shell.results["eval"], abs=1e-5)
    assert run.results == json.loads((tmp_path / "run" / "results.json").read_text())
    predictions = [
        np.load(folder / "predictions" / "predict.npz")
        for folder in (tmp_path / "run", in_shell.folder)
    ]
    for name in predictions[0].files:
        np.testing.assert_allclose(predictions[0][name], predictions[1][name], atol=1e-5)
    assert not memory_files.all_held()


@pytest.mark.slow
def test_race_in_python_is_race_in_the_shell(finished, tmp_path, eager):
    in_shell = finished("race")
    run = albert_tf.race(**keywords_of(in_shell), output_dir=tmp_path)
    assert run.results["eval"] == pytest.approx(in_shell.results["eval"], abs=1e-5)


@pytest.fixture
def short(tiny_pretrained, eager):
    """Arguments of a training of two steps."""
    return {"init_checkpoint": tiny_pretrained, "num_train_steps": 2, "train_batch_size": 4}


TEXTS = ["anna is good", "bert is bad", "carl saw a fine dog", "the river was good"]
LABELS = [label_of(text) for text in TEXTS]


@pytest.mark.slow
def test_an_embedder_learns_from_lists(short, tmp_path):
    pairs = (TEXTS, TEXTS[::-1])
    run = albert_tf.embed(train=pairs, eval=pairs, output_dir=tmp_path / "a", **short)
    rows = [{"text_1": a, "text_2": b} for a, b in zip(*pairs, strict=True)]
    again = albert_tf.embed(
        train=rows, eval=rows, text_columns=["text_1", "text_2"], output_dir=tmp_path / "b", **short
    )
    assert run.results["eval"] == again.results["eval"]
    assert run.predictor.embed(TEXTS).shape[0] == 4
    scored = (*pairs, [0.5, 1.0, 0.0, 0.25])
    run = albert_tf.embed(
        train=scored, eval=scored, loss="cosine", output_dir=tmp_path / "c", **short
    )
    assert "spearman" in run.results["eval"]
    triplets = (*pairs, TEXTS)
    run = albert_tf.embed(eval=pairs, train=triplets, output_dir=tmp_path / "d", **short)
    assert "ndcg_at_10" in run.results["eval"]


def test_a_run_is_resumed_with_the_same_data_only(short, tmp_path):
    keywords = {"output_dir": tmp_path, "label_column": "mood", **short}
    first = albert_tf.classify(train=(TEXTS, LABELS), eval=(TEXTS, LABELS), **keywords)
    again = albert_tf.classify(train=(TEXTS, LABELS), eval=(TEXTS, LABELS), **keywords)
    assert again.results["eval"] == first.results["eval"]
    settings = json.loads((tmp_path / "config.json").read_text())["task"]
    assert settings["train_file"].startswith("memory://train_file-")
    assert (settings["task_name"], settings["label_column"]) == ("table", "mood")
    line = error_of(albert_tf.classify, train=(TEXTS[::-1], LABELS), **keywords)
    assert "contains a run with train_sha256" in line


def test_a_call_leaves_random_numbers_as_they_were(short, tmp_path):
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = (random.random(), np.random.rand())  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    albert_tf.classify(train=(TEXTS, LABELS), output_dir=tmp_path, **short)
    assert (random.random(), np.random.rand()) == expected  # noqa: NPY002


def test_a_dataset_with_names_of_classes_is_a_table(short, tmp_path):
    class Labels:
        names = ("bad", "good", "fine")

    class Dataset:
        """What is used of `datasets.Dataset`."""

        features = {"text": object(), "label": Labels()}

        def to_pandas(self):
            return pandas.DataFrame({"text": TEXTS, "label": [1, 0, 2, 1]})

    run = albert_tf.classify(train=Dataset(), text_columns="text", output_dir=tmp_path, **short)
    assert run.predictor.model.config.labels == ("bad", "fine", "good")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"trian": 1}, "trian: is no setting here; train is meant"),
        ({"lr": 1}, "lr: is no setting here; learning_rate is meant"),
        ({"iterations_per_loop": 1}, "iterations_per_loop: is no setting here; not needed"),
        ({"train": TEXTS}, "train_file: expected (texts, labels), a table or a path"),
        ({"train": (TEXTS, [1])}, "train_file: expected equally many of each, got 4 of text, 1"),
        ({"train": (TEXTS, LABELS), "train_file": "x"}, "train and train_file are the same"),
        ({"train": ([3], [1])}, "train_file: expected a list of texts; item 1 is 3"),
        ({"train": ({"a": 1}, [1])}, "train_file: expected a list of texts, got a table"),
        ({"train": pandas.DataFrame({"a": ["b"]})}, "text_columns is required"),
        ({"train": [{"a": "b"}], "text_columns": "c"}, "has no column 'c', only 'a'"),
        ({"train": "x.csv"}, "train_file=x.csv: no such file or folder"),
        ({"train": (TEXTS, LABELS), "learning_rate": -1}, "learning_rate must be above 0"),
        ({"train": (TEXTS, LABELS), "seed": "1"}, "seed must be of type int, got '1'"),
        ({"init_checkpoint": 3}, "init_checkpoint must be of type str, got 3"),
        ({"text_columns": ["a,b"]}, "text_columns: a comma in 'a,b' would separate two names"),
    ],
)
def test_wrong_arguments_are_one_line(keywords, message, tmp_path, tiny_pretrained):
    given = {"init_checkpoint": tiny_pretrained, "output_dir": tmp_path / "run", **keywords}
    line = error_of(albert_tf.classify, **given)
    assert message in line
    assert "--" not in line
    assert not memory_files.all_held()
