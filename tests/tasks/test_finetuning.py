"""Fine-tuning from flags to files: every task in every mode, the best checkpoint, and what must change no number.

Covers: classification/definition.py, classification/settings.py, classification/source.py, classification/task.py,
race/definition.py, race/settings.py, race/source.py, race/task.py, squad/definition.py, squad/settings.py,
squad/source.py, squad/task.py, tagging/definition.py, tagging/settings.py, tagging/source.py, tagging/task.py.
"""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_pretrained
from albert_tf.data.reading import EXAMPLE_WEIGHTS
from albert_tf.model import heads
from albert_tf.tasks import registry
from albert_tf.tasks.classification import multi_label
from albert_tf.tasks.tagging import entities
from albert_tf.training.devices import make_strategy
from albert_tf.training.results import describe
from albert_tf.training.state import start_run
from tests.helpers import (
    RUNNERS,
    batch_of,
    eagerly,
    fine_tune_here,
    fine_tuning_settings,
    fine_tuning_task,
    lines,
    make_task,
    run_until_logged,
    weights,
    without_checksums,
)

TASKS = ["mrpc", "stsb", "tsv", "labels", "squad1.1", "squad2.0", "race", "tagging"]
MODEL_CLASSES = {
    "squad1.1": heads.AlbertForSpan,
    "squad2.0": heads.AlbertForSpanOrNone,
    "race": heads.AlbertForMultipleChoice,
    "tagging": heads.AlbertForTokenClassification,
}
RARE = {False: [], True: [pytest.mark.rare]}
ALWAYS = {"eval.npz", "eval_errors.txt", "predict.npz"}
ANSWERS = {
    f"{prefix}{name}.json"
    for prefix in ("", "eval_")
    for name in ("predictions", "nbest_predictions")
}
FILES = {
    "mrpc": {*ALWAYS, "predictions.tsv", "MRPC.tsv"},
    "stsb": {*ALWAYS, "predictions.tsv", "STS-B.tsv"},
    "tsv": {*ALWAYS, "predictions.tsv"},
    "labels": {*ALWAYS, "predictions.tsv"},
    "race": {*ALWAYS, "predictions.tsv"},
    "tagging": {*ALWAYS, "predictions.conll", "eval_predictions.conll"},
    "squad1.1": {*ALWAYS, *ANSWERS},
    "squad2.0": {*ALWAYS, *ANSWERS, "null_odds.json", "eval_null_odds.json", "null_threshold.json"},
}


def evaluations(folder: pathlib.Path) -> dict[int, dict]:
    """The evaluations of a run by their step."""
    return {line.pop("step"): line for line in lines(folder / "eval_metrics.jsonl")}


def arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Predictions as they were kept for ensembles."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != "table_sha256"}


def evaluate_here(runner: str, *flags: object) -> dict:
    """`fine_tune_here` of what trains nothing; the runs of `finished` evaluate in graphs."""
    with eagerly():
        return fine_tune_here(runner, *flags)


def assert_same_predictions(first: dict, second: dict) -> None:
    """Equal up to rounding; where one was padded further than the other, the rest is no number."""
    assert first.keys() == second.keys()
    for name, values in first.items():
        others = second[name]
        if values.ndim > 1:
            width = min(values.shape[1], others.shape[1])
            assert np.all(~np.isfinite(values[:, width:])) and np.all(
                ~np.isfinite(others[:, width:])
            )
            values, others = values[:, :width], others[:, :width]
        both = np.isfinite(values) & np.isfinite(others)
        assert both.any()
        np.testing.assert_allclose(values[both], others[both], rtol=1e-4, atol=1e-5, err_msg=name)


# --- A run, and what can be done with it when it has finished


@pytest.mark.parametrize("task", TASKS)
def test_a_run_leaves_what_it_promises(task, finished):
    run = finished(task)
    assert [line["step"] for line in lines(run.folder / "metrics.jsonl")] == list(range(1, 13))
    assert list(evaluations(run.folder)) == [4, 8, 12]
    assert run.results.items() <= json.loads((run.folder / "results.json").read_text()).items()
    assert {path.name for path in (run.folder / "predictions").iterdir()} == FILES[task]
    if task != "mrpc":  # whose output is that of three runs
        is_last = run.results["best"]["step"] == 12
        assert ("the last evaluation is the best: " in run.output) == is_last
    task = "tsv" if task == "labels" else task
    assert f"  head: a new one for {task}\n" in run.output
    assert (run.folder / "model" / "spiece.model").exists()
    config = json.loads((run.folder / "config.json").read_text())
    assert config["run"]["train_batch_size"] == 6 and config["model"]["finetuning_task"] == task


