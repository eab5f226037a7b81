"""The report: tables beside the paper's, verdicts, costs, plots. Every number is from a JSON that the engine wrote."""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.core import files
from albert_tf.core.errors import UserError
from experiments import verdicts
from experiments.columns import COLUMNS, Column, Values, shown
from experiments.declarations import CHANCE, Claim, Experiment, Row, Scale
from experiments.plots import draw

NOTES_FILE = "notes.md"  # by hand, beside the JSON files: what was tried


class Found(NamedTuple):
    """An experiment and what was measured of it, by row: one JSON a seed."""

    experiment: Experiment
    rows: Mapping[str, list[dict]]

    def all_results(self) -> list[dict]:
        """The JSONs of all rows."""
        return [result for results in self.rows.values() for result in results]

    def values(self, row: str, column: str) -> list[Values]:
        """A column of a row: the numbers of every seed that has them."""
        get = COLUMNS[column].values
        return [values for result in self.rows.get(row, ()) if (values := get(result))]

    def means(self, row: str, column: str) -> list[float]:
        """The same with one number a seed: that of a pair such as F1/EM is its mean."""
        return [statistics.fmean(values) for values in self.values(row, column)]


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
    for name, results in by_row.items():
        if any(result["declared"] != results[0]["declared"] for result in results):
            raise UserError(
                f"{folder}: the seeds of row {name!r} were made with different settings (declared in their files);"
                " expected the same in all: keep those of one kind"
            )
    for row in experiment.rows:
        _add_speedups(experiment, row, by_row)
    return by_row


def _add_speedups(experiment: Experiment, row: Row, by_row: Mapping[str, list[dict]]) -> None:
    """Adds quotients of two rows' speeds: each seed's by that of the same seed, measured shortly before or after."""
    for name, reference in (
        ("speedup", experiment.speed_reference),
        ("speedup_same_shape", row.same_shape),
    ):
        references = {result["seed"]: result for result in by_row.get(reference, ())}
        for result in by_row.get(row.name, ()):
            own, base = _speed(result), _speed(references.get(result["seed"]))
            if own and base:
                result[name] = (own / base,)


def _speed(result: Mapping[str, Any] | None) -> float | None:
    """The examples a second of a seed, if they were measured."""
    return result["measures"].get("speed", {}).get("median") if result else None


# --- Text ---


INTRODUCTION = """# The paper in miniature

Written by `python -m experiments report` from the JSON files beside it; `docs/experiments.md` says how to run them.

A cell is `here (paper)`: the mean over seeds ± their standard deviation, and the paper's number for its own size of
model in parentheses; `-` was not measured. Only directions can be compared.

A difference is given with its 95 % interval, from the spread over seeds pooled over the rows of a table. What came
out *agrees* or *disagrees* with the paper if the interval leaves no doubt; otherwise it is *too small to say*. All
seeds and rows read the same text and are measured on the same examples, so the intervals speak of these alone. Chance
is what the commonest answer scores, and the interval of a distance from it includes the error of so many examples.
"""


