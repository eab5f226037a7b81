"""The one reporter: JSON files of experiments, benchmarks and small tasks -> Markdown tables and plots."""

import glob
import json
import math
import os
import re
import statistics
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab import tables
from lab.experiments import verdicts
from lab.experiments.columns import COLUMNS, Column, Values, shown
from lab.experiments.declarations import CHANCE, FOLDER, Claim, Experiment, Row, Scale
from lab.experiments.recorded import read_result

matplotlib.use("Agg")

PAGE = os.path.join(FOLDER, "page.md")
NOTES_FILE = "notes.md"  # written by hand, in the folder of the JSON files, and in that of the page
CLAIMS = "claim | compared by | here | difference | seeds needed"


# --- Experiments: tables ---


class Measured(NamedTuple):
    """An experiment and its results by row: one JSON for each seed."""

    experiment: Experiment
    rows: Mapping[str, list[dict]]

    def all_results(self) -> list[dict]:
        """The results of all rows."""
        return [result for results in self.rows.values() for result in results]

    def shown_columns(self) -> list[str]:
        """The columns of the table for which something was measured."""
        names = self.experiment.columns
        return [name for name in names if any(self.values(row, name) for row in self.rows)]

    def values(self, row: str, column: str) -> dict[int, Values]:
        """The numbers of a column and row, by seed."""
        values = {}
        for result in self.rows.get(row, ()):
            numbers = COLUMNS[column].values(result)
            if numbers:
                values[result["seed"]] = numbers
        return values

    def means(self, row: str, column: str) -> dict[int, float]:
        """The same with one number for each seed, the mean of a pair such as F1/EM."""
        return {seed: statistics.fmean(pair) for seed, pair in self.values(row, column).items()}


def write_report(
    experiments: Sequence[Experiment], scales: Sequence[Scale], results_dir: str
) -> str:
    """Writes README.md with the tables of all experiments that have results, and their plots; returns its path."""
    all_parts = [scale_report(experiments, scale, results_dir) for scale in scales]
    parts = [part for part in all_parts if part]
    if not parts:
        names = ", ".join(scale.name for scale in scales)
        raise UserError(f"{results_dir}: no results at scale {names}; run an experiment first")
    path = os.path.join(results_dir, "README.md")
    page = string.Template(files.read_bytes(PAGE).decode())
    text = page.substitute(notes="\n".join(_notes(results_dir)), scales="\n".join(parts))
    files.write_bytes(path, text.encode())
    return path


def scale_report(experiments: Sequence[Experiment], scale: Scale, results_dir: str) -> str:
    """The part of the report about one scale; "" if it has no results."""
    sections = {}
    for experiment in experiments:
        measured = Measured(experiment, read_results(experiment, scale, results_dir))
        if not measured.rows:
            continue
        folder = os.path.join(results_dir, experiment.name, scale.name)
        plot = draw(measured, folder)
        text = section(measured, scale, folder, plot and os.path.relpath(plot, results_dir))
        sections[text] = measured
    if not sections:
        return ""
    return "\n".join([summary(scale, sections.values()), *sections])


def read_results(experiment: Experiment, scale: Scale, results_dir: str) -> dict[str, list[dict]]:
    """The JSON files of an experiment by row, in the order of its rows and of the seeds."""
    folder = os.path.join(results_dir, experiment.name, scale.name)
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "*.json")))
    results = sorted(map(read_result, paths), key=lambda result: result["seed"])
    by_row = {}
    for row in experiment.rows:
        results_of_row = [result for result in results if result["row"] == row.name]
        if results_of_row:
            by_row[row.name] = results_of_row
    for result in results:
        for field, name in {"experiment": experiment.name, "scale": scale.name}.items():
            if result.get(field, name) != name:
                raise UserError(
                    f"{folder}: the result of row {result['row']!r}, seed {result['seed']}, belongs to {field}"
                    f" {result[field]}, not to {name}; move it to the folder of that {field}"
                )
    for name, of_row in by_row.items():
        if any(result["declared"] != of_row[0]["declared"] for result in of_row):
            raise UserError(
                f"{folder}: the seeds of row {name!r} were made with different settings (declared in their files);"
                " expected the same in all: keep only files with equal settings"
            )
    for row in experiment.rows:
        _add_speedups(experiment, row, by_row)
    return by_row


