"""Draws the curve of a pretraining of several runs, and computes what it cost: docs/results/small_en.md.

    python -m lab.small_en.report --runs=WORK/2_layers,WORK/6_layers,WORK/last --processor_log=WORK/processor.log
    python -m lab.small_en.report    # page and picture again, from the committed training.json

A run with the name of a committed one replaces it. `pretrain.sh` writes the processor log: a line every 30 s with the
time, the process, its processor seconds, its output folder and its last step. The time between two lines is taken as
even.
"""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.model.config import AlbertConfig
from lab.flops import example_flops
from lab.pages import with_table
from lab.plots import COLORS, new_figure, save
from lab.small_tasks.report import draw as draw_tasks
from lab.small_tasks.report import results_table
from lab.tools.plot_run import lines

_ROOT = pathlib.Path(__file__).parents[2]
CURVES, TASKS = (
    pathlib.Path(__file__).with_name(f"{name}.json") for name in ("training", "small_tasks")
)
PAGE, PICTURE = (_ROOT / "docs/results" / f"small_en.{end}" for end in ("md", "png"))
MAJORITY = 0.0572  # of the held-out records: `results.json` of every run
_KEPT = ("masked_lm_accuracy", "masked_lm_loss", "sentence_order_accuracy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Which runs are read."""

    runs: str = setting(
        "", "Folders of runs, in order, separated by commas; they follow the committed curves."
    )
    processor_log: str = setting("", "The log of processor time.")


def processor_seconds(log: pathlib.Path, folder: str) -> tuple[list[int], list[float]]:
    """Steps, and the processor seconds that all processes of a run had used when they were reached."""
    steps, seconds, before, last = [0], [0.0], 0.0, ("", 0.0)
    for line in log.read_text().splitlines():
        _, process, used, output, *step = line.split()
        if pathlib.Path(output).name != pathlib.Path(folder).name or not step:
            continue
        if process != last[0]:
            before += last[1]
        last = (process, float(used))
        if int(step[0]) > steps[-1]:
            steps.append(int(step[0]))
            seconds.append(before + last[1])
    return steps, seconds


def curve(folder: str, log: pathlib.Path) -> dict[str, Any]:
    """What is kept of a run: its sizes, its cost, and the curves of training and evaluation by step."""
    run = pathlib.Path(folder)
    saved = files.read_json(str(run / "config.json"))
    records = files.read_json(str(pathlib.Path(saved["task"]["input_file"]) / "metadata.json"))
    steps, seconds = processor_seconds(log, folder)
    sizes = {field.name for field in dataclasses.fields(AlbertConfig)} - {"foreign"}
    result: dict[str, Any] = {
        "name": run.name,
        "model": {name: value for name, value in saved["model"].items() if name in sizes},
        "length": records["max_seq_length"],
        "predictions": records["max_predictions_per_seq"],
        "tokens_per_example": records["counts"]["tokens_in_records"]
        / records["counts"]["examples"],
        "batch": saved["run"]["train_batch_size"],
        "learning_rate": saved["optimizer"]["learning_rate"],
        "is_constant": saved["optimizer"]["poly_power"] == 0,
    }
    for name in ("metrics", "eval_metrics"):
        result[name] = [
            {"step": each["step"], "seconds": round(float(np.interp(each["step"], steps, seconds)))}
            | {key: round(each[key], 4) for key in _KEPT}
            for each in lines(run / f"{name}.jsonl")
        ]
    return result


def totals(run: dict[str, Any]) -> dict[str, float]:
    """Steps, tokens, processor hours and operations per processor second of a run."""
    last = run["metrics"][-1]
    tokens = last["step"] * run["batch"] * run["tokens_per_example"]
    of_row = example_flops(AlbertConfig(**run["model"]), run["length"], run["predictions"])
    return {
        "steps": last["step"],
        "tokens": tokens,
        "hours": last["seconds"] / 3600,
        "gflops": of_row * tokens / run["length"] / last["seconds"] / 1e9,
    }


def doubled(runs: list[dict[str, Any]]) -> float:
    """The held-out accuracy after twice the processor time at a constant learning rate, if it rises as it did last."""
    hours, accuracies = held_out([run for run in runs if run["is_constant"]])
    half = np.interp(hours[-1] / 2, hours, accuracies)
    return float(2 * accuracies[-1] - half)


def held_out(runs: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Processor hours from the beginning of the first run, and the masked-LM accuracies reached there."""
    hours, accuracies, before = [], [], 0.0
    for run in runs:
        hours += [before + each["seconds"] / 3600 for each in run["eval_metrics"]]
        accuracies += [each["masked_lm_accuracy"] for each in run["eval_metrics"]]
        before += run["metrics"][-1]["seconds"] / 3600
    return hours, accuracies


def page_table(runs: list[dict[str, Any]]) -> list[str]:
    """The lines of the table: a row for each run, and the sum."""
    rows, tokens, hours = [], 0.0, 0.0
    for run in runs:
        of, last = totals(run), run["eval_metrics"][-1:]
        tokens, hours = tokens + of["tokens"], hours + of["hours"]
        rows.append(
            (
                f"{run['model']['num_hidden_layers']} layers, {run['batch']} examples of {run['length']}",
                f"{run['learning_rate']:g}{'' if run['is_constant'] else ' to 0'}",
                f"{of['steps']:,}",
                f"{of['tokens'] / 1e6:.1f}",
                f"{of['hours']:.2f}",
                f"{of['gflops']:.0f}",
                f"{last[0]['masked_lm_accuracy']:.1%}" if last else "",
            )
        )
    rows.append(("all", "", "", f"{tokens / 1e6:.1f}", f"{hours:.2f}", "", ""))
    header = "run | learning rate | steps | million tokens | processor hours | GFLOP/s per thread | masked LM, held out"
    return table(header, rows)


def draw(runs: list[dict[str, Any]], majority: float) -> None:
    """Held-out accuracy against processor hours, with a line where the rows or the layers change."""
    figure, ((axes,),) = new_figure(1, width=7, height=3.8)
    before, colors = 0.0, dict[str, str]()
    for run in runs:
        label = f"{run['model']['num_hidden_layers']} layers, rows of {run['length']}"
        is_new, color = label not in colors, colors.setdefault(label, COLORS[len(colors)])
        for name, style, width in (("metrics", "-", 0.6), ("eval_metrics", "o-", 1.5)):
            hours = [before + each["seconds"] / 3600 for each in run[name]]
            accuracies = [100 * each["masked_lm_accuracy"] for each in run[name]]
            axes.plot(
                hours,
                accuracies,
                style,
                ms=3,
                lw=width,
                color=color,
                label=label if is_new and width > 1 else None,
            )
        before += run["metrics"][-1]["seconds"] / 3600
        axes.axvline(before, color="lightgrey", lw=1, zorder=0)
    axes.axhline(100 * majority, color="grey", ls="--", lw=1, label="majority class")
    axes.set(
        title="Masked LM: held out (dots) and training batches",
        xlabel="processor hours",
        ylabel="accuracy, %",
    )
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.08))
    save(figure, str(PICTURE))


def main(settings: ReportSettings) -> None:
    """Adds the runs, if they are given, to the committed curves; writes the picture and the page's tables."""
    of_name = {run["name"]: run for run in json.loads(CURVES.read_text())}
    for folder in filter(None, settings.runs.split(",")):
        run = curve(folder, pathlib.Path(settings.processor_log))
        of_name[run["name"]] = run
    runs = list(of_name.values())
    files.write_bytes(str(CURVES), (json.dumps(runs) + "\n").encode())
    draw(runs, MAJORITY)
    expected = (
        "If the accuracy rises as over the last doubling of the time at a constant learning rate, twice as much time"
        f" reaches {doubled(runs):.1%} before the learning rate falls."
    )
    page = with_table(PAGE.read_text(), "cost", [*page_table(runs), "", expected])
    if TASKS.exists():  # results.json of lab.small_tasks
        results = json.loads(TASKS.read_text())["tasks"]
        page = with_table(page, "tasks", results_table(results))
        save(draw_tasks(results), str(PAGE.with_name("small_en_tasks.png")))
    files.write_bytes(str(PAGE), page.encode())


if __name__ == "__main__":
    flags.run(main, ReportSettings, description=__doc__)
