"""Makes table.md and a plot from results.json.

    python -m lab.benchmarks.report --results_dir=lab/benchmarks/results/2026-11-22

This command writes them again from the stored numbers.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from lab.benchmarks import engines
from lab.benchmarks.measure import Values
from lab.benchmarks.preparation import ORIGINAL
from lab.benchmarks.training_step import PACKED, PRECISIONS, WHO
from lab.plots import COLORS, new_figure, save

TABLE_FILE, PLOT_FILE = "table.md", "training_step.png"
NAMES = {
    "ours": "albert-tf",
    "ours_packed": "albert-tf, packed rows",
    "model_garden": "TF Model Garden",
    "transformers": "transformers (PyTorch)",
    "keras_hub": "keras-hub",
    "ours_recomputed": "albert-tf, --recompute_activations",
}
BUSY = 0.1  # a measurement is disturbed if other programs use more than this share
STEPS = ("8x512", "16x128")
# One color for each library, in every picture.
COLORS_OF = {"ours": COLORS[0], "ours_packed": COLORS[0], "ours_recomputed": COLORS[0]}
COLORS_OF |= {"keras_hub": COLORS[1], "model_garden": COLORS[4], "transformers": COLORS[3]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Which results."""

    results_dir: str = setting("", "Folder with results.json.", required=True, input_path=True)


@dataclasses.dataclass(frozen=True)
class RunResults:
    """The content of results.json."""

    content: Mapping[str, Any]

    def values(self, name: str) -> Values | None:
        """The values of a measurement, with `peak_bytes`; None if it is not done."""
        result = self.content["measurements"].get(name, {})
        if result.get("status") != "done":
            return None
        return {**result["values"], "peak_bytes": result["peak_bytes"]}

    def values_by_name(self, *prefixes: str) -> dict[str, Values]:
        """The values of all finished measurements whose names begin with one of the prefixes."""
        names = [name for name in self.content["measurements"] if name.startswith(prefixes)]
        return {name: values for name in names if (values := self.values(name))}

    def why_not(self, name: str) -> str:
        """Why a measurement has no values; "" if it was not requested."""
        result = self.content["measurements"].get(name, {})
        return f"{result['status']}: {result.get('reason', '')}" if result else ""

    def was_disturbed(self, name: str) -> bool:
        """Whether other programs used much of the processors during a measurement."""
        return (self.content["measurements"].get(name, {}).get("others") or 0) > BUSY

    def limit(self, step: str, precision: str) -> float | None:
        """Floating-point operations per second of matrix products with the shapes of a step such as "8x512".

        They are measured between the repeats of our step, because the machine's speed changes over time.
        """
        ours = self.values(f"training_step.{step}.{precision}.ours") or {}
        return ours.get("limit")

    def share(self, step: str, precision: str, who: str) -> float | None:
        """The share of a step's time that its matrix products would need at the limit."""
        values = self.values(f"training_step.{step}.{precision}.{who}")
        limit = self.limit(step, precision)
        return values["flops"] / limit / values["median"] if values and limit else None

    def tokens_of_example(self, step: str) -> float:
        """Mean number of tokens of an example at a step's length; 0 if no step with packed rows was measured."""
        values = (self.values(f"training_step.{step}.{name}.{PACKED}") for name in PRECISIONS)
        return next((each["tokens_of_example"] for each in values if each), 0.0)


def write(folder: pathlib.Path) -> None:
    """Writes both into the folder of results.json."""
    results = RunResults(files.read_json(str(folder / "results.json")))
    sections: dict[str, Callable[[RunResults], list[str]]] = {
        "Training step": training_steps,
        "Memory of a training step": memory,
        "Data preparation": preparation,
        "Inference engines": inference_engines,
        "Left out, failed, not run": missing,
    }
    lines = heading(results)
    for title, section in sections.items():
        if section_lines := section(results):
            lines += ["", f"## {title}", "", *section_lines]
    if figure := draw_steps(results):
        save(figure, folder / PLOT_FILE)
        lines += ["", f"![Examples per second of a training step]({PLOT_FILE})"]
    files.write_bytes(str(folder / TABLE_FILE), ("\n".join(lines) + "\n").encode())


# --- Numbers ---


def number(value: float) -> str:
    """A number with three significant digits: 0.0123, 4.56, 789, 12,300."""
    if not value:
        return "0"
    digits = 2 - int(np.floor(np.log10(abs(value))))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def spread(timing: Mapping[str, Any], scale: float = 1.0) -> str:
    """Median, minimum and maximum of a timing."""
    low, high = number(scale * timing["min"]), number(scale * timing["max"])
    return f"{number(scale * timing['median'])} ({low} to {high})"


def gigabytes(num_bytes: float) -> str:
    """Bytes in units of 10^9 bytes."""
    return f"{num_bytes / 1e9:.2f}"