@pytest.mark.parametrize("task", TASKS)
def test_the_model_folder_gives_the_predictions(task, finished):
    run = finished(task)
    model = load_pretrained(run.folder / "model")
    assert type(model) is MODEL_CLASSES.get(task, heads.AlbertForSequenceClassification)
    loaded = make_task(run.runner, *run.flags)
    features = batch_of(loaded, "eval", range(len(loaded.tables["eval"])))
    found = loaded.predictions(model(features), features)
    found = {name: value.numpy() for name, value in found.items()}
    if task == "squad1.1":  # what stands in the padding is not the same everywhere
        for values in found.values():
            values[features["input_mask"] == 0] = np.nan
    assert_same_predictions(found, arrays(run.folder / "predictions" / "eval.npz"))
    if task == "tsv":
        assert model.config.labels == ("bad", "fine", "good")


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=RARE[task in ("mrpc", "stsb", "tsv")]) for task in TASKS]
)
def test_evaluation_depends_on_neither_batch_nor_lengths(task, finished, tmp_path):
    run = finished(task)
    settings = [
        ("--eval_batch_size=1", "--length_buckets=1"),
        ("--eval_batch_size=17", "--length_buckets=5"),
    ]
    if task == "squad1.1":
        settings.append(("--eval_batch_size=4", "--length_buckets=2"))
    for index, changes in enumerate(settings):
        folder = tmp_path / str(index)
        flags = [*run.flags, *changes, "--do_train=false", "--do_predict=false"]
        start = f"--init_checkpoint={run.folder}"
        results = evaluate_here(run.runner, *flags, start, f"--output_dir={folder}")
        assert results["eval"] == pytest.approx(run.results["eval"], rel=1e-4, abs=1e-5)
        before = arrays(run.folder / "predictions" / "eval.npz")
        assert_same_predictions(before, arrays(folder / "predictions" / "eval.npz"))
        assert (
            not (folder / "model").exists()
            and not (folder / "predictions" / "predict.npz").exists()
        )


