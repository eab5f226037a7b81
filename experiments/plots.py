"""Plots of experiments: dots of rows, curves of training, changes from layer to layer."""

import math
import os
import statistics
from collections.abc import Callable
from itertools import cycle

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from experiments.columns import COLUMNS

_PANELS_A_LINE = 3
_DOTS = ("speedup", "masked_lm", "nsp", "sop", "mnli", "nsp_held_out", "sop_held_out")
# Where our numbers and the paper's fit on one axis.
_ON_THE_PAPERS_SCALE = ("nsp", "sop", "speedup")
_COLORS = ("#1f5fa8", "#c4551d", "#3a7d44", "#7d3a78", "#8a6d1d", "#444444")


def draw(found, folder: str) -> str | None:
    """Draws what an experiment asks for.

    Args:
      found: a `report.Found`.
      folder: where the picture goes.

    Returns:
      Its path; None if there is nothing to draw.
    """
    kinds: dict[str, Callable] = {"dots": _dots, "curves": _curves, "layers": _layers}
    if found.experiment.plot not in kinds:
        return None
    figure = kinds[found.experiment.plot](found)
    if figure is None:
        return None
    path = os.path.join(folder, "plot.png")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _dots(found):
    """A panel a column: a dot for every seed, a stroke for the mean, a hollow diamond for the paper's number."""
    wanted = [name for name in _DOTS if name in found.experiment.columns]
    columns = [name for name in wanted if any(found.values(row, name) for row in found.rows)]
    if not columns:
        return None
    rows = list(found.rows)
    wide, high = min(_PANELS_A_LINE, len(columns)), math.ceil(len(columns) / _PANELS_A_LINE)
    size = (2.6 + 2.8 * wide, (1.4 + 0.3 * len(rows)) * high)
    figure, all_axes = plt.subplots(high, wide, figsize=size, sharey=True, squeeze=False)
    for axes, name in zip(all_axes.flat, columns, strict=False):
        _dots_of_column(axes, found, rows, name)
    for axes in all_axes.flat[len(columns) :]:
        axes.set_visible(False)
    figure.tight_layout()
    return figure


def _dots_of_column(axes: Axes, found, rows: list[str], name: str) -> None:
    for place, row in enumerate(rows):
        values = [numbers[0] for numbers in found.values(row, name)]
        if values:
            axes.plot(values, [place] * len(values), "o", color="#1f5fa8", ms=4, alpha=0.8)
            axes.plot(statistics.fmean(values), place, "|", color="#1f5fa8", ms=14, mew=1.5)
        paper = found.experiment.row(row).paper.get(name)
        if name in _ON_THE_PAPERS_SCALE and paper is not None:
            axes.plot(paper, place, "D", color="#c4551d", ms=5, fillstyle="none")
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    has_paper = name in _ON_THE_PAPERS_SCALE and any(
        name in found.experiment.row(row).paper for row in rows
    )
    axes.set_title(COLUMNS[name].title + (" (diamonds: paper)" if has_paper else ""), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.margins(x=0.12)
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)


def _curves(found):
    """Masked-LM accuracy on the development set over the steps, a colour a row, a line a seed."""
    figure, axes = plt.subplots(figsize=(6.0, 3.6))
    for color, (row, results) in zip(cycle(_COLORS), found.rows.items(), strict=False):
        for number, result in enumerate(results):
            lines = result["measures"].get("pretraining", {}).get("evaluation", [])
            steps = [line["step"] for line in lines]
            accuracy = [100 * line["masked_lm_accuracy"] for line in lines]
            label = row if number == 0 else None
            axes.plot(steps, accuracy, "o-", ms=3, lw=1.2, color=color, label=label, alpha=0.8)
    axes.set(xlabel="step", ylabel="masked-LM accuracy, %", title="development set")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def _layers(found):
    """L2 distance and angle of every layer; solid over pieces, dashed at [CLS]; means over seeds."""
    measured_of = {
        row: measured
        for row, results in found.rows.items()
        if (measured := [m for r in results if (m := r["measures"].get("layer_changes"))])
    }
    if not measured_of:
        return None
    figure, all_axes = plt.subplots(1, 2, figsize=(9.0, 3.6))
    titles = {"l2_distance": "L2 distance", "degrees": "angle, degrees"}
    for axes, (kind, title) in zip(all_axes, titles.items(), strict=True):
        for color, (row, measured) in zip(cycle(_COLORS), measured_of.items(), strict=False):
            for positions, style in (("pieces", "o-"), ("cls", "s--")):
                layers = zip(*(one[positions][kind] for one in measured), strict=True)
                means = [statistics.fmean(values) for values in layers]
                label = f"{row}, {'all pieces' if positions == 'pieces' else '[CLS]'}"
                axes.plot(
                    range(1, len(means) + 1), means, style, ms=4, lw=1.2, color=color, label=label
                )
        heading = f"{title} between a layer's input and output"
        axes.set(xlabel="layer", title=heading, ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.title.set_fontsize(9)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return figure