def _add_speedups(experiment: Experiment, row: Row, by_row: Mapping[str, list[dict]]) -> None:
    """Adds speed-ups: the speed of each seed divided by that of the reference row with the same seed."""
    rows = {"speedup": experiment.speed_reference, "speedup_same_shape": row.same_shape}
    for name, reference in rows.items():
        references = {result["seed"]: result for result in by_row.get(reference, ())}
        for result in by_row.get(row.name, ()):
            both = (result, references.get(result["seed"], {}))
            speeds = [each.get("measures", {}).get("speed") for each in both]
            if all(speeds):
                result[name] = (speeds[0]["median"] / speeds[1]["median"],)


def summary(scale: Scale, all_measured: Iterable[Measured]) -> str:
    """The scale; all claims with their verdicts; one line for each experiment."""
    words = (verdicts.AGREES, verdicts.DISAGREES, verdicts.TOO_SMALL, verdicts.NOT_RUN)
    counts = []
    claims = []
    for measured in all_measured:
        heading = _heading(measured.experiment, scale)
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        rows = verdict_rows(measured)
        words_of_rows = [word for _, _, word, *_ in rows]
        numbers = [words_of_rows.count(f"**{word}**") or "" for word in words]
        title = f"[{measured.experiment.title}](#{anchor})"
        counts.append((title, *numbers, f"{_minutes(measured.all_results()) / 60:.1f}"))
        name = f"[{measured.experiment.label}](#{anchor})"
        claims += [(name, *row) for row in rows]
    totals = [sum(row[column] or 0 for row in counts) for column in range(1, len(words) + 1)]
    minutes = _minutes(result for measured in all_measured for result in measured.all_results())
    counts.append(("all", *totals, f"{minutes / 60:.1f}"))
    lines = [f"# Scale {scale.name}: {scale.title}", ""]
    lines += [*tables.table(f"experiment | {CLAIMS}", claims), ""]
    lines += tables.table(f"experiment | {' | '.join(words)} | hours of training", counts)
    return "\n".join([*lines, "", *sizes(scale)])


def sizes(scale: Scale) -> list[str]:
    """What a scale replaces: the paper's sizes, and the most important settings."""
    values_of_scale = {**scale.training, **scale.data, **scale.vocabulary}
    settings = [
        (f"`{name}`", f"{values_of_scale[name]:,}")
        for name in ("num_train_steps", "train_batch_size", "max_seq_length", "vocab_size")
        if name in values_of_scale
    ]
    translated = [
        (f"`{field}`", ", ".join(f"{paper} → {here}" for paper, here in translation.items()))
        for field, translation in scale.sizes.items()
    ]
    lines = tables.table("setting | value; sizes: the paper's → here", [*settings, *translated])
    file = f"`{scale.name}.toml` has all settings, and those of single experiments that differ."
    return [*lines, "", file, ""]


def _heading(experiment: Experiment, scale: Scale) -> str:
    return f"{experiment.label}, {scale.name}: {experiment.title}"


def section(measured: Measured, scale: Scale, folder: str, plot: str | None) -> str:
    """The part of the report about one experiment; the summary has its claims."""
    experiment = measured.experiment
    data = f"[Data]({experiment.name}/{scale.name})."
    source = " ".join(filter(None, (f"{experiment.source}.", experiment.note, data)))
    lines = [f"## {_heading(experiment, scale)}", "", source, "", *table(measured, scale)]
    if plot:
        lines += ["", f"![{experiment.title}]({plot})"]
    lines += ["", *costs(measured, scale)]
    return "\n".join([*lines, "", *_notes(folder)]).rstrip("\n") + "\n"


def _notes(folder: str) -> list[str]:
    """The notes in a folder, if it has some."""
    path = os.path.join(folder, NOTES_FILE)
    return [files.read_bytes(path).decode()] if os.path.exists(path) else []


def _parameters_here(measured: Measured, row: Row) -> str:
    """The number of parameters of a row at this scale; "-" if it was not measured."""
    for result in measured.rows.get(row.name, ()):
        if "parameters" in result["measures"]:
            return f"{result['measures']['parameters']['here']:,}"
    return "-"


