"""Around a run: several seeds, restarts, ensembles, starting from another task, the settings of the paper.

Covers: grid.py, presets.py.
"""

import json
import math
import shutil
import statistics
import sys

import numpy as np
import pytest
from matplotlib import axes

from albert_tf import UserError
from albert_tf.core import files
from albert_tf.tasks import grid, registry, repeated_runs
from albert_tf.tasks.classification.task import ClassificationTask
from albert_tf.tasks.finetuning import averaged
from tests.helpers import eagerly, error_of, fine_tune_here, fine_tuning_settings, make_task

# --- Several runs


@pytest.fixture(scope="module")
def three_runs(finished):
    """Three runs of MRPC: flags, folder, results, what was printed."""
    run = finished("mrpc")
    folder = run.folder.parent
    return run.flags, folder, json.loads((folder / "results.json").read_text()), run.output


def test_several_runs_have_seeds_of_their_own_and_one_summary(three_runs):
    _, folder, results, _ = three_runs
    seeds = [40, 41, 42]
    names = [f"seed_{seed}" for seed in seeds]
    assert {path.name for path in folder.iterdir()} == {*names, "results.json"}
    assert [run["seed"] for run in results["runs"]] == seeds
    alone = [json.loads((folder / name / "results.json").read_text()) for name in names]
    assert len({run["eval"]["loss"] for run in alone}) == 3
    for name in ("loss", "accuracy", "f1"):
        low, middle, high = sorted(run["eval"][name] for run in alone)
        mean = (low + middle + high) / 3
        squares = (low - mean) ** 2 + (middle - mean) ** 2 + (high - mean) ** 2
        assert results["median"][name] == middle
        assert results["mean"][name] == pytest.approx(mean)
        assert results["standard_deviation"][name] == pytest.approx(math.sqrt(squares / 2))
        assert (results["least"][name], results["greatest"][name]) == (low, high)
    best = max(alone, key=lambda run: run["best"]["value"])
    assert results["best_run"] == str(folder / f"seed_{40 + alone.index(best)}")
    assert results["collapsed_and_replaced"] == []


def test_a_search_runs_every_combination_and_sorts_the_medians(task_flags, tmp_path, capsys):
    runner, flags = task_flags["tsv"]
    flags = [*flags, "--num_train_steps=1", "--num_runs=2", "--seed=3", f"--output_dir={tmp_path}"]
    flags.append("--search=learning_rate=1e-3,1e-2;optimizer=adamw")
    with eagerly():
        report = fine_tune_here(runner, *flags)
        lines = capsys.readouterr().out.splitlines()[-4:]
        assert fine_tune_here(runner, *flags)["search"] == report["search"]  # resumed
    assert json.loads((tmp_path / "results.json").read_text())["search"] == report["search"]
    rates = [entry["settings"]["learning_rate"] for entry in report["search"]]
    assert sorted(rates) == [1e-3, 1e-2] and report["metric"] == "accuracy"
    scores = [entry["median"]["accuracy"] for entry in report["search"]]
    assert scores == sorted(scores, reverse=True)
    for entry in report["search"]:
        folder = tmp_path / f"learning_rate={entry['settings']['learning_rate']},optimizer=adamw"
        assert entry["folder"] == str(folder)
        alone = [
            json.loads((folder / f"seed_{seed}" / "results.json").read_text()) for seed in (3, 4)
        ]
        assert entry["median"]["loss"] == pytest.approx(
            sum(run["eval"]["loss"] for run in alone) / 2
        )
        assert entry["scores"] == [run["eval"]["accuracy"] for run in alone]
    assert lines[0].split()[:5] == ["median", "of", "2", "learning_rate", "optimizer"]
    assert lines[-1] == f"results in {tmp_path / 'results.json'}; search.png"
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")
    assert [line.split()[:3] for line in lines[1:3]] == [
        [f"{number}.", str(rate), "adamw"] for number, rate in enumerate(rates, start=1)
    ]


def test_the_plot_of_a_search_has_a_dot_for_each_run_and_a_bar_at_each_median(monkeypatch):
    drawn = []
    plot = axes.Axes.plot
    monkeypatch.setattr(
        axes.Axes,
        "plot",
        lambda own, *args, **style: drawn.append(args) or plot(own, *args, **style),
    )
    entries = [
        {"settings": {"seed": 4}, "scores": [0.5, 0.75, 1.0], "median": {"f1": 0.75}},
        {"settings": {"seed": 5}, "scores": [0.25], "median": {"f1": 0.25}},
    ]
    assert grid.plot(entries, "f1") == grid.plot(entries, "f1")
    assert drawn[:4] == [
        ([0.5, 0.75, 1.0], [0, 0, 0], "o"),
        (0.75, 0, "|"),
        ([0.25], [1], "o"),
        (0.25, 1, "|"),
    ]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert grid.plot(entries, "f1") == b""


