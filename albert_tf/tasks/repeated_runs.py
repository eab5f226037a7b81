"""Repeated runs and ensembles (paper, section 4.2 and appendix): medians over several runs, restarts, ensembles.

Runners call `fine_tune`; `training.loop.run` makes a single run.
"""

import dataclasses
import functools
import os
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.core.tables import aligned
from albert_tf.tasks import grid
from albert_tf.tasks.finetuning import EVAL_PREDICTIONS, PREDICTIONS, FineTuningTask
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig
from albert_tf.training import loop
from albert_tf.training.devices import is_chief, make_strategy
from albert_tf.training.run_folder import CONFIG_FILE, RESULTS_FILE, write_files
from albert_tf.training.settings import OptimizerConfig
from albert_tf.training.task import Predictions


def fine_tune(
    task_class: Callable[[FineTuningConfig, FineTuningRunConfig], FineTuningTask],
    config: FineTuningConfig,
    run: FineTuningRunConfig,
    optimizer: OptimizerConfig,
) -> dict:
    """Makes one run, several with a table, a search, or an ensemble; returns what their JSON file contains."""
    if config.ensemble:
        with locked(run.output_dir):
            return _ensemble(task_class, config, run)
    if config.search:
        with loop.lock_of(make_strategy(run), run):
            return _searched(task_class, config, run, optimizer)
    if config.num_runs == 1 and not config.restart_collapsed:
        return loop.run(lambda: task_class(config, run), run, optimizer)
    with loop.lock_of(make_strategy(run), run):
        return _several(task_class, config, run, optimizer)


# --- Several runs ---


def _several(task_class, config, run, optimizer) -> dict:
    """Makes runs with consecutive seeds; a run that collapses is replaced by a run with the next seed."""
    restarts_left = config.restart_collapsed
    runs: list[dict] = []
    collapsed: list[dict] = []
    seed = run.seed
    while len(runs) < config.num_runs:
        folder = os.path.join(run.output_dir, f"seed_{seed}")
        single = dataclasses.replace(run, output_dir=folder, seed=seed)
        print(f"--- run {len(runs) + 1} of {config.num_runs}, seed {seed}", flush=True)
        results = loop.run(functools.partial(task_class, config, single), single, optimizer)
        entry = {"seed": seed, "folder": folder, **results}
        seed += 1
        if "collapsed" in results and restarts_left:
            restarts_left -= 1
            collapsed.append(entry)
            print(f"collapsed, so another seed takes its place ({restarts_left} restarts left)")
        else:
            runs.append(entry)
    summary = summarized(runs)
    report = {
        "runs": runs,
        "collapsed_and_replaced": collapsed,
        **summary,
        "seconds": round(sum(entry["seconds"] for entry in [*runs, *collapsed]), 1),
    }
    if is_chief(make_strategy(run)):  # only one of several workers writes
        write_files(run.output_dir, {RESULTS_FILE: files.json_bytes(report)})
    print(table(runs, summary, getattr(task_class, "shown_metrics", ())), flush=True)
    print(f"results in {os.path.join(run.output_dir, RESULTS_FILE)}", flush=True)
    return report


def summarized(runs: Sequence[Mapping]) -> dict:
    """Median, mean, spread, least and greatest of each metric over several runs, and the folder of the best run."""
    names = [name for name in runs[0]["eval"] if all(name in run["eval"] for run in runs)]
    values = {name: [run["eval"][name] for run in runs] for name in names}
    statistics_of: dict[str, Callable] = {
        "median": statistics.median,
        "mean": statistics.fmean,
        "standard_deviation": lambda numbers: (
            statistics.stdev(numbers) if len(numbers) > 1 else 0.0
        ),
        "least": min,
        "greatest": max,
    }
    scored = [run for run in runs if run.get("best")]
    best = max(scored, key=lambda run: run["best"]["value"], default=runs[0])
    summary = {
        statistic: {name: function(numbers) for name, numbers in values.items()}
        for statistic, function in statistics_of.items()
    }
    return {**summary, "best_run": best["folder"]}


def table(runs: Sequence[Mapping], summary: Mapping, shown: Sequence[str] = ()) -> str:
    """The numbers of several runs as text, one row per run: the numbers in `shown`, or all."""
    names = [name for name in shown or summary["median"] if name in summary["median"]]
    rows = [[f"seed {run['seed']}", *(run["eval"][name] for name in names)] for run in runs]
    for statistic in ("median", "mean", "standard_deviation"):
        values = [summary[statistic][name] for name in names]
        rows.append([statistic.replace("_", " "), *values])
    width = max(len(name) for name in [*names, "standard deviation"]) + 2
    lines = ["".join(f"{name:>{width}}" for name in ["", *names])]
    for title, *numbers in rows:
        lines.append(f"{title:>{width}}" + "".join(f"{number:>{width}.4f}" for number in numbers))
    return "\n".join(lines)


