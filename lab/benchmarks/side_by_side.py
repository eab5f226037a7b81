"""Times a classifier of the size albert-base in every engine and precision, one call of each in turn.

    python -m lab.benchmarks.side_by_side --threads=1 --output_file=lab/benchmarks/results/DATE/side_by_side.json
    python -m lab.benchmarks.side_by_side --draw --output_file=...        # table and plot again, from the file

All engines are in one process on the same cores, and a round calls each of them once at each size. So what else the
machine does affects all of them, and the ratios of a round to its float32 call in ONNX Runtime are comparable; the
table has their medians. Rounds end after --max_minutes. The file keeps the samples of other numbers of threads. Inputs
are those of `make bench BENCH_FLAGS=--only=engines`; they are made first if they do not exist (some minutes more).
"""

import dataclasses
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from albert_tf.core import files, flags
from albert_tf.core.settings import changed, setting
from albert_tf.core.tables import table
from lab.benchmarks import engines, run
from lab.benchmarks.measure import BenchSettings, load_of_others
from lab.benchmarks.report import number
from lab.plots import COLORS, new_figure, save

REFERENCE = "onnx_runtime"
_NOT_HERE = ("saved_model_strings", "predictor", "transformers")
ANSWERS = pathlib.Path(__file__).parent / "results" / "int8_answers.json"
_PRECISIONS = (
    "float32",
    "bfloat16",
    "int8_weights",
    "int8",
)  # a name comes after those that have it in them
_SIZES = [f"{batch}x{length}" for batch, length in engines.SIZES]

_MARKERS = "os^vD<>PX*hd"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideBySideSettings(BenchSettings):
    """Threads, rounds and the file of results."""

    threads: int = setting(1, "Number of cores, and of threads of each engine.", minimum=1)
    rounds: int = setting(9, "Maximum number of calls of each engine at each size.", minimum=1)
    max_minutes: float = changed(BenchSettings, "max_minutes", 10.0)
    scores_task: str = setting("SST-2", "Task of int8_answers.json whose scores the plot has.")
    draw: bool = setting(False, "Whether only to write the table and the plot of the file.")
    output_file: str = setting("", "JSON file; table and plot are beside it.", required=True)


def main(settings: SideBySideSettings) -> None:
    """Adds the samples of one number of threads to the file, and writes table and plot."""
    path = pathlib.Path(settings.output_file)
    content = files.read_json(str(path)) if path.exists() else {"threads": {}}
    if not settings.draw:
        names = [
            name
            for name, engine in engines.ENGINES.items()
            if name not in _NOT_HERE and all(map(importlib.util.find_spec, engine.needs))
        ]
        run.make_inputs((each for name in names for each in engines.ENGINES[name].inputs), settings)
        cores = sorted(os.sched_getaffinity(0))[: settings.threads]
        os.sched_setaffinity(0, cores)  # before the engines count the cores
        content |= {"date": str(datetime.date.today()), "machine": run.machine()}
        with load_of_others() as others:
            samples = measured(settings, names)
        content["threads"][str(settings.threads)] = samples
        content.setdefault("others", {})[str(settings.threads)] = others[0]
        files.write_bytes(str(path), f"{json.dumps(content)}\n".encode())
    path.with_suffix(".md").write_text("\n".join(page(content)) + "\n")
    scores = scores_of(files.read_json(str(ANSWERS)), settings.scores_task)
    save(drawn(content, scores, settings.scores_task), path.with_suffix(".png"))