def test_the_table_of_several_runs(three_runs):
    _, _, results, output = three_runs
    rows = {line.strip().partition("  ")[0]: line.split()[-3:] for line in output.splitlines()}
    for run in results["runs"]:
        assert rows[f"seed {run['seed']}"] == [f"{value:.4f}" for value in run["eval"].values()]
    for name in ("median", "mean", "standard_deviation"):
        wanted = [f"{value:.4f}" for value in results[name].values()]
        assert rows[name.replace("_", " ")] == wanted
    assert "--- run 2 of 3, seed 41" in output


def test_a_collapsed_run_gives_its_place_to_the_next_seed(
    task_flags, tmp_path, monkeypatch, capsys
):
    def collapsed(task, members):
        return "the model says the same throughout" if task.run.seed == 7 else ""

    monkeypatch.setattr(ClassificationTask, "collapsed", collapsed)
    runner, flags = task_flags["tsv"]
    flags = [*flags, "--num_train_steps=1", "--seed=7", "--restart_collapsed=4"]
    with eagerly():
        results = fine_tune_here(runner, *flags, f"--output_dir={tmp_path / 'runs'}")
    assert [run["seed"] for run in results["runs"]] == [8]
    assert [run["seed"] for run in results["collapsed_and_replaced"]] == [7]
    output = capsys.readouterr().out
    assert "COLLAPSED: the model says the same throughout; more steps, or another --seed" in output
    assert "collapsed, so another seed takes its place (3 restarts left)" in output
    kept = json.loads((tmp_path / "runs" / "seed_7" / "results.json").read_text())
    assert kept["collapsed"] == "the model says the same throughout"


def test_what_counts_as_collapsed(task_flags, finished):
    def words(name, **predictions):
        runner, flags = task_flags[name]
        return tasks[name].collapsed([predictions])

    tasks = {name: make_task(runner, *flags) for name, (runner, flags) in task_flags.items()}
    rng = np.random.default_rng(0)
    wide = rng.dirichlet(np.ones(3), 12)
    same = np.tile([[0.2, 0.5, 0.3]], (12, 1)) + 0.1 * (wide - 0.3)
    flat = words("tsv", probabilities=same)
    assert flat == "the model predicts the label 'fine' for all of the 12 examples"
    assert words("tsv", probabilities=wide) == ""
    labels = rng.uniform(0, 1, [31, 4])
    assert words("labels", probabilities=labels) == ""
    flat = words("labels", probabilities=0.3 + labels * 1e-4)
    assert flat == "the model gives the same probabilities to all of the 31 examples"
    scores = rng.uniform(0, 5, [13, 1])
    assert words("stsb", scores=scores) == ""
    flat = words("stsb", scores=2.5 + scores * 1e-4)
    assert flat == "the model predicts the score 2.500 for all of the 13 examples"
    options = rng.dirichlet(np.ones(4), 6)
    assert words("race", probabilities=options) == ""
    options[:, 2] = 1.5
    one = "the model predicts the label 'C' for all of the 6 questions"
    assert words("race", probabilities=options) == one
    tags = arrays(finished("tagging").folder)
    flat = {name: np.zeros_like(values) for name, values in tags.items()}
    assert words("tagging", **flat) == "the model gives the tag 'O' to all of the 139 words"
    spans = arrays(finished("squad2.0").folder)
    spans["end_top_index"] = np.zeros_like(spans["end_top_index"])  # so that no span is valid
    assert words("squad2.0", **spans) == "the model gives no answer to all of the 9 questions"


# --- Ensembles


def arrays(folder, split="eval"):
    with np.load(folder / "predictions" / f"{split}.npz") as file:
        return {name: file[name] for name in file.files if name != "table_sha256"}


def replaced(folder, target, change):
    """A copy of a run, the predictions of which `change(name, array)` gives."""
    shutil.copytree(folder, target)
    for split in ("eval", "predict"):
        path = target / "predictions" / f"{split}.npz"
        with np.load(path) as file:
            found = {name: change(name, file[name]) for name in file.files}
        np.savez(path, **found)
    return target


