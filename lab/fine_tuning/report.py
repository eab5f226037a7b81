"""Writes the tables and the plot of `lab.fine_tuning`: python -m lab.fine_tuning.report, in the root of the project."""

import functools
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from lab import tables
from lab.experiments.verdicts import margin
from lab.fine_tuning.__main__ import TASKS
from lab.report import COLORS, new_figure, replace_parts, save

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PICTURES = ROOT / "docs" / "pictures"
TEACHER = "minilm"
FOLDED = "albert-minilm-l6"
FOLDED_LONG = "albert-minilm-l6-long"
_NAMES = {"SST-2-2400": "SST-2, 2,400 examples", "QNLI": "QNLI, part", "MNLI": "MNLI, part"}
_TRAINED = ("here", "torch")
Runs = list[dict[str, Any]]


@functools.cache
def all_runs() -> Runs:
    """The runs of both files, each of them once, without those of earlier forms of the loop."""
    runs: Runs = []
    for name in ("fine_tuning.json", "fold_long_seeds.json"):
        content = json.loads((RESULTS / "data" / name).read_text())
        runs += [run for run in content["runs"] if "flags" not in run and run not in runs]
    return runs


def _of(runs: Runs, **values: Any) -> Runs:
    return [run for run in runs if all(run.get(key) == value for key, value in values.items())]


def median_and_range(values: list[float], digits: int = 1) -> str:
    """The median, and of several values the least and the greatest."""
    if not values:
        return ""
    spread = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{spread}"


def scores_of(runs: Runs, metric: str) -> list[float]:
    """The values of a metric in the runs in which it is defined."""
    scores = [run["scores"][metric] for run in runs]
    return [score for score in scores if score is not None]


def _seconds(runs: Runs) -> list[float]:
    """The processor times of the newest commit's runs."""
    timed = [run for run in runs if "processor_seconds" in run]
    return [run["processor_seconds"] for run in timed if run["commit"] == timed[-1]["commit"]]


def pairs(runs: Runs) -> list[tuple[str, float, Runs, Runs]]:
    """Task, rate, and the runs of the same weights here and in transformers, with equal settings.

    The rate is that of transformers. Here, the decay starts at step 0, so that after a tenth of warm-up, 1.11 times
    the rate is the same; where no run has it, those with an equal flag are compared.
    """
    equal = _of(runs, model=TEACHER, mixed_precision=None)
    rows = []
    for name, task in TASKS.items():
        of_task = [run for run in _of(equal, task=name) if run.get("epochs") in (None, task.epochs)]
        here = _of(of_task, side="here")
        in_torch = _of(of_task, side="torch")
        for rate in sorted({run["learning_rate"] for run in in_torch}):
            same = [run for run in here if abs(0.9 * run["learning_rate"] / rate - 1) < 0.01]
            compared = same or _of(here, learning_rate=rate)
            if compared:
                rows.append((name, rate, compared, _of(in_torch, learning_rate=rate)))
    return rows


def difference(here: Runs, there: Runs, metric: str) -> str:
    """The difference of the means; with several runs of both, with its interval of 95 % (Welch)."""
    sides = [scores_of(side, metric) for side in (here, there)]
    if not all(sides):
        return ""
    mean = statistics.mean(sides[0]) - statistics.mean(sides[1])
    if min(map(len, sides)) == 1:
        return f"{mean:+.1f}"
    half = margin([statistics.variance(side) for side in sides], [len(side) for side in sides])
    return f"{mean:+.1f} ± {half:.1f}"


def table_of_sides(runs: Runs) -> list[str]:
    """A row for each task and rate: the first metric of both sides, medians with ranges, and processor times."""
    rows = []
    for name, rate, here, there in pairs(runs):
        metric = TASKS[name].metrics[0]
        scores = [scores_of(side, metric) for side in (here, there)]
        seconds = [median_and_range(_seconds(side), 0) for side in (here, there)]
        cells = (*map(median_and_range, scores), difference(here, there, metric), *seconds)
        seeds = " and ".join(sorted({str(len(side)) for side in (here, there)}))
        steps = f"{here[0]['steps']:,}"
        rows.append((_NAMES.get(name, name), metric, f"{rate:g}", steps, *cells, seeds))
    head = "task | metric | rate | steps | here | transformers | difference | seconds here | there"
    return tables.table(f"{head} | seeds", rows)


