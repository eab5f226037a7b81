"""Collects runs and baselines of small tasks: results.json and table.md."""

import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from albert_tf.core import files
from albert_tf.core.tables import table
from lab.plots import COLORS, new_figure
from lab.small_tasks.baselines import TITLES
from lab.small_tasks.tasks import TASKS

RESULTS_FILE, TABLE_FILE = "results.json", "table.md"
KINDS = {"random": "random weights", "model": "pretrained"}
STYLES = list(zip((*TITLES, *KINDS), "|xD^oo", (5, 4, 2, 3, 1, 0), strict=True))  # marker, color
_NOTES = """Scores in percent; with several seeds, the median (least to greatest). The majority class of several labels
are the frequencies of the labels. The similarity is that of TF-IDF, without training. The linear model is a logistic
regression (for scores: ridge regression) on TF-IDF of the texts, or on features of the words; if there are several, it
is the best one."""


def write(folder: pathlib.Path, about: Mapping[str, Any]) -> None:
    """Writes both files into the folder of runs and baselines; `about` is recorded, too."""
    results = collect(folder)
    content = json.dumps({**about, "tasks": results}, indent=1)
    files.write_bytes(str(folder / RESULTS_FILE), f"{content}\n".encode())
    text = "\n".join([*results_table(results), "", _NOTES, ""])
    files.write_bytes(str(folder / TABLE_FILE), text.encode())


def collect(folder: pathlib.Path) -> dict[str, dict]:
    """By task: `baselines`, the scores by title, and by kind of start the `runs`. All scores are in percent."""
    results = {}
    for name, task in TASKS.items():
        scale = 1 if task.in_percent else 100
        found: dict[str, Any] = {"metrics": task.metrics, "baselines": {}}
        path = folder / "baselines" / f"{name}.json"
        for scores in (files.read_json(str(path)) if path.exists() else {}).values():
            for title, values in scores.items():
                found["baselines"][title] = _scaled(values, 100)
        for kind in KINDS:
            paths = sorted((folder / "runs" / name / kind).glob("seed_*/results.json"))
            if runs := [_run(path, scale) for path in paths]:
                found[kind] = runs
        if len(found) > 2 or found["baselines"]:
            results[name] = found
    return results


def _run(path: pathlib.Path, scale: float) -> dict[str, Any]:
    """The seed, scores, parameters and seconds of a run; scores are those of the test file if there is one."""
    results = files.read_json(str(path))
    test = path.parent / "test" / "results.json"
    scores = files.read_json(str(test))["eval"] if test.exists() else results["eval"]
    run = {"seed": int(path.parent.name.removeprefix("seed_")), "eval": _scaled(scores, scale)}
    names = ("num_parameters", "step", "seconds", "collapsed")
    return run | {name: results[name] for name in names if name in results}


def _scaled(values: Mapping[str, float], scale: float) -> dict[str, float]:
    return {name: round(scale * value, 3) for name, value in values.items()}


def _baseline(result: Mapping[str, Any], group: str) -> Mapping[str, float]:
    """The scores of a kind of baseline; of several, those with the best main metric."""
    main = result["metrics"][0]
    of_group = [v for title, v in result["baselines"].items() if title.partition(",")[0] == group]
    return max(of_group, key=lambda values: values[main], default={})


def results_table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The lines of the table, with a row for each task."""
    groups = [g for g in TITLES if any(_baseline(result, g) for result in results.values())]
    kinds = [kind for kind in KINDS if any(kind in result for result in results.values())]
    rows = []
    for name, result in results.items():
        cells = [_cell(result["metrics"], [_baseline(result, group)]) for group in groups]
        for kind in kinds:
            runs = result.get(kind, [])
            cell = _cell(result["metrics"], [run["eval"] for run in runs])
            collapsed = sum("collapsed" in run for run in runs)
            cells.append(cell + f" ({collapsed} of {len(runs)} collapsed)" * bool(collapsed))
        seeds = max((len(result.get(kind, [])) for kind in kinds), default=0)
        rows.append([name, ", ".join(result["metrics"]), *cells, result.get("seeds", seeds) or ""])
    columns = ["task", "metrics", *groups, *map(KINDS.__getitem__, kinds), "seeds"]
    return table(" | ".join(columns), rows)


def _cell(metrics: list[str], scores: list[Mapping[str, float]]) -> str:
    """The medians of several runs, with their ranges."""
    texts = []
    for metric in metrics:
        if values := [each[metric] for each in scores if metric in each]:
            text = f"{statistics.median(values):.1f}"
            spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
            texts.append(text + spread)
    return "; ".join(texts)


def draw(results: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The main metric of each task: the median of the runs with their range, and the baselines."""
    figure, ((axes,),) = new_figure(1, width=7.0, height=1.4 + 0.3 * len(results))
    for title, marker, color in STYLES:
        label: str | None = KINDS.get(title, title)
        for row, result in enumerate(results.values()):
            y = row + {"random": -0.16, "model": 0.16}.get(title, 0.0)
            main, runs = result["metrics"][0], [run["eval"] for run in result.get(title, [])]
            every = runs or [_baseline(result, title)]
            if scores := [one[main] for one in every if main in one]:
                style = {"color": COLORS[color], "ms": 12 if marker == "|" else 6, "label": label}
                axes.plot([min(scores), max(scores)], [y, y], color=COLORS[color])
                axes.plot(statistics.median(scores), y, marker, mew=1.5, **style)
                label = None
    names = [f"{name}: {each['metrics'][0]}" for name, each in results.items()]
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="score, percent", ylim=(len(names) - 0.5, -0.5))
    axes.grid(True)
    figure.legend(loc="outside lower center", ncols=len(STYLES))
    return figure
