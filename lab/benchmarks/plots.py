"""Draws the plots of a report as PNG files."""

import operator
import pathlib
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np

from albert_tf.core.plots import from_zero, new_figure, save
from lab.benchmarks.measure import Values
from lab.benchmarks.run_results import NAMES, STEPS, RunResults, growth_points
from lab.benchmarks.training_step import PRECISIONS

_COLORS = dict(zip(NAMES, plt.get_cmap("tab10").colors, strict=False))
_UNITS = {"length": "tokens", "layers": "layers", "width": "D", "batch": "examples"}


def draw(results: RunResults, folder: pathlib.Path) -> dict[str, str]:
    """Draws the figures for which there are values; returns their file names by the section's title."""
    plans = (
        ("Training step", "training_step.png", _training_steps),
        ("Memory of a training step", "memory.png", _memory),
        ("Data preparation", "preparation.png", _preparation),
        ("Inference", "inference.png", _inference),
        ("How the cost grows", "growth.png", _growth),
    )
    drawn = {}
    for title, name, make_figure in plans:
        if figure := make_figure(results):
            save(figure, folder / name)
            drawn[title] = name
    return drawn


def _line(axes, xs: Sequence[float], timings: Sequence[Values]):
    """Draws a line through medians, with bars from minimum to maximum."""
    middle, low, high = (
        np.array([timing[name] for timing in timings]) for name in ("median", "min", "max")
    )
    axes.errorbar(xs, middle, [middle - low, high - middle], marker="o", capsize=3)
    from_zero(axes)


def _training_steps(results: RunResults):
    """Draws bars for all implementations, with a line at the time of the matrix products alone."""
    plans = [
        (step, precision, timings)
        for step in STEPS
        for precision in PRECISIONS
        if (timings := results.values_by_name(f"training_step.{step}.{precision}."))
    ]
    if not plans:
        return None
    figure, (panels,) = new_figure(len(plans))
    for axes, (step, precision, timings) in zip(panels, plans, strict=True):
        for name, timing in timings.items():
            who, median = name.rpartition(".")[2], timing["median"]
            error = [[median - timing["min"]], [timing["max"] - median]]
            axes.bar(NAMES[who], median, yerr=error, color=_COLORS[who], capsize=3)
        if limit := results.limit(step, precision):
            seconds = timing["flops"] / limit  # the work is the same for all implementations
            axes.axhline(seconds, color="black", linestyle="--", label="matrix products alone")
            axes.legend()
        axes.set_title(f"{step}, {precision}")
        axes.tick_params(axis="x", labelrotation=30, labelsize=7)
    panels[0].set_ylabel("seconds a step")
    return figure


def _memory(results: RunResults):
    """Draws bars for all implementations at each size."""
    gigabytes: dict[str, dict[str, float]] = {}
    measured = results.values_by_name("memory.", "training_step.8x512.float32.")
    for name, values in measured.items():
        kind, *place, who = name.split(".")
        size, step = ("base", place[0]) if kind == "training_step" else place
        gigabytes.setdefault(f"{size}\n{step}", {})[who] = values["peak_bytes"] / 1e9
    if not any(len(of_size) > 1 for of_size in gigabytes.values()):
        return None
    figure, ((axes,),) = new_figure(1, width=2 + 1.6 * len(gigabytes))
    drawn = [who for who in NAMES if any(who in of_size for of_size in gigabytes.values())]
    width = 0.8 / len(drawn)
    for index, who in enumerate(drawn):
        bars = [
            (position + index * width, of_size[who])
            for position, of_size in enumerate(gigabytes.values())
            if who in of_size
        ]
        axes.bar(*zip(*bars, strict=True), width, label=NAMES[who], color=_COLORS[who])
    axes.set_xticks([n + 0.4 - width / 2 for n in range(len(gigabytes))], list(gigabytes))
    axes.set_ylabel("memory, GB")
    axes.legend()
    return figure


def _preparation(results: RunResults):
    """Draws seconds and memory by the size of the corpus, and seconds by length and by number of workers."""
    base = results.values("preparation.dupe_1")
    if not base or not results.values_by_name("preparation.corpus."):
        return None
    series = {}
    for varied, name in (
        ("corpus", "text_bytes"),
        ("length", "length"),
        ("workers", "num_workers"),
    ):
        measured = results.values_by_name(f"preparation.{varied}.").values()
        points = sorted([base, *measured], key=operator.itemgetter(name))
        series[varied] = [values[name] for values in points], points
    figure, ((seconds, memory, by_length, by_workers),) = new_figure(4)
    num_bytes, points = series["corpus"]
    megabytes = [size / 1e6 for size in num_bytes]
    _line(seconds, megabytes, points)
    seconds.set(xlabel="corpus, MB", ylabel="seconds, dupe 1, length 512")
    for key, label in (("all_processes_bytes", "all processes"), ("process_bytes", "largest")):
        memory.plot(megabytes, [values[key] / 1e9 for values in points], "o-", label=label)
    memory.set(xlabel="corpus, MB", ylabel="memory, GB")
    memory.legend()
    from_zero(memory)
    for axes, varied in ((by_length, "length"), (by_workers, "workers")):
        _line(axes, *series[varied])
        axes.set(xlabel=varied, ylabel=f"seconds, {base['text_bytes'] / 1e6:.0f} MB")
        axes.set_xticks(series[varied][0])
    return figure


def _inference(results: RunResults):
    """Draws sequences per second by batch, with a panel for each length."""
    cells_of = results.inference_cells()
    if not cells_of:
        return None
    sizes = [tuple(map(int, size.split("x"))) for size in next(iter(cells_of.values()))]
    lengths = sorted({length for _, length in sizes})
    figure, (panels,) = new_figure(len(lengths))
    for axes, length in zip(panels, lengths, strict=True):
        batches = sorted(batch for batch, of_length in sizes if of_length == length)
        for who, cells in cells_of.items():
            rates = [cells[f"{batch}x{length}"]["sequences_a_second"] for batch in batches]
            axes.plot(batches, rates, "o-", label=NAMES[who], color=_COLORS[who])
        axes.set(title=f"length {length}", xlabel="batch")
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, map(str, batches))
        from_zero(axes)
    panels[0].set_ylabel("sequences a second")
    panels[0].legend()
    return figure


def _growth(results: RunResults):
    """Draws seconds above and memory below, with a column for each size that grows."""
    points = growth_points(results)
    if not points:
        return None
    figure, panels = new_figure(len(points), 2)
    for (upper, lower), (dimension, measured) in zip(panels.T, points.items(), strict=True):
        sizes, values = zip(*measured, strict=True)
        _line(upper, sizes, values)
        lower.plot(sizes, [each["peak_bytes"] / 1e9 for each in values], "o-")
        from_zero(lower)
        unit = _UNITS[dimension]
        lower.set_xlabel(f"{dimension}, {unit}" if dimension != unit else dimension)
        for axes in (upper, lower):
            axes.set_xticks(sizes)
            axes.tick_params(labelsize=7)
    panels[0, 0].set_ylabel("seconds a step")
    panels[1, 0].set_ylabel("memory, GB")
    return figure