def test_an_ensemble_averages_probabilities(three_runs, tmp_path):
    flags, folder, _, _ = three_runs
    members = [folder / f"seed_{seed}" for seed in (40, 41, 42)]
    named = f"--ensemble={','.join(map(str, members))}"
    ensemble = ["--ensemble_selection=all", f"--output_dir={tmp_path / 'out'}"]
    results = fine_tune_here("classifier", *flags, named, *ensemble)
    assert results["members"] == [str(member) for member in members]
    mean = sum(arrays(member)["probabilities"].astype(float) for member in members) / 3
    task = make_task("classifier", *flags)
    labels = [example.label for example in task.items["eval"]]
    assert results["eval"]["accuracy"] == np.mean(mean.argmax(axis=1) == labels)
    for member in members:
        alone = json.loads((member / "results.json").read_text())["eval"]["accuracy"]
        assert results["alone"][str(member)] == alone
    mean = sum(arrays(member, "predict")["probabilities"].astype(float) for member in members) / 3
    rows = (tmp_path / "out" / "predictions" / "predictions.tsv").read_text().splitlines()[1:]
    for row, probabilities in zip(rows, mean, strict=True):
        _, label, *shown = row.split("\t")
        assert label == task.labels[probabilities.argmax()]
        assert [float(value) for value in shown] == pytest.approx(probabilities, abs=6e-5)
    assert files.read_json(str(tmp_path / "out" / "results.json")) == results


def test_greedy_selection_takes_what_helps_and_nothing_else(task_flags):
    runner, flags = task_flags["tsv"]
    task = make_task(runner, *flags)
    labels = np.array([example.label for example in task.items["eval"]])

    def member(*shares):
        """Gives each example's label these shares in turn; the rest goes to another label."""
        shares = np.array(shares)[:, None]
        others = (1 - shares) * np.eye(3)[(labels + 1) % 3]
        return {"probabilities": shares * np.eye(3)[labels] + others}

    members = {
        "spoiler": member(*[0.9] * 6, *[0.0] * 6),
        "helper": member(*[0.4] * 7, *[0.9] * 5),
        "best": member(*[0.8] * 7, *[0.3] * 5),
    }
    alone = {name: task.evaluate([found])["accuracy"] for name, found in members.items()}
    assert alone == pytest.approx({"spoiler": 6 / 12, "helper": 5 / 12, "best": 7 / 12})
    assert repeated_runs.chosen_greedily(task, members, alone) == ["best", "helper"]
    assert task.evaluate([members["best"], members["helper"]])["accuracy"] == 1.0


def test_an_ensemble_of_squad_averages_spans_and_null_odds(finished, tmp_path):
    run = finished("squad2.0")
    shift = {"cls_logits": 4.0, "start_top_log_probs": -0.5}

    def shifted(name, value):
        return value + np.float32(shift[name]) if name in shift else value

    other = replaced(run.folder, tmp_path / "other", shifted)
    ensemble = [f"--ensemble={run.folder},{other}", "--ensemble_selection=all"]
    ensemble.append(f"--output_dir={tmp_path / 'out'}")
    results = fine_tune_here(run.runner, *run.flags, *ensemble)
    # Every score is lower by the same amount: nothing changes but the null odds and their threshold.
    for name in ("best_f1", "best_exact", "f1"):
        assert results["eval"][name] == pytest.approx(run.results["eval"][name])
    for name in ("eval_null_odds", "null_odds"):
        before, after = (
            json.loads((folder / "predictions" / f"{name}.json").read_text())
            for folder in (run.folder, tmp_path / "out")
        )
        assert after == pytest.approx({id: odds + 2.0 for id, odds in before.items()}, abs=1e-4)
    before, after = (
        json.loads((folder / "predictions" / "nbest_predictions.json").read_text())
        for folder in (run.folder, tmp_path / "out")
    )
    for id, answers in before.items():
        assert [answer["text"] for answer in after[id]] == [answer["text"] for answer in answers]
        scores = [answer["start_log_prob"] - 0.25 for answer in answers]
        assert [answer["start_log_prob"] for answer in after[id]] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize(
    "task", ["squad1.1", pytest.param("stsb", marks=pytest.mark.rare), "labels"]
)
def test_an_ensemble_of_equals_is_its_member(task, finished, tmp_path):
    run = finished(task)
    other = replaced(run.folder, tmp_path / "other", lambda name, value: value)
    ensemble = [f"--ensemble={run.folder},{other}", f"--output_dir={tmp_path / 'out'}"]
    results = fine_tune_here(run.runner, *run.flags, *ensemble)
    assert results["members"] == [str(run.folder)]  # the second does not help
    results = fine_tune_here(run.runner, *run.flags, *ensemble, "--ensemble_selection=all")
    for name, value in results["eval"].items():
        assert value == pytest.approx(run.results["eval"][name])
    for name in ("predictions.json", "predictions.tsv", "STS-B.tsv"):
        before, after = (folder / "predictions" / name for folder in (run.folder, tmp_path / "out"))
        assert before.exists() == after.exists() and (
            not before.exists() or before.read_text() == after.read_text()
        )