def measured(settings: SideBySideSettings, names: list[str]) -> dict[str, dict[str, list[float]]]:
    """By size and engine, the seconds of each round; the last round ends before --max_minutes, if there is one."""
    end = time.monotonic() + 60 * settings.max_minutes
    calls: dict[str, dict[str, Any]] = {size: {} for size in _SIZES}
    for name in names:
        make_call = engines.ENGINES[name].maker(settings)
        for size, (batch, length) in zip(_SIZES, engines.SIZES, strict=True):
            if batch == 1 or engines.ENGINES[name].batches:
                calls[size][name] = make_call(batch, length)
    samples = {size: {name: [] for name in of_size} for size, of_size in calls.items()}
    for round_number in range(-1, settings.rounds):  # one round to warm up
        round_started = time.monotonic()
        for size, of_size in calls.items():
            for name, call in of_size.items():
                started = time.perf_counter()
                call()
                if round_number >= 0:
                    samples[size][name].append(time.perf_counter() - started)
        spent = time.monotonic() - round_started
        print(f"round {round_number + 1} of {settings.rounds}: {spent:.0f} s", flush=True)
        if round_number >= 0 and time.monotonic() + spent > end:
            break
    return samples


def page(content: Mapping[str, Any]) -> list[str]:
    """A table for each number of threads."""
    machine = content["machine"]
    lines = [
        "# Engines and precisions side by side",
        "",
        f"{machine['processor']} ({', '.join(machine['instructions'])}), {content['date']}. Time relative to ONNX"
        " Runtime in float32, batch x length: the median over rounds in which every engine is called once, and in"
        " brackets the fastest call in milliseconds. With other jobs on the cores, only the ratios mean something.",
    ]
    for threads, by_size in sorted(content["threads"].items()):
        rows = [
            (engine.title, *(_cell(by_size.get(size, {}), name) for size in _SIZES))
            for name, engine in engines.ENGINES.items()
            if name in by_size[_SIZES[0]]
        ]
        header = " | ".join([f"threads: {threads}", *(size.replace("x", " x ") for size in _SIZES)])
        lines += ["", *table(header, rows)]
        rounds = len(by_size[_SIZES[0]][REFERENCE])
        if others := content.get("others", {}).get(threads):
            lines += ["", f"Rounds: {rounds}. Other programs used {others:.0%} of the processors."]
    return lines


def ratio(samples: dict[str, list[float]], name: str) -> float:
    """The median ratio to the reference of the same round."""
    pairs = zip(samples[name], samples[REFERENCE], strict=True)
    return statistics.median(one / other for one, other in pairs)


def _cell(samples: dict[str, list[float]], name: str) -> str:
    if name not in samples:
        return ""
    return f"{ratio(samples, name):.2f} ({number(1000 * min(samples[name]))})"


def scores_of(answers: Mapping[str, Any], task: str) -> dict[str, float]:
    """The mean score of each engine over the runs of a task; engines in float32 have that of the model."""
    runs = list(answers["tasks"].get(task, {"runs": {}})["runs"].values())
    scores = {}
    for name, engine in engines.ENGINES.items():
        of_runs = [
            run["model"] if engine.precision == "float32" else run["forms"][name]["score"]
            for run in runs
            if engine.precision == "float32" or name in run["forms"]
        ]
        if of_runs:
            scores[name] = statistics.mean(of_runs)
    return scores


def drawn(content: Mapping[str, Any], scores: Mapping[str, float], task: str) -> Figure:
    """A point for each engine and precision: the score of the small model against milliseconds at 1 x 128."""
    figure, ((axes,),) = new_figure(1, width=8.0, height=3.6)
    threads, by_size = min(content["threads"].items())
    named = {name: 1000 * min(row) for name, row in by_size["1x128"].items() if name in scores}
    for name in sorted(named, key=named.__getitem__):
        engine = engines.ENGINES[name]
        color = COLORS[_PRECISIONS.index(next(p for p in _PRECISIONS if p in engine.precision))]
        marker = _MARKERS[list(named).index(name) % len(_MARKERS)]
        label = f"{engine.title.replace('`', '')}: {named[name]:.0f} ms, {scores[name]:.1f} %"
        axes.plot(named[name], scores[name], marker, color=color, alpha=0.7, label=label)
    axes.set(xlabel=f"milliseconds, albert-base, 1 x 128, threads: {threads}", xlim=(0, None))
    axes.set_ylabel(f"{task}, albert-small-en, %")
    axes.margins(0.2, 0.3)
    figure.legend(loc="outside right center")
    return figure


if __name__ == "__main__":
    flags.run(main, SideBySideSettings, description=__doc__)
