"""Repeated runs (paper, section 4.2): medians over several seeds."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.aligned_columns import aligned
from albert_tf.tasks.finetuning import FineTuningTask
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig, contains_run
from albert_tf.training import loop
from albert_tf.training.devices import is_chief, make_strategy
from albert_tf.training.results import shown
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
    """Makes runs with consecutive seeds, each in a folder of its own inside --output_dir."""
    if contains_run(run.output_dir):
        reason = f"={run.output_dir}: contains a run, whose results --num_runs would replace"
        run.refuse("output_dir", f"{reason}; choose another folder")
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
    """Median, mean, spread, least and greatest of each metric over several runs, and the folder of the best run.

    They are those of the runs in which the metric is defined, None if there are too few; `undefined` has the numbers of
    the other runs, if there are any.
    """
    names = [name for name in runs[0]["eval"] if all(name in run["eval"] for run in runs)]
    numbers_of_metric: dict[str, list[float]] = {}
    undefined: dict[str, int] = {}
    for name in names:
        numbers = [run["eval"][name] for run in runs if run["eval"][name] is not None]
        numbers_of_metric[name] = numbers
        if len(numbers) < len(runs):
            undefined[name] = len(runs) - len(numbers)

    statistics_of: dict[str, Callable] = {
        "median": np.median,
        "mean": np.mean,
        "standard_deviation": _spread,
        "least": min,
        "greatest": max,
    }
    summary: dict[str, Any] = {}
    for statistic, function in statistics_of.items():
        summary[statistic] = {
            name: _or_none(function, numbers) for name, numbers in numbers_of_metric.items()
        }
    if undefined:
        summary["undefined"] = undefined
    if names:
        scored = [run for run in runs if run.get("best")]
        best = max(scored, key=lambda run: run["best"]["value"], default=runs[0])
        summary["best_run"] = best["folder"]
    return summary


def _spread(numbers: Sequence[float]) -> float | None:
    """The standard deviation of a sample of at least two."""
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None


def _or_none(function: Callable, numbers: Sequence[float]) -> float | None:
    value = function(numbers) if numbers else None
    return None if value is None else float(value)


def table(runs: Sequence[Mapping], summary: Mapping) -> str:
    """The numbers of several runs as text, one row per run."""
    names = [*summary["median"]]
    rows = {f"seed {run['seed']}": run["eval"] for run in runs}
    rows |= {name: summary[name] for name in ("median", "mean", "standard_deviation")}
    lines = [[title, *(shown(row[name]) for name in names)] for title, row in rows.items()]
    text = aligned([["", *names], *lines]).rstrip()
    for name, number in summary.get("undefined", {}).items():
        text += (
            f"\n{name} is undefined in {number} of {len(runs)} runs, which its statistics leave out"
        )
    return text
