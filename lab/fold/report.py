"""Writes the tables, verdicts and two plots of `lab.fold`: python -m lab.fold.report, in the root of the project."""

import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from lab import tables
from lab.experiments import verdicts
from lab.fine_tuning import report as fine_tuning
from lab.fold.__main__ import EMBEDDING_SIZES, STRATEGIES
from lab.report import COLORS, new_figure, replace_parts, save

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PICTURES = ROOT / "docs" / "pictures"
PAGE = "docs/results/fold.md"
_TEACHER = "all-MiniLM-L6-v2"
_SHARED = "albert-minilm-l6-shared"  # the model of one group, which is not published
_FIRST_TRIAL = "AdamW, 7e-4, inner layers .5 (as in the table of sizes)"
_PLAIN_MUON = "Muon, update size .2"  # the trial with which the others are compared
_METRICS = {
    "stsb_dev": ("STS-B dev", 1),
    "sst2": ("SST-2, linear probe", 1),
    "error": ("error, last layer", 3),
}
Values = dict[str, dict[int, float]]  # cell -> seed -> value


def values_of(content: Mapping, metric: str) -> Values:
    """The values of a metric, by size and seed; higher is better, so errors have the opposite sign."""
    values: Values = {}
    for run in content["runs"]:
        value = -run["error"] if metric == "error" else run[metric]
        values.setdefault(run["size"], {})[run["seed"]] = value
    return values


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
    scores = values_of(content, "stsb_dev")
    errors = values_of(content, "error")
    parameters = {run["size"]: run["parameters"] / 1e6 for run in content["runs"]}
    figure, ((score_axes, error_axes),) = new_figure(2, width=4.5, height=3.6)
    lines = {strategy: [f"{e}-{strategy}" for e in EMBEDDING_SIZES] for strategy in STRATEGIES}
    groups = {"all, groups, E 128": ["128-all", *(f"128-all-{n}" for n in (2, 3, 6))]}
    for color, (name, cells) in zip(COLORS, {**lines, **groups}.items(), strict=False):
        trained = [cell for cell in cells if cell in scores]
        points = [(parameters[cell], statistics.fmean(scores[cell].values())) for cell in trained]
        if points:
            score_axes.plot(*zip(*sorted(points), strict=True), "o-", ms=4, color=color, label=name)
        for cell, (million, score) in zip(trained, points, strict=True):
            size, _, *number_of_groups = cell.split("-")
            label = f"E {size}"
            offset = (4, -9)
            if number_of_groups:
                label = f"{number_of_groups[0]} groups"
                offset = (-36, 3)
            score_axes.annotate(
                label, (million, score), offset, textcoords="offset points", fontsize=6, color=color
            )
        if points and name in STRATEGIES:
            sizes = [int(cell.partition("-")[0]) for cell in trained]
            means = [-statistics.fmean(errors[cell].values()) for cell in trained]
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


def content(name: str) -> Any:
    """A JSON file of docs/results/data."""
    return json.loads((RESULTS / "data" / name).read_text())


# --- Models ---


def model_table() -> list[str]:
    """A row for each trained model: its size, what it learned from, and its scores on STS-B."""
    training = content("fold_training.json")
    long = content("fold_long.json")
    teacher_scores = content("fold_sizes.json")["teacher"]
    teacher = (f"{_TEACHER}, the teacher", 6, *_size(_teacher_parameters()), "", "", "0")

    with_muon = content("fold_on_a_processor.json")
    published = training["published"]
    shared = training["all_shared"]
    of_long = {
        **long["run"],
        **long["stsb"],
        "error": long["held_out"]["error_6"],
        "parameters": published["parameters"],
    }
    rows = [
        (*teacher, *_sts_b(teacher_scores)),
        _on_a_gpu(_linked("albert-minilm-l6"), 3, published, "H100"),
        _on_a_gpu(_linked("albert-minilm-l6-long"), 3, of_long, "H200"),
        _on_a_gpu("all shared, not published", 1, shared, "H100"),
        _on_two_cores(training["on_two_processor_cores"][0], published["parameters"]),
        *(_on_one_core(run, published["parameters"]) for run in with_muon["runs"]),
    ]
    head = (
        "model | groups | parameters | MB in half precision | learned from | time of the training"
    )
    return tables.table(f"{head} | error, last layer | STS-B dev | STS-B test", rows)


