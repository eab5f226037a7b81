"""Around a run: several seeds, starting from another task, the settings of the paper."""

import json
import statistics

import numpy as np
import pytest

from albert_tf import UserError
from albert_tf.tasks import repeated_runs
from lab.experiments.declarations import preset_rows
from tests.helpers import error_of, fine_tune_here, fine_tuning_settings, make_task


@pytest.fixture(scope="module")
def two_runs(finished):
    """Two runs of MRPC: flags, folder, results, what was printed."""
    run = finished("mrpc")
    folder = run.folder.parent
    return run.flags, folder, json.loads((folder / "results.json").read_text()), run.output


@pytest.mark.slow
def test_several_runs_have_seeds_of_their_own_and_one_summary(two_runs):
    _, folder, results, output = two_runs
    names = [f"seed_{seed}" for seed in (40, 41)]
    assert {path.name for path in folder.iterdir()} == {*names, "results.json"}
    alone = [json.loads((folder / name / "results.json").read_text()) for name in names]
    assert len({run["eval"]["loss"] for run in alone}) == 2
    for name in ("loss", "accuracy", "f1"):
        values = [run["eval"][name] for run in alone]
        expected = (statistics.median(values), statistics.fmean(values), statistics.stdev(values))
        found = [results[kind][name] for kind in ("median", "mean", "standard_deviation")]
        assert found == pytest.approx(expected)
        assert (results["least"][name], results["greatest"][name]) == (min(values), max(values))
        assert all(f"{value:.4f}" in output for value in (*values, *expected))
    best = max(alone, key=lambda run: run["best"]["value"])
    assert results["best_run"] == str(folder / names[alone.index(best)])


def test_several_runs_do_not_replace_the_results_of_a_run(finished):
    run = finished("tsv")
    results = (run.folder / "results.json").read_bytes()
    several = [*run.flags, "--num_runs=2", f"--output_dir={run.folder}"]
    line = error_of(fine_tune_here, run.runner, *several)
    assert f"--output_dir={run.folder}: contains a run, whose results --num_runs would" in line
    assert (run.folder / "results.json").read_bytes() == results


def test_the_median_of_an_even_number_of_runs_is_the_mean_of_two():
    runs = [{"eval": {"f1": value}, "best": None, "folder": str(value)} for value in (3, 1, 2, 10)]
    summary = repeated_runs.summarized(runs)
    assert (summary["median"]["f1"], summary["best_run"]) == (2.5, "3")


def test_runs_without_a_value_are_left_out_of_the_statistics_and_counted():
    runs = [
        {"seed": seed, "folder": "", "best": None, "eval": {"auc": auc, "f1": f1, "pearson": None}}
        for seed, (auc, f1) in enumerate([(None, 0.5), (0.25, 1.0), (0.75, None)])
    ]
    summary = repeated_runs.summarized(runs)
    assert summary["median"] == {"auc": 0.5, "f1": 0.75, "pearson": None}
    assert summary["standard_deviation"]["auc"] == pytest.approx(np.sqrt(0.125))
    assert summary["undefined"] == {"auc": 1, "f1": 1, "pearson": 3}
    assert repeated_runs.summarized(runs[1:])["standard_deviation"]["f1"] is None
    lines = repeated_runs.table(runs, summary).splitlines()
    assert lines[1].split() == ["seed", "0", "undefined", "0.5000", "undefined"]
    assert lines[4].split() == ["median", "0.5000", "0.7500", "undefined"]
    assert lines[-1] == "pearson is undefined in 3 of 3 runs, which its statistics leave out"
    json.dumps(summary, allow_nan=False)


def test_another_tasks_model_gives_its_encoder_and_no_head(task_flags, finished, capsys):
    start = f"--init_checkpoint={finished('tsv').folder}"
    models = []
    for name, head in (("mrpc", "a new one for mrpc with 0, 1"), ("tsv", "its own")):
        task = make_task(*task_flags[name], start)
        models.append(task.build_model(dtype="float32", recompute_activations=False, seed=3))
        assert f"  head: {head}\n" in capsys.readouterr().out
    other, own = (model.encoder.named_variables() for model in models)
    for name, variable in other.items():
        np.testing.assert_array_equal(variable, own[name], err_msg=name)
    runner, flags = task_flags["mrpc"]
    line = error_of(fine_tune_here, runner, *flags, start, "--do_train=false", "--output_dir=no")
    assert "has no head for mrpc with the outputs 0, 1; fine-tune it with --do_train first" in line