def heading(results: RunResults) -> list[str]:
    """Date, machine, versions and disturbed measurements."""
    content, measurements = results.content, results.content["measurements"]
    machine, settings = content["machine"], content["settings"]
    instructions = ", ".join(machine.get("instructions", ()))
    memory_bytes = machine.get("memory_bytes", 0)
    commits = {result.get("commit") for result in measurements.values()} - {None, ""}
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    disturbed = filter(results.was_disturbed, measurements)
    busy = [f"{name} ({measurements[name]['others']:.0%})" for name in disturbed]
    lines = [
        f"# Speed and memory, {content['date']}",
        "",
        f"{machine['processor']} ({instructions}), {machine['cores']} cores, {gigabytes(memory_bytes)} GB,"
        f" {machine['system']}; load average at the start {machine['load_average'][0]:.1f}.",
        f"Python {machine['python']}, {versions}; commit {', '.join(sorted(commits)) or 'unknown'}"
        " (+: with changes).",
        f"{content.get('seconds', 0) / 60:.0f} minutes{', --quick' if settings['quick'] else ''}. Times are medians,"
        " with minimum and maximum in parentheses; memory is the peak of the process, in 10^9 bytes.",
    ]
    text = (
        f"Other programs used more than {BUSY:.0%} of the processors during {len(busy)} measurements, whose times"
        f" are therefore too long: {', '.join(busy)}."
    )
    return [*lines, "", text] if busy else lines


# --- Sections ---


def training_steps(results: RunResults) -> list[str]:
    """Time, rate and memory of each implementation, and its share of the limit."""
    lines = []
    for step, precision in itertools.product(STEPS, PRECISIONS):
        rows = list(_step_rows(results, step, precision))
        limit = results.limit(step, precision)
        ours = results.values(f"training_step.{step}.{precision}.ours")
        if rows and limit and ours:
            seconds = number(ours["flops"] / limit)
            rate = number(limit / 1e9)
            rows.append(("matrix products alone", seconds, "", "", rate, "100%", "", ""))
        header = (
            f"albert-base, {step}, {precision} | seconds per step | examples/s | tokens/s | GFLOP/s"
            " | share of the limit | time of an example, ours = 1 | memory, GB"
        )
        lines += [*table(header, rows), ""] if rows else []
    fill = [
        f"at length {length} {number(tokens)} tokens, {tokens / length:.0%} of a row, so that full rows hold"
        f" {number(length / tokens)} times the examples"
        for step in STEPS
        if (tokens := results.tokens_of_example(step)) and (length := int(step.split("x")[1]))
    ]
    if fill:
        text = "Tokens/s counts no padding. An example of the corpus has on average"
        lines.append(f"{text} {'; '.join(fill)}.")
    return lines if fill else lines[:-1]


def _step_rows(results: RunResults, step: str, precision: str) -> Iterator[tuple[str, ...]]:
    ours = results.values(f"training_step.{step}.{precision}.ours")
    tokens = results.tokens_of_example(step)
    for who in WHO:
        name = f"training_step.{step}.{precision}.{who}"
        values = results.values(name)
        if not values:
            if reason := results.why_not(name):
                yield NAMES[who], reason, "", "", "", "", "", ""
            continue
        rate = values["examples_a_second"]
        tokens_a_second = number(rate * tokens) if tokens else ""
        flops_a_second = number(values["flops"] / values["median"] / 1e9)
        share = results.share(step, precision, who)
        times_ours = f"{ours['examples_a_second'] / rate:.2f}" if ours else ""
        cells = (f"{share:.0%}" if share else "", times_ours, gigabytes(values["peak_bytes"]))
        yield NAMES[who], spread(values), number(rate), tokens_a_second, flops_a_second, *cells


