"""Times a classifier of the size albert-base in every engine and precision, one call of each in turn.

    python -m lab.benchmarks.side_by_side --threads=1 --output_file=lab/benchmarks/results/DATE/side_by_side.json
    python -m lab.benchmarks.side_by_side --draw --output_file=...        # table and plot again, from the file

All engines are in one process on the same cores, and a round calls each of them once. So what else the machine does
affects all of them, and the ratios of a round to its float32 call in ONNX Runtime are comparable; the table has their
medians. The file keeps the samples of other numbers of threads. The inputs
are those of `make bench BENCH_FLAGS=--only=engines`.
"""

import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.figure import Figure

from albert_tf.core import files, flags
from albert_tf.core.settings import setting
from albert_tf.core.tables import table
from lab.benchmarks import engines, run
from lab.benchmarks.measure import BenchSettings
from lab.benchmarks.report import number
from lab.plots import new_figure, save

REFERENCE = "onnx_runtime"
_NOT_HERE = ("saved_model_strings", "predictor", "transformers")
_SIZES = [f"{batch}x{length}" for batch, length in engines.SIZES]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideBySideSettings(BenchSettings):
    """Threads, rounds and the file of results."""

    threads: int = setting(1, "Number of cores, and of threads of each engine.", minimum=1)
    rounds: int = setting(9, "Calls of each engine at each size.", minimum=3)
    draw: bool = setting(False, "Whether only to write the table and the plot of the file.")
    output_file: str = setting("", "JSON file; table and plot are beside it.", required=True)


def main(settings: SideBySideSettings) -> None:
    """Adds the samples of one number of threads to the file, and writes table and plot."""
    path = pathlib.Path(settings.output_file)
    content = files.read_json(str(path)) if path.exists() else {"threads": {}}
    if not settings.draw:
        cores = sorted(os.sched_getaffinity(0))[: settings.threads]
        os.sched_setaffinity(0, cores)  # before the engines count the cores
        content |= {"date": str(datetime.date.today()), "machine": run.machine()}
        by_size = content["threads"][str(settings.threads)] = {}
        for size, samples in measured(settings):
            by_size[size] = samples
            files.write_bytes(str(path), f"{json.dumps(content)}\n".encode())
    path.with_suffix(".md").write_text("\n".join(page(content)) + "\n")
    save(drawn(content), path.with_suffix(".png"))


def measured(settings: SideBySideSettings) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Each size, and the seconds of each round by engine."""
    makers = {
        name: engine.maker(settings)
        for name, engine in engines.ENGINES.items()
        if name not in _NOT_HERE
    }
    for size, (batch, length) in zip(_SIZES, engines.SIZES, strict=True):
        calls = {
            name: make_call(batch, length)
            for name, make_call in makers.items()
            if batch == 1 or engines.ENGINES[name].batches
        }
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for round_number in range(-1, settings.rounds):  # one round to warm up
            for name, call in calls.items():
                started = time.perf_counter()
                call()
                if round_number >= 0:
                    samples[name].append(time.perf_counter() - started)
        yield size, samples


def page(content: Mapping[str, Any]) -> list[str]:
    """A table for each number of threads."""
    machine = content["machine"]
    lines = [
        "# Engines and precisions side by side",
        "",
        f"{machine['processor']} ({', '.join(machine['instructions'])}), {content['date']}. Time relative to ONNX"
        " Runtime in float32, batch x length: the median over rounds in which every engine is called once, and in"
        " brackets the fastest call in milliseconds. Load average at the start"
        f" {machine['load_average'][0]:.1f}: with other jobs on the cores, only the ratios mean something.",
    ]
    for threads, by_size in sorted(content["threads"].items()):
        rows = [
            (engine.title, *(_cell(by_size.get(size, {}), name) for size in _SIZES))
            for name, engine in engines.ENGINES.items()
            if name in by_size[_SIZES[0]]
        ]
        header = " | ".join([f"threads: {threads}", *(size.replace("x", " x ") for size in _SIZES)])
        lines += ["", *table(header, rows)]
    return lines


def ratio(samples: dict[str, list[float]], name: str) -> float:
    """The median ratio to the reference of the same round."""
    pairs = zip(samples[name], samples[REFERENCE], strict=True)
    return statistics.median(one / other for one, other in pairs)


def _cell(samples: dict[str, list[float]], name: str) -> str:
    if name not in samples:
        return ""
    return f"{ratio(samples, name):.2f} ({number(1000 * min(samples[name]))})"


def drawn(content: Mapping[str, Any]) -> Figure:
    """Points of SST-2 score against milliseconds at 1 x 128, one thread; see `scores` in the file."""
    figure, ((axes,),) = new_figure(1)
    samples = next(iter(content["threads"].values()))["1x128"]
    for name, row in samples.items():
        score = content.get("scores", {}).get(engines.ENGINES[name].precision)
        if score is not None:
            axes.scatter(1000 * min(row), 100 * score, s=24)
            axes.annotate(engines.ENGINES[name].title, (1000 * min(row), 100 * score), fontsize=6)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds, albert-base, 1 x 128, one thread")
    axes.set_ylabel("SST-2 accuracy of the small model, %")
    return figure


if __name__ == "__main__":
    flags.run(main, SideBySideSettings, description=__doc__)
