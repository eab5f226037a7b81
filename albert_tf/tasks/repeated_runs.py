"""Repeated runs and ensembles (paper, section 4.2 and appendix): medians over several runs, ensembles.

Runners call `fine_tune`; `training.loop.run` makes a single run.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.core.tables import aligned
from albert_tf.tasks.finetuning import EVAL_PREDICTIONS, PREDICTIONS, FineTuningTask
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig
from albert_tf.training import loop
from albert_tf.training.devices import is_chief, make_strategy
from albert_tf.training.run_folder import CONFIG_FILE, RESULTS_FILE, write_files
from albert_tf.training.settings import OptimizerConfig
from albert_tf.training.task import Predictions

MakeTask = Callable[[FineTuningConfig, FineTuningRunConfig], FineTuningTask]


def fine_tune(
    make_task: MakeTask,
    config: FineTuningConfig,
    run: FineTuningRunConfig,
    optimizer: OptimizerConfig,
) -> dict:
    """Makes one run, several with a table, or an ensemble; returns what their JSON file contains."""
    if config.ensemble:
        with locked(run.output_dir):
            return _ensemble(make_task, config, run)
    if config.num_runs == 1:
        return loop.run(lambda: make_task(config, run), run, optimizer)
    with loop.lock_of(make_strategy(run), run):
        return _several(make_task, config, run, optimizer)


# --- Several runs ---


def _several(make_task: MakeTask, config, run, optimizer) -> dict:
    """Makes runs with consecutive seeds."""
    runs: list[dict] = []
    for seed in range(run.seed, run.seed + config.num_runs):
        folder = os.path.join(run.output_dir, f"seed_{seed}")
        single = dataclasses.replace(run, output_dir=folder, seed=seed)
        print(f"--- run {len(runs) + 1} of {config.num_runs}, seed {seed}", flush=True)
        results = loop.run(functools.partial(make_task, config, single), single, optimizer)
        runs.append({"seed": seed, "folder": folder, **results})
    summary = summarized(runs)
    seconds = round(sum(entry["seconds"] for entry in runs), 1)
    report = {"runs": runs, **summary, "seconds": seconds}
    if is_chief(make_strategy(run)):  # only one of several workers writes
        write_files(run.output_dir, {RESULTS_FILE: files.json_bytes(report)})
    print(table(runs, summary), flush=True)
    print(f"results in {os.path.join(run.output_dir, RESULTS_FILE)}", flush=True)
    return report


def summarized(runs: Sequence[Mapping]) -> dict:
    """Median, mean, spread, least and greatest of each metric over several runs, and the folder of the best run."""
    names = [name for name in runs[0]["eval"] if all(name in run["eval"] for run in runs)]
    values = {name: [run["eval"][name] for run in runs] for name in names}
    statistics_of: dict[str, Callable] = {
        "median": np.median,
        "mean": np.mean,
        "standard_deviation": lambda numbers: np.std(numbers, ddof=1),
        "least": min,
        "greatest": max,
    }
    scored = [run for run in runs if run.get("best")]
    best = max(scored, key=lambda run: run["best"]["value"], default=runs[0])
    summary = {
        statistic: {name: float(function(numbers)) for name, numbers in values.items()}
        for statistic, function in statistics_of.items()
    }
    return {**summary, "best_run": best["folder"]}


def table(runs: Sequence[Mapping], summary: Mapping) -> str:
    """The numbers of several runs as text, one row per run."""
    names = [*summary["median"]]
    rows = {f"seed {run['seed']}": run["eval"] for run in runs}
    rows |= {name: summary[name] for name in ("median", "mean", "standard_deviation")}
    lines = [[title, *(f"{row[name]:.4f}" for name in names)] for title, row in rows.items()]
    return aligned([["", *names], *lines]).rstrip()


# --- Ensembles ---


def _ensemble(make_task: MakeTask, config, run) -> dict:
    """Averages the predictions of finished runs; does not train."""
    folders = [folder.rstrip("/") for folder in config.ensemble.split(",")]
    if tf.io.gfile.exists(os.path.join(run.output_dir, "checkpoints")):
        run.refuse(
            "output_dir", f"={run.output_dir} contains a run: choose another for the ensemble"
        )
    # The first member's model provides labels and vocabulary; its weights are not used.
    run = dataclasses.replace(run, do_train=False, init_checkpoint=folders[0])
    task = make_task(config, run)
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
    chosen = chosen_greedily(task, members, alone)
    predictions = [members[folder] for folder in chosen]
    unlabelled = []
    if task.predict_data:
        unlabelled = [_read_predictions(folder, PREDICTIONS, task, "predict") for folder in chosen]
    results: dict[str, Any] = {
        "members": chosen,
        "alone": alone,
        "eval": task.evaluate(predictions),
    }
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
