"""results.json -> table.md and plots.

    python -m benchmarks.report --results_dir=benchmarks/results/2026-11-21

writes them anew from numbers that were measured before.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from benchmarks import plots
from benchmarks.found import BUSY, NAMES, STEPS, Found, epoch_seconds, growth_points
from benchmarks.measure import Values
from benchmarks.peers import PEERS
from benchmarks.preparation import (
    ORIGINAL_BYTES,
    ORIGINAL_DUPE_FACTOR,
    ORIGINAL_EXAMPLES_A_SECOND,
    ORIGINAL_LENGTH,
    ORIGINAL_MEGABYTES,
    ORIGINAL_SECONDS,
)
from benchmarks.training_step import PRECISIONS

TABLE_FILE = "table.md"
# What the project wants to reach; of preparation, times the original's examples a second.
AIM_PREPARATION = {"dupe_10": 100, "dupe_1": 50, "corpus.60MB": 50}
AIM_PREPARATION_BYTES = 800_000_000
AIM_SHARE = {"float32": 0.85, "bfloat16": 0.70}  # of the limit of matrix products
AIM_PIPELINE = 20  # times what the step eats


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Which results."""

    results_dir: str = setting("", "Folder with results.json.", required=True, input_path=True)


def write(folder: pathlib.Path) -> None:
    """Writes table.md and the plots beside results.json."""
    found = Found(files.read_json(str(folder / "results.json")))
    drawn = plots.draw(found, folder)
    sections: Sequence[tuple[str, Callable[[Found], list[str]]]] = (
        ("Aims", aims),
        ("Training step", training_steps),
        ("Memory of a training step", memory),
        ("Data preparation", preparation),
        ("Input pipeline", input_pipeline),
        ("Fine-tuning", fine_tuning),
        ("Inference", inference),
        ("Limits of the machine", limits),
        ("How the cost grows", growth),
        ("Left out, failed, not run", missing),
    )
    lines = heading(found)
    for title, section in sections:
        if found_lines := section(found):
            lines += ["", f"## {title}", "", *found_lines]
            lines += [f"\n![{title}]({name})" for name in drawn.get(title, ())]
    files.write_bytes(str(folder / TABLE_FILE), ("\n".join(lines) + "\n").encode())


# --- Words and numbers ---


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; none without rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "---|" * len(header)
    return ["| " + " | ".join(header) + " |", rule, *lines] if lines else []


def number(value: float) -> str:
    """A number with three digits that count: 0.0123, 4.56, 789, 12,300."""
    if not value:
        return "0"
    digits = 2 - int(np.floor(np.log10(abs(value))))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def spread(timing: Mapping[str, Any], scale: float = 1.0) -> str:
    """Median, least and greatest of a timing."""
    low, high = number(scale * timing["min"]), number(scale * timing["max"])
    return f"{number(scale * timing['median'])} ({low} to {high})"


def gigabytes(num_bytes: float) -> str:
    """Bytes as 10^9 bytes."""
    return f"{num_bytes / 1e9:.2f}"


def heading(found: Found) -> list[str]:
    """Date, machine, versions."""
    content = found.content
    machine, settings = content["machine"], content["settings"]
    instructions = ", ".join(machine.get("instructions", ()))
    memory_bytes = machine.get("memory_bytes", 0)
    commits = {result.get("commit") for result in content["measurements"].values()} - {None, ""}
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    busy = [
        f"{name} ({result['others']:.0%})"
        for name, result in content["measurements"].items()
        if found.was_disturbed(name)
    ]
    lines = [
        f"# Speed and memory, {content['date']}",
        "",
        f"{machine['processor']} ({instructions}), {machine['cores']} cores, {gigabytes(memory_bytes)} GB,"
        f" {machine['system']}; load average at the start {machine['load_average'][0]:.1f}.",
        f"Python {machine['python']}, {versions}; commit {', '.join(sorted(commits)) or 'unknown'}"
        " (+: with changes).",
        f"{content.get('seconds', 0) / 60:.0f} minutes{', --quick' if settings['quick'] else ''}. Times are medians,"
        " with the least and the greatest in parentheses; memory is the most that the process had, in 10^9 bytes.",
    ]
    if busy:
        lines += [
            "",
            f"Other programs had more than {BUSY:.0%} of the processors during {len(busy)} measurements, whose times"
            f" are therefore too long: {', '.join(busy)}.",
        ]
    return lines


# --- Sections ---