def only_unlabelled(task: str, task_files: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Flags of a task that name nothing but data without labels."""
    if task in ("tsv", "labels"):
        return [f"--predict_file={task_files / task / 'test.tsv'}"]
    if task.startswith("squad"):
        return [f"--predict_file={task_files / 'squad' / 'questions.json'}"]
    if task == "tagging":
        return [f"--predict_file={task_files / 'tagging' / 'test.conll'}"]
    if task == "race":
        shutil.copytree(task_files / "RACE" / "test", folder / "RACE" / "test")
        return [f"--data_dir={folder / 'RACE'}"]
    name = {"mrpc": "MRPC", "stsb": "STS-B"}[task]
    (folder / name).mkdir()
    shutil.copy(task_files / "glue" / name / "test.tsv", folder / name / "test.tsv")
    return [f"--data_dir={folder}"]


@pytest.mark.parametrize("task", TASKS)
def test_a_finished_run_predicts_with_its_own_settings_without_any_label(
    task, finished, task_files, tmp_path
):
    run = finished(task)
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    for path in FILES[task] - {"null_threshold.json"}:
        (folder / "predictions" / path).unlink()
    flags = only_unlabelled(task, task_files, tmp_path)
    mode = ["--do_train=false", "--do_eval=false", "--do_predict", "--eval_batch_size=6"]
    fine_tune_here(run.runner, *flags, *mode, f"--output_dir={folder}")
    found = {path.name for path in (folder / "predictions").iterdir()}
    assert found == {name for name in FILES[task] if not name.startswith("eval")}
    for name in found - {"predict.npz"}:
        before = (run.folder / "predictions" / name).read_text()
        assert (folder / "predictions" / name).read_text() == before, name
    before = arrays(run.folder / "predictions" / "predict.npz")
    assert_same_predictions(before, arrays(folder / "predictions" / "predict.npz"))
    # What the training has written stays.
    for name in ("results.json", "config.json", "metrics.jsonl", "eval_metrics.jsonl"):
        assert (folder / name).read_bytes() == (run.folder / name).read_bytes(), name


# --- Data that are not the run's own


OWN = {"tsv": "tsv/dev.tsv", "squad2.0": "squad/dev-v2.0.json", "tagging": "tagging/dev.conll"}
OTHER = {
    "tsv": "--eval_file={tasks}/tsv/train.tsv",
    "squad2.0": "--eval_file={tasks}/squad/train-v2.0.json",
    "race": "--data_dir={folder}/RACE",
    "tagging": "--eval_file={tasks}/tagging/train.conll",
}


def contents(folder) -> dict[str, bytes]:
    """The files of a run, without curves and the files of other data."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "tfevents" not in path.name)
    relative = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return {name: content for name, content in relative.items() if name[:10] != "other_data"}


def results_of(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("task", [pytest.param(task, marks=RARE[task != "tsv"]) for task in OTHER])
def test_an_evaluation_of_another_file_replaces_nothing_of_a_finished_run(
    task, finished, task_files, tmp_path
):
    run, folder = finished(task), tmp_path / "run"
    shutil.copytree(run.folder, folder)
    data = results_of(folder)["data"]
    assert set(data) == {"eval", "predict"}
    if task in OWN:
        assert data["eval"]["file"] == str(task_files / OWN[task])
    before = contents(folder)
    shutil.copytree(task_files / "RACE" / "train", tmp_path / "RACE" / "dev")
    flag = OTHER[task].format(tasks=task_files, folder=tmp_path)
    common = [flag, f"--output_dir={folder}", "--eval_batch_size=6"]
    found = evaluate_here(run.runner, "--do_train=false", *common)
    assert contents(folder) == before and found["eval"] != run.results["eval"]
    (place,) = (folder / "other_data").iterdir()
    results = results_of(place)
    assert found.items() <= results.items()
    assert results["data"]["eval"]["file"] == flag.partition("=")[2]
    assert place.name.startswith(f"{flag.rpartition('/')[2]}-")
    names = {path.name for path in (place / "predictions").iterdir()}
    assert {"eval.npz", "eval_errors.txt"} <= names
    if task not in OWN:
        return
    # A training whose best checkpoint the own data chose does not continue with other data.
    training = [other for other in run.flags if not other.startswith(flag.partition("=")[0] + "=")]
    with pytest.raises(UserError, match="is evaluated with .*: choose another folder, or .*do_tr"):
        evaluate_here(run.runner, *training, *common)
    # The same data under another name is the run's own.
    copy = shutil.copy(task_files / OWN[task], tmp_path / "copy")
    flag = f"--eval_file={copy}"
    again = evaluate_here(run.runner, "--do_train=false", flag, *common[1:])
    assert again["eval"] == pytest.approx(run.results["eval"], rel=1e-4)
    assert results_of(folder)["data"] == data
    assert len(list((folder / "other_data").iterdir())) == 1


def test_predictions_for_another_file_replace_nothing(finished, task_files, tmp_path):
    run, folder = finished("tsv"), tmp_path / "run"
    shutil.copytree(run.folder, folder)
    before = contents(folder)
    rows = (task_files / "tsv" / "test.tsv").read_text().splitlines(keepends=True)
    (tmp_path / "two.tsv").write_text("".join(rows[:3]))
    flags = [f"--predict_file={tmp_path / 'two.tsv'}", "--do_predict"]
    flags += ["--do_train=false", "--do_eval=false", f"--output_dir={folder}"]
    evaluate_here(run.runner, *flags)
    assert contents(folder) == before
    (place,) = (folder / "other_data").iterdir()
    assert results_of(place)["data"]["predict"]["file"] == str(tmp_path / "two.tsv")
    assert len((place / "predictions" / "predictions.tsv").read_text().splitlines()) == 3


def test_the_first_evaluation_of_a_model_in_a_folder_stays(finished, task_files, tmp_path):
    run, folder = finished("tsv"), tmp_path / "run"
    flags = ["--do_train=false", f"--output_dir={folder}"]
    model = f"--init_checkpoint={run.folder / 'model'}"
    own, other = (f"--eval_file={task_files / 'tsv' / name}.tsv" for name in ("dev", "train"))
    first = evaluate_here(run.runner, *flags, model, own)
    before = contents(folder)
    evaluate_here(run.runner, *flags, model, other)
    assert contents(folder) == before
    assert evaluate_here(run.runner, *flags, model, own)["eval"] == first["eval"]
    with pytest.raises(UserError, match="contains a run with init_checkpoint="):
        evaluate_here(run.runner, *flags, f"--init_checkpoint={run.folder}", own)


def test_a_model_folder_answers_with_the_threshold_that_its_run_chose(
    finished, task_files, tmp_path
):
    run = finished("squad2.0")
    model = without_checksums(shutil.copytree(run.folder / "model", tmp_path / "model"))
    flags = [f"--predict_file={task_files / 'squad' / 'questions.json'}"]
    flags += ["--do_train=false", "--do_eval=false", "--do_predict"]

    def answers(folder: str) -> dict[str, str]:
        start = [f"--init_checkpoint={model}", f"--output_dir={tmp_path / folder}"]
        evaluate_here(run.runner, *flags, *start)
        return json.loads((tmp_path / folder / "predictions" / "predictions.json").read_text())

    assert answers("own") == json.loads((run.folder / "predictions/predictions.json").read_text())
    config = json.loads((model / "config.json").read_text())
    chosen = json.loads((run.folder / "predictions" / "null_threshold.json").read_text())
    assert config["albert_tf"]["task"]["null_threshold"] == chosen["null_threshold"]
    config["albert_tf"]["task"]["null_threshold"] = -1000.0
    (model / "config.json").write_text(json.dumps(config))
    assert set(answers("another").values()) == {""}


def test_a_run_of_one_step_is_warned_of(task_flags, tmp_path):
    runner, flags = task_flags["race"]
    flags = [flag for flag in flags if "num_train_steps" not in flag]
    flags += ["--num_train_epochs=0.1", "--do_eval=false", f"--output_dir={tmp_path}"]
    run, optimizer, config = fine_tuning_settings(runner, *flags)
    with make_strategy(run).scope():
        state = start_run(fine_tuning_task(runner)(config, run), run, optimizer)
    advice = "raise --num_train_epochs or --num_train_steps (now 1)"
    assert f"so nothing is learned: {advice}" in describe(state)


def test_training_takes_no_settings_of_a_finished_run(finished):
    run = finished("squad1.1")
    files = [flag for flag in run.flags if "_file=" in flag]
    flags = [*files, "--version=1.1", f"--init_checkpoint={run.folder}", "--max_query_length=9"]
    _, _, config = fine_tuning_settings(run.runner, *flags, "--output_dir=unused")
    assert config.doc_stride == 128


@pytest.mark.parametrize("task", TASKS)
def test_all_that_features_are_made_with_belongs_to_the_model(task, finished):
    run = finished(task)
    *_, config = fine_tuning_settings(run.runner, *run.flags, "--output_dir=unused")
    source = registry.resolve(RUNNERS[run.runner].source)(config)
    _, settings = source.feature_function
    names = {field.name for field in dataclasses.fields(settings)} - {"tokenizer"}
    assert names <= {*config.names(of_model="fixed")}
    model = json.loads((run.folder / "model" / "config.json").read_text())["albert_tf"]["task"]
    belonging = {**config.of_model(config.to_dict())}
    # In tokenizer_config.json.
    assert (belonging.pop("do_lower_case"), belonging.pop("keep_accents")) == (True, False)
    assert belonging.items() <= model.items()


def test_a_run_says_how_many_texts_are_cut(task_flags, capsys):
    lines = {
        "mrpc": "22 texts, 4 of them (18 %) cut at --max_seq_length=25; 95 % have at most 29 tokens",
        "squad2.0": "9 questions, 6 of them (67 %) with a context that needs several windows of"
        " --max_seq_length=40; 21 windows, 4 at most",
        "race": "10 questions with passage and option, 10 of them (100 %) cut at --max_seq_length=48;"
        " 95 % have at most 77 tokens",
    }
    for task, line in lines.items():
        runner, flags = task_flags[task]
        make_task(runner, *flags, *(["--max_seq_length=25"] if task == "mrpc" else []))
        assert f"lengths of {task} train: {line}" in capsys.readouterr().out.splitlines()


def test_a_model_with_fewer_positions_lowers_the_default_length(task_flags, tmp_path):
    for task, name in {"tsv": "classifier", "race": "race"}.items():
        _, flags = task_flags[task]
        flags = [flag for flag in flags if "length" not in flag]
        _, _, config = fine_tuning_settings(name, *flags, "--output_dir=unused")
        assert config.max_seq_length == 64


# --- The best checkpoint, stopping, and going on


@pytest.mark.parametrize("task", ["stsb", "squad2.0"])
def test_the_best_checkpoint_becomes_the_model(task, finished, tmp_path):
    run = finished(task)
    results, logged = run.results, evaluations(run.folder)
    metric = results["best"]["metric"]
    values = {step: line[metric] for step, line in logged.items()}
    assert results["best"]["step"] == results["step"] == max(values, key=values.get)
    assert results["eval"] == pytest.approx(logged[results["step"]], rel=1e-5)
    assert results["last"] == logged[12]
    # Without its best checkpoint and its model, the run gives what its last one is worth.
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    shutil.rmtree(folder / "checkpoints" / "best")
    shutil.rmtree(folder / "model")
    spm = f"--spm_model_file={run.folder / 'model' / 'spiece.model'}"
    mode = ["--do_train=false", "--do_predict=false", spm]
    again = evaluate_here(run.runner, *run.flags, *mode, f"--output_dir={folder}")
    assert again["eval"] == pytest.approx(results["last"], rel=1e-4)


def test_the_best_is_not_always_the_last(finished):
    steps = {task: finished(task).results["step"] for task in TASKS}
    assert len(set(steps.values())) > 1, steps


# One of each runner.
@pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=RARE[task != "squad1.1"]) for task in ("tsv", "squad1.1", "race")],
)
def test_a_killed_run_is_continued_bit_for_bit(task, finished, tmp_path):
    run, folder = finished(task), tmp_path / "run"
    run_until_logged(folder, 4, f"run_{run.runner}.py", *run.flags)
    assert 4 <= len(lines(folder / "metrics.jsonl")) < 12, "the kill came too late"
    results = fine_tune_here(run.runner, *run.flags, f"--output_dir={folder}")
    assert results["steps_in_this_process"] < 12
    assert results["eval"] == run.results["eval"]
    assert lines(folder / "metrics.jsonl") == lines(run.folder / "metrics.jsonl")
    assert evaluations(folder) == evaluations(run.folder)
    for name, value in weights(run.folder).items():
        np.testing.assert_array_equal(weights(folder)[name], value, err_msg=name)
    for name in sorted(FILES[task]):
        if not name.endswith(".npz"):
            before = (run.folder / "predictions" / name).read_bytes()
            assert (folder / "predictions" / name).read_bytes() == before, name


