"""Repeated runs (paper, section 4.2): medians over several seeds."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.core import files
from albert_tf.core.tables import aligned
from albert_tf.tasks.finetuning import FineTuningTask
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig
from albert_tf.training import loop
from albert_tf.training.devices import is_chief, make_strategy
from albert_tf.training.run_folder import RESULTS_FILE
from albert_tf.training.settings import OptimizerConfig

MakeTask = Callable[[FineTuningConfig, FineTuningRunConfig], FineTuningTask]


def fine_tune(
    make: MakeTask, config: FineTuningConfig, run: FineTuningRunConfig, optimizer: OptimizerConfig
) -> dict:
    """Makes one run, or several with a table; returns what their JSON file contains."""
    if config.num_runs == 1:
        return loop.run(lambda: make(config, run), run, optimizer)
    with loop.lock_of(make_strategy(run), run):
        return _several(make, config, run, optimizer)


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
        files.write_bytes(os.path.join(run.output_dir, RESULTS_FILE), files.json_bytes(report))
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
    return {**summary, **({"best_run": best["folder"]} if names else {})}


def table(runs: Sequence[Mapping], summary: Mapping) -> str:
    """The numbers of several runs as text, one row per run."""
    names = [*summary["median"]]
    rows = {f"seed {run['seed']}": run["eval"] for run in runs}
    rows |= {name: summary[name] for name in ("median", "mean", "standard_deviation")}
    lines = [[title, *(f"{row[name]:.4f}" for name in names)] for title, row in rows.items()]
    return aligned([["", *names], *lines]).rstrip()