# Table 14: learning rate, batch, dropout of ALBERT and of the classifier, steps, warm-up, length.
TABLE_14 = {
    "CoLA": (1e-5, 16, 0, 0.1, 5336, 320, 512),
    "STS-B": (2e-5, 16, 0, 0.1, 3598, 214, 512),
    "SST-2": (1e-5, 32, 0, 0.1, 20935, 1256, 512),
    "MNLI": (3e-5, 128, 0, 0.1, 10000, 1000, 512),
    "QNLI": (1e-5, 32, 0, 0.1, 33112, 1986, 512),
    "QQP": (5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "RTE": (3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "MRPC": (2e-5, 32, 0, 0.1, 800, 200, 512),
    "WNLI": (2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "SQuAD 1.1": (5e-5, 48, 0, 0.1, 3649, 365, 384),
    "SQuAD 2.0": (3e-5, 48, 0, 0.1, 8144, 814, 512),
    "RACE": (2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}


def preset_settings(name, task_files, *flags):
    """Run, optimizer and task settings of a preset for a row of the table."""
    runner = {"SQuAD": "squad", "RACE": "race"}.get(name.split()[0], "classifier")
    squad = task_files / "squad"
    data = {
        "classifier": [f"--task_name={name}", f"--data_dir={task_files}"],
        "squad": [f"--version={name[-3:]}", f"--train_file={squad / 'train-v2.0.json'}"],
        "race": [f"--data_dir={task_files / 'RACE'}"],
    }[runner]
    model = ["--model=albert-base-v2", f"--spm_model_file={squad / 'questions.json'}"]
    return fine_tuning_settings(runner, *data, *model, "--output_dir=unused", *flags)


def test_epochs_and_shares_that_are_given_win_over_a_preset(task_files):
    flags = ["--preset=paper", "--num_train_epochs=1"]
    _, optimizer, _ = preset_settings("MRPC", task_files, *flags)
    assert (optimizer.num_train_steps, optimizer.num_warmup_steps) == (None, None)
    _, optimizer, _ = preset_settings("MRPC", task_files, flags[0], "--warmup_proportion=0.5")
    assert (optimizer.num_train_steps, optimizer.num_warmup_steps) == (800, None)


@pytest.mark.parametrize("name", TABLE_14)
def test_the_paper_preset_is_table_14(name, task_files):
    run, optimizer, task = preset_settings(name, task_files, "--preset=paper")
    found = (optimizer.learning_rate, run.train_batch_size, run.hidden_dropout_prob)
    found += (run.classifier_dropout_prob, optimizer.num_train_steps, optimizer.num_warmup_steps)
    assert (*found, task.max_seq_length) == TABLE_14[name]
    assert run.attention_probs_dropout_prob == run.hidden_dropout_prob
    assert optimizer.optimizer == "adamw"
    assert run.eval_every_steps == (200 if name == "QNLI" else 100)
    resolved = optimizer.resolved(10, run.train_batch_size, lambda steps: 9e-9)
    assert resolved.learning_rate == TABLE_14[name][0]


def test_there_is_no_row_besides():
    paper = preset_rows("paper")
    readme = preset_rows("readme")
    assert len(paper) == len(TABLE_14)
    assert set(readme) == set(paper) - {"wnli"}


def test_where_the_readme_differs(task_files):
    run, optimizer, task = preset_settings("SQuAD 2.0", task_files, "--preset=readme")
    assert (optimizer.learning_rate, run.train_batch_size, task.max_seq_length) == (5e-5, 48, 384)
    resolved = optimizer.resolved(131_000, 48, lambda steps: 9e-9)
    # Two epochs, a tenth.
    assert (resolved.num_train_steps, resolved.num_warmup_steps) == (5458, 545)
    run, optimizer, _ = preset_settings("RACE", task_files, "--preset=readme")
    assert (optimizer.learning_rate, run.hidden_dropout_prob) == (1e-5, 0)


def test_a_preset_never_overrides_a_flag(task_files):
    given = ["--learning_rate=7e-5", "--train_batch_size=8", "--max_seq_length=100"]
    given += ["--num_warmup_steps=0", "--hidden_dropout_prob=0.2"]
    for order in (["--preset=paper", *given], [*given, "--preset=paper"]):
        run, optimizer, task = preset_settings("RTE", task_files, *order)
        found = (optimizer.learning_rate, run.train_batch_size, task.max_seq_length)
        assert found == (7e-5, 8, 100)
        assert (optimizer.num_warmup_steps, run.hidden_dropout_prob) == (0, 0.2)
        assert (optimizer.num_train_steps, run.attention_probs_dropout_prob) == (800, 0.1)


def test_a_preset_without_a_row_is_refused(task_files):
    with pytest.raises(UserError, match="--preset=readme has no row for wnli: it knows cola"):
        preset_settings("WNLI", task_files, "--preset=readme")
    with pytest.raises(UserError, match="--preset=paper has no row for tagging"):
        fine_tuning_settings("tagger", "--preset=paper", "--output_dir=unused")