def _teacher_parameters() -> int:
    """The number of parameters of the teacher, which the size with all of E and without sharing has, too."""
    runs = content("fold_sizes.json")["runs"]
    (parameters,) = {run["parameters"] for run in runs if run["size"] == "384-none"}
    return parameters


def _linked(model: str) -> str:
    return f"[{model}](../../models/{model}/README.md)"


def _on_a_gpu(name: str, groups: int, run: Mapping, gpu: str) -> tuple:
    """The row of a training whose tokens and seconds were recorded."""
    return (
        name,
        groups,
        *_size(run["parameters"]),
        f"{run['tokens'] / 1e6:.0f} M tokens",
        f"{run['seconds']:.0f} s of an {gpu}",
        f"{run['error']:.3f}",
        *_sts_b(run),
    )


def _size(parameters: int) -> tuple[str, str]:
    """Millions of parameters, and megabytes in 16 bits."""
    return f"{parameters / 1e6:.1f} M", f"{2 * parameters / 1e6:.0f}"


def _sts_b(scores: Mapping) -> tuple[str, str]:
    return f"{scores['stsb_dev']:.1f}", f"{scores['stsb_test']:.1f}"


def _on_two_cores(run: Mapping, parameters: int) -> tuple:
    """The row of the first training on a processor, which was interrupted once."""
    texts = run["steps"] * run["texts_in_batch"]
    minutes = run["processor_minutes"]
    hours = (minutes["first run, to step 2,083"] + minutes["second run"]) / 60
    last = run["evaluations"]["second run"][-1]
    spearman = run["stsb_spearman"]
    end = "second run, end, float16"
    scores = {f"stsb_{part}": 100 * spearman[part][end] for part in ("dev", "test")}
    return (
        "three groups, AdamW",
        3,
        *_size(parameters),
        f"{texts:,} texts",
        f"{hours:.1f} processor hours",
        f"{last['last_loss']:.3f}",
        *_sts_b(scores),
    )


def _on_one_core(run: Mapping, parameters: int) -> tuple:
    """The row of a training with Muon; of one, the time was measured for most steps only."""
    hours = run["processor_seconds_timed"] / 3600
    time = f"{hours:.2g} processor hours"
    if run["steps_timed"] < run["steps"]:
        all_hours = hours * run["steps"] / run["steps_timed"]
        time += f" for {run['steps_timed']} of {run['steps']:,} steps, so {all_hours:.2g} for all"
    scores = {f"stsb_{part}": 100 * run[f"sts_b_{part}"] for part in ("dev", "test")}
    return (
        "three groups, Muon",
        3,
        *_size(parameters),
        f"{128 * run['steps']:,} texts",
        time,
        f"{run['error_last_layer']:.3f}",
        *_sts_b(scores),
    )


# --- Tasks of one group, and search ---


def one_group_table() -> list[str]:
    """A row for each task that the model of one group learned, and the same task of the others."""
    runs = fine_tuning.all_runs()
    baselines = content("baselines.json")["tasks"]
    curves = content("folded_fine_tuning.json")
    rows = []
    for task in ("SST-2", "MRPC", "QNLI", "MNLI", "WNUT"):
        metric = fine_tuning.TASKS[task].metrics[0]
        majority = baselines[task]["baselines"].get("majority class", {}).get(metric)
        single = [run for run in runs if run["model"] == _SHARED and run["task"] == task]
        at_1e_4 = fine_tuning.median_and_range(fine_tuning.scores_of(single, metric))
        curve = curves.get(f"{task}, bfloat16", {}).get("all_shared")
        medians = [_median(task, model) for model in (fine_tuning.FOLDED, fine_tuning.TEACHER)]
        cells = [_percent(majority), at_1e_4, _best_and_last(curve), *map(_percent, medians)]
        rows.append((f"{task}, {metric}", *cells))
    packages = curves["packages"]
    best_of_three_groups = 100 * max(accuracy for _, accuracy in packages["three_groups"])
    curve = _best_and_last(packages["all_shared"])
    rows.append(("packages, accuracy", "", "", curve, _percent(best_of_three_groups), ""))
    head = (
        "task | majority class | one group, 1e-4 | one group, a run whose rate was not written down"
    )
    return tables.table(f"{head} | three groups | teacher", rows)