def aims(found: Found) -> list[str]:
    """What the project wants to reach, and what it reached in this run."""
    rows = [*_preparation_aims(found), *_step_aims(found), *_pipeline_aims(found)]
    return table(("what", "aim", "measured", ""), rows)


def _verdict(
    found: Found, names: Sequence[str], what: str, aim: str, measured: str, is_reached: bool
) -> tuple[str, ...]:
    """A row about what was computed from the measurements of these names."""
    verdict = "reached" if is_reached else "**missed**"
    return what, aim, measured, "disturbed" if any(map(found.was_disturbed, names)) else verdict


def _preparation_aims(found: Found) -> Iterable[tuple[str, ...]]:
    # The texts of a quick run are so short that the program's start is all of its time.
    aims_of_ratios = {} if found.content["settings"]["quick"] else AIM_PREPARATION
    for name, aim in aims_of_ratios.items():
        if values := found.values(f"preparation.{name}"):
            ratio = values["examples_a_second"] / _original_rate(found, values["dupe_factor"])
            what = f"data preparation, --dupe_factor={values['dupe_factor']}, {values['text_bytes'] / 1e6:.0f} MB"
            yield _verdict(
                *(found, [f"preparation.{name}"], what),
                *(f"{aim} x the original", f"{number(ratio)} x", ratio >= aim),
            )
    names = [
        name
        for name in found.content["measurements"]
        if name.startswith("preparation.") and "original" not in name
    ]
    held = [values["all_processes_bytes"] for name in names if (values := found.values(name))]
    if held:
        limit = AIM_PREPARATION_BYTES
        what = "data preparation, memory of all processes, any corpus"
        yield _verdict(
            *(found, (), what),
            *(f"{gigabytes(limit)} GB", f"{gigabytes(max(held))} GB", max(held) <= limit),
        )


def _original_rate(found: Found, dupe_factor: int) -> float:
    """The original's examples a second: in this run, or as measured once."""
    values = found.values(f"preparation.original.dupe_{dupe_factor}")
    return values["examples_a_second"] if values else ORIGINAL_EXAMPLES_A_SECOND


def _step_aims(found: Found) -> Iterable[tuple[str, ...]]:
    for step, precision in itertools.product(STEPS, PRECISIONS):
        prefix = f"training_step.{step}.{precision}"
        share = found.share(step, precision, "ours")
        if share:
            names = [f"{prefix}.ours", f"matrix_products.{precision}"]
            aim = AIM_SHARE[precision]
            what = f"training step, base {step}, {precision}: share of the matrix-product limit"
            yield _verdict(found, names, what, f"{aim:.0%}", f"{share:.0%}", share >= aim)
        ours = found.values(f"{prefix}.ours")
        peers = {
            who: values["median"] / ours["median"]
            for who in PEERS
            if ours and who != "ours" and (values := found.values(f"{prefix}.{who}"))
        }
        if peers:
            who, ratio = min(peers.items(), key=lambda item: item[1])
            names = [f"{prefix}.{one}" for one in ("ours", *peers)]
            what = f"training step, base {step}, {precision}: faster than every peer"
            measured = f"{number(ratio)} x {NAMES[who]}"
            yield _verdict(found, names, what, "> 1 x", measured, ratio > 1)


def _pipeline_aims(found: Found) -> Iterable[tuple[str, ...]]:
    for step in STEPS:
        eaten = found.eaten(step)
        names = [
            name
            for name in found.content["measurements"]
            if name.startswith(f"input_pipeline.{step.split('x')[1]}.")
        ]
        ratios = [
            values["examples_a_second"] / eaten
            for name in names
            if eaten and (values := found.values(name))
        ]
        if ratios:
            what = (
                f"input pipeline at {step}, the slowest kind of records: times what the step eats"
            )
            yield _verdict(
                *(found, names, what),
                *(f"{AIM_PIPELINE} x", f"{number(min(ratios))} x", min(ratios) >= AIM_PIPELINE),
            )


def training_steps(found: Found) -> list[str]:
    """Time, rate and memory of each implementation, and its share of the limit."""
    lines = []
    for step, precision in itertools.product(STEPS, PRECISIONS):
        rows = list(_step_rows(found, step, precision))
        limit = found.limit(step, precision)
        if not rows:
            continue
        if limit and (ours := found.values(f"training_step.{step}.{precision}.ours")):
            seconds = number(ours["flops"] / limit)
            row = ("matrix products alone", seconds, "", number(limit / 1e9), "100%", "", "")
            rows.append(row)
        header = (
            *(f"albert-base, {step}, {precision}", "seconds a step", "examples/s", "GFLOP/s"),
            *("share of the limit", "times ours", "memory, GB"),
        )
        lines += [*table(header, rows), ""]
    return lines[:-1]


