"""Plots pretraining runs by step, finished or not: accuracies or losses on training batches and on held-out records.

python lab/tools/plot_run.py RUN_FOLDER... OUTPUT.png [--losses]
"""

import argparse
import json
import pathlib
import sys

from lab.plots import COLORS, new_figure, save

TITLES = {"masked_lm": "masked LM", "sentence_order": "sentence order"}


def lines(path: pathlib.Path) -> list[dict]:
    """The objects of a JSON-lines file; empty if the file does not exist yet."""
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def main(folders: list[str], output: str, losses: bool) -> None:
    """Reads the folders of runs and writes the plot."""
    kind = "loss" if losses else "accuracy"
    figure, (panels,) = new_figure(2, width=5, height=3.6)
    for folder, color in zip(folders, COLORS, strict=False):
        run = pathlib.Path(folder)
        if not (run / "metrics.jsonl").exists():
            sys.exit(f"{folder}: expected the folder of a pretraining run, with a metrics.jsonl")
        prefix = f"{run.name}, " if len(folders) > 1 else ""
        # A single run has a different color for each of its curves.
        colors = [color] * 2 if prefix else COLORS
        training, held_out = lines(run / "metrics.jsonl"), lines(run / "eval_metrics.jsonl")
        curves = ((training, "-", "training batches", 0.6), (held_out, "o-", "held out", 1.5))
        for axes, name in zip(panels, TITLES, strict=True):
            for (points, style, label, width), curve_color in zip(curves, colors, strict=False):
                steps, values = [p["step"] for p in points], [p[f"{name}_{kind}"] for p in points]
                options = {"ms": 3, "lw": width, "color": curve_color}
                axes.plot(steps, values, style, label=prefix + label, **options)
    for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
        if not losses and (run / "results.json").exists():  # it is written at the end of the run
            chance = json.loads((run / "results.json").read_text())["majority"]
            axes.axhline(
                chance[f"{name}_{kind}"], color="grey", ls="--", lw=1, label="majority class"
            )
        axes.set(title=title, xlabel="step", ylabel=kind)
        axes.legend()
    save(figure, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", help="folders of pretraining runs")
    parser.add_argument("output", help="PNG file to write")
    parser.add_argument("--losses", action="store_true", help="plot losses, not accuracies")
    main(**vars(parser.parse_args()))