# --- What changes nothing


@pytest.mark.rare
@pytest.mark.usefixtures("unclipped")
def test_devices_and_accumulation_reach_the_same_weights(task_flags, tmp_path):
    runner, flags = task_flags["race"]
    flags = [*flags, "--train_batch_size=12", "--num_train_steps=3", "--do_eval=false"]
    flags += ["--learning_rate=0.1", "--classifier_dropout_prob=0"]
    fine_tune_here(runner, *flags, f"--output_dir={tmp_path / 'plain'}")
    way = ["--distribution_strategy=mirrored"]
    way += ["--gradient_accumulation_steps=3", f"--output_dir={tmp_path / 'other'}"]
    fine_tune_here(runner, *flags, *way)
    plain, others = (lines(tmp_path / name / "metrics.jsonl") for name in ("plain", "other"))
    assert len({line["loss"] for line in plain}) == 3
    for line, other in zip(plain, others, strict=True):
        assert other == pytest.approx(line, rel=1e-4)
    plain, others = (weights(tmp_path / name) for name in ("plain", "other"))
    for name, value in plain.items():
        np.testing.assert_allclose(others[name], value, atol=1e-5, err_msg=name)


def test_two_devices_evaluate_as_one(finished, tmp_path):
    run = finished("squad2.0")
    flags = [
        *run.flags,
        "--do_train=false",
        f"--init_checkpoint={run.folder}",
        "--eval_batch_size=8",
    ]
    flags += ["--distribution_strategy=mirrored", f"--output_dir={tmp_path}"]
    results = fine_tune_here(run.runner, *flags)
    assert results["eval"] == pytest.approx(run.results["eval"], rel=1e-4)
    for name in ("eval", "predict"):
        before = arrays(run.folder / "predictions" / f"{name}.npz")
        assert_same_predictions(before, arrays(tmp_path / "predictions" / f"{name}.npz"))