def _step_rows(found: Found, step: str, precision: str) -> Iterable[tuple[str, ...]]:
    ours = found.values(f"training_step.{step}.{precision}.ours")
    for who in PEERS:
        name = f"training_step.{step}.{precision}.{who}"
        values = found.values(name)
        if not values:
            if reason := found.why_not(name):
                yield NAMES[who], reason, "", "", "", "", ""
            continue
        share = found.share(step, precision, who)
        yield (
            NAMES[who],
            spread(values),
            number(values["examples_a_second"]),
            number(values["flops"] / values["median"] / 1e9),
            f"{share:.0%}" if share else "",
            f"{values['median'] / ours['median']:.2f}" if ours else "",
            gigabytes(values["peak_bytes"]),
        )


def memory(found: Found) -> list[str]:
    """Memory and time of a step at every size, float32."""
    places: dict[tuple[str, str], dict[str, Values]] = {}
    for name in found.content["measurements"]:
        parts = name.split(".")
        if parts[0] == "memory":
            place, who = (parts[1], parts[2]), parts[3]
        elif parts[0] == "training_step" and parts[2] == "float32":
            place, who = ("base", parts[1]), parts[3]
        else:
            continue
        held = places.setdefault(place, {})
        held[who] = found.values(name) or {"reason": found.why_not(name)}
    who_all = [who for who in (*PEERS, "ours_recomputed") if any(who in p for p in places.values())]

    def cell(values: Values | None) -> str:
        if not values or "reason" in values:
            return values["reason"].partition(":")[0] if values else ""
        return f"{gigabytes(values['peak_bytes'])} GB, {number(values['median'])} s"

    rows = [
        (f"albert-{size} {step}", *(cell(held.get(who)) for who in who_all))
        for (size, step), held in places.items()
    ]
    return table(("float32", *(NAMES[who] for who in who_all)), rows)


def preparation(found: Found) -> list[str]:
    """The whole program against the original."""
    measured_once = (
        "the original, measured once on another machine",
        f"{ORIGINAL_MEGABYTES:g} MB, dupe {ORIGINAL_DUPE_FACTOR}, length {ORIGINAL_LENGTH}, 1 process",
        number(ORIGINAL_SECONDS),
        number(ORIGINAL_EXAMPLES_A_SECOND),
        number(ORIGINAL_MEGABYTES / ORIGINAL_SECONDS),
        "1",
        gigabytes(ORIGINAL_BYTES),
    )
    rows = []
    for name in found.content["measurements"]:
        values = found.values(name) if name.startswith("preparation.") else None
        if not values:
            continue
        rows.append(
            (
                f"`{name}`",
                f"{number(values['text_bytes'] / 1e6)} MB{', repeated' * (values['passes_of_corpus'] > 1)},"
                f" dupe {values['dupe_factor']}, length {values['length']}, {values['num_workers']} processes",
                spread(values),
                number(values["examples_a_second"]),
                number(values["text_bytes_a_second"] / 1e6),
                number(values["examples_a_second"] / _original_rate(found, values["dupe_factor"]))
                if values["length"] == ORIGINAL_LENGTH
                else "",
                gigabytes(values["all_processes_bytes"]),
            )
        )
    header = (
        *("", "work", "seconds", "examples/s", "MB/s of text"),
        *("times the original's examples/s", "memory of all processes, GB"),
    )
    was_run = any("original" in name for name, *_ in rows)
    return table(header, rows if was_run else [measured_once, *rows]) if rows else []


def input_pipeline(found: Found) -> list[str]:
    """Rates of reading beside what the step eats."""
    rows = []
    for name in found.content["measurements"]:
        values = found.values(name) if name.startswith("input_pipeline.") else None
        if not values:
            continue
        _, length, kind, *deterministic = name.split(".")
        step = next(step for step in STEPS if step.endswith(f"x{length}"))
        eaten = found.eaten(step)
        rate = values["batch"] * values["batches"]
        rates = {
            "median": rate / values["median"],
            "min": rate / values["max"],
            "max": rate / values["min"],
        }
        rows.append(
            (
                length,
                kind,
                "yes" if deterministic else "no",
                number(values["record_bytes"]),
                spread(rates),
                number(rates["median"] / eaten) if eaten else "",
                gigabytes(values["peak_bytes"]),
            )
        )
    header = ("length", "records", "--deterministic", "bytes each", "examples/s")
    return table((*header, "times what the fastest step eats", "memory, GB"), rows)


