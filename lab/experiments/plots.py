"""Plots of experiments: dots for rows, curves of training, changes from layer to layer."""

import math
import os
import statistics
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lab.experiments.columns import COLUMNS
from lab.plots import COLORS, new_figure, save

_PANELS_A_LINE = 3
_DOTS = ("speedup", "masked_lm", "nsp", "sop", "sst2", "nsp_held_out", "sop_held_out")
_EXITS = {"fixed depth": "", "patience": "patience"}
# Columns in which our numbers and the paper's fit on one axis.
_WITH_PAPER = ("nsp", "sop", "speedup")


def draw(measured, folder: str) -> str | None:
    """Draws the plot of an experiment, a `report.Measured`; returns its path, None if there is nothing to draw."""
    kinds = {"": lambda measured: None, "dots": _dots, "curves": _curves, "layers": _layers}
    kinds["depths"] = _depths
    figure = kinds[measured.experiment.plot](measured)
    if not figure:
        return None
    path = os.path.join(folder, "plot.png")
    save(figure, path)
    return path


def _dots(measured):
    """Draws a panel per column: dots for seeds, a tick for their mean, a diamond for the paper's number."""
    columns = [name for name in _DOTS if name in measured.shown_columns()]
    if not columns:
        return None
    lines = math.ceil(len(columns) / _PANELS_A_LINE)
    height = 1.4 + 0.3 * len(measured.rows)
    shape = (min(_PANELS_A_LINE, len(columns)), lines)
    figure, panels = new_figure(*shape, width=3.6, height=height, sharey=True)
    for axes, name in zip(panels.flat, columns, strict=False):
        _dots_of_column(axes, measured, name)
    for axes in panels.flat[len(columns) :]:
        axes.set_visible(False)
    return figure


def _dots_of_column(axes: Axes, measured, name: str) -> None:
    title = COLUMNS[name].title
    for position, row in enumerate(measured.rows):
        values = [numbers[0] for numbers in measured.values(row, name).values()]
        if values:
            axes.plot(values, [position] * len(values), "o", color=COLORS[0], ms=4, alpha=0.8)
            axes.plot(statistics.fmean(values), position, "|", color=COLORS[0], ms=14, mew=1.5)
        paper = measured.experiment.row(row).paper.get(name)
        if name in _WITH_PAPER and paper is not None:
            axes.plot(paper, position, "D", color=COLORS[1], ms=5, fillstyle="none")
            title = f"{COLUMNS[name].title} (diamonds: paper)"
    axes.set_yticks(range(len(measured.rows)), list(measured.rows), fontsize=8)
    axes.set_ylim(len(measured.rows) - 0.5, -0.5)
    axes.set_title(title)
    axes.tick_params(labelsize=8)
    axes.margins(x=0.12)
    axes.grid(axis="y")


def _curves(measured):
    """Draws masked-LM accuracy on the development set by step: a color for each row, a line for each seed."""
    if not any(result["measures"].get("pretraining") for result in measured.all_results()):
        return None
    figure, ((axes,),) = new_figure(1, width=6.0, height=3.6)
    for color, (row, results) in zip(cycle(COLORS), measured.rows.items(), strict=False):
        for number, result in enumerate(results):
            lines = result["measures"].get("pretraining", {}).get("evaluation", [])
            steps = [line["step"] for line in lines]
            accuracy = [100 * line["masked_lm_accuracy"] for line in lines]
            label = None if number else row
            axes.plot(steps, accuracy, "o-", ms=3, lw=1.2, color=color, label=label, alpha=0.8)
    axes.set(xlabel="step", ylabel="masked-LM accuracy, %", title="development set")
    axes.legend()
    return figure


def _layers(measured):
    """Draws L2 distance and angle of every layer; solid for all tokens, dashed for [CLS].

    Points are means over seeds; bars reach from the lowest seed to the highest.
    """
    changes_of = {
        row: changes
        for row, results in measured.rows.items()
        if (changes := [c for r in results if (c := r["measures"].get("layer_changes"))])
    }
    if not changes_of:
        return None
    figure, (panels,) = new_figure(2, width=4.5, height=3.6)
    titles = {"l2_distance": "L2 distance", "degrees": "angle, degrees"}
    styles = {"pieces": ("o-", "all tokens"), "cls": ("s--", "[CLS]")}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        for color, (row, changes) in zip(cycle(COLORS), changes_of.items(), strict=False):
            for positions, (style, label) in styles.items():
                layers = np.array([change[positions][kind] for change in changes])
                means = layers.mean(0)
                numbers, bars = (
                    range(1, len(means) + 1),
                    (means - layers.min(0), layers.max(0) - means),
                )
                look = {"fmt": style, "color": color, "label": f"{row}, {label}", "capsize": 2}
                axes.errorbar(numbers, means, bars, ms=4, lw=1.2, **look)
        heading = f"{title} between a layer's input and output"
        axes.set(xlabel="layer", title=heading, ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[1].legend(loc="lower left")  # where the curves are far above 0
    return figure


def _depths(measured):
    """Draws SST-2 against layers, a line for each group of rows, and against milliseconds of one text if measured.

    The group of a row is its name up to the comma. Points are means over seeds.
    """
    groups: dict[str, list[tuple[int, float]]] = {}
    points: dict[str, list] = {}
    for row, results in measured.rows.items():
        if scores := measured.means(row, "sst2"):
            depth = results[0]["declared"]["model"]["num_hidden_layers"]
            point = (depth, statistics.fmean(scores.values()))
            groups.setdefault(row.partition(",")[0], []).append(point)
        for result in results:
            for each in result["measures"].get("early exit sst2") or ():
                key = each["patience"], each["num_hidden_layers"]
                points.setdefault(key, []).append((each["milliseconds"], each["score"]))
    if not groups:
        return None
    figure, (panels,) = new_figure(1 + bool(points), width=4.5, height=3.6)
    for color, (name, line) in zip(cycle(COLORS), groups.items(), strict=False):
        panels[0].plot(*zip(*sorted(line), strict=True), "o-", ms=4, color=color, label=name)
    panels[0].set(xlabel="layers", ylabel="SST-2, accuracy, %", title="score by depth")
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].legend()
    if not points:
        return figure
    means = {
        key: tuple(map(statistics.fmean, zip(*values, strict=True)))
        for key, values in points.items()
    }
    for color, (title, name) in zip(COLORS, _EXITS.items(), strict=False):
        line = [point for key, point in means.items() if bool(key[0]) == bool(name)]
        if line:
            panels[1].plot(*zip(*sorted(line), strict=True), "o-", ms=4, color=color, label=title)
    panels[1].set(xlabel="milliseconds for one text", title="score by time")
    panels[1].legend()
    return figure