@pytest.mark.parametrize("task", TASKS)
def test_padding_changes_no_loss(task, task_flags):
    runner, flags = task_flags[task]
    made = make_task(runner, *flags)
    model = made.build_model(dtype="float32", recompute_activations=False, seed=1)
    found = []
    for length in (made.tables["train"].lengths[:9].max(), 64):
        features = batch_of(made, "train", range(9), length)
        # No randomness, but what the model gives in training.
        outputs = model(features, training=False)
        losses = made.losses(outputs, features)
        found.append({name: float(ratio.sum / ratio.count) for name, ratio in losses.items()})
    assert found[0] == pytest.approx(found[1], rel=1e-5)


# --- Losses by hand


def test_the_loss_of_a_score_is_its_squared_error(task_flags):
    runner, flags = task_flags["stsb"]
    task = make_task(runner, *flags)
    table = task.tables["train"]
    features = table.batch(np.arange(3), 33, ["input_ids", "label_scores"])
    features = {name: tf.constant(value) for name, value in features.items()}
    features["label_scores"] = np.array([[1.5], [4.0], [0.0]], np.float32)
    outputs = {"logits": np.array([[1.0], [2.0], [3.0]], np.float32)}
    (ratio,) = task.losses(outputs, features).values()
    assert (float(ratio.sum), float(ratio.count)) == (0.25 + 4.0 + 9.0, 3.0)
    features[EXAMPLE_WEIGHTS] = np.array([1, 1, 0], np.float32)  # the last one fills up a batch
    (ratio,) = task.losses(outputs, features).values()
    assert (float(ratio.sum), float(ratio.count)) == (4.25, 2.0)
    assert float(task.loss_counts(features)["label_loss"]) == 2.0