def table(measured: Measured, scale: Scale) -> list[str]:
    """The table: the rows that the scale has, the columns that were measured, and the paper's numbers."""
    experiment = measured.experiment
    rows = [r for r in experiment.rows if r.name in measured.rows or scale.has_row(experiment, r)]
    columns = measured.shown_columns()
    is_trained = experiment.budget != "none"
    has_here = is_trained and any("parameters" in r["measures"] for r in measured.all_results())
    average = "average" in experiment.columns and "average" not in columns
    minutes = is_trained and "minutes" not in columns
    # Title and cell of each column after those of the experiment.
    others: list[tuple[str, Callable[[Row], object]]] = []
    if has_here:
        others.append(("parameters here", lambda row: _parameters_here(measured, row)))
    if minutes:
        others.append(("minutes", lambda row: cell(measured, row, "minutes")))
    if is_trained:
        others.append(("seeds", lambda row: seeds_of(measured, row, columns)))
    if average:
        others.append(("the paper's Avg", lambda row: row.paper.get("average", "-")))

    titles = ["", *(COLUMNS[name].title for name in columns), *(title for title, _ in others)]
    lines = []
    for row in rows:
        cells = [row.name, *(cell(measured, row, name) for name in columns)]
        lines.append([*cells, *(make_cell(row) for _, make_cell in others)])
    chances = [chance_of(measured, COLUMNS[name]) for name in columns]
    if any(chances):
        levels = [f"{level.value:.1f}" if level else "" for level in chances]
        rest = len(titles) - 1 - len(columns)
        lines.append(["*the most frequent answer*", *levels, *rest * [""]])
    return tables.table(" | ".join(titles), lines)


def seeds_of(measured: Measured, row: Row, columns: Iterable[str]) -> str:
    """The number of seeds behind the means of a row: the smallest and the largest of its columns."""
    counts = {len(measured.values(row.name, name)) for name in columns if name != "parameters"}
    counts = sorted(counts - {0})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"


def chance_of(measured: Measured, column: Column) -> verdicts.Level | None:
    """The score of the most frequent answer in a column, with the standard error for its number of examples."""
    for result in measured.all_results() if column.chance else ():
        if chance := column.chance(result):
            (share,) = chance
            (examples,) = column.examples(result)
            return verdicts.Level(share, math.sqrt(share * (100 - share) / examples))
    return None


def cell(measured: Measured, row: Row, name: str) -> str:
    """Mean and standard deviation over seeds, and the paper's number, such as "27.1 ± 0.2 (54.9)"."""
    column = COLUMNS[name]
    values = list(measured.values(row.name, name).values())
    text = "-"
    if values:
        text = shown(tuple(map(statistics.fmean, zip(*values, strict=True))), column.digits)
        if len(values) > 1 and len(values[0]) == 1 and name != "parameters":
            spread = statistics.stdev(value for (value,) in values)
            text += f" ± {spread:.{column.digits}f}"
    return f"{text} ({row.paper[name]})" if name in row.paper else text


def compared_by(measured: Measured, claim: Claim) -> str:
    """The column that a claim is judged by: the paper's, if both rows have it, otherwise its replacement."""
    rows = [row for row in (claim.higher, claim.compared[1]) if row in measured.rows]
    if claim.instead and rows and all(measured.values(row, claim.instead) for row in rows):
        return claim.instead
    return claim.metric


def judge(measured: Measured, claim: Claim) -> verdicts.Verdict:
    """The verdict on a claim."""
    name = compared_by(measured, claim)
    column = COLUMNS[name]
    rule, reference = claim.compared
    if reference == CHANCE:
        reference = chance_of(measured, column)
    elif isinstance(reference, str):
        reference = measured.means(reference, name)
    else:
        reference = verdicts.Level(reference)
    values = measured.means(claim.higher, name)
    return verdicts.compare(values, reference, column.digits, rule, claim.within)


def verdict_rows(measured: Measured) -> list[tuple[str, ...]]:
    """The claims with their verdicts: text, what is compared, verdict, difference, seeds needed to decide."""
    rows = []
    for claim in measured.experiment.claims:
        verdict = judge(measured, claim)
        name = compared_by(measured, claim)
        metric = COLUMNS[name].title
        if claim.instead and claim.instead != name:
            metric += f", for the paper's {COLUMNS[claim.instead].title}"
        rows.append((claim.text, metric, f"**{verdict.word}**", verdict.reason, verdict.seeds))
    return rows


