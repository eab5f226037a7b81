"""Makes table.md and plots from results.json.

    python -m lab.benchmarks.report --results_dir=lab/benchmarks/results/2026-11-21

This command writes them again from the stored numbers.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from lab.benchmarks import engines, plots
from lab.benchmarks.measure import Values
from lab.benchmarks.peers import PEERS
from lab.benchmarks.preparation import ORIGINAL
from lab.benchmarks.run_results import BUSY, NAMES, STEPS, RunResults, epoch_seconds, growth_points
from lab.benchmarks.training_step import PACKED, PRECISIONS, WHO

TABLE_FILE = "table.md"
# The project's aims. For data preparation: its rate, divided by the original's rate.
AIM_PREPARATION = {"dupe_10": 100, "dupe_1": 50, "corpus.60MB": 50}
AIM_PREPARATION_BYTES = 800_000_000
# Share of the matrix-product limit that a step reaches.
AIM_SHARE = {"float32": 0.85, "bfloat16": 0.70}
# Examples per second with packed rows, divided by those with single examples, and by those of the fastest peer.
AIM_PACKED = {"8x512": 1.8, "16x128": 1.1}
AIM_PACKED_PEERS = {"8x512": 2}
AIM_PIPELINE = 20  # rate of the input pipeline, divided by the rate of the step


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Which results."""

    results_dir: str = setting("", "Folder with results.json.", required=True, input_path=True)


def write(folder: pathlib.Path) -> None:
    """Writes table.md and the plots into the folder of results.json."""
    results = RunResults(files.read_json(str(folder / "results.json")))
    plot_of = plots.draw(results, folder)
    sections: dict[str, Callable[[RunResults], list[str]]] = {
        "Aims": aims,
        "Training step": training_steps,
        "Parts of a training step": step_parts,
        "Memory of a training step": memory,
        "Data preparation": preparation,
        "Input pipeline": input_pipeline,
        "Fine-tuning": fine_tuning,
        "Inference": inference,
        "Inference engines": inference_engines,
        "Limits of the machine": limits,
        "How the cost grows": growth,
        "Left out, failed, not run": missing,
    }
    lines = heading(results)
    for title, section in sections.items():
        if section_lines := section(results):
            lines += ["", f"## {title}", "", *section_lines]
            if title in plot_of:
                lines += ["", f"![{title}]({plot_of[title]})"]
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


def aims(results: RunResults) -> list[str]:
    """The project's aims, and the values of this run."""
    rows = [*_preparation_aims(results), *_step_aims(results), *_pipeline_aims(results)]
    return table("what | aim | measured | ", rows)


def _verdict(results: RunResults, names: Iterable[str], is_reached: bool) -> str:
    """Says whether an aim is reached, or that one of its measurements was disturbed."""
    if any(map(results.was_disturbed, names)):
        return "disturbed"
    return "reached" if is_reached else "**missed**"


def _preparation_aims(results: RunResults) -> Iterator[tuple[str, ...]]:
    # In a quick run, the texts are so short that starting the program takes nearly all of the time.
    ratio_aims = {} if results.content["settings"]["quick"] else AIM_PREPARATION
    for name, aim in ratio_aims.items():
        if values := results.values(f"preparation.{name}"):
            ratio = _times_original(results, values)
            megabytes, dupe_factor = values["text_bytes"] / 1e6, values["dupe_factor"]
            title = f"data preparation, --dupe_factor={dupe_factor}, {megabytes:.0f} MB"
            verdict = _verdict(results, [f"preparation.{name}"], ratio >= aim)
            yield title, f"{aim} x the original", f"{number(ratio)} x", verdict
    peaks = [
        values["all_processes_bytes"]
        for name, values in results.values_by_name("preparation.").items()
        if "original" not in name
    ]
    if peaks:
        title = "data preparation, memory of all processes, any corpus"
        aim, peak = f"{gigabytes(AIM_PREPARATION_BYTES)} GB", f"{gigabytes(max(peaks))} GB"
        yield title, aim, peak, _verdict(results, (), max(peaks) <= AIM_PREPARATION_BYTES)


