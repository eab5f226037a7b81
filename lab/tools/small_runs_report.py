"""Collects the runs of lab/tools/small_runs.py: writes a JSON file, the tables of docs/results/small_models.md, and
pictures.

python lab/tools/small_runs_report.py WORK     # reads the runs, and writes docs/results/small_models.json
python lab/tools/small_runs_report.py          # tables and pictures from that file
"""

import argparse
import json
import pathlib
import statistics
from collections.abc import Iterable

from albert_tf.core.plots import COLORS, new_figure, save
from albert_tf.core.tables import table

RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "results"
RECORD = RESULTS / "small_models.json"
MLM, SOP = "masked_lm_loss", "sentence_order_accuracy"
KINDS = {"pretrained": "-", "random": "--"}
# Curves of fine-tuning in the picture: those of all rates for this width, task and start.
CURVES_OF_RATES = "rates/128/packages/pretrained"
HEALTHY = "baseline/authors/3/1"


def log(path: pathlib.Path) -> list[dict]:
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def collect(work: pathlib.Path) -> dict[str, dict]:
    """Results of all finished runs by name; includes the curves that are drawn."""
    runs = {}
    for path in sorted(work.rglob("results.json")):
        name = str(path.parent.relative_to(work))
        group = name.partition("/")[0]
        if (
            group not in ("rates", "baseline", "stuck", "domain", "pretrained")
            and name != "demo/run"
        ):
            continue
        results = json.loads(path.read_text())
        run = {"eval": rounded(results["eval"])}
        run |= {key: results[key] for key in ("collapsed", "seconds") if key in results}
        if "majority" in results:
            run["chance"] = rounded(results["majority"])
        if (path.parent / "metrics.jsonl").exists():
            lines = log(path.parent / "metrics.jsonl")
            key = MLM if MLM in lines[0] else "loss"
            run["losses"] = [round(lines[0][key], 3), round(lines[-1][key], 3)]
            if group in ("stuck", "demo", "pretrained") or name.startswith(
                (CURVES_OF_RATES, HEALTHY)
            ):
                run["curve"] = [[line["step"], round(line[key], 3)] for line in lines]
        runs[name] = run
    return runs


def rounded(values: dict[str, float]) -> dict[str, float]:
    """The numbers, rounded to four digits."""
    return {name: round(value, 4) for name, value in values.items()}


# --- Tables ---


def accuracies(runs: dict, prefix: str) -> list[float]:
    """Accuracies of the seeds below a name."""
    return [run["eval"]["accuracy"] for name, run in runs.items() if name.startswith(f"{prefix}/")]


def cell(values: list[float]) -> str:
    """The mean of a few seeds, and the range if there are several."""
    if not values:
        return ""
    text = f"{statistics.fmean(values):.3f}"
    return text if len(values) == 1 else f"{text} ({min(values):.3f} to {max(values):.3f})"


def parts(runs: dict, group: str, index: int) -> list[str]:
    """The distinct values of one part of the names in a group, in order; numbers are sorted by value."""
    found = {name.split("/")[index] for name in runs if name.startswith(f"{group}/")}
    return sorted(found, key=lambda text: (float(text), "") if text[0].isdigit() else (0, text))


def rates_table(runs: dict) -> list[str]:
    """Accuracy by task, start, width and rate."""
    rates = parts(runs, "rates", 4)
    rows = []
    for task in parts(runs, "rates", 2):
        for kind in KINDS:
            for width in parts(runs, "rates", 1):
                prefix = f"rates/{width}/{task}/{kind}"
                cells = [cell(accuracies(runs, f"{prefix}/{rate}")) for rate in rates]
                if any(cells):
                    rows.append([task, kind, width, *cells])
    return table(" | ".join(["task", "start", "D", *rates]), rows)


def baseline_table(runs: dict) -> list[str]:
    """The demo's model compared with a logistic regression."""
    rows = []
    for task in parts(runs, "baseline", 1):
        chance = max(
            run.get("chance", {}).get("accuracy", 0)
            for name, run in runs.items()
            if f"/{task}/" in name
        )
        names = ("3", "10", "logistic regression")
        values = [
            [runs[key]["eval"]["accuracy"]]
            if (key := f"baseline/{task}/{name}") in runs
            else accuracies(runs, key)
            for name in names
        ]
        rows.append([task, f"{chance:.3f}", *map(cell, values)])
    header = "task | chance | ALBERT, 3 epochs | ALBERT, 10 epochs | TF-IDF, logistic regression"
    return table(header, rows)


def stuck_table(runs: dict) -> list[str]:
    """Losses and accuracies of stuck runs and of healthy ones."""
    names = ["demo/run", "pretrained/256", *(name for name in runs if name.startswith("stuck/"))]
    rows = []
    for name in [*names, HEALTHY] if HEALTHY in runs else names:
        first, last = runs[name]["losses"]
        values = runs[name]["eval"]
        accuracy = values.get("masked_lm_accuracy", values.get("accuracy"))
        rows.append([name, f"{first:.3f}", f"{last:.3f}", f"{accuracy:.3f}"])
    return table("run | first logged loss | last | accuracy, held out", rows)


def domain_names(runs: dict) -> list[str]:
    """Names of the runs on the second text; the start comes first."""
    names = [name.removeprefix("domain/") for name in runs if name.startswith("domain/")]
    return sorted((name for name in names if not name.startswith("old/")), key="before".__ne__)


