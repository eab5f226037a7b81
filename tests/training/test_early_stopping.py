"""Evaluations end a training, or cannot: patience, and metrics that are undefined."""

import json

import numpy as np
import pytest

from albert_tf.formats.pretrained import read_weights
from albert_tf.tasks.classification.task import ClassificationTask
from albert_tf.training.loop import evaluations_without_improvement
from tests import helpers

RUN = ("--num_train_steps=6", "--eval_every_steps=1", "--save_checkpoints_steps=2")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0),
        ([0.5], 0),
        ([0.1, 0.5, 0.4], 1),
        ([0.1, 0.5, 0.5, 0.5], 2),  # equal is not better
        ([0.5, 0.4, 0.3, 0.6], 0),
        ([None, None, None], 0),
        ([0.5, None, 0.4, None], 1),
    ],
)
def test_evaluations_without_improvement_by_hand(values, expected):
    assert evaluations_without_improvement(values) == expected


@pytest.fixture
def fine_tune(task_flags, tmp_path, monkeypatch, capsys):
    """A function that fine-tunes with accuracies by step; returns the folder and what was printed."""
    runner, flags = task_flags["tsv"]

    def run(name, accuracies, *more):
        evaluated = iter(accuracies)

        def evaluate(self, predictions):
            return {"accuracy": next(evaluated)}

        monkeypatch.setattr(ClassificationTask, "evaluate", evaluate)
        folder = tmp_path / name
        with helpers.eagerly():
            helpers.fine_tune_here(runner, *flags, *RUN, *more, f"--output_dir={folder}")
        return folder, capsys.readouterr().out

    return run


def results_of(folder):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads((folder / "results.json").read_text(), parse_constant=refuse)


@pytest.mark.slow
def test_patience_ends_a_training_which_the_same_command_leaves_and_another_continues(
    fine_tune, capsys
):
    accuracies = [0.1, 0.5, 0.4, 0.5, 0.3, 0.6]
    whole, _ = fine_tune("whole", accuracies)
    patient = "--early_stopping_patience=3"
    # The last one is of the best checkpoint.
    folder, output = fine_tune("run", [*accuracies[:5], 0.5], patient)
    line = "stopped at step 5 of 6: accuracy 0.5000 of step 2, no evaluation after it was better"
    assert f"{line} ({patient})" in output
    assert helpers.lines(folder / "metrics.jsonl")[-1]["step"] == 5
    results = results_of(folder)
    assert (results["step"], results["best"]["step"], results["eval"]["accuracy"]) == (2, 2, 0.5)
    assert results["last"]["accuracy"] == 0.3
    assert (folder / "checkpoints" / "step-5.index").exists()

    # Before the model folder is written, the model of a run is that of the best checkpoint, too.
    finished = read_weights(str(folder)).arrays
    (folder / "model").rename(folder / "put_aside")
    unfinished = read_weights(str(folder)).arrays
    assert finished.keys() == unfinished.keys()
    for name, values in finished.items():
        np.testing.assert_array_equal(unfinished[name], values, err_msg=name)
    assert "has not finished; the model is that of step 2 of 6" in capsys.readouterr().err
    (folder / "put_aside").rename(folder / "model")

    weights = helpers.weights(folder)
    _, output = fine_tune("run", [0.3, 0.5], patient)
    assert line in output and "resumed   at step 5" in output
    assert results_of(folder) == {**results, "steps_in_this_process": 5}
    for name, values in helpers.weights(folder).items():
        assert (values == weights[name]).all(), name

    # So does it if step 5 is no multiple of the interval any more.
    _, output = fine_tune("run", [0.3, 0.5], patient, "--eval_every_steps=2")
    assert line in output
    assert results_of(folder) == {**results, "steps_in_this_process": 5}

    # Without patience, it goes on as if it had never stopped.
    fine_tune("run", [0.6])
    helpers.assert_same_run(folder, whole)


