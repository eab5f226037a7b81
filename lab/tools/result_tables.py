"""Writes the tables of docs/results again whose numbers are in committed JSON files.

python -m lab.tools.result_tables
"""

import collections
import itertools
import json
import pathlib
import statistics

from albert_tf.core.tables import table
from lab.benchmarks.report import NAMES, RunResults, inference_engines
from lab.pages import with_table
from lab.small_tasks.report import results_table

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
BENCHMARKS = ROOT / "lab" / "benchmarks" / "results" / "2026-11-22" / "results.json"
RATES = ("3e-05", "0.0001", "0.0003", "0.001")
STEPS = ("8x512.float32", "8x512.bfloat16", "16x128.float32", "16x128.bfloat16")


def tables() -> dict[tuple[str, str], list[str]]:
    """Lines by page and name of the table."""
    speed = RunResults(json.loads(BENCHMARKS.read_text()))
    small = json.loads((RESULTS / "small_models.json").read_text())
    tasks = json.loads((RESULTS / "small_tasks.json").read_text())["tasks"]
    return {
        ("serving.md", "engines"): inference_engines(speed),
        ("small_models.md", "tasks"): results_table(tasks),
        ("small_models.md", "rates"): _learning_rates(small),
        ("small_models.md", "domain"): _second_domain(small),
        ("speed.md", "step"): _training_step(speed),
    }


def _training_step(speed: RunResults) -> list[str]:
    rows = []
    for who in ("ours_packed", "ours", "keras_hub", "model_garden", "transformers"):
        rows.append([NAMES[who]])
        for name in (f"training_step.{step}." for step in STEPS):
            packed, theirs = speed.values(name + "ours_packed"), speed.values(name + who)
            rates = [one["examples_a_second"] for one in (packed, theirs) if one]
            cell = f"{rates[-1]:.3g} ({rates[0] / rates[-1]:.2f})" if theirs else ""
            rows[-1].append(cell + "\\*" * speed.was_disturbed(name + who))
    return table(f"examples per second | {' | '.join(STEPS).replace('.', ', ')}", rows)


def _learning_rates(small: dict) -> list[str]:
    runs = collections.defaultdict(list)
    for name in (name for name in small if name.startswith("rates/")):
        runs[name.rpartition("/")[0]].append(small[name]["eval"]["accuracy"])
    rows = []
    for row in itertools.product(
        ("packages", "sst2"), ("pretrained", "random"), (64, 128, 256, 384)
    ):
        names = [f"rates/{row[2]}/{row[0]}/{row[1]}/{rate}" for rate in RATES]
        cells = [f"{statistics.mean(runs[name]):.3f}" if name in runs else "" for name in names]
        rows += [[*row, *cells]] if any(cells) else []
    return table(f"task | start | D | {' | '.join(RATES)}", rows)


def _second_domain(small: dict) -> list[str]:
    rows = []
    for name in (name for name in small if f"domain/old/{name[7:]}" in small):
        both = [small[name]["eval"], small[f"domain/old/{name[7:]}"]["eval"]]
        cells = [one[key] for one in both for key in ("masked_lm_loss", "sentence_order_accuracy")]
        rows.append([name[7:].replace("rate", "learning rate"), *(f"{cell:.3f}" for cell in cells)])
    return table("run | novels: masked-LM loss | order | old text: masked-LM loss | order", rows)


if __name__ == "__main__":
    for (page, name), lines in tables().items():
        path = RESULTS / page
        path.write_text(with_table(path.read_text(), name, lines))
