"""Draws the pictures of the documentation from committed results: docs/pictures/*.png.

python -m lab.pictures
"""

import functools
import io
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from PIL import Image

from albert_tf.core import files
from albert_tf.data.pretraining_examples import pack
from lab.benchmarks import engines
from lab.benchmarks import report as speed
from lab.experiments import declarations, report, verdicts
from lab.experiments.recorded import read_result
from lab.plots import COLORS, new_figure
from lab.small_tasks import report as small

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
SPEED = ROOT / "lab" / "benchmarks" / "results" / "2026-11-22" / "results.json"
EXPERIMENTS = ROOT / "lab" / "experiments" / "results"
SMALL_TASKS = ROOT / "docs" / "results" / "small_tasks.json"
GRAY = "#777777"
VERDICTS = {verdicts.AGREES: "#2a7f4f", verdicts.DISAGREES: "#b3261e", verdicts.TOO_SMALL: GRAY}
UNITS = {"roughness": "ratio", "speedup": "times", "speedup_same_shape": "times"}
UNITS |= {"degrees_last": "degrees", "minutes": "minutes", "steps": "steps"}
PIPELINE_BOX = (2.0, 0.95)  # width and height


def pipeline() -> Figure:
    """From raw text to a served model: what there is in boxes, the commands on the arrows."""
    figure, ((axes,),) = new_figure(1, width=9.4, height=3.9)
    axes.axis("off")
    table = "your own table,\nGLUE, SQuAD,\nRACE, CoNLL"
    boxes = {
        "raw text": (0.0, 2.2),
        "sentences": (4.1, 2.2),
        "vocabulary": (4.1, 4.0),
        "records": (8.6, 2.2),
        "pretrained\nmodel": (12.2, 2.2),
        "released\ncheckpoint": (12.2, 4.0),
        table: (8.6, 0.2),
        "fine-tuned\nmodel": (12.2, 0.2),
        "answers": (16.0, 1.1),
        "SavedModel,\nTFLite, ONNX": (16.0, -0.7),
    }
    for text, place in boxes.items():
        given = text in ("raw text", "released\ncheckpoint", table)
        _box(axes, *place, *PIPELINE_BOX, text, "#fbeee6" if given else "#e8eff8")
    arrows = [
        ("raw text", "sentences", "data\nsplit_sentences", (0, 0.08)),
        ("sentences", "vocabulary", "data train_sentencepiece", (-2.05, -0.15)),
        ("sentences", "records", "data create_\npretraining_data", (0, -0.75)),
        ("vocabulary", "records", "", (0, 0)),
        ("records", "pretrained\nmodel", "pretrain", (0, 0.08)),
        ("released\ncheckpoint", "pretrained\nmodel", "convert", (0.75, -0.1)),
        (
            "pretrained\nmodel",
            "fine-tuned\nmodel",
            "classify, squad,\nrace, tag, embed",
            (-1.5, -0.2),
        ),
        (table, "fine-tuned\nmodel", "", (0, 0)),
        ("fine-tuned\nmodel", "answers", "predict,\nsearch", (-0.35, 0.22)),
        ("fine-tuned\nmodel", "SavedModel,\nTFLite, ONNX", "export,\nserve", (-0.35, -0.72)),
    ]
    for start, end, command, shift in arrows:
        _arrow(axes, boxes[start], boxes[end], command, shift)
    axes.set(xlim=(-0.1, 18.2), ylim=(-0.9, 5.1))
    axes.set_title("albert-tf: the arrows are its commands (red: what you bring)", fontsize=10)
    return figure