def summary(scale: Scale, all_found: Sequence[Found]) -> str:
    """What a scale is, and a line an experiment."""
    lines = [
        f"# Scale {scale.name}: {scale.title}",
        "",
        f"`experiments/scales/{scale.name}.toml` says what stands for the paper's sizes.",
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
    lines += table(found, scale)
    if plot:
        lines += ["", f"![{experiment.title}]({plot})"]
    lines += ["", *verdict_table(found), "", *costs(found, scale)]
    notes = os.path.join(folder, NOTES_FILE)
    if os.path.exists(notes):
        lines += ["", files.read_bytes(notes).decode().strip()]
    return "\n".join(lines) + "\n"


def table(found: Found, scale: Scale) -> list[str]:
    """The table: rows that the scale has, columns that were measured, with the paper's numbers beside."""
    experiment = found.experiment
    rows = [row for row in experiment.rows if row.name in found.rows or scale.has(row)]
    columns = [
        name for name in experiment.columns if any(found.values(row.name, name) for row in rows)
    ]
    has_here = any(
        "parameters" in result["measures"] and experiment.budget != "none"
        for result in found.all_results()
    )
    titles = ["", *(COLUMNS[name].title for name in columns)]
    titles += ["parameters here"] if has_here else []
    average = "average" in experiment.columns and "average" not in columns
    titles += ["seeds"] if experiment.budget != "none" else []
    titles += ["the paper's Avg"] if average else []
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        results = found.rows.get(row.name, [])
        cells = [row.name, *(cell(found, row, name) for name in columns)]
        cells += [_parameters_here(results)] if has_here else []
        seeds = sum(bool(set(result["measures"]) - {"parameters"}) for result in results)
        cells += [str(seeds)] if experiment.budget != "none" else []
        cells += [str(row.paper.get("average", "-"))] if average else []
        lines.append("| " + " | ".join(cells) + " |")
    chances = [chance_of(found, COLUMNS[name]) for name in columns]
    if any(chances):
        shown_chances = [f"{level.value:.1f}" if level else "" for level in chances]
        rest = [""] * (len(titles) - 1 - len(columns))
        lines.append("| " + " | ".join(["*the commonest answer*", *shown_chances, *rest]) + " |")
    return lines


def chance_of(found: Found, column: Column) -> verdicts.Level | None:
    """What the commonest answer scores in a column, with the error of an accuracy of so many examples."""
    for result in found.all_results() if column.chance else ():
        if chance := column.chance(result):
            ((share,), (examples,)) = chance, column.examples(result)
            return verdicts.Level(share, math.sqrt(share * (100 - share) / examples))
    return None


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


def compared_by(found: Found, claim: Claim) -> str:
    """The column that a claim is judged by: the paper's own, if both rows have it, or what stands for it."""
    rows = [row for row in (claim.higher, claim.compared[1]) if row in found.rows]
    if claim.instead and all(found.values(row, claim.instead) for row in rows):
        return claim.instead
    return claim.metric


def judge(found: Found, claim: Claim) -> verdicts.Verdict:
    """What the seeds say of a claim."""
    name = compared_by(found, claim)
    column = COLUMNS[name]

    def numbers(named: str | float) -> list[float] | verdicts.Level | None:
        if named == CHANCE:
            return chance_of(found, column)
        if not isinstance(named, str):
            return verdicts.Level(named)
        return found.means(named, name)

    spread = verdicts.pooled(found.means(row, name) for row in found.rows)
    values, (rule, other) = numbers(claim.higher), claim.compared
    return verdicts.compare(
        values, numbers(other), spread, column.digits, rule=rule, within=claim.within
    )


def verdict_table(found: Found) -> list[str]:
    """The claims of the paper and what came out."""
    if not found.experiment.claims:
        return []
    lines = ["| the paper says | compared by | here | difference |", "|---|---|---|---|"]
    for claim, verdict in judged(found):
        metric = COLUMNS[name := compared_by(found, claim)].title
        if claim.instead and claim.instead != name:
            metric += f", for the paper's {COLUMNS[claim.instead].title}"
        lines.append(f"| {claim.text} | {metric} | **{verdict.word}** | {verdict.reason} |")
    return lines


def costs(found: Found, scale: Scale) -> list[str]:
    """Time, machine, commits and the command of what was measured."""
    results = found.all_results()
    made = [one for r in results for one in (r["made"], *r.get("made_later", {}).values())]

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(one[name]) for one in made}))

    trained = [r["minutes"]["pretraining"] for r in results if "pretraining" in r["minutes"]]
    each = f", {min(trained):.1f} to {max(trained):.1f} a row and seed" if trained else ""
    sets = [r["measures"]["intrinsic"] for r in results if r["measures"].get("intrinsic")]
    sources = sorted({pair for one in sets for pair in one["development_set"].items()})
    dev = ", ".join(f"{setting} {name}" for setting, name in sources)
    rest = sum(sum(result["minutes"].values()) for result in results) - _minutes(found)
    cost = f"Cost: {_minutes(found):.0f} minutes of pretraining{each}, {rest:.0f} minutes of measuring; "
    return [
        (cost if rest >= 1 else "")
        + f"{all_of('processor')}, cores: {all_of('cores')}; {all_of('date')}; commit {all_of('commit')}."
        + (f" Development set: {dev}." if dev else ""),
        "",
        *(f"    {command}" for command in _commands(found, scale)),
    ]


def _commands(found: Found, scale: Scale) -> list[str]:
    """The commands that made the results, one a precision."""
    experiment, results = found.experiment, found.all_results()
    command = f"python -m experiments run {experiment.name} --scale={scale.name}"
    if experiment.budget == "none":
        return [command]
    measured = {
        "tasks" if name.startswith("task ") else name
        for result in results
        for name, value in result["measures"].items()
        if value is not None
    }
    chosen = [name for name in experiment.measures if name in measured]
    if len(chosen) < len(experiment.measures):
        command += f" --measures={','.join(chosen)}"
    own = scale.training.get("mixed_precision", "")
    precisions = {r["declared"]["training"].get("mixed_precision", own) for r in results}
    flags = [f" --mixed_precision={name}" if name != own else "" for name in sorted(precisions)]
    return [f"{command} --data_dir=DATA{flag}" for flag in flags]


def _minutes(found: Found) -> float:
    return sum(result["minutes"].get("pretraining", 0.0) for result in found.all_results())