def _median(task: str, model: str) -> float:
    """Of the runs of a model at its better rate, by the first metric of the task."""
    runs = fine_tuning.runs_at_best_rate(fine_tuning.all_runs(), task, model)
    return statistics.median(fine_tuning.scores_of(runs, fine_tuning.TASKS[task].metrics[0]))


def _percent(score: float | None) -> str:
    return "" if score is None else f"{score:.1f}"


def _best_and_last(curve: Sequence[Sequence[float]] | None) -> str:
    """The best and the last evaluation of a run, from pairs of step and share."""
    if curve is None:
        return ""
    best = max(share for _, share in curve)
    _, last = curve[-1]
    return f"{100 * best:.1f} (last {100 * last:.1f})"


def search_table() -> list[str]:
    """A row for BM25 and each model that searched SQuAD's paragraphs."""
    shared = content("folded_fine_tuning.json")["SQuAD paragraphs"]["all_shared"]
    positions = content("fold_positions.json")["retrieval"]
    scores_of_method = {
        "BM25": content("baselines.json")["search"]["BM25"],
        f"{_TEACHER}, the teacher": positions["teacher"],
        "albert-minilm-l6": positions["after"],
        "all shared": shared,
    }
    rows = [
        (name, f"{scores['recall_at_10']:.3f}", f"{scores['ndcg_at_10']:.3f}")
        for name, scores in scores_of_method.items()
    ]
    return tables.table("method | recall@10 | nDCG@10", rows)


# --- Ideas ---


def _idea(name: str, with_it: Mapping, without_it: Mapping) -> tuple:
    """A row: the parameters that an idea adds, and the error and STS-B test with and without it."""
    more = (with_it["parameters"] - without_it["parameters"]) / 1e6
    return (
        name,
        f"{more:.1f} M" if more else "none",
        f"{with_it['error']:.3f} instead of {without_it['error']:.3f}",
        f"{with_it['stsb_test']:.1f} instead of {without_it['stsb_test']:.1f}",
    )


def _trials() -> dict[str, Mapping]:
    return {trial["name"]: trial for trial in content("fold_trials.json")["trials"]}


def _short_trial(size: str) -> Mapping:
    """The trial of 300 steps of 128 rows at the rate 1.5e-3, which the starts from means have."""
    (trial,) = [
        trial
        for trial in content("fold_training.json")["trials"]
        if (trial["size"], trial["learning_rate"]) == (size, 1.5e-3)
    ]
    return trial


def table_of_no_help() -> list[str]:
    """The ideas after which the error was not lower."""
    trials = _trials()
    ideas = {
        "output matrices of each group fitted by least squares to its layers": "Muon .2, output matrices fitted by"
        " least squares",
        "adapters of rank 48 in the layers that are no copies, from the SVD of what is left": "Muon .2, adapters of"
        " rank 48 in the three layers that are no copies",
        "first and last layers share, instead of neighbors": "Muon .2, first and last layers share (0 1 2 2 1 0)",
        "relations of attention as a fourth loss, weight .3": "Muon .2, relations of attention .3",
        "twice the steps of half the rows": "Muon .2, twice the steps of half the rows",
    }
    mean_of_three_groups = (_short_trial("128-all-3-mean"), _short_trial("128-all-3"))
    rows = [
        _idea("three groups: the mean of the layers, instead of one of them", *mean_of_three_groups)
    ]
    rows += [_idea(idea, trials[name], trials[_PLAIN_MUON]) for idea, name in ideas.items()]
    return tables.table("idea | more parameters | error | STS-B test", rows)