def test_a_member_that_does_not_fit_is_refused(finished, tmp_path, task_flags):
    run = finished("race")
    ensemble = [f"--ensemble={run.folder}", f"--output_dir={tmp_path / 'out'}"]
    line = error_of(fine_tune_here, run.runner, *run.flags, *ensemble, "--max_seq_length=47")
    assert line.startswith(f"--max_seq_length=47 contradicts {run.folder}, which was trained with")
    line = error_of(fine_tune_here, run.runner, *run.flags, *ensemble, "--level=middle")
    assert line.startswith(f"--ensemble: {run.folder}/predictions/eval.npz was made for other data")
    without = tmp_path / "without"
    shutil.copytree(run.folder, without)
    (without / "predictions" / "predict.npz").unlink()
    line = error_of(fine_tune_here, run.runner, *run.flags, f"--ensemble={without}", *ensemble[1:])
    wanted = "predictions/predict.npz cannot be read; finish that run, with --do_predict"
    assert f"{without}/{wanted}" in line
    line = error_of(
        fine_tune_here,
        run.runner,
        *run.flags,
        f"--ensemble={run.folder}",
        f"--output_dir={without}",
    )
    assert line.startswith("--output_dir")
    assert not (tmp_path / "out").exists()


# --- Starting from another task's model


def test_another_tasks_model_gives_its_encoder_and_no_head(task_flags, finished, capsys):
    model_folder = finished("tsv").folder
    runner, flags = task_flags["mrpc"]
    task = make_task(runner, *flags, f"--init_checkpoint={model_folder}")
    capsys.readouterr()
    model = task.build_model(dtype="float32", recompute_activations=False, seed=3)
    output = capsys.readouterr().out
    assert output.endswith(
        "  loaded              25  25 of the encoder, 0 of heads\n"
        "  newly initialized    2  output_weights, output_bias\n"
        "  ignored              0\n"
        "  head: a new one for mrpc\n"
    )
    assert model.config.labels == ("0", "1") and model.head.output_weights.shape == [2, 20]
    runner, flags = task_flags["tsv"]
    source = make_task(runner, *flags, f"--init_checkpoint={model_folder}")
    capsys.readouterr()
    trained = source.build_model(dtype="float32", recompute_activations=False, seed=3)
    assert capsys.readouterr().out.endswith(
        "  loaded              27  25 of the encoder, 2 of heads\n"
        "  newly initialized    0\n"
        "  ignored              0\n"
        "  head: its own\n"
    )
    names = trained.encoder.named_variables()
    for name, variable in model.encoder.named_variables().items():
        np.testing.assert_array_equal(variable, names[name], err_msg=name)


@pytest.mark.parametrize("start", ["tsv", "pretrained"])
def test_a_model_without_this_tasks_head_is_not_evaluated(
    start, task_flags, finished, tiny_pretrained, tmp_path
):
    folder = tiny_pretrained if start == "pretrained" else finished(start).folder
    runner, flags = task_flags["mrpc"]
    flags = [*flags, f"--init_checkpoint={folder}", "--do_train=false"]
    line = error_of(fine_tune_here, runner, *flags, f"--output_dir={tmp_path / 'out'}")
    wanted = "has no head for mrpc with the outputs 0, 1; fine-tune it with --do_train first"
    assert line == f"{folder}: {wanted}"
    assert not (tmp_path / "out").exists()


# --- The paper's settings

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


def test_a_member_with_other_labels_is_named(three_runs, tmp_path):
    flags, folder, _, _ = three_runs
    other = tmp_path / "other"
    shutil.copytree(folder / "seed_40", other)
    config = files.read_json(str(other / "config.json"))
    config["model"]["id2label"]["0"] = "another"
    (other / "config.json").write_bytes(files.json_bytes(config))
    named = f"--ensemble={folder / 'seed_40'},{other}"
    line = error_of(fine_tune_here, "classifier", *flags, named, f"--output_dir={tmp_path / 'out'}")
    assert line.startswith(f"--ensemble: {other} has the labels another, ")