def costs(measured: Measured, scale: Scale) -> list[str]:
    """Time, machine, commits and commands of the results."""
    results = measured.all_results()
    made = [made for r in results for made in (r["made"], *r.get("made_later", {}).values())]

    commands = dict.fromkeys(each["command"] for each in made if "command" in each)

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(each[name]) for each in made}))

    trained = [r["minutes"]["pretraining"] for r in results if "pretraining" in r["minutes"]]
    each = f", {min(trained):.1f} to {max(trained):.1f} per row and seed" if trained else ""
    sets = [r["measures"]["intrinsic"] for r in results if r["measures"].get("intrinsic")]
    sources = sorted({pair for numbers in sets for pair in numbers["development_set"].items()})
    dev = ", ".join(f"{setting} {name}" for setting, name in sources)
    minutes = [pair for result in results for pair in result["minutes"].items()]
    rest = sum(value for name, value in minutes if name != "pretraining")
    cost = f"Cost: {_minutes(results):.0f} minutes of pretraining{each}, {rest:.0f} minutes of measuring; "
    return [
        (cost if trained or rest >= 1 else "")
        + f"{all_of('processor')}, cores: {all_of('cores')}; {all_of('date')}; commit {all_of('commit')}."
        + (f" Development set: {dev}." if dev else ""),
        "",
        *(f"    {command}" for command in commands),
    ]


def _minutes(results: Iterable[Mapping[str, Any]]) -> float:
    """The time of pretraining; a run that several rows share counts once."""
    # Results that share a run have equal curves.
    runs = {json.dumps(r["measures"].get("pretraining")): r["minutes"] for r in results}
    return sum(minutes.get("pretraining", 0.0) for minutes in runs.values())


# --- Experiments: plots ---

COLORS = ("#1f5fa8", "#c4551d", "#3a7d44", "#7d3a78", "#8a6d1d", "#444444")

matplotlib.rcParams.update({"font.size": 9, "axes.titlesize": 9, "legend.fontsize": 8})
matplotlib.rcParams.update(
    {"axes.spines.right": False, "axes.spines.top": False, "grid.alpha": 0.3}
)


def new_figure(
    columns: int, rows: int = 1, *, width: float = 3.2, height: float = 2.8, sharey: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure, `width` and `height` inches per panel, and the panels' `Axes`, [rows, columns]."""
    size = (max(4.0, width * columns), height * rows)
    return plt.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=sharey
    )


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure and frees its memory."""
    figure.savefig(path)
    plt.close(figure)


_PANELS_A_LINE = 3
_DOTS = ("speedup", "masked_lm", "nsp", "sop", "sst2", "nsp_held_out", "sop_held_out")
# Columns in which our numbers and the paper's fit on one axis.
_WITH_PAPER = ("nsp", "sop", "speedup")


def draw(measured, folder: str) -> str | None:
    """Draws the plot of an experiment, a `report.Measured`; returns its path, None if there is nothing to draw."""
    kinds = {"dots": _dots, "curves": _curves, "layers": _layers}
    kind = measured.experiment.plot
    figure = kinds[kind](measured) if kind else None
    if not figure:
        return None
    path = os.path.join(folder, "plot.png")
    save(figure, path)
    return path


def _dots(measured):
    """Draws a panel per column: dots for seeds, a tick for their mean, a diamond for the paper's number."""
    columns = [name for name in _DOTS if name in measured.shown_columns()]
    if not columns:
        return None
    lines = math.ceil(len(columns) / _PANELS_A_LINE)
    height = 1.4 + 0.3 * len(measured.rows)
    panels_a_line = min(_PANELS_A_LINE, len(columns))
    figure, panels = new_figure(panels_a_line, lines, width=3.6, height=height, sharey=True)
    for axes, name in zip(panels.flat, columns, strict=False):
        _dots_of_column(axes, measured, name)
    for axes in panels.flat[len(columns) :]:
        axes.set_visible(False)
    return figure


def _dots_of_column(axes: Axes, measured, name: str) -> None:
    title = COLUMNS[name].title
    for position, row in enumerate(measured.rows):
        values = [numbers[0] for numbers in measured.values(row, name).values()]
        if values:
            axes.plot(values, [position] * len(values), "o", color=COLORS[0], ms=4, alpha=0.8)
            axes.plot(statistics.fmean(values), position, "|", color=COLORS[0], ms=14, mew=1.5)
        paper = measured.experiment.row(row).paper.get(name)
        if name in _WITH_PAPER and paper is not None:
            axes.plot(paper, position, "D", color=COLORS[1], ms=5, fillstyle="none")
            title = f"{COLUMNS[name].title} (diamonds: paper)"
    axes.set_yticks(range(len(measured.rows)), list(measured.rows), fontsize=8)
    axes.set_ylim(len(measured.rows) - 0.5, -0.5)
    axes.set_title(title)
    axes.tick_params(labelsize=8)
    axes.margins(x=0.12)
    axes.grid(axis="y")


