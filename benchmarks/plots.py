"""The plots of a report, as PNG files that read well in a README."""

import pathlib
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.found import NAMES, STEPS, Found, growth_points
from benchmarks.measure import Values
from benchmarks.peers import PEERS
from benchmarks.training_step import PRECISIONS

_COLOURS = dict(zip(NAMES, plt.get_cmap("tab10").colors, strict=False))
_UNITS = {"length": "pieces", "layers": "layers", "width": "D", "batch": "examples"}


def draw(found: Found, folder: pathlib.Path) -> dict[str, list[str]]:
    """Draws what there are numbers for.

    Returns:
      Names of the files by the title of the section that they belong to.
    """
    plans = (
        ("Training step", "training_step.png", _training_steps),
        ("Memory of a training step", "memory.png", _memory),
        ("Data preparation", "preparation.png", _preparation),
        ("Inference", "inference.png", _inference),
        ("How the cost grows", "growth.png", _growth),
    )
    drawn: dict[str, list[str]] = {}
    for title, name, make_figure in plans:
        figure = make_figure(found)
        if figure:
            figure.savefig(folder / name, dpi=110)
            plt.close(figure)
            drawn.setdefault(title, []).append(name)
    return drawn


def _new_figure(columns: int, rows: int = 1, width: float = 3.2, height: float = 2.8):
    """A figure and its axes, [rows, columns]."""
    size = (max(4.0, width * columns), height * rows)
    return plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)


def _points(axes, xs: Sequence[float], timings: Sequence[Values], scale: float = 1, **options):
    """A line through medians, with bars from the least to the greatest."""
    middle, low, high = (
        scale * np.array([timing[name] for timing in timings]) for name in ("median", "min", "max")
    )
    axes.errorbar(xs, middle, [middle - low, high - middle], marker="o", capsize=3, **options)
    axes.grid(alpha=0.3)
    axes.set_ylim(bottom=0)


def _training_steps(found: Found):
    """Bars of each implementation, with a line at what matrix products alone take."""
    plans = [
        (step, precision, held)
        for step in STEPS
        for precision in PRECISIONS
        if (held := _of_peers(found, f"training_step.{step}.{precision}"))
    ]
    if not plans:
        return None
    figure, ((*axes,),) = _new_figure(len(plans))
    for one, (step, precision, held) in zip(axes, plans, strict=True):
        for who, timing in held.items():
            error = [
                [timing["median"] - timing["min"]],
                [timing["max"] - timing["median"]],
            ]
            one.bar(NAMES[who], timing["median"], yerr=error, color=_COLOURS[who], capsize=3)
        limit = found.limit(step, precision)
        if limit:
            flops = next(iter(held.values()))["flops"]
            one.axhline(flops / limit, color="black", linestyle="--", label="matrix products alone")
            one.legend(fontsize=7)
        one.set_title(f"{step}, {precision}", fontsize=10)
        one.tick_params(axis="x", labelrotation=30, labelsize=7)
    axes[0].set_ylabel("seconds a step")
    return figure


def _of_peers(found: Found, prefix: str) -> dict[str, Values]:
    return {who: values for who in PEERS if (values := found.values(f"{prefix}.{who}"))}


def _memory(found: Found):
    """Bars of each implementation at each size."""
    held: dict[str, dict[str, float]] = {}
    for name in found.content["measurements"]:
        values = (
            found.values(name)
            if name.startswith(("memory.", "training_step.8x512.float32."))
            else None
        )
        if values:
            *place, who = name.split(".")
            size = "base" if place[0] == "training_step" else place[1]
            step = place[1] if place[0] == "training_step" else place[2]
            held.setdefault(f"{size}\n{step}", {})[who] = values["peak_bytes"] / 1e9
    if not any(len(sizes) > 1 for sizes in held.values()):
        return None
    figure, ((axes,),) = _new_figure(1, width=2 + 1.6 * len(held))
    who_all = [who for who in NAMES if any(who in sizes for sizes in held.values())]
    bar = 0.8 / len(who_all)
    for index, who in enumerate(who_all):
        places = [at + index * bar for at, sizes in enumerate(held.values()) if who in sizes]
        heights = [sizes[who] for sizes in held.values() if who in sizes]
        axes.bar(places, heights, bar, label=NAMES[who], color=_COLOURS[who])
    axes.set_xticks([at + 0.4 - bar / 2 for at in range(len(held))], list(held))
    axes.set_ylabel("memory, GB")
    axes.legend(fontsize=7)
    return figure


