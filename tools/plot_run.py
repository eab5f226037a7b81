"""Draws the curves of a run's folder: python tools/plot_run.py RUN_FOLDER OUTPUT.png"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def lines(path: pathlib.Path) -> list[dict]:
    """The objects of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def main(folder: str, output: str) -> None:
    """Plots both accuracies, on training batches and held-out records, against the step."""
    run = pathlib.Path(folder)
    train, held_out = lines(run / "metrics.jsonl"), lines(run / "eval_metrics.jsonl")
    chance = json.loads((run / "results.json").read_text())["chance"]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    titles = {"masked_lm_accuracy": "masked LM", "sentence_order_accuracy": "sentence order"}
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        axis.plot(
            [x["step"] for x in train], [x[name] for x in train], lw=0.6, label="training batches"
        )
        axis.plot(
            [x["step"] for x in held_out], [x[name] for x in held_out], "o-", ms=3, label="held out"
        )
        axis.axhline(chance[name], color="grey", ls="--", lw=1, label="chance")
        axis.set(title=title, xlabel="step", ylabel="accuracy")
        axis.legend(frameon=False)
    figure.savefig(output, dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
