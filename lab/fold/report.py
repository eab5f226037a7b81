"""Writes the tables, verdicts and two plots of `lab.fold`: python -m lab.fold.report, in the root of the project."""

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from lab import tables
from lab.experiments import verdicts
from lab.fold.__main__ import EMBEDDING_SIZES, STRATEGIES
from lab.report import COLORS, new_figure, replace_parts, save

RESULTS = pathlib.Path("docs/results")
PICTURES = pathlib.Path("docs/pictures")
_METRICS = {
    "stsb_dev": ("STS-B dev", 1),
    "sst2": ("SST-2, linear probe", 1),
    "error": ("error, last layer", 3),
}
Values = dict[str, dict[int, float]]  # cell -> seed -> value


def values_of(content: Mapping, metric: str) -> Values:
    """The values of a metric, by size and seed; higher is better, so errors have the opposite sign."""
    found: Values = {}
    for run in content["runs"]:
        value = -run["error"] if metric == "error" else run[metric]
        found.setdefault(run["size"], {})[run["seed"]] = value
    return found


def _minus(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    return {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}


def claims(values: Values, digits: int, within: float) -> dict[str, verdicts.Verdict]:
    """The verdict on each claim by one metric."""

    def of(cell: str) -> dict[int, float]:
        return values.get(cell, {})

    def cost(size: int) -> dict[int, float]:
        return _minus(of(f"{size}-none"), of(f"{size}-all"))

    pairs = {
        "E 128 is enough if all is shared (paper, Table 3)": (of("128-all"), of("384-all"), "near"),
        "sharing FFN costs more than sharing attention (Table 4)": (
            of("128-attention"),
            of("128-ffn"),
            "lower",
        ),
        "sharing costs less at E 128 than at E = D (Table 4)": (cost(384), cost(128), "lower"),
        "three groups beat a wider table, E 256, at equal parameters (new)": (
            of("128-all-3"),
            of("256-all"),
            "lower",
        ),
    }
    return {
        text: verdicts.compare(first, second, digits, rule, within if rule == "near" else 0.0)
        for text, (first, second, rule) in pairs.items()
    }


def _mean(values: Mapping[int, float], digits: int) -> str:
    return f"{abs(statistics.fmean(values.values())):.{digits}f}" if values else ""


def size_table(content: Mapping) -> list[str]:
    """A row for each size: its parameters, and the mean of each metric over seeds."""
    by_metric = {metric: values_of(content, metric) for metric in _METRICS}
    parameters = {run["size"]: run["parameters"] for run in content["runs"]}
    rows = []
    for cell in sorted(parameters, key=lambda cell: parameters[cell]):
        size, strategy, *groups = cell.split("-")
        scores = [_mean(by_metric[name][cell], digits) for name, (_, digits) in _METRICS.items()]
        millions = f"{parameters[cell] / 1e6:.1f} M"
        rows.append(
            (
                size,
                strategy,
                *(groups or ["1"]),
                millions,
                *scores,
                len(by_metric["stsb_dev"][cell]),
            )
        )
    titles = " | ".join(title for title, _ in _METRICS.values())
    return tables.table(f"E | shared | groups | parameters | {titles} | seeds", rows)


def verdict_table(content: Mapping) -> list[str]:
    """A row for each claim and metric."""
    rows = []
    for metric, (title, digits) in _METRICS.items():
        within = 0.05 if metric == "error" else 1.0
        for text, verdict in claims(values_of(content, metric), digits, within).items():
            rows.append((text, title, verdict.word, verdict.reason))
    return tables.table("claim | by | verdict | difference", sorted(rows, key=lambda row: row[0]))


def trial_table(trials: Sequence[Mapping]) -> list[str]:
    """A row for each trial of equal tokens, in the order in which they were made."""
    rows = [
        (
            trial["name"],
            f"{trial['parameters'] / 1e6:.1f} M",
            f"{trial['error']:.3f}",
            f"{trial['cosine']:.3f}",
            f"{trial['stsb_dev']:.1f}",
            f"{trial['stsb_test']:.1f}",
            f"{trial['seconds']:.1f}",
        )
        for trial in trials
    ]
    head = "trial | parameters | error, last layer | cosine of vectors | STS-B dev | STS-B test"
    return tables.table(f"{head} | seconds", rows)


def depth_table(sizes: Sequence[Mapping]) -> list[str]:
    """A row for each size of `lab.fold.depths`: its score, and its megabytes and speed in two forms."""
    rows = []
    for size in sizes:
        is_trained = size["parameters"] is not None
        scores = ("", "", "")
        if is_trained:
            scores = (
                f"{size['parameters'] / 1e6:.1f} M",
                f"{size['stsb_dev']:.1f}",
                f"{size['stsb_test']:.1f}",
            )
        forms = [size["none"], size["int8"]]
        cells = [
            f"{form['texts_per_processor_second']:.0f} ({form['megabytes']:.1f} MB)"
            for form in forms
        ]
        rows.append((size["name"], *scores, *cells))
    head = (
        "model | parameters | STS-B dev | STS-B test | texts per processor second, float32 | int8"
    )
    return tables.table(head, rows)


def draw(content: Mapping) -> None:
    """Score against parameters, and error against E."""
    scores, errors = values_of(content, "stsb_dev"), values_of(content, "error")
    parameters = {run["size"]: run["parameters"] / 1e6 for run in content["runs"]}
    figure, ((score_axes, error_axes),) = new_figure(2, width=4.5, height=3.6)
    lines = {strategy: [f"{e}-{strategy}" for e in EMBEDDING_SIZES] for strategy in STRATEGIES}
    groups = {"all, groups, E 128": ["128-all", *(f"128-all-{n}" for n in (2, 3, 6))]}
    for color, (name, cells) in zip(COLORS, {**lines, **groups}.items(), strict=False):
        known = [cell for cell in cells if cell in scores]
        points = [(parameters[c], statistics.fmean(scores[c].values())) for c in known]
        if points:
            score_axes.plot(*zip(*sorted(points), strict=True), "o-", ms=4, color=color, label=name)
        for cell, (million, score) in zip(known, points, strict=True):
            size, _, *number_of_groups = cell.split("-")
            label, offset = f"E {size}", (4, -9)
            if number_of_groups:
                label, offset = f"{number_of_groups[0]} groups", (-36, 3)
            score_axes.annotate(
                label, (million, score), offset, textcoords="offset points", fontsize=6, color=color
            )
        if points and name in STRATEGIES:
            sizes = [int(cell.partition("-")[0]) for cell in known]
            means = [-statistics.fmean(errors[cell].values()) for cell in known]
            error_axes.plot(sizes, means, "o-", ms=4, color=color, label=name)
    score_axes.axhline(
        content["teacher"]["stsb_dev"], color="#444444", lw=1, ls="--", label="teacher"
    )
    score_axes.set(
        xlabel="million parameters",
        ylabel="STS-B dev",
        title="score after five seconds of training",
    )
    error_axes.set(xlabel="E", ylabel="error of the last layer", title="error by E", ylim=(0, 0.75))
    score_axes.legend(fontsize=7)
    error_axes.legend(fontsize=7, title="shared", ncol=2, loc="upper right")
    save(figure, PICTURES / "fold_sizes.png")


def main() -> None:
    """Replaces the tables of docs/results/fold.md, and draws."""
    content = json.loads((RESULTS / "data" / "fold_sizes.json").read_text())
    trials = json.loads((RESULTS / "data" / "fold_trials.json").read_text())["trials"]
    depths = json.loads((RESULTS / "data" / "fold_depths.json").read_text())["sizes"]
    parts = {
        "depths": depth_table(depths),
        "sizes": size_table(content),
        "claims": verdict_table(content),
        "trials": trial_table(trials),
    }
    replace_parts(str(RESULTS / "fold.md"), parts)
    draw(content)


if __name__ == "__main__":
    main()