def domain_table(runs: dict) -> list[str]:
    """Both held-out texts before and after continued pretraining."""
    rows = []
    for name in domain_names(runs):
        cells = []
        for prefix in ("domain/", "domain/old/"):
            values = runs.get(prefix + name, {}).get("eval", {})
            keys = (MLM, "masked_lm_accuracy", SOP)
            cells += [f"{values[key]:.3f}" if key in values else "" for key in keys]
        rows.append([name, *cells])
    columns = [
        f"{text}: {what}" for text in ("novels", "old") for what in ("MLM loss", "MLM", "SOP")
    ]
    return table(" | ".join(["run", *columns]), rows)


# --- Pictures ---


def draw_rates(runs: dict) -> None:
    """Draws accuracy over the rate, with a panel for each task and a colour for each width."""
    tasks, widths = parts(runs, "rates", 2), parts(runs, "rates", 1)
    figure, (panels,) = new_figure(len(tasks), width=4.4, height=2.9)
    for axes, task in zip(panels, tasks, strict=True):
        for color, width in zip(COLORS, widths, strict=False):
            for kind, style in KINDS.items():
                prefix = f"rates/{width}/{task}/{kind}"
                points = [
                    (float(rate), statistics.fmean(values))
                    for rate in parts(runs, "rates", 4)
                    if (values := accuracies(runs, f"{prefix}/{rate}"))
                ]
                if points:
                    axes.plot(*zip(*points, strict=True), f"o{style}", color=color, ms=3)
                    label = f"D = {width}, {'random weights' if kind == 'random' else kind}"
                    axes.lines[-1].set_label(label)
        axes.set(title=task, xlabel="peak learning rate", ylabel="accuracy", xscale="log")
        axes.grid(True)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    save(figure, RESULTS / "rates_by_width.png")


def draw_curves(
    curves: Iterable[Iterable[tuple[str, dict]]], titles: Iterable[str], path: str
) -> None:
    """Draws training losses over steps, with a panel for each group of runs."""
    curves = [list(group) for group in curves]
    figure, (panels,) = new_figure(len(curves), width=4.4, height=3.2)
    for axes, group, title in zip(panels, curves, titles, strict=True):
        for color, (label, run) in zip(COLORS, group, strict=False):
            axes.plot(*zip(*run["curve"], strict=True), color=color, lw=1.3, label=label)
        highest = 1.1 * max(
            [run["curve"][0][1] for _, run in group], default=1
        )  # for those that diverge
        axes.set(title=title, xlabel="step", ylabel="training loss")
        axes.set_ylim(top=min(axes.get_ylim()[1], highest))
        axes.grid(True)
        axes.legend()
    save(figure, RESULTS / path)


def draw_stuck(runs: dict) -> None:
    """Draws healthy and stuck runs of pretraining and of fine-tuning."""
    pretraining = {
        "demo/run": "healthy: rate 0.01, 2,400 steps",
        "stuck/rate 0.1": "rate 0.1, 400 steps",
        "stuck/rate 0.0001": "rate 0.0001, 400 steps",
        "pretrained/256": "too few steps: D = 256, 600 steps",
    }
    rates = {f"{CURVES_OF_RATES}/{rate}/1": f"rate {rate}" for rate in parts(runs, "rates", 4)}
    texts = {
        HEALTHY: "healthy: 64 tokens, 225 steps",
        "stuck/8 tokens": "8 tokens",
    }
    titles = ("fine-tuning on packages, D = 128", "fine-tuning on authors, rate 0.0003")
    curves = [
        [(label, runs[name]) for name, label in names.items() if name in runs]
        for names in (pretraining, rates, texts)
    ]
    draw_curves(curves[:1], ["pretraining, masked-LM loss"], "stuck_pretraining.png")
    draw_curves(curves[1:], titles, "stuck_fine_tuning.png")


def draw_domain(runs: dict) -> None:
    """Draws the masked-LM loss on both held-out texts, with a point for each run."""
    figure, ((axes,),) = new_figure(1, width=5.6, height=3.8)
    for name in domain_names(runs):
        if f"domain/old/{name}" not in runs:
            continue
        point = [runs[f"{prefix}{name}"]["eval"][MLM] for prefix in ("domain/", "domain/old/")]
        axes.plot(*point, "o", color=COLORS["old text" in name], ms=5)
        axes.annotate(name, point, xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.set(
        xlabel="masked-LM loss on novels (the second text)",
        ylabel="masked-LM loss on the first text",
    )
    axes.margins(x=0.25)
    axes.grid(True)
    save(figure, RESULTS / "second_domain.png")


def main(folder: str | None) -> None:
    """Prints the tables and writes JSON and pictures."""
    if folder:
        runs = collect(pathlib.Path(folder))
        RECORD.write_text(
            "{\n"
            + ",\n".join(f"{json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items())
            + "\n}\n"
        )
    runs = json.loads(RECORD.read_text())
    for make in (rates_table, baseline_table, stuck_table, domain_table):
        print("\n".join(make(runs)), end="\n\n")
    for draw in (draw_rates, draw_stuck, draw_domain):
        draw(runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", help="folder of the runs")
    main(**vars(parser.parse_args()))
