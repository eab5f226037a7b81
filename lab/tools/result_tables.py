"""Writes the tables of the pages again whose numbers are in committed JSON files.

python -m lab.tools.result_tables

`docs/results/not_kept.json` has the numbers of runs whose samples were not kept, with what is known of each run.
"""

import collections
import itertools
import json
import pathlib
import statistics

from albert_tf.core.tables import table
from lab.benchmarks.report import NAMES, RunResults, inference_engines
from lab.experiments import declarations, report
from lab.experiments.report import Measured
from lab.pages import with_table
from lab.small_tasks.report import results_table
from lab.tools import scaling_table

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
BENCHMARKS = ROOT / "lab" / "benchmarks" / "results"
RATES = ("3e-05", "0.0001", "0.0003", "0.001")
STEPS = ("8x512.float32", "8x512.bfloat16", "16x128.float32", "16x128.bfloat16")


def tables() -> dict[tuple[str, str], list[str]]:
    """Lines by page, relative to docs/, and name of the table."""
    speed = RunResults(json.loads((BENCHMARKS / "2026-11-22" / "results.json").read_text()))
    small = json.loads((RESULTS / "small_models.json").read_text())
    tasks = json.loads((RESULTS / "small_tasks.json").read_text())["tasks"]
    costs = scaling_table.ScalingSettings()
    widths = {name: _measured(f"width_or_sharing_{name}") for name in ("steps", "time")}
    return _not_kept() | {
        ("costs.md", "preparation"): scaling_table.preparation_table(costs),
        ("costs.md", "operations"): scaling_table.flops_table(costs),
        ("costs.md", "reports"): scaling_table.reports_table(),
        ("costs.md", "training"): scaling_table.training_table(costs),
        ("results/serving.md", "engines"): inference_engines(speed),
        ("results/small_models.md", "tasks"): results_table(tasks),
        ("results/small_models.md", "rates"): _learning_rates(small),
        ("results/small_models.md", "domain"): _second_domain(small),
        ("results/speed.md", "step"): _training_step(speed),
        ("results/speed.md", "preparation"): _preparation(),
        ("results/speed.md", "epochs"): _epochs(),
        ("results/width_or_sharing.md", "rows"): _sizes(widths["steps"]),
        ("results/width_or_sharing.md", "result"): _width_or_sharing(widths),
    }


def _not_kept() -> dict[tuple[str, str], list[str]]:
    pages = json.loads((RESULTS / "not_kept.json").read_text())["pages"]
    return {
        (page, name): table(" | ".join(content["columns"]), content["rows"])
        for page, contents in pages.items()
        for name, content in contents.items()
    }


def _preparation() -> list[str]:
    """Examples per second of `create_pretraining_data`, ours and the original's."""
    measured = json.loads((BENCHMARKS / "2026-11-21" / "results.json").read_text())["measurements"]

    def rate(name: str) -> str:
        values = measured[f"preparation.{name}"]["values"]
        number = values["num_workers"]
        unit = "process" if number == 1 else "processes"
        rounded = float(f"{values['examples_a_second']:.3g}")
        return f"{rounded:,.0f} ({number} {unit})"

    original = f"{rate('original.dupe_1')}, a text of 60 MB"
    rows = [
        ["5 MB, 10 passes", rate("dupe_10"), rate("original.dupe_10")],
        ["25 MB, one pass", f"{rate('dupe_1')}, {rate('workers.1')}", original],
        ["60 MB, one pass", rate("corpus.60MB"), rate("original.dupe_1")],
    ]
    return table("examples of length 512 per second | ours | the original", rows)


def _epochs() -> list[str]:
    """The rows of albert-base in the table of 2026-11-21, whose program is not there any more."""
    page = (BENCHMARKS / "2026-11-21" / "table.md").read_text()
    lines = page.partition("| base, seconds an epoch |")[2].splitlines()[2:]
    rows = (line.strip("| ").split(" | ") for line in itertools.takewhile(str.strip, lines))
    header = "seconds per epoch, albert-base | examples | ours | ours, `--length_buckets=1`"
    return table(f"{header} | transformers, dynamic padding", rows)


def _measured(experiment: str) -> Measured:
    read = declarations.read_experiment(experiment)
    results = ROOT / "lab" / "experiments" / "results"
    return Measured(read, report.read_results(read, declarations.read_scale("nano"), str(results)))


def _sizes(measured: Measured) -> list[str]:
    """Parameters of the rows, of the paper's size and here."""
    rows = []
    for name, results in measured.rows.items():
        parameters = results[0]["measures"]["parameters"]
        width = results[0]["declared"]["model"]["hidden_size"]
        rows.append([name, f"{parameters['paper']:,}", width, f"{parameters['here']:,}"])
    return table("row | parameters at the paper's size | D here | parameters here", rows)


def _width_or_sharing(measured: dict[str, Measured]) -> list[str]:
    """Masked-LM accuracy after equal steps and after equal time."""
    rows = []
    for name in measured["time"].rows:
        row = [name]
        for one in measured.values():
            values = list(one.means(name, "masked_lm").values())
            row.append(f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}")
        steps = [one["measures"]["pretraining"]["steps"] for one in measured["time"].rows[name]]
        rows.append([*row, f"{min(steps):,} to {max(steps):,}"])
    header = "row | equal steps (1,000), three seeds | equal time (four minutes), four seeds"
    return table(f"{header} | steps in that time", rows)


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
        path = DOCS / page
        path.write_text(with_table(path.read_text(), name, lines))