def table_of_models(runs: Runs, baselines: Mapping[str, Mapping]) -> list[str]:
    """A row for each task: baselines, random weights, the folded models and their teacher, each at its best rate."""
    rows = []
    for name, task in TASKS.items():
        metric = task.metrics[0]
        random = of_best_rate(_of_equal_epochs(runs, name, FOLDED, ("random",)))
        trained = [runs_at_best_rate(runs, name, model) for model in (FOLDED, FOLDED_LONG, TEACHER)]
        if not trained[0]:
            continue
        simple = baselines.get(name, {}).get("baselines", {})
        cells = [
            median_and_range([simple[kind][metric]]) if kind in simple else ""
            for kind in ("majority class", "linear model")
        ]
        majority = simple.get("majority class", {}).get(metric)
        cells.append(median_and_range(scores_of(random, metric)))
        cells += [_with_failures(scores_of(group, metric), majority) for group in trained]
        epochs = f"{trained[0][0]['epochs']:g}"
        numbers_of_runs = ", ".join(str(len(group)) for group in trained)
        rows.append((_NAMES.get(name, name), metric, epochs, *cells, numbers_of_runs))
    head = "task | metric | epochs | majority class | TF-IDF | random weights"
    return tables.table(f"{head} | {FOLDED} | {FOLDED_LONG} | all-MiniLM-L6-v2 | runs", rows)


def _with_failures(scores: list[float], majority: float | None) -> str:
    """The median and the range, and how many seeds give every example the majority class."""
    text = median_and_range(scores)
    failures = scores.count(majority) if majority is not None else 0
    return f"{text}; {failures} of {len(scores)} seeds at the majority class" if failures else text


def _of_equal_epochs(runs: Runs, name: str, model: str, sides: tuple[str, ...]) -> Runs:
    """The runs of a task and model that declare their epochs: the folded model and its teacher have equal ones."""
    of_model = [run for run in _of(runs, task=name, model=model) if run["side"] in sides]
    return [run for run in of_model if "epochs" in run]


def table_of_rates(runs: Runs) -> list[str]:
    """A row for each task that the folded model and its teacher learned with both rates."""
    rows = []
    rates = (1e-4, 3e-4)
    for name, task in TASKS.items():
        groups = [
            _of(_of_equal_epochs(runs, name, model, _TRAINED), learning_rate=rate)
            for model in (TEACHER, FOLDED)
            for rate in rates
        ]
        if all(groups):
            cells = [median_and_range(scores_of(group, task.metrics[0])) for group in groups]
            rows.append((_NAMES.get(name, name), task.metrics[0], *cells))
    names = [f"{model}, {rate:g}" for model in ("all-MiniLM-L6-v2", FOLDED) for rate in rates]
    return tables.table(" | ".join(["task", "metric", *names]), rows)


def runs_at_best_rate(runs: Runs, task: str, model: str) -> Runs:
    """The runs of a task and a trained model with equal epochs, at the rate that has the highest median."""
    return of_best_rate(_of_equal_epochs(runs, task, model, _TRAINED))


def of_best_rate(runs: Runs) -> Runs:
    """The runs of one task and model with the rate that has the highest median."""
    groups: dict[float, Runs] = {}
    for run in runs:
        groups.setdefault(run["learning_rate"], []).append(run)
    if not runs:
        return []
    metric = TASKS[runs[0]["task"]].metrics[0]
    return max(groups.values(), key=lambda group: statistics.median(scores_of(group, metric)))


def draw(runs: Runs) -> None:
    """How much of transformers' processor time each task takes here; 1 is equal."""
    figure, ((axes,),) = new_figure(1, width=6.0, height=3.2)
    ratios = {}
    for name, rate, here, there in pairs(runs):
        seconds_here = _seconds(here)
        seconds_there = _seconds(there)
        if seconds_here and seconds_there:
            ratio = statistics.median(seconds_here) / statistics.median(seconds_there)
            ratios[f"{_NAMES.get(name, name)}, {rate:g}"] = ratio
    for row, (name, ratio) in enumerate(sorted(ratios.items(), key=lambda item: -item[1])):
        axes.barh(row, ratio, height=0.6, color=COLORS[0])
        axes.text(-0.02, row, name, ha="right", va="center", fontsize=7)
        axes.text(ratio + 0.01, row, f"{ratio:.2f}", va="center", fontsize=7)
    axes.axvline(1, color="#444444", lw=1, ls="--")
    axes.set_yticks([])
    title = "fine-tuning: processor time here / in transformers"
    axes.set(xlabel="1: equal; less is faster here", title=title, xlim=(0, 1.15))
    save(figure, PICTURES / "fine_tuning.png")


def parts() -> dict[str, dict[str, list[str]]]:
    """Page -> name of a part -> its lines."""
    runs = all_runs()
    baselines = json.loads((RESULTS / "data" / "baselines.json").read_text())["tasks"]
    return {
        "docs/results/real_weights.md": {
            "sides": table_of_sides(runs),
            "rates": table_of_rates(runs),
        },
        "docs/results/fold.md": {"tasks": table_of_models(runs, baselines)},
    }


def main() -> None:
    """Replaces the tables of two pages, and draws."""
    for page, by_name in parts().items():
        replace_parts(str(ROOT / page), by_name)
    draw(all_runs())


if __name__ == "__main__":
    main()