def _times_original(results: RunResults, values: Values) -> float:
    """Examples per second, divided by those of the original, which are measured in this run or were measured once."""
    original = results.values(f"preparation.original.dupe_{values['dupe_factor']}") or ORIGINAL
    return values["examples_a_second"] / original["examples_a_second"]


def _step_aims(results: RunResults) -> Iterator[tuple[str, ...]]:
    for step, precision in itertools.product(STEPS, PRECISIONS):
        prefix = f"training_step.{step}.{precision}"
        title = f"training step, base {step}, {precision}"
        if share := results.share(step, precision, "ours"):
            names = [f"{prefix}.ours", f"matrix_products.{precision}"]
            aim, of_limit = AIM_SHARE[precision], f"{title}: share of the matrix-product limit"
            yield of_limit, f"{aim:.0%}", f"{share:.0%}", _verdict(results, names, share >= aim)
        rates = results.rates(step, precision)
        ours, packed = rates.pop("ours", 0), rates.pop(PACKED, 0)
        names = [f"{prefix}.{who}" for who in ("ours", PACKED, *rates)]
        fastest = max(rates, key=rates.get, default=None)
        if ours and packed:
            ratio, aim = packed / ours, AIM_PACKED[step]
            verdict = _verdict(results, names[:2], ratio >= aim)
            of_single = f"{title}, packed rows: examples/s, multiple of single examples"
            yield of_single, f"{aim:g} x", f"{number(ratio)} x", verdict
        for of_ours, aim, what in (
            (ours, 1, "faster than every peer"),
            (packed, AIM_PACKED_PEERS.get(step), "packed rows: examples/s, multiple of every peer"),
        ):
            if of_ours and fastest and aim:
                ratio = of_ours / rates[fastest]
                measured = f"{number(ratio)} x {NAMES[fastest]}"
                verdict = _verdict(results, names, ratio > aim)
                yield f"{title}: {what}", f"> {aim:g} x", measured, verdict


def _pipeline_aims(results: RunResults) -> Iterator[tuple[str, ...]]:
    for step in STEPS:
        step_rate = results.examples_a_second(step)
        measured = results.values_by_name(f"input_pipeline.{step.split('x')[1]}.")
        if step_rate and measured:
            ratio = min(values["examples_a_second"] for values in measured.values()) / step_rate
            title = (
                f"input pipeline at {step}, slowest kind of records: multiple of the step's rate"
            )
            verdict = _verdict(results, measured, ratio >= AIM_PIPELINE)
            yield title, f"{AIM_PIPELINE} x", f"{number(ratio)} x", verdict


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
            f"albert-base, {step}, {precision} | seconds a step | examples/s | tokens/s | GFLOP/s"
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


def step_parts(results: RunResults) -> list[str]:
    """The parts of our step, each measured separately."""
    measured = results.values_by_name("step_parts.")
    titles = [name.removeprefix("step_parts.") for name in measured]
    columns = [values["parts"] for values in measured.values()]
    rows = [
        (part, *(number(1000 * of[part]["calls"] * of[part]["median"]) for of in columns))
        for part in (columns[0] if columns else ())
    ]
    return table(" | ".join(["milliseconds of a step, forward and backward", *titles]), rows)


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
    return table(header, rows)


def input_pipeline(results: RunResults) -> list[str]:
    """Rates of reading, and their multiples of the step's rate."""
    rows = []
    for name, values in results.values_by_name("input_pipeline.").items():
        _, length, kind, *deterministic = name.split(".")
        (step,) = (step for step in STEPS if step.endswith(f"x{length}"))
        step_rate = results.examples_a_second(step)
        examples = values["batch"] * values["batches"]
        median, least, most = (examples / values[name] for name in ("median", "max", "min"))
        record = (length, kind, "yes" if deterministic else "no", number(values["record_bytes"]))
        rate = spread({"median": median, "min": least, "max": most})
        multiple = number(median / step_rate) if step_rate else ""
        rows.append((*record, rate, multiple, gigabytes(values["peak_bytes"])))
    header = (
        "length | records | --deterministic | bytes each | examples/s"
        " | multiple of the fastest step's rate | memory, GB"
    )
    return table(header, rows)