def memory(results: RunResults) -> list[str]:
    """Memory and time of a step at every size, float32."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for name in results.content["measurements"]:
        match name.split("."):
            case ("memory", size, step, who) | ("training_step", step, "float32" as size, who):
                row = cells.setdefault(("base" if size == "float32" else size, step), {})
                row[who] = results.why_not(name).partition(":")[0]
                if values := results.values(name):
                    row[who] = f"{gigabytes(values['peak_bytes'])} GB, {number(values['median'])} s"
    measured = set().union(*cells.values())
    names = [who for who in (*WHO, "ours_recomputed") if who in measured]
    rows = [
        (f"albert-{size} {step}", *(row.get(who, "") for who in names))
        for (size, step), row in cells.items()
    ]
    return table(" | ".join(["float32", *map(NAMES.get, names)]), rows)


def preparation(results: RunResults) -> list[str]:
    """The whole program, compared with the original."""
    measured = results.values_by_name("preparation.")
    rows = []
    if measured and not any("original" in name for name in measured):
        title, megabytes = "the original, measured once on another machine", ORIGINAL["megabytes"]
        work = f"{megabytes:g} MB, dupe {ORIGINAL['dupe_factor']}, length {ORIGINAL['length']}, 1 process"
        seconds, peak = ORIGINAL["seconds"], gigabytes(ORIGINAL["all_processes_bytes"])
        rates = (seconds, ORIGINAL["examples_a_second"], megabytes / seconds)
        rows.append((title, work, *map(number, rates), "1", peak))
    for name, values in measured.items():
        work = (
            f"{number(values['text_bytes'] / 1e6)} MB{', repeated' * (values['passes_of_corpus'] > 1)},"
            f" dupe {values['dupe_factor']}, length {values['length']}, {values['num_workers']} processes"
        )
        rates = map(number, (values["examples_a_second"], values["text_bytes_a_second"] / 1e6))
        is_comparable = values["length"] == ORIGINAL["length"]
        times = number(_times_original(results, values)) if is_comparable else ""
        peak = gigabytes(values["all_processes_bytes"])
        rows.append((f"`{name}`", work, spread(values), *rates, times, peak))
    header = (
        " | work | seconds | examples/s | MB/s of text | times the original's examples/s"
        " | memory of all processes, GB"
    )
    lines = table(header, rows)
    if alone := results.values("sentencepiece"):
        rate = number(alone["bytes_a_second"] / 1e6)
        lines += ["", f"SentencePiece alone tokenizes {rate} MB/s of text on one core."]
    return lines


def _times_original(results: RunResults, values: Values) -> float:
    """Examples per second, divided by those of the original, which are measured in this run or were measured once."""
    original = results.values(f"preparation.original.dupe_{values['dupe_factor']}") or ORIGINAL
    return values["examples_a_second"] / original["examples_a_second"]


def inference_engines(results: RunResults) -> list[str]:
    """Latency of every export in the engines that run it."""
    values_of = {who: results.values(f"engines.{who}") for who in engines.ENGINES}
    sizes = [f"{batch}x{length}" for batch, length in engines.SIZES]
    ours = values_of["saved_model"]
    rows = []
    for who, values in values_of.items():
        if not values:
            continue
        cells = values["cells"]
        times = (spread(cells[size], 1000) if size in cells else "" for size in sizes)
        difference = ""
        if ours and "sample" in values and values is not ours:
            difference = f"{np.abs(np.subtract(values['sample'], ours['sample'])).max():.1e}"
        rows.append(
            (engines.ENGINES[who].title, *times, difference, gigabytes(values["peak_bytes"]))
        )
    columns = (*(size.replace("x", " x ") for size in sizes), "difference of logits", "memory, GB")
    return table(" | ".join(["batch x length: ms", *columns]), rows)


def missing(results: RunResults) -> list[str]:
    """The measurements without values, and the reasons."""
    return [
        f"- `{name}`: {results.why_not(name)}"
        for name, result in results.content["measurements"].items()
        if result["status"] != "done"
    ]


def draw_steps(results: RunResults):
    """Draws examples per second of all implementations, with the slowest and the fastest repetition."""
    plans = [
        (f"training_step.{step}.{precision}.", f"{step.replace('x', ' rows of ')}, {precision}")
        for step in STEPS
        for precision in PRECISIONS
        if results.values_by_name(f"training_step.{step}.{precision}.")
    ]
    if not plans:
        return None
    figure, panels = new_figure(2, (len(plans) + 1) // 2, width=4.4, height=1.9)
    for axes, (prefix, title) in zip(panels.flat, plans, strict=False):
        timings = results.values_by_name(prefix)
        for y, (name, timing) in enumerate(reversed(timings.items())):  # upwards
            _draw_rate(axes, y, timing, COLORS_OF[name.removeprefix(prefix)])
            if results.was_disturbed(name):
                axes.patches[-1].set(hatch="////", edgecolor="white")
        names = [NAMES[name.removeprefix(prefix)] for name in reversed(timings)]
        axes.set_yticks(range(len(names)), names)
        axes.set(title=title, xlabel="examples per second")
        axes.margins(x=0.2)
    for axes in panels.flat[len(plans) :]:
        axes.set_visible(False)
    content = results.content
    figure.suptitle(
        f"Training step of albert-base, {content['machine']['cores']} CPU cores, {content['date']}"
        " (hatched: other programs disturbed it)"
    )
    return figure


def _draw_rate(axes: Axes, y: int, timing: Values, color: str) -> None:
    rate, median = timing["examples_a_second"], timing["median"]
    low, high = rate * median / timing["max"], rate * median / timing["min"]
    axes.barh(y, rate, xerr=[[rate - low], [high - rate]], color=color, capsize=2)
    axes.text(high, y, f" {number(rate)}", va="center", fontsize=8)


if __name__ == "__main__":
    flags.run(
        lambda settings: write(pathlib.Path(settings.results_dir)),
        ReportSettings,
        description=__doc__,
    )