def table_of_help() -> list[str]:
    """The ideas after which the error was lower."""
    trials = _trials()
    ideas = {
        "Muon with updates of half the size (.1)": "**Muon, update size .1**",
        "E 160": "Muon .2, E 160",
        "momentum .9 instead of .95": "Muon .2, momentum .9",
        "weight 3 of the inner layers instead of 1.5": "Muon .2, inner layers 3",
        "weight decay .1": "Muon .2, weight decay .1",
    }
    adamw = "AdamW, 3e-3"
    mean = ("all shared, Muon .2, from the mean", "all shared, Muon .2")
    rows = [
        _idea(
            "AdamW: rate 3e-3 instead of 7e-4, and weight 1.5 of the inner layers instead of .5",
            trials[adamw],
            trials[_FIRST_TRIAL],
        ),
        _idea(
            "Muon for the kernels of the blocks, instead of AdamW",
            trials[_PLAIN_MUON],
            trials[adamw],
        ),
    ]
    rows += [_idea(idea, trials[name], trials[_PLAIN_MUON]) for idea, name in ideas.items()]
    rows += [
        _idea(
            "one group, AdamW: the mean of the layers, instead of one of them",
            _short_trial("128-all-1-mean"),
            _short_trial("128-all"),
        ),
        _idea(
            "one group, Muon: the mean of the layers, instead of one of them",
            *(trials[name] for name in mean),
        ),
    ]
    return tables.table("idea | more parameters | error | STS-B test", rows)


# --- Claims ---


def claims_in_short() -> list[str]:
    """The claims of the page with their numbers, as a numbered list."""
    texts = [_similarity(), _one_group(), _questions(), _speed(), _ideas()]
    lines = []
    for number, text in enumerate(texts, start=1):
        lines += tables.wrapped(f"{number}. {text}", "   ")
    return lines


def _similarity() -> str:
    training = content("fold_training.json")
    sizes = content("fold_sizes.json")
    teacher = _teacher_parameters()
    three_groups = training["published"]
    one_group = training["all_shared"]
    return (
        "**The similarity of sentences survives folding.** With"
        f" {100 * three_groups['parameters'] / teacher:.0f} % of the parameters, the correlation with human judgments"
        f" (STS-B test, not trained on it) is {three_groups['stsb_test']:.1f}; the teacher has"
        f" {sizes['teacher']['stsb_test']:.1f}. Even with all layers shared,"
        f" {100 * one_group['parameters'] / teacher:.0f} % of the parameters, it is {one_group['stsb_test']:.1f}"
        " ([models](#models))."
    )


def _one_group() -> str:
    single = {run["task"]: run for run in fine_tuning.all_runs() if run["model"] == _SHARED}
    losses = []
    for task, run in single.items():
        score = run["scores"][fine_tuning.TASKS[task].metrics[0]]
        losses.append(_median(task, fine_tuning.FOLDED) - score)
    curve = content("folded_fine_tuning.json")["SST-2, bfloat16"]["all_shared"]
    on_sst2 = _median("SST-2", fine_tuning.FOLDED) - 100 * max(share for _, share in curve)
    *first_tasks, last_task = single
    return (
        "**The ability to learn a task survives only if some layers stay apart.** One group of six layers, whose"
        f" vectors are as good, is {min(losses):.1f} to {max(losses):.1f} points below three groups on"
        f" {', '.join(first_tasks)} and {last_task}, and {on_sst2:.1f} below on SST-2. It was run at one rate, and"
        " three groups have the better of two ([one group](#tasks))."
    )