def fine_tuning(results: RunResults) -> list[str]:
    """Seconds per epoch of every GLUE task."""
    counted = results.values("fine_tuning.epochs")
    columns = (
        ("ours", "buckets", "albert-tf, length buckets"),
        ("ours", "fixed", "albert-tf, --length_buckets=1"),
        ("transformers", "dynamic", "transformers, dynamic padding"),
    )
    lines: list[str] = []
    for size in ("small", "base"):
        timings = {who: results.values(f"fine_tuning.{size}.{who}") for who in PEERS}
        if not counted or not timings["ours"]:
            continue
        rows = []
        for task, batches in counted["tasks"].items():
            cells = [
                number(epoch_seconds(timing["lengths"], batches[padding])) if timing else ""
                for timing, padding in ((timings[who], padding) for who, padding, _ in columns)
            ]
            rows.append((task, f"{batches['examples']:,}", *cells))
        header = [f"{size}, seconds an epoch", "examples", *(title for *_, title in columns)]
        lines += [*table(" | ".join(header), rows), ""]
    if lines:
        lines.append(
            "Extrapolated: some steps of 32 examples were timed at several lengths, and the batches of an epoch were"
            " counted by length. No epoch was run."
        )
    return lines


def inference(results: RunResults) -> list[str]:
    """Latency and throughput by batch and length."""
    cells_of = results.inference_cells()
    if not cells_of:
        return []
    rows = [
        (size.replace("x", " x "), *(spread(cells[size], 1000) for cells in cells_of.values()))
        for size in next(iter(cells_of.values()))
    ]
    lines = table(" | ".join(["batch x length: ms", *map(NAMES.get, cells_of)]), rows)
    samples = [results.values(f"inference.{who}") for who in ("ours", "transformers")]
    if all(samples):
        difference = np.abs(np.subtract(*(values["sample"] for values in samples))).max()
        text = f"Largest difference between our outputs and transformers': {difference:.1e}."
        lines += ["", text]
    if over_http := results.values("inference.http"):
        rows = [
            (batch, number(timing["texts_a_second"]), spread(timing, 1000))
            for batch, timing in over_http["batches"].items()
        ]
        lines += ["", *table("over HTTP: texts a request | texts/s | ms", rows)]
    return lines


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
    header = " | ".join(["batch x length: ms", *columns])
    return table(header, rows) if rows else []


def limits(results: RunResults) -> list[str]:
    """The rates that the machine reaches without a model."""
    rows = []
    for precision, step in itertools.product(PRECISIONS, STEPS):
        name = f"matrix products of a layer, {step}, {precision}"
        alone, between = results.limit_alone(step, precision), results.limit(step, precision)
        rows.append((name, alone, 1e9))
        if between != alone:
            rows.append((f"{name}, between the repeats of our step", between, 1e9))
    if again := results.values("matrix_products_again.float32"):
        rows.append(("the same at the end of the run, 8x512, float32", again["4096"]["rate"], 1e9))
    if values := results.values("sentencepiece"):
        rows.append(("SentencePiece alone, one core", values["bytes_a_second"], 1e6))
    if values := results.values("disk"):
        rows.append(("disk, written", values["write"]["bytes_a_second"], 1e6))
        rows.append(("disk, read", values["read"]["bytes_a_second"], 1e6))
    units = {1e9: "GFLOP/s", 1e6: "MB/s"}
    cells = [(name, f"{number(rate / unit)} {units[unit]}") for name, rate, unit in rows if rate]
    return table("what | rate", cells)


def growth(results: RunResults) -> list[str]:
    """Time and memory of the step while one size grows."""
    rows = [
        (dimension, size, spread(values), gigabytes(values["peak_bytes"]))
        for dimension, points in growth_points(results).items()
        for size, values in points
    ]
    text = "The step of albert-base, 8 x 128, float32, with one size changed."
    return [text, "", *table("what | size | seconds a step | memory, GB", rows)] if rows else []


def missing(results: RunResults) -> list[str]:
    """The measurements without values, and the reasons."""
    return [
        f"- `{name}`: {results.why_not(name)}"
        for name, result in results.content["measurements"].items()
        if result["status"] != "done"
    ]


if __name__ == "__main__":
    flags.run(
        lambda settings: write(pathlib.Path(settings.results_dir)),
        ReportSettings,
        description=__doc__,
    )