def sharing() -> Figure:
    """Twelve layers with one set of weights and with twelve, and the parameters of both models."""
    figure, (panels,) = new_figure(2, width=3.9, height=3.5)
    shades = plt.get_cmap("viridis")(np.linspace(0.0, 0.8, 12))
    kinds = {"bert-base": shades, "albert-base": [COLORS[0]] * 12}
    titles = {
        "bert-base": "BERT-base: 12 layers, 12 sets of weights",
        "albert-base": "ALBERT-base: 12 layers, one set",
    }
    for axes, (name, colors) in zip(panels, kinds.items(), strict=True):
        path = EXPERIMENTS / "table_1" / "nano" / f"{name}-seed1.json"
        count = read_result(str(path))["measures"]["parameters"]["paper"]
        for layer, color in enumerate(colors):
            axes.add_patch(Rectangle((0.1, layer), 0.8, 0.8, facecolor=color))
            style = {"ha": "center", "va": "center", "color": "white", "fontsize": 8}
            axes.text(0.5, layer + 0.38, f"layer {layer + 1}", **style)
        axes.set(xlim=(0, 1), ylim=(-0.2, 12.2))
        axes.set_title(f"{titles[name]}\n{count:,} parameters")
        axes.axis("off")
    return figure


def packing() -> Figure:
    """Padded and packed rows: the rows of a batch of examples drawn at random, packed by the library's own function."""
    length, count = 512, 16
    random = np.random.default_rng(2474)
    lengths = np.where(random.random(count) < 0.2, length, random.integers(40, 420, count))
    order, sizes = pack(lengths, length, max_examples=count)
    packed = np.split(order, np.cumsum(sizes)[:-1])
    colors = plt.get_cmap("tab20").colors
    layouts = {"padded: one example per row": [[index] for index in range(count)]}
    layouts["packed: the same examples, no padding"] = [list(row) for row in packed]
    figure, (panels,) = new_figure(2, width=3.9, height=3.1, sharey=True)
    for axes, (title, rows) in zip(panels, layouts.items(), strict=True):
        for number, row in enumerate(rows):
            left = 0
            for index in row:
                axes.barh(number, lengths[index], left=left, color=colors[index], height=0.8)
                left += lengths[index]
            axes.barh(number, length - left, left=left, color="#e6e6e6", height=0.8)
        full = sum(lengths) / (length * len(rows))
        axes.set(
            title=f"{title}\n{len(rows)} rows, {full:.0%} tokens", xlabel="position in the row"
        )
        axes.set(xlim=(0, length), ylim=(count - 0.4, -0.6))
        axes.set_xticks(range(0, length + 1, 128))
        axes.set_yticks([])
    panels[0].set_ylabel("rows of a batch")
    figure.suptitle("A schematic batch of 16 examples; each has a color, padding is gray")
    return figure


def libraries() -> Figure:
    """Examples per second of a training step of albert-base by library."""
    return speed.draw_steps(_speed())


def small_tasks() -> Figure:
    """Every small task of docs/results/small_models.md: pretrained, from random weights, baselines."""
    figure = small.draw(files.read_json(str(SMALL_TASKS))["tasks"])
    figure.suptitle("Small models, fine-tuned: median and range of up to three seeds")
    return figure


def latency() -> Figure:
    """Milliseconds of a call of every engine, for one text of three lengths."""
    results = _speed()
    every = {who: results.values(f"engines.{who}") for who in reversed(engines.ENGINES)}
    values = {who: measured for who, measured in every.items() if measured}
    sizes = [f"{batch}x{length}" for batch, length in engines.SIZES if batch == 1]
    figure, (panels,) = new_figure(len(sizes), width=3.1, height=3.1, sharey=True)
    for axes, size in zip(panels, sizes, strict=True):
        for number, (who, measured) in enumerate(values.items()):
            timing = {
                name: 1000 * measured["cells"][size][name] for name in ("median", "min", "max")
            }
            color = speed.COLORS_OF["transformers" if who == "transformers" else "ours"]
            _bar(axes, number, timing["median"], timing["min"], timing["max"], color)
        axes.set(title=f"one text of {size[2:]} tokens", xlabel="milliseconds")
        axes.grid(axis="x")
    panels[0].set_yticks(
        range(len(values)), [engines.ENGINES[who].title.replace("`", "") for who in values]
    )
    figure.suptitle("A classifier like albert-base on two CPU cores: median, fastest, slowest call")
    return figure