def _questions() -> str:
    folded = fine_tuning.FOLDED
    long = fine_tuning.FOLDED_LONG
    teacher = fine_tuning.TEACHER
    runs = fine_tuning.all_runs()
    tasks = [
        task for task in fine_tuning.TASKS if fine_tuning.runs_at_best_rate(runs, task, folded)
    ]
    others = [task for task in tasks if task != "SQuAD"]
    of_folded = max(_median(task, teacher) - _median(task, folded) for task in others)
    cola = fine_tuning.runs_at_best_rate(runs, "CoLA", long)
    scores = fine_tuning.scores_of(cola, "matthews")
    others.remove("CoLA")
    of_long = max(_median(task, teacher) - _median(task, long) for task in others)
    return (
        f"**Answers in a text lose most.** On SQuAD, albert-minilm-l6 has {_median('SQuAD', folded):.1f} F1 and its"
        f" teacher {_median('SQuAD', teacher):.1f}; on eight other tasks, it is at most"
        f" {math.ceil(10 * of_folded) / 10:.1f} points below. Training rows with long texts and with pairs of texts"
        f" close most of it: albert-minilm-l6-long has {_median('SQuAD', long):.1f}. It is at most"
        f" {math.ceil(10 * of_long) / 10:.1f} points below its teacher on the others, but for CoLA, where"
        f" {scores.count(0.0)} of {len(scores)} seeds learned nothing ([tasks](#tasks))."
    )


def _speed() -> str:
    teacher, six, three = content("fold_depths.json")["sizes"][:3]
    speeds = {
        form: [size[form]["texts_per_processor_second"] for size in (teacher, six, three)]
        for form in ("none", "int8")
    }
    of_teacher, of_six, of_three = speeds["none"]
    _, six_in_int8, three_in_int8 = speeds["int8"]
    lost = [six[name] - three[name] for name in ("stsb_dev", "stsb_test")]
    return (
        "**Folding makes a file small, not a model fast.** A folded model computes as many layers as its teacher:"
        f" {of_six:.0f} and {of_teacher:.0f} texts per processor second in float32. Whoever needs speed folds to half"
        f" of the layers: at equal parameters and tokens, that is {of_three / of_six:.1f} times as fast in float32 and"
        f" {three_in_int8 / six_in_int8:.1f} times in int8, and loses {lost[0]:.1f} (dev) and {lost[1]:.1f} (test)"
        " points of STS-B ([half of the layers](#half-of-the-layers))."
    )


def _ideas() -> str:
    trials = _trials()
    names = (_FIRST_TRIAL, "AdamW, 3e-3", _PLAIN_MUON, "**Muon, update size .1**", "Muon .2, E 160")
    first, adamw, muon, small_updates, wider = (f"{trials[name]['error']:.3f}" for name in names)
    return (
        "**Two changes of the training helped much, most ideas about the start or the sharing did not.** The error of"
        f" the last layer falls from {first} to {adamw} with a higher rate and more weight on the inner layers, which"
        f" were changed together, and to {muon} with Muon for the kernels of the blocks. Smaller updates"
        f" ({small_updates}), or E 160 with a million more parameters ({wider}), help a little more"
        " ([ideas](#what-did-not-help))."
    )


# --- The page ---


def parts() -> dict[str, list[str]]:
    """Name of a part of docs/results/fold.md -> its lines."""
    sizes = content("fold_sizes.json")
    return {
        "in short": claims_in_short(),
        "models": model_table(),
        "one group": one_group_table(),
        "search": search_table(),
        "sizes": size_table(sizes),
        "claims": verdict_table(sizes),
        "depths": depth_table(content("fold_depths.json")["sizes"]),
        "trials": trial_table(content("fold_trials.json")["trials"]),
        "helped": table_of_help(),
        "did not help": table_of_no_help(),
    }


def main() -> None:
    """Replaces the tables of docs/results/fold.md, and draws."""
    replace_parts(str(ROOT / PAGE), parts())
    draw(content("fold_sizes.json"))


if __name__ == "__main__":
    main()
