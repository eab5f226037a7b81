"""Plots both accuracies of a pretraining run, on training batches and on held-out records, by step.

python tools/plot_run.py RUN_FOLDER OUTPUT.png
"""

import argparse
import json
import pathlib

from albert_tf.core.plots import new_figure, save


def lines(path: pathlib.Path) -> list[dict]:
    """The objects of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def main(folder: str, output: str) -> None:
    """Reads a run's folder and writes the plot."""
    run = pathlib.Path(folder)
    training, held_out = lines(run / "metrics.jsonl"), lines(run / "eval_metrics.jsonl")
    chance = json.loads((run / "results.json").read_text())["chance"]
    figure, (panels,) = new_figure(2, width=5, height=3.6)
    titles = {"masked_lm_accuracy": "masked LM", "sentence_order_accuracy": "sentence order"}
    curves = ((training, "-", "training batches", 0.6), (held_out, "o-", "held out", 1.5))
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        for points, style, label, width in curves:
            steps, values = [p["step"] for p in points], [p[name] for p in points]
            axes.plot(steps, values, style, ms=3, lw=width, label=label)
        axes.axhline(chance[name], color="grey", ls="--", lw=1, label="chance")
        axes.set(title=title, xlabel="step", ylabel="accuracy")
        axes.legend()
    save(figure, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder of a pretraining run")
    parser.add_argument("output", help="PNG file to write")
    main(**vars(parser.parse_args()))
