"""The report: tables beside the paper's, verdicts, costs, plots. Every number is from a JSON that the engine wrote."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import files
from albert_tf.errors import UserError
from experiments import verdicts
from experiments.columns import COLUMNS, Values, shown
from experiments.declarations import Claim, Experiment, Row, Scale
from experiments.plots import draw

NOTES_FILE = "notes.md"  # by hand, beside the JSON files: what was tried


class Found(NamedTuple):
    """An experiment and what was measured of it, by row: one JSON a seed."""

    experiment: Experiment
    rows: Mapping[str, list[dict]]

    def values(self, row: str, column: str) -> list[Values]:
        """A column of a row: the numbers of every seed that has them."""
        get = COLUMNS[column].values
        return [values for result in self.rows.get(row, ()) if (values := get(result))]


def write_report(
    experiments: Sequence[Experiment], scales: Sequence[Scale], results_dir: str
) -> str:
    """Writes the table and plot of every experiment that has results, and README.md with all of them.

    Args:
      experiments: in the order of the report.
      scales: whose results are shown.
      results_dir: where they are.

    Returns:
      The path of README.md.

    Raises:
      UserError: there are no results, or a file is damaged.
    """
    parts = [part for scale in scales if (part := scale_report(experiments, scale, results_dir))]
    if not parts:
        names = ", ".join(scale.name for scale in scales)
        raise UserError(f"{results_dir}: no results at scale {names}; run an experiment first")
    path = os.path.join(results_dir, "README.md")
    files.write_bytes(path, "\n".join([INTRODUCTION, *parts]).encode())
    return path


def scale_report(experiments: Sequence[Experiment], scale: Scale, results_dir: str) -> str:
    """The part of the report about one scale; "" if it has no results."""
    sections = []
    for experiment in experiments:
        found = Found(experiment, read_results(experiment, scale, results_dir))
        if not found.rows:
            continue
        folder = os.path.join(results_dir, experiment.name, scale.name)
        plot = draw(found, folder)
        text = section(found, scale, folder, plot and os.path.relpath(plot, results_dir))
        own = section(found, scale, folder, plot and os.path.basename(plot))
        files.write_bytes(os.path.join(folder, "README.md"), own.encode())
        sections.append((found, text))
    if not sections:
        return ""
    overview = summary(scale, [found for found, _ in sections])
    return "\n".join([overview, *(text for _, text in sections)])


def read_results(experiment: Experiment, scale: Scale, results_dir: str) -> dict[str, list[dict]]:
    """The JSON files of an experiment by row, in the order of its rows and of the seeds."""
    folder = os.path.join(results_dir, experiment.name, scale.name)
    names = files.names_in(folder) if files.is_folder(folder) else []
    results = [
        files.read_json(os.path.join(folder, name)) for name in names if name.endswith(".json")
    ]
    by_row = {
        row.name: sorted(
            (result for result in results if result["row"] == row.name),
            key=lambda result: result["seed"],
        )
        for row in experiment.rows
    }
    by_row = {name: results for name, results in by_row.items() if results}
    for row in experiment.rows:
        _add_speedups(experiment, row, by_row)
    return by_row


def _add_speedups(experiment: Experiment, row: Row, by_row: Mapping[str, list[dict]]) -> None:
    """Adds what is a quotient of two rows' speeds: median against median; every interval for the spread."""
    for name, reference in (
        ("speedup", experiment.speed_reference),
        ("speedup_same_shape", row.same_shape),
    ):
        base = _speed(by_row.get(reference))
        own = _speed(by_row.get(row.name))
        if base and own:
            result = by_row[row.name][0]
            result[name] = (own["median"] / base["median"],)
            result[f"{name}_intervals"] = [
                speed / base["median"] for speed in own["examples_per_second"]
            ]


def _speed(results: Sequence[dict] | None) -> Mapping[str, Any] | None:
    found = [
        result["measures"]["speed"] for result in results or () if "speed" in result["measures"]
    ]
    return found[0] if found else None


# --- Text ---


INTRODUCTION = """# The paper in miniature

Written by `python -m experiments report` from the JSON files beside it;
[docs/experiments.md](../../docs/experiments.md) says how to run them.

A cell is `here (paper)`: the mean over seeds ± their standard deviation, and the paper's number for its own size of
model in parentheses; `-` was not measured. Only directions can be compared. Two rows differ if every seed of the one is
above every seed of the other and the means are more than two standard errors apart; otherwise it is too small to say.
"""


def summary(scale: Scale, all_found: Sequence[Found]) -> str:
    """What a scale is, and a line an experiment."""
    lines = [
        f"# Scale {scale.name}: {scale.title}",
        "",
        f"[{scale.name}.toml](../scales/{scale.name}.toml) says what stands for the paper's sizes.",
        "",
        "| experiment | agrees | disagrees | too small to say | not run | hours of training |",
        "|---|---|---|---|---|---|",
    ]
    for found in all_found:
        words = [verdict.word for _, verdict in judged(found)]
        counts = [
            words.count(word)
            for word in (verdicts.AGREES, verdicts.DISAGREES, verdicts.TOO_SMALL, verdicts.NOT_RUN)
        ]
        title = f"[{found.experiment.title}](#{_anchor(found.experiment, scale)})"
        lines.append(
            f"| {title} | " + " | ".join(map(str, counts)) + f" | {_minutes(found) / 60:.1f} |"
        )
    return "\n".join(lines) + "\n"


def _anchor(experiment: Experiment, scale: Scale) -> str:
    kept = [c for c in _heading(experiment, scale).lower() if c.isalnum() or c in " -_"]
    return "".join(kept).replace(" ", "-")