def test_epochs_and_shares_that_are_given_win_over_a_preset(task_files):
    flags = ["--preset=paper", "--num_train_epochs=1"]
    _, optimizer, _ = preset_settings("MRPC", task_files, *flags)
    assert (optimizer.num_train_steps, optimizer.num_warmup_steps) == (None, None)
    _, optimizer, _ = preset_settings("MRPC", task_files, flags[0], "--warmup_proportion=0.5")
    assert (optimizer.num_train_steps, optimizer.num_warmup_steps) == (800, None)
    _, optimizer, _ = preset_settings("MRPC", task_files, flags[0], "--search=num_train_epochs=1,2")
    assert optimizer.num_train_steps is None


def test_members_of_an_ensemble_may_be_padded_to_different_lengths():
    longer = np.arange(24.0).reshape(2, 4, 3)
    members = [{"p": longer}, {"p": longer[:, :3] + 2}]
    np.testing.assert_array_equal(averaged(members, "p"), longer[:, :3] + 1)


@pytest.mark.parametrize("name", TABLE_14)
def test_the_paper_preset_is_table_14(name, task_files):
    run, optimizer, task = preset_settings(name, task_files, "--preset=paper")
    found = (optimizer.learning_rate, run.train_batch_size, run.hidden_dropout_prob)
    found += (run.classifier_dropout_prob, optimizer.num_train_steps, optimizer.num_warmup_steps)
    assert (*found, task.max_seq_length) == TABLE_14[name]
    assert run.attention_probs_dropout_prob == run.hidden_dropout_prob
    assert optimizer.optimizer == "adamw"
    assert run.eval_every_steps == (200 if name == "QNLI" else 100)
    resolved = optimizer.resolved(10, run.train_batch_size, 9e-9)
    assert resolved.learning_rate == TABLE_14[name][0]


def test_there_is_no_row_besides():
    paper, readme = registry.preset_rows("paper"), registry.preset_rows("readme")
    assert len(paper) == len(TABLE_14)
    assert set(readme) == set(paper) - {"wnli"}


def test_where_the_readme_differs(task_files):
    run, optimizer, task = preset_settings("SQuAD 2.0", task_files, "--preset=readme")
    assert (optimizer.learning_rate, run.train_batch_size, task.max_seq_length) == (5e-5, 48, 384)
    resolved = optimizer.resolved(131_000, 48, 9e-9)
    # Two epochs, a tenth.
    assert (resolved.num_train_steps, resolved.num_warmup_steps) == (5458, 545)
    run, optimizer, _ = preset_settings("RACE", task_files, "--preset=readme")
    assert (optimizer.learning_rate, run.hidden_dropout_prob) == (1e-5, 0)


def test_a_preset_never_overrides_a_flag(task_files):
    given = ["--learning_rate=7e-5", "--train_batch_size=8", "--max_seq_length=100"]
    given += ["--num_warmup_steps=-1", "--hidden_dropout_prob=-1"]  # the defaults, but given
    for order in (["--preset=paper", *given], [*given, "--preset=paper"]):
        run, optimizer, task = preset_settings("RTE", task_files, *order)
        found = (optimizer.learning_rate, run.train_batch_size, task.max_seq_length)
        assert found == (7e-5, 8, 100)
        assert (optimizer.num_warmup_steps, run.hidden_dropout_prob) == (None, None)
        assert (optimizer.num_train_steps, run.attention_probs_dropout_prob) == (800, 0.1)


def test_without_a_preset_nothing_is_filled_in(task_files):
    run, optimizer, task = preset_settings("RTE", task_files)
    assert (optimizer.num_train_steps, run.train_batch_size, task.max_seq_length) == (None, 32, 128)


def test_a_preset_without_a_row_is_refused(task_files):
    with pytest.raises(UserError, match="--preset=readme has no row for wnli: it knows cola"):
        preset_settings("WNLI", task_files, "--preset=readme")
    with pytest.raises(UserError, match="--preset=paper has no row for tagging"):
        fine_tuning_settings("tagger", "--preset=paper", "--output_dir=unused")


def test_medians_are_the_usual_ones():
    values = (3.0, 1.0, 2.0, 10.0)
    runs = [{"eval": {"f1": value}, "best": None, "folder": str(value)} for value in values]
    summary = repeated_runs.summarized(runs)
    assert summary["median"]["f1"] == 2.5
    assert summary["standard_deviation"]["f1"] == pytest.approx(statistics.stdev([3, 1, 2, 10]))
    assert summary["best_run"] == "3.0"
    assert repeated_runs.summarized(runs[:1])["standard_deviation"] == {"f1": 0.0}