def claims() -> Figure:
    """A forest plot: the difference that each claim is about, with its interval, colored by the verdict."""
    judged = [each for each in judged_claims() if each[2].word != verdicts.NOT_RUN]
    figure, ((axes,),) = new_figure(1, width=9.0, height=0.9 + 0.152 * len(judged))
    axes.axvline(0, color="black", lw=0.8)
    for number, (_, claim, verdict) in enumerate(judged):
        color = VERDICTS[verdict.word]
        fill = "full" if verdict.half is not None else "none"
        style = {"fmt": "o", "ms": 3.5, "lw": 1.4, "color": color, "fillstyle": fill}
        axes.errorbar(verdict.difference, number, xerr=verdict.half, **style)
        for limit in {"near": (-1, 1), "at_most": (1,)}.get(claim.compared[0], ()):
            axes.plot(
                limit * claim.within, number, "|", color="black", ms=7
            ) if claim.within else None
    axes.set_yticks(range(len(judged)), [label for label, *_ in judged], fontsize=6.5)
    axes.set_ylim(len(judged) - 0.3, -0.7)
    axes.set_xscale("symlog", linthresh=1, linscale=1.2)
    ticks = (-10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10, 20)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(-5, 22)
    axes.grid(axis="x")
    axes.set_xlabel("difference, 95 % interval\n(percentage points, or the unit named)", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    for number, (word, color) in enumerate(VERDICTS.items()):
        count = sum(verdict.word == word for *_, verdict in judged)
        figure.text(0.01 + 0.11 * number, 0.012, f"{count} {word}", color=color, fontsize=9)
    figure.suptitle(
        "Claims, judged at a small scale (hollow: one seed; black tick: allowed margin)"
    )
    return figure


def judged_claims() -> list[tuple[str, declarations.Claim, verdicts.Verdict]]:
    """All claims of all scales that have results, with a label and the verdict of `lab.experiments`."""
    judged = []
    experiments = list(
        map(declarations.read_experiment, declarations.names_of(declarations.DEFINITIONS))
    )
    for scale in map(declarations.read_scale, declarations.names_of(declarations.SCALES)):
        for experiment in experiments:
            rows = report.read_results(experiment, scale, str(EXPERIMENTS))
            measured = report.Measured(experiment, rows)
            for claim in experiment.claims if rows else ():
                name = report.compared_by(measured, claim)
                unit = f" [{unit}]" if (unit := UNITS.get(name, "")) else ""
                where = experiment.label + (f" ({scale.name})" if scale.name != "nano" else "")
                label = f"{where}: {claim.text}{unit}"
                judged.append((label, claim, report.judge(measured, claim)))
    return judged


def width_or_sharing() -> Figure:
    """Masked-LM accuracy of a wide shared layer and of narrow layers: equal steps, and equal time."""
    shown = {
        "all shared, H=768": ("one wide layer, repeated", COLORS[0]),
        "not shared, H=224": ("different narrow layers", COLORS[2]),
    }
    figure, (panels,) = new_figure(2, width=4.2, height=3.5)
    for axes, unit in zip(panels, ("steps", "time"), strict=True):
        experiment = declarations.read_experiment(f"width_or_sharing_{unit}")
        results = report.read_results(experiment, declarations.read_scale("nano"), str(EXPERIMENTS))
        verdict = report.judge(report.Measured(experiment, results), experiment.claims[0])
        for row, (label, color) in shown.items():
            runs = [result["measures"]["pretraining"] for result in results[row]]
            x, low, mean, high = curves(runs, unit)
            axes.plot(x, mean, color=color, label=label)
            axes.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
        axes.set(ylim={"steps": (6, 12), "time": (11, 15)}[unit], ylabel="masked-LM accuracy, %")
        axes.set_xlabel({"steps": "training step", "time": "minutes on one core"}[unit])
        axes.set_title(f"equal {unit}: shared minus narrow\n{verdict.reason}: {verdict.word}")
        axes.grid()
        axes.legend(loc="lower right")
    figure.suptitle("739,456 (shared) and 720,448 parameters: mean, lowest and highest seed")
    return figure


def curves(runs: Sequence[Mapping[str, Any]], unit: str) -> tuple[np.ndarray, ...]:
    """Places on a common axis and lowest, mean and highest accuracy of runs there, in percent.

    Args:
      runs: pretraining runs as experiments record them.
      unit: "steps" or "time"; a step of a run takes the same part of its time.
    """
    lines = []
    for run in runs:
        scale = 1.0 if unit == "steps" else run["minutes"] / run["steps"]
        points = [
            (scale * each["step"], 100 * each["masked_lm_accuracy"]) for each in run["evaluation"]
        ]
        lines.append(np.array(points).T)
    x = np.linspace(max(line[0][0] for line in lines), min(line[0][-1] for line in lines), 60)
    values = np.array([np.interp(x, *line) for line in lines])
    return x, values.min(0), values.mean(0), values.max(0)


PICTURES: dict[str, Callable[[], Figure]] = {
    "pipeline": pipeline,
    "sharing": sharing,
    "packing": packing,
    "libraries": libraries,
    "latency": latency,
    "small_tasks": small_tasks,
    "claims": claims,
    "width_or_sharing": width_or_sharing,
}


def write(figure: Figure, path: pathlib.Path, dpi: int = 110) -> None:
    """Writes a figure as a PNG with a palette of 256 colors, which is about half as large as one without."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi)
    plt.close(figure)
    image = Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=0)
    image.save(path, optimize=True)


def main(folder: pathlib.Path = FOLDER, dpi: int = 110) -> None:
    """Draws all pictures."""
    os.makedirs(folder, exist_ok=True)
    for name, draw in PICTURES.items():
        write(draw(), folder / f"{name}.png", dpi)


@functools.cache
def _speed() -> speed.RunResults:
    return speed.RunResults(files.read_json(str(SPEED)))


def _bar(axes: Axes, y: float, value: float, low: float, high: float, color: str) -> None:
    """A horizontal bar with the range of its repetitions and its number."""
    axes.barh(
        y, value, xerr=[[value - low], [high - value]], color=color, capsize=2, ecolor="black"
    )
    axes.text(high, y, f" {speed.number(value)}", va="center", fontsize=7.5)


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, text: str, color: str
) -> None:
    style = "round,pad=0.05,rounding_size=0.15"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=color, edgecolor=GRAY)
    )
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)


def _arrow(axes: Axes, start: tuple, end: tuple, command: str, shift: tuple) -> None:
    """An arrow between the nearest sides of two boxes, with a command at its middle."""
    width, height = PIPELINE_BOX
    if abs(start[0] - end[0]) < width:  # one above the other
        down = start[1] > end[1]
        first = start[0] + width / 2, start[1] if down else start[1] + height
        second = end[0] + width / 2, end[1] + height if down else end[1]
    else:
        first = start[0] + width, start[1] + height / 2
        second = end[0], end[1] + height / 2
    patch = FancyArrowPatch(
        first, second, arrowstyle="-|>", mutation_scale=13, color=GRAY, shrinkA=2, shrinkB=3
    )
    axes.add_patch(patch)
    x, y = (first[0] + second[0]) / 2 + shift[0], (first[1] + second[1]) / 2 + shift[1]
    axes.text(
        x, y, command, ha="center", va="bottom", fontsize=7.5, family="monospace", color=COLORS[0]
    )


if __name__ == "__main__":
    main()