def _preparation(found: Found):
    """Seconds and memory against the size of the corpus, rates against length and workers."""
    base = found.values("preparation.dupe_1")
    series: dict[str, list[tuple[float, Values]]] = {"corpus": [], "length": [], "workers": []}
    for name in found.content["measurements"]:
        values = found.values(name) if name.startswith("preparation.") else None
        what = name.split(".")[1] if values else ""
        if what in series:
            series[what].append((_size_of(what, values), values))
    if not base or not series["corpus"]:
        return None
    series = {
        what: sorted([*points, (_size_of(what, base), base)], key=lambda point: point[0])
        for what, points in series.items()
    }
    figure, ((seconds, memory, length, workers),) = _new_figure(4)
    xs, values = zip(*series["corpus"], strict=True)
    _points(seconds, xs, values)
    seconds.set(xlabel="corpus, MB", ylabel="seconds, dupe 1, length 512")
    for key, label in (("all_processes_bytes", "all processes"), ("process_bytes", "largest")):
        memory.plot(xs, [one[key] / 1e9 for one in values], marker="o", label=label)
    memory.set(xlabel="corpus, MB", ylabel="memory, GB")
    memory.set_ylim(bottom=0)
    memory.legend(fontsize=7)
    memory.grid(alpha=0.3)
    for axes, what in ((length, "length"), (workers, "workers")):
        xs, values = zip(*series[what], strict=True)
        _points(axes, xs, values)
        axes.set(xlabel=what, ylabel=f"seconds, {base['text_bytes'] / 1e6:.0f} MB")
        axes.set_xticks(xs)
    return figure


def _size_of(what: str, values: Values) -> float:
    """Where a measurement stands on the axis of what it varies."""
    return {
        "corpus": values["text_bytes"] / 1e6,
        "length": values["length"],
        "workers": values["num_workers"],
    }[what]


def _inference(found: Found):
    """Sequences a second by batch, for each length."""
    held = {
        who: values["cells"]
        for who in ("ours", "ours_strings", "transformers", "model_garden")
        if (values := found.values(f"inference.{who}"))
    }
    if not held:
        return None
    sizes = [tuple(map(int, size.split("x"))) for size in next(iter(held.values()))]
    lengths = sorted({length for _, length in sizes})
    figure, ((*axes,),) = _new_figure(len(lengths))
    for one, length in zip(axes, lengths, strict=True):
        batches = sorted(batch for batch, of_length in sizes if of_length == length)
        for who, cells in held.items():
            rates = [cells[f"{batch}x{length}"]["sequences_a_second"] for batch in batches]
            one.plot(batches, rates, marker="o", label=NAMES[who], color=_COLOURS[who])
        one.set_title(f"length {length}", fontsize=10)
        one.set_xscale("log", base=2)
        one.set_xticks(batches, map(str, batches))
        one.set_xlabel("batch")
        one.set_ylim(bottom=0)
        one.grid(alpha=0.3)
    axes[0].set_ylabel("sequences a second")
    axes[0].legend(fontsize=7)
    return figure


def _growth(found: Found):
    """Seconds above, memory below, a column for each size that grows."""
    points = growth_points(found)
    if not points:
        return None
    figure, axes = _new_figure(len(points), 2)
    for column, (what, held) in zip(axes.T, points.items(), strict=True):
        xs, values = zip(*held, strict=True)
        _points(column[0], xs, values)
        column[1].plot(xs, [one["peak_bytes"] / 1e9 for one in values], marker="o")
        column[1].grid(alpha=0.3)
        column[1].set_ylim(bottom=0)
        column[1].set_xlabel(f"{what}, {_UNITS[what]}" if what != _UNITS[what] else what)
        for one in column:
            one.set_xticks(xs)
            one.tick_params(labelsize=7)
    axes[0, 0].set_ylabel("seconds a step")
    axes[1, 0].set_ylabel("memory, GB")
    return figure