def _curves(measured):
    """Draws masked-LM accuracy on the development set by step: a color for each row, a line for each seed."""
    if not any(result["measures"].get("pretraining") for result in measured.all_results()):
        return None
    figure, ((axes,),) = new_figure(1, width=6.0, height=3.6)
    for color, (row, results) in zip(cycle(COLORS), measured.rows.items(), strict=False):
        for number, result in enumerate(results):
            lines = result["measures"].get("pretraining", {}).get("evaluation", [])
            steps = [line["step"] for line in lines]
            accuracy = [100 * line["masked_lm_accuracy"] for line in lines]
            label = None if number else row
            axes.plot(steps, accuracy, "o-", ms=3, lw=1.2, color=color, label=label, alpha=0.8)
    axes.set(xlabel="step", ylabel="masked-LM accuracy, %", title="development set")
    axes.legend()
    return figure


def _layers(measured):
    """Draws L2 distance and angle of every layer; solid for all tokens, dashed for [CLS].

    Points are means over seeds; bars reach from the lowest seed to the highest.
    """
    changes_of = {}
    for row, results in measured.rows.items():
        changes = [result["measures"].get("layer_changes") for result in results]
        changes = [changes_of_seed for changes_of_seed in changes if changes_of_seed]
        if changes:
            changes_of[row] = changes
    if not changes_of:
        return None
    figure, (panels,) = new_figure(2, width=4.5, height=3.6)
    titles = {"l2_distance": "L2 distance", "degrees": "angle, degrees"}
    styles = {"pieces": ("o-", "all tokens"), "cls": ("s--", "[CLS]")}
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        for color, (row, changes) in zip(cycle(COLORS), changes_of.items(), strict=False):
            for positions, (style, label) in styles.items():
                layers = np.array([change[positions][kind] for change in changes])
                means = layers.mean(0)
                numbers = range(1, len(means) + 1)
                bars = means - layers.min(0), layers.max(0) - means
                look = {"fmt": style, "color": color, "label": f"{row}, {label}", "capsize": 2}
                axes.errorbar(numbers, means, bars, ms=4, lw=1.2, **look)
        heading = f"{title} between a layer's input and output"
        axes.set(xlabel="layer", title=heading, ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[1].legend(loc="lower left")  # where the curves are far above 0
    return figure


# --- Benchmarks ---


def number(value: float) -> str:
    """A number with three significant digits: 0.0123, 4.56, 789, 12,300."""
    if not value:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


_BENCHMARK_COLUMNS = {
    "examples_a_second": "examples/s",
    "tokens_of_example": "tokens of an example",
    "text_bytes_a_second": "bytes of text/s",
    "bytes_a_second": "bytes/s",
    "texts_a_second": "texts/s",
    "median_cosine": "median cosine",
}


def benchmark_table(content: Mapping[str, Any], busy: float = 0.1) -> list[str]:
    """The lines of a page about the content of a benchmark's results.json; `*`: other programs disturbed it."""
    machine = content["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    rows = []
    for name, result in content["measurements"].items():
        was_disturbed = (result.get("others") or 0) > busy
        star = "\\*" if was_disturbed else ""
        if result["status"] != "done":
            rows.append((f"`{name}`", f"{result['status']}: {result.get('reason', '')}", "", ""))
            continue
        values = result["values"]
        low, high = (number(values[key]) for key in ("min", "max"))
        rates = [f"{number(values[k])} {t}" for k, t in _BENCHMARK_COLUMNS.items() if k in values]
        seconds = f"{number(values['median'])}{star} ({low} to {high})"
        rows.append((f"`{name}`", seconds, ", ".join(rates), f"{result['peak_bytes'] / 1e9:.2f}"))
    head = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {versions}"
    return [
        f"# Speed and memory, {content['date']}",
        "",
        f"{head}; commit {content['commit']}. Medians, with minimum and maximum; \\*: other programs took more than"
        f" {busy:.0%} of the processors; memory is the peak of the process.",
        "",
        *tables.table("measurement | seconds | rates | memory, GB", rows),
    ]


# --- Parts of pages that are written by hand ---


def replace_parts(page: str, parts: Mapping[str, Sequence[str]]) -> None:
    """Replaces the lines between `<!-- name -->` and `<!-- end of name -->`."""
    text = files.read_bytes(page).decode()
    for name, lines in parts.items():
        start = f"<!-- {name} -->\n"
        end = f"\n<!-- end of {name} -->"
        if start not in text:
            raise UserError(f"{page}: has no line {start.strip()}")
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = before + start + "\n" + "\n".join(lines) + "\n" + end + after
    files.write_bytes(page, text.encode())