def _searched(task_class, config, run, optimizer) -> dict:
    """Makes the runs of every point of --search; the best median comes first in the report."""
    entries = []
    for values, (*groups, of_task) in grid.points(config.search, run, optimizer, config):
        name = ",".join(f"{flag}={value}" for flag, value in values.items())
        of_run = dataclasses.replace(groups[0], output_dir=os.path.join(run.output_dir, name))
        print(f"=== {name}", flush=True)
        report = fine_tune(task_class, dataclasses.replace(of_task, search=""), of_run, groups[1])
        runs = report.get("runs", [report])
        if not runs[0]["best"]:
            config.refuse("search", "needs data for evaluations, such as --eval_file")
        metric, seconds = runs[0]["best"]["metric"], report["seconds"]
        median = report["median"] if "median" in report else report["eval"]
        scores = [single["best"]["value"] for single in runs]
        entries.append(
            {"settings": values, "median": median, "scores": scores}
            | {"folder": of_run.output_dir, "seconds": seconds}
        )
    entries.sort(key=lambda entry: -entry["median"][metric])
    report = {"search": entries, "metric": metric}
    picture = grid.plot(entries, metric)
    if is_chief(make_strategy(run)):
        contents = {RESULTS_FILE: files.json_bytes(report)}
        write_files(run.output_dir, contents | ({"search.png": picture} if picture else {}))
    flags, measured = entries[0]["settings"], entries[0]["median"]
    shown = [
        name for name in getattr(task_class, "shown_metrics", ()) or measured if name in measured
    ]
    rows = [[f"median of {config.num_runs}", *flags, *shown]]
    for number, entry in enumerate(entries, start=1):
        numbers = [f"{entry['median'][name]:.4f}" for name in shown]
        rows.append([f"{number}.", *map(str, entry["settings"].values()), *numbers])
    drawn = "search.png" if picture else "no plot: pip install matplotlib"
    place = os.path.join(run.output_dir, RESULTS_FILE)
    print(f"{aligned(rows)}results in {place}; {drawn}", flush=True)
    return report


# --- Ensembles ---


def _ensemble(task_class, config, run) -> dict:
    """Averages the predictions of finished runs; does not train."""
    folders = [folder.rstrip("/") for folder in config.ensemble.split(",")]
    if tf.io.gfile.exists(os.path.join(run.output_dir, "checkpoints")):
        run.refuse(
            "output_dir", f"={run.output_dir} contains a run: choose another for the ensemble"
        )
    # The first member's model provides labels and vocabulary; its weights are not used.
    run = dataclasses.replace(run, do_train=False, init_checkpoint=folders[0])
    task = task_class(config, run)
    if not task.eval_data:
        run.refuse(
            "do_eval", "must be true, with development data, to choose an ensemble's members"
        )
    members = {
        folder: _read_predictions(folder, EVAL_PREDICTIONS, task, "eval") for folder in folders
    }
    alone = {
        folder: task.evaluate([member])[task.best_metric] for folder, member in members.items()
    }
    chosen = folders
    if config.ensemble_selection == "greedy":
        chosen = chosen_greedily(task, members, alone)
    predictions = [members[folder] for folder in chosen]
    unlabelled = []
    if task.predict_data:
        unlabelled = [_read_predictions(folder, PREDICTIONS, task, "predict") for folder in chosen]
    results = {"members": chosen, "alone": alone, "eval": task.evaluate(predictions)}
    results["data"] = task.data_files()
    # The order matters: the answers of SQuAD 2.0 use the threshold that the evaluation writes.
    write_files(run.output_dir, task.evaluation_files(predictions))
    if unlabelled:
        write_files(run.output_dir, task.prediction_files(unlabelled))
    write_files(run.output_dir, {RESULTS_FILE: files.json_bytes(results)})
    for name, value in results["eval"].items():
        print(f"{name} {value:.4f}")
    print(f"{len(chosen)} of {len(folders)} members: {', '.join(chosen)}", flush=True)
    print(f"results in {os.path.join(run.output_dir, RESULTS_FILE)}", flush=True)
    return results


def chosen_greedily(
    task: FineTuningTask, members: Mapping[str, Predictions], alone: Mapping[str, float]
) -> list[str]:
    """The best member, and then the one that improves the development score most, until none improves it."""
    chosen = [max(members, key=lambda folder: alone[folder])]
    best = alone[chosen[0]]
    while len(chosen) < len(members):
        values = {
            folder: task.evaluate([members[name] for name in [*chosen, folder]])[task.best_metric]
            for folder in members
            if folder not in chosen
        }
        candidate = max(values, key=values.__getitem__)
        if not values[candidate] > best:
            break
        chosen.append(candidate)
        best = values[candidate]
    return chosen


def _read_predictions(folder: str, name: str, task: FineTuningTask, split: str) -> Predictions:
    path = os.path.join(folder, name)
    try:
        with tf.io.gfile.GFile(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            predictions = dict(arrays)
    except (tf.errors.OpError, OSError, ValueError) as error:
        flag = "do_eval" if split == "eval" else "do_predict"
        raise UserError(
            f"--ensemble: {path} cannot be read; finish that run, with --{flag} ({type(error).__name__})"
        ) from None
    if str(predictions.pop("table_sha256")) != task.tables[split].sha256():
        raise UserError(
            f"--ensemble: {path} was made for other data or with another vocabulary or --max_seq_length"
        )
    model = files.read_json(os.path.join(folder, CONFIG_FILE)).get("model", {})
    own, labels = list(model.get("id2label", {}).values()), list(getattr(task, "labels", ()))
    if own and labels and own != labels:
        raise UserError(
            f"--ensemble: {folder} has the labels {', '.join(own)}, not {', '.join(labels)}"
        )
    return predictions