def batch_of_labels(task, columns: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Features of four examples; the last fills up a batch."""
    weights = np.array([1, 1, 1, 0], np.float32)
    return {"input_ids": tf.ones([4, 5], tf.int32), **columns, EXAMPLE_WEIGHTS: weights}


def in_training(task, features: dict) -> dict:
    """The same features in a training batch of the first three examples."""
    return {name: value[:3] for name, value in features.items() if name != EXAMPLE_WEIGHTS}


def test_the_loss_of_several_labels_by_hand(task_flags):
    runner, flags = task_flags["labels"]
    weights = "--class_weights=colour:3,name:0.5"
    task = make_task(runner, *flags, weights)
    assert task.labels == ("animal", "colour", "mood", "name")
    logits = np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    truths = np.array([[1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], np.int32)
    features = batch_of_labels(task, {"label_sets": truths})
    losses = np.log1p(np.exp(np.where(truths == 1, -logits, logits)))[:3]
    loss = task.losses({"logits": logits}, features)["label_loss"]
    assert float(loss.sum) == pytest.approx(losses.sum(), rel=1e-5)
    assert float(loss.count) == 12 == float(task.loss_counts(features)["label_loss"])
    # In training, true labels have weights.
    factors = np.where(truths[:3] == 1, [1, 3, 1, 0.5], 1)
    features = in_training(task, features)
    loss = task.losses({"logits": logits[:3]}, features)["label_loss"]
    assert float(loss.sum) == pytest.approx((factors * losses).sum(), rel=1e-5)
    assert float(loss.count) == 12 == float(task.loss_counts(features)["label_loss"])


def test_weights_of_labels_by_hand(task_flags):
    runner, flags = task_flags["tsv"]
    task = make_task(runner, *flags, "--class_weights=good:4,bad:0.25")
    assert task.labels == ("bad", "fine", "good")
    logits = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    features = batch_of_labels(task, {"label_ids": np.array([[0], [2], [1], [2]], np.int32)})
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), [0, 2, 1, 2]]
    loss = task.losses({"logits": logits}, features)["label_loss"]
    assert float(loss.sum) == pytest.approx(losses[:3].sum(), rel=1e-5) and float(loss.count) == 3
    features = in_training(task, features)
    loss = task.losses({"logits": logits[:3]}, features)["label_loss"]
    assert float(loss.sum) == pytest.approx(losses[:3] @ [0.25, 4, 1], rel=1e-5)
    assert float(loss.count) == 5.25 == float(task.loss_counts(features)["label_loss"])


def test_labels_are_smoothed_in_training_only(task_flags):
    runner, flags = task_flags["tsv"]
    task = make_task(runner, *flags, "--label_smoothing=0.3")
    logits = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    features = batch_of_labels(task, {"label_ids": np.array([[0], [2], [1], [2]], np.int32)})
    all_losses = np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits
    losses = all_losses[np.arange(4), [0, 2, 1, 2]]
    loss = task.losses({"logits": logits}, features)["label_loss"]
    assert float(loss.sum) == pytest.approx(losses[:3].sum(), rel=1e-5)
    loss = task.losses({"logits": logits[:3]}, in_training(task, features))["label_loss"]
    smoothed = 0.7 * losses + 0.3 * all_losses.mean(axis=1)
    assert float(loss.sum) == pytest.approx(smoothed[:3].sum(), rel=1e-5)


def test_balanced_weights_are_those_of_the_training_data(task_flags, capsys):
    runner, flags = task_flags["tsv"]
    task = make_task(runner, *flags, "--class_weights=balanced")
    counts = np.bincount([item.label for item in task.items["train"]])
    np.testing.assert_allclose(task.class_weights, 23 / (3 * counts), rtol=1e-6)
    line = f"class weights  bad {task.class_weights[0]:.4g}  fine "
    assert line in capsys.readouterr().out
    runner, flags = task_flags["labels"]
    task = make_task(runner, *flags)
    counts = np.sum([item.label for item in task.items["train"]], axis=0)
    np.testing.assert_allclose(task.class_weights, (28 - counts) / counts, rtol=1e-6)


def test_several_labels_are_scored_and_given_at_the_thresholds_of_the_run(finished, task_files):
    run = finished("labels")
    truths = make_task(run.runner, *run.flags).tables["eval"].columns["label_sets"]
    probabilities = arrays(run.folder / "predictions" / "eval.npz")["probabilities"]
    task = json.loads((run.folder / "model" / "config.json").read_text())["albert_tf"]["task"]
    thresholds = np.array(list(task["thresholds"].values()), np.float32)
    assert list(task["thresholds"]) == ["animal", "colour", "mood", "name"]
    np.testing.assert_array_equal(thresholds, multi_label.best_thresholds(probabilities, truths))
    # Few examples have the last label, and others lack too few examples.
    fewest = np.minimum(truths.sum(axis=0), (1 - truths).sum(axis=0))
    is_few = fewest < multi_label.FEWEST_EXAMPLES
    assert is_few[3] and not is_few.all() and truths[:, 3].sum() > 0
    assert np.all(thresholds[is_few] == 0.5) and np.any(thresholds[~is_few] != 0.5)
    expected = multi_label.scores(probabilities, truths, thresholds)
    assert expected.items() <= run.results["eval"].items()
    assert run.results["best"]["metric"] == "micro_average_precision"
    assert run.results["majority"] == multi_label.average_precisions(
        np.tile(truths.mean(axis=0), [31, 1]), truths
    )
    report = (run.folder / "predictions" / "eval_errors.txt").read_text()
    assert re.match(r" +precision +recall +f1-score +support\n\n +animal +[01]\.", report)
    assert re.search(r"^row \d+: predicted .*, true .* \(.* 0\.\d+\)\n  \w", report, re.MULTILINE)
    unlabelled = arrays(run.folder / "predictions" / "predict.npz")["probabilities"]
    rows = (run.folder / "predictions" / "predictions.tsv").read_text().splitlines()
    assert rows[0] == "id\tprediction\tanimal\tcolour\tmood\tname" and len(rows) == 8
    for row, values in zip(rows[1:], unlabelled, strict=True):
        names = [
            name
            for name, value in zip(task["thresholds"], values, strict=True)
            if value >= task["thresholds"][name]
        ]
        assert row.split("\t")[1:3] == [";".join(names), f"{values[0]:.4f}"]


def test_an_evaluation_on_other_data_keeps_the_thresholds_of_the_model(
    finished, task_files, tmp_path
):
    run = finished("labels")
    flags = [f"--eval_file={task_files / 'labels' / 'train.tsv'}", "--do_train=false"]
    start = [f"--init_checkpoint={run.folder / 'model'}"]
    results = evaluate_here(run.runner, *flags, *start, f"--output_dir={tmp_path}")
    task = json.loads((run.folder / "model" / "config.json").read_text())["albert_tf"]["task"]
    thresholds = np.array(list(task["thresholds"].values()), np.float32)
    probabilities = arrays(tmp_path / "predictions" / "eval.npz")["probabilities"]
    truths = make_task(run.runner, *run.flags).tables["train"].columns["label_sets"]
    found = multi_label.f1_scores(probabilities >= thresholds, truths)["macro_f1"]
    assert results["eval"]["macro_f1_thresholds"] == found
    others = multi_label.best_thresholds(probabilities, truths)
    assert found != multi_label.f1_scores(probabilities >= others, truths)["macro_f1"]


@pytest.mark.parametrize("length", [7, 11])
def test_the_loss_of_squad_1_over_padding_is_the_originals(task_flags, length):
    runner, flags = task_flags["squad1.1"]
    task = make_task(runner, *flags, "--softmax_over_padding")
    assert task.train_data._buckets == task.eval_data._buckets == (40,)
    starts, ends = np.random.default_rng(0).normal(size=(2, 3, length)).astype(np.float32)
    features = {
        "input_ids": tf.ones([3, length], tf.int32),
        "input_mask": (np.arange(length) < 6)[None].repeat(3, axis=0).astype(np.int32),
        "start_positions": np.array([[2], [0], [5]], np.int32),
        "end_positions": np.array([[4], [0], [5]], np.int32),
    }
    expected = 0.0
    for logits, positions in ((starts, [2, 0, 5]), (ends, [4, 0, 5])):
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected -= 0.5 * log_probs[np.arange(3), positions].sum()
    loss = task.losses({"start_logits": starts, "end_logits": ends}, features)["span_loss"]
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5)
    masked = make_task(runner, *flags).losses(
        {"start_logits": starts, "end_logits": ends}, features
    )["span_loss"]
    assert float(masked.sum) < float(loss.sum) - 0.05


def test_the_losses_of_squad_by_hand(task_flags):
    rng = np.random.default_rng(0)
    starts, ends = rng.normal(size=(2, 3, 7)).astype(np.float32)
    features = {
        "input_ids": tf.ones([3, 7], tf.int32),
        "input_mask": np.ones([3, 7], np.int32),
        "start_positions": np.array([[2], [0], [5]], np.int32),
        "end_positions": np.array([[4], [0], [6]], np.int32),
        "is_impossible": np.array([[0], [1], [0]], np.int32),
    }
    log_starts = starts - np.log(np.exp(starts).sum(axis=1, keepdims=True))
    log_ends = ends - np.log(np.exp(ends).sum(axis=1, keepdims=True))
    span = -0.5 * (log_starts[0, 2] + log_starts[1, 0] + log_starts[2, 5])
    span -= 0.5 * (log_ends[0, 4] + log_ends[1, 0] + log_ends[2, 6])
    runner, flags = task_flags["squad1.1"]
    losses = make_task(runner, *flags).losses(
        {"start_logits": starts, "end_logits": ends}, features
    )
    assert list(losses) == ["span_loss"] and float(losses["span_loss"].count) == 3
    assert float(losses["span_loss"].sum) == pytest.approx(span, rel=1e-5)

    runner, flags = task_flags["squad2.0"]
    scores = np.array([1.5, -0.5, -2.0], np.float32)
    outputs = {"start_log_probs": log_starts, "end_log_probs": log_ends, "cls_logits": scores}
    losses = make_task(runner, *flags).losses(outputs, features)
    # -log of the probability of what is true: possible, impossible, possible.
    answerable = 0.5 * np.sum(np.log1p(np.exp([1.5, 0.5, -2.0])))
    assert float(losses["span_loss"].sum) == pytest.approx(span, rel=1e-5)
    assert float(losses["answerable_loss"].sum) == pytest.approx(answerable, rel=1e-5)
    assert float(losses["answerable_loss"].count) == 3


def test_the_loss_of_tagging_by_hand(task_flags):
    runner, flags = task_flags["tagging"]
    task = make_task(runner, *flags)
    logits = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    tags = np.array([[0, 2, 0, 5], [0, 1, 1, 0], [0, 3, 0, 0]], np.int32)
    features = {
        "input_ids": tf.ones([3, 4], tf.int32),
        "tag_numbers": tags,
        EXAMPLE_WEIGHTS: np.array([1, 1, 0], np.float32),
    }
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = -(log_probs[0, 1, 1] + log_probs[0, 3, 4] + log_probs[1, 1, 0] + log_probs[1, 2, 0])
    loss = task.losses({"logits": logits}, features)["tag_loss"]
    assert float(loss.sum) == pytest.approx(expected, rel=1e-5) and float(loss.count) == 4
    assert float(task.loss_counts(features)["tag_loss"]) == 4


def test_tags_of_a_run_are_scored_by_entity(finished):
    run = finished("tagging")
    text = (run.folder / "predictions" / "eval_predictions.conll").read_text()
    rows = [
        [line.split("\t") for line in block.splitlines()] for block in text.strip().split("\n\n")
    ]
    true, predicted = (
        [[row[column] for row in sentence] for sentence in rows] for column in (1, 2)
    )
    scores = entities.scores(true, predicted)
    assert len(rows) == 12 and run.results["eval"]["f1"] > 0
    for name, key in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
        assert run.results["eval"][name] == scores["micro avg"][key]
    assert run.results["eval"]["f1_PER"] == scores["PER"]["f1-score"]
    assert run.results["best"]["metric"] == "f1"
    errors = (run.folder / "predictions" / "eval_errors.txt").read_text()
    assert errors.startswith(entities.score_table(true, predicted))
    assert re.search(r"^line \d+ \(0\.\d+\): .*\n  predicted +.*\n  true ", errors, re.MULTILINE)