def _heading(experiment: Experiment, scale: Scale) -> str:
    name = experiment.name.replace("_", " ").capitalize()
    return f"{name}, {scale.name}: {experiment.title}"


def section(found: Found, scale: Scale, folder: str, plot: str | None) -> str:
    """The part of the report about one experiment."""
    experiment = found.experiment
    lines = [
        f"## {_heading(experiment, scale)}",
        "",
        f"{experiment.source}. {experiment.note}".strip(),
        "",
    ]
    lines += table(found)
    if plot:
        lines += ["", f"![{experiment.title}]({plot})"]
    lines += ["", *verdict_table(found), "", *costs(found, scale)]
    notes = os.path.join(folder, NOTES_FILE)
    if os.path.exists(notes):
        lines += ["", files.read_bytes(notes).decode().strip()]
    return "\n".join(lines) + "\n"


def table(found: Found) -> list[str]:
    """The table: columns that were measured, with the paper's numbers beside."""
    experiment = found.experiment
    columns = [
        name
        for name in experiment.columns
        if any(found.values(row.name, name) for row in experiment.rows)
    ]
    has_here = any(
        "parameters" in result["measures"] and experiment.budget != "none"
        for rows in found.rows.values()
        for result in rows
    )
    titles = ["", *(COLUMNS[name].title for name in columns)]
    titles += ["parameters here"] if has_here else []
    average = "average" in experiment.columns and "average" not in columns
    titles += ["seeds"] if experiment.budget != "none" else []
    titles += ["the paper's Avg"] if average else []
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in experiment.rows:
        results = found.rows.get(row.name, [])
        cells = [row.name, *(cell(found, row, name) for name in columns)]
        cells += [_parameters_here(results)] if has_here else []
        cells += [str(len(results))] if experiment.budget != "none" else []
        cells += [str(row.paper.get("average", "-"))] if average else []
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def cell(found: Found, row: Row, name: str) -> str:
    """Mean and standard deviation over seeds, and the paper's number.

    Example:
      27.1 ± 0.2 (54.9)
    """
    column = COLUMNS[name]
    values = found.values(row.name, name)
    text = "-"
    if values:
        text = shown(tuple(map(statistics.fmean, zip(*values, strict=True))), column.digits)
        if len(values) > 1 and len(values[0]) == 1 and name != "parameters":
            spread = statistics.stdev(value for (value,) in values)
            text += f" ± {spread:.{column.digits}f}"
    return f"{text} ({row.paper[name]})" if name in row.paper else text


def _parameters_here(results: Sequence[dict]) -> str:
    found = [r["measures"]["parameters"]["here"] for r in results if "parameters" in r["measures"]]
    return f"{found[0]:,}" if found else "-"


def judged(found: Found) -> list[tuple[Claim, verdicts.Verdict]]:
    """Every claim with its verdict."""
    return [(claim, judge(found, claim)) for claim in found.experiment.claims]


def judge(found: Found, claim: Claim) -> verdicts.Verdict:
    """What the seeds say of a claim."""

    def numbers(named: str | float) -> list[float] | float:
        if not isinstance(named, str):
            return named
        if claim.metric.startswith("speedup"):
            results = found.rows.get(named, [])
            return [value for r in results for value in r.get(f"{claim.metric}_intervals", ())]
        return [statistics.fmean(values) for values in found.values(named, claim.metric)]

    digits = COLUMNS[claim.metric].digits
    if claim.near != "":
        near = numbers(claim.near)
        return verdicts.compare_near(numbers(claim.higher), near, claim.within, digits)
    return verdicts.compare(numbers(claim.higher), numbers(claim.lower), digits)


def verdict_table(found: Found) -> list[str]:
    """The claims of the paper and what came out."""
    if not found.experiment.claims:
        return []
    lines = ["| the paper says | compared by | here | numbers |", "|---|---|---|---|"]
    for claim, verdict in judged(found):
        metric = COLUMNS[claim.metric].title
        if claim.instead:
            metric += f", for the paper's {COLUMNS[claim.instead].title}"
        lines.append(f"| {claim.text} | {metric} | **{verdict.word}** | {verdict.reason} |")
    return lines


def costs(found: Found, scale: Scale) -> list[str]:
    """Time, commits, machine and command."""
    results = [result for rows in found.rows.values() for result in rows]

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(result["made"][name]) for result in results}))

    trained = [r["minutes"]["pretraining"] for r in results if "pretraining" in r["minutes"]]
    each = f", {min(trained):.1f} to {max(trained):.1f} a row and seed" if trained else ""
    sets = {
        json.dumps(r["measures"]["intrinsic"]["development_set"])
        for r in results
        if r["measures"].get("intrinsic")
    }
    dev = ", ".join(sorted({name for text in sets for name in json.loads(text).values()}))
    lines = [
        f"Cost: {_minutes(found):.0f} minutes of pretraining{each}; {all_of('processor')}, cores: {all_of('cores')};"
        f" {all_of('date')}; commit {all_of('commit')}."
        + (f" Development set: {dev}." if dev else ""),
        "",
    ]
    own = scale.training.get("mixed_precision", "")
    for name in sorted({r["declared"]["training"].get("mixed_precision", "") for r in results}):
        flag = f" --mixed_precision={name}" if name != own else ""
        lines.append(
            f"    python -m experiments run {found.experiment.name} --scale={scale.name} --data_dir=DATA{flag}"
        )
    return lines


def _minutes(found: Found) -> float:
    results = [result for rows in found.rows.values() for result in rows]
    return sum(result["minutes"].get("pretraining", 0.0) for result in results)