def test_an_undefined_metric_chooses_no_checkpoint_and_ends_no_training(fine_tune):
    flags = ["--num_train_steps=2", "--early_stopping_patience=1"]
    folder, output = fine_tune("run", [None, float("nan")], *flags)
    assert "accuracy undefined" in output and "best so far" not in output
    assert (
        "NOTE      accuracy was undefined in every evaluation: the model of the last step" in output
    )
    results = results_of(folder)
    assert (results["step"], results["best"], results["eval"]["accuracy"]) == (2, None, None)
    lines = helpers.lines(folder / "eval_metrics.jsonl")
    assert [line["accuracy"] for line in lines] == [None] * 2
    assert "| accuracy | undefined" in (folder / "model" / "README.md").read_text()


@pytest.mark.slow
def test_the_best_checkpoint_is_one_whose_metric_is_defined(fine_tune):
    folder, output = fine_tune("run", [None, 0.25, None, None, None, None, 0.25])
    assert output.count("best so far") == 1
    assert results_of(folder)["best"] == {"step": 2, "metric": "accuracy", "value": 0.25}


def test_a_model_that_has_diverged_is_never_the_best_one(task_flags, tmp_path, capsys):
    """Of probabilities that are no numbers, the first label is the most probable one, and often right."""
    runner, flags = task_flags["tsv"]
    diverged = ["--learning_rate=1e30", "--num_warmup_steps=0", "--log_every_steps=9"]
    flags = [*flags, "--num_train_steps=3", "--eval_every_steps=1", *diverged]
    with helpers.eagerly():
        line = helpers.error_of(
            helpers.fine_tune_here, runner, *flags, f"--output_dir={tmp_path / 'run'}"
        )
    assert "the loss is nan between steps 0 and 3" in line
    assert "evaluation at step 2  loss undefined  accuracy undefined" in capsys.readouterr().out
    assert not (tmp_path / "run" / "checkpoints" / "best").exists()


@pytest.mark.slow
def test_a_model_that_is_kept_while_later_ones_were_not_evaluated_is_named(fine_tune):
    # It stops at step 2; the last evaluation is of the best checkpoint.
    folder, output = fine_tune("run", [0.5, 0.4, 0.5], "--early_stopping_patience=1")
    assert "NOTE" not in output
    _, output = fine_tune("run", [], "--do_eval=false")
    note = "NOTE      the model of step 1 is kept, the best one that was evaluated"
    advice = (
        "the same command with --do_eval and data to evaluate on compares it with that of step 6"
    )
    assert f"{note}; {advice}" in output
    assert results_of(folder)["step"] == 1
    _, output = fine_tune("run", [0.6], "--do_eval")
    assert "NOTE" not in output
    assert results_of(folder)["step"] == 6


def test_the_area_under_a_curve_of_one_class_is_undefined(task_flags, tmp_path, capsys):
    rows = [f"{mood}\tword {number}" for number, mood in enumerate(["good", "bad"] * 6)]
    header = "mood\treview\n"
    helpers.write_files(
        tmp_path,
        {
            "train.tsv": header + "\n".join(rows) + "\n",
            "dev.tsv": header + "\n".join(rows[::2]) + "\n",
        },
    )
    runner, flags = task_flags["tsv"]
    own = [
        f"--{split}_file={tmp_path / name}"
        for split, name in (("train", "train.tsv"), ("eval", "dev.tsv"))
    ]
    with helpers.eagerly():
        results = helpers.fine_tune_here(
            runner,
            *flags,
            *own,
            "--metrics=auc,matthews,f1,accuracy",
            "--num_train_steps=2",
            "--eval_every_steps=1",
            f"--output_dir={tmp_path / 'run'}",
        )
    assert results["eval"]["auc"] is results["eval"]["matthews"] is results["best"] is None
    assert "auc undefined  matthews undefined" in capsys.readouterr().out


def test_patience_needs_evaluations(task_flags, tmp_path):
    runner, flags = task_flags["tsv"]
    line = helpers.error_of(
        helpers.fine_tune_here,
        runner,
        *flags,
        "--do_eval=false",
        "--early_stopping_patience=1",
        f"--output_dir={tmp_path / 'run'}",
    )
    assert "--early_stopping_patience needs evaluations: data to evaluate on" in line
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())
