r"""Score and time by depth and patience of fine-tuned classifiers; writes the tables and the picture of docs/depth.md.

python -m lab.experiments.depths --runs='SST-2=runs/sst2_1,SST-2=runs/sst2_2,QNLI=runs/qnli_1'
python -m lab.experiments.depths    # again, from the committed depths.json
"""

import dataclasses
import datetime
import json
import pathlib
import statistics
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from lab.experiments import early_exit
from lab.machine import commit, processor_name
from lab.pages import with_table
from lab.plots import COLORS, new_figure, save

_ROOT = pathlib.Path(__file__).parents[2]
RESULTS = pathlib.Path(__file__).with_name("depths.json")
PAGE, PICTURE = _ROOT / "docs/depth.md", _ROOT / "docs/results/depths.png"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DepthSettings(Settings):
    """Finished runs."""

    runs: str = setting(
        "", "TASK=FOLDER of finished runs, separated by commas; empty: page and picture only."
    )


def means(runs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The means over runs of scores, numbers of layers and times, for each depth and patience."""
    names = ("score", "mean_layers", "milliseconds")
    return [
        {**points[0], **{name: statistics.fmean(p[name] for p in points) for name in names}}
        for points in zip(*runs, strict=True)
    ]


def page_table(results: dict[str, Any]) -> list[str]:
    """A row for each task and each fixed depth or patience, with the engines in columns."""
    rows = []
    for name, runs in results["tasks"].items():
        points = means(runs)
        for point in points:
            if point["engine"] != "TensorFlow":
                continue
            patience, depth = point["patience"], point["num_hidden_layers"]
            of_engine = {
                each["engine"]: each
                for each in points
                if (each["num_hidden_layers"], each["patience"]) == (depth, patience)
            }
            times = [
                f"{of_engine[engine]['milliseconds']:.1f}" if engine in of_engine else ""
                for engine in early_exit.ENGINES
            ]
            use = f"patience {patience}" if patience else f"layers: {depth}"
            layers, score = f"{point['mean_layers']:.2f}", f"{point['score']:.1f}"
            rows.append([name, use, layers, score, *times, len(runs)])
    engines = " | ".join(f"ms, {engine}" for engine in early_exit.ENGINES)
    return table(f"task | use | layers, mean | score | {engines} | seeds", rows)


def draw(results: dict[str, Any]) -> None:
    """Score against layers, a line for each task, and against milliseconds, a marker for each engine."""
    figure, (panels,) = new_figure(2, width=4.2, height=3.4)
    markers = dict(zip(early_exit.ENGINES, ("o-", "s--", "^:"), strict=True))
    for color, (name, runs) in zip(COLORS, results["tasks"].items(), strict=False):
        points = means(runs)
        for engine, style in markers.items():
            fixed = [p for p in points if p["engine"] == engine and not p["patience"]]
            _line(panels[1], fixed, "milliseconds", style, f"{name}, {engine}", color)
        fixed = [p for p in points if p["engine"] == "TensorFlow" and not p["patience"]]
        early = [p for p in points if p["patience"]]
        _line(panels[0], fixed, "mean_layers", "o-", name, color)
        for axes, x in zip(panels, ("mean_layers", "milliseconds"), strict=True):
            _line(axes, early, x, "D", f"{name}, leaving early", color)
    panels[0].set(title="score by layers", xlabel="layers, mean", ylabel="score, percent")
    panels[1].set(title="score by time", xlabel="milliseconds for a text")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save(figure, str(PICTURE))


def _line(axes, points: list, x: str, style: str, label: str, color: str) -> None:
    axes.plot(
        [p[x] for p in points], [p["score"] for p in points], style, ms=5, color=color, label=label
    )


def main(settings: DepthSettings) -> None:
    """Measures the runs, if there are any; writes the page's table and the picture."""
    if settings.runs:
        tasks: dict[str, list] = {}
        for item in settings.runs.split(","):
            name, _, folder = item.partition("=")
            tasks.setdefault(name, []).append(early_exit.points(folder, tuple(early_exit.ENGINES)))
        about = {"date": f"{datetime.date.today()}", "commit": commit(str(_ROOT), short=True)}
        content = {**about, "processor": processor_name(), "tasks": tasks}
        files.write_bytes(str(RESULTS), (json.dumps(content, indent=1) + "\n").encode())
    results = json.loads(RESULTS.read_text())
    draw(results)
    page = with_table(PAGE.read_text(), "depths", page_table(results))
    files.write_bytes(str(PAGE), page.encode())


if __name__ == "__main__":
    flags.run(main, DepthSettings, description=__doc__)