def fine_tuning(found: Found) -> list[str]:
    """Seconds an epoch of every GLUE task."""
    counted = found.values("fine_tuning.epochs")
    ways = (
        ("ours", "buckets", "albert-tf, length buckets"),
        ("ours", "fixed", "albert-tf, --length_buckets=1"),
        ("transformers", "dynamic", "transformers, dynamic padding"),
    )
    lines: list[str] = []
    for size in ("small", "base"):
        curves = {
            who: found.values(f"fine_tuning.{size}.{who}") for who in ("ours", "transformers")
        }
        if not counted or not curves["ours"]:
            continue
        rows = []
        for task, batches in counted["tasks"].items():
            cells = [
                number(epoch_seconds(curves[who]["lengths"], batches[way])) if curves[who] else ""
                for who, way, _ in ways
            ]
            rows.append((task, f"{batches['examples']:,}", *cells))
        header = (f"{size}, seconds an epoch", "examples", *(name for *_, name in ways))
        lines += [*table(header, rows), ""]
    if lines:
        lines.append(
            "Extrapolated: a few steps of 32 examples were timed at each of a few lengths, and the batches of an epoch"
            " counted by length. No epoch was run."
        )
    return lines


def inference(found: Found) -> list[str]:
    """Latency and throughput by batch and length."""
    held = {who: values["cells"] for who in NAMES if (values := found.values(f"inference.{who}"))}
    if not held:
        return []
    sizes = next(iter(held.values()))
    rows = [
        (size.replace("x", " x "), *(spread(cells[size], 1000) for cells in held.values()))
        for size in sizes
    ]
    lines = table(("batch x length: ms", *(NAMES[who] for who in held)), rows)
    samples = [found.values(f"inference.{who}") for who in ("ours", "transformers")]
    if all(samples):
        first, second = (np.array(values["sample"]) for values in samples)
        difference = np.abs(first - second).max()
        lines += ["", f"Greatest difference of outputs to transformers': {difference:.1e}."]
    if over_http := found.values("inference.http"):
        rows = [
            (batch, number(timing["texts_a_second"]), spread(timing, 1000))
            for batch, timing in over_http["batches"].items()
        ]
        lines += ["", *table(("over HTTP: texts a request", "texts/s", "ms"), rows)]
    return lines


def limits(found: Found) -> list[str]:
    """What the machine did alone."""
    rows = []
    for precision in PRECISIONS:
        for step in STEPS:
            what = f"matrix products of a layer, {step}, {precision}"
            alone, beside = found.limit_alone(step, precision), found.limit(step, precision)
            if alone:
                rows.append((what, f"{number(alone / 1e9)} GFLOP/s"))
            if beside and beside != alone:
                what = f"{what}, between the repeats of our step"
                rows.append((what, f"{number(beside / 1e9)} GFLOP/s"))
    if again := found.values("matrix_products_again.float32"):
        rate = number(again["4096"]["rate"] / 1e9)
        rows.append(("the same at the end of the run, 8x512, float32", f"{rate} GFLOP/s"))
    if values := found.values("sentencepiece"):
        rate = number(values["bytes_a_second"] / 1e6)
        rows.append(("SentencePiece alone, one core", f"{rate} MB/s"))
    if values := found.values("disk"):
        for name, timing in (("written", values["write"]), ("read", values["read"])):
            rows.append((f"disk, {name}", f"{number(timing['bytes_a_second'] / 1e6)} MB/s"))
    return table(("what", "rate"), rows)


def growth(found: Found) -> list[str]:
    """Time and memory of the step as one size after the other grows."""
    rows = [
        (what, str(size), spread(values), gigabytes(values["peak_bytes"]))
        for what, points in growth_points(found).items()
        for size, values in points
    ]
    if not rows:
        return []
    return [
        "The step of albert-base, 8 x 128, float32, with one size changed.",
        "",
        *table(("what", "size", "seconds a step", "memory, GB"), rows),
    ]


def missing(found: Found) -> list[str]:
    """What there are no values of, and why."""
    measurements = found.content["measurements"]
    return [
        f"- `{name}`: {found.why_not(name)}"
        for name, result in measurements.items()
        if result["status"] != "done"
    ]


def main(settings: ReportSettings) -> None:
    """Writes the report of a folder anew."""
    write(pathlib.Path(settings.results_dir))


if __name__ == "__main__":
    flags.run(main, ReportSettings)
