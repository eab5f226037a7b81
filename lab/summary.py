"""Writes docs/results/summary.md, and numbers and pictures of README.md and other pages: python -m lab.summary.

All numbers are from the JSON files. A page says where a part goes by the lines `<!-- name -->` and `<!-- end of name
-->`. tests/lab/test_summary.py makes the same parts again and fails if a page has others, so that no number on them can
become stale.
"""

import json
import math
import pathlib
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from lab import tables
from lab.benchmarks import engines_report
from lab.few_labels import HEAD, TF_IDF, interval
from lab.fine_tuning import report as fine_tuning
from lab.fine_tuning.__main__ import TASKS
from lab.report import COLORS, new_figure, replace_parts, save

ROOT = pathlib.Path(__file__).parents[1]
PICTURE = "docs/pictures/size_and_score.png"

_RESULTS = "docs/results"
_SPEED = "texts_per_processor_second"
_SPEEDS = ("none", "int8")  # the forms of fold_depths.json
_SQUAD = "SQuAD"
_FOLDED = "albert-minilm-l6"
_LONG = "albert-minilm-l6-long"
_TEACHER = "all-MiniLM-L6-v2"
_BENCHMARK = "../../lab/benchmarks/results/2026-11-26/results.json"
_FOLD = "[`lab.fold`](fold.md#commands)"
_COMPARISON = "real_weights.md#fine-tuning-compared-with-transformers"
_COMPARED = f"[`lab.fine_tuning`]({_COMPARISON})"
_METRICS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
}
# JSON file -> the machine and the date of its numbers.
_MADE = {
    "data/fold_training.json": "H100, 2026-11-26",
    "data/fine_tuning.json": "Xeon, EPYC, H100, H200, 2026-11-26 to 2026-11-28",
    "data/fold_long_seeds.json": "CPU, 2026-11-28",
    "data/folded_fine_tuning.json": "Xeon, 2026-11-26",
    "data/small_forms.json": "Xeon, 2026-11-28",
    "data/fold_depths.json": "Xeon without AMX, 2026-11-28",
    "data/engines.json": "Xeon without AMX, 2026-11-28",
    "data/texts_per_second.json": "Xeon with AMX, 2026-11-26",
    "data/first_answer.json": "Xeon, 2026-11-28",
    "data/few_labels.json": "Xeon, 2026-11-28",
    _BENCHMARK: "Xeon with AMX, 2026-11-26",
    "data/not_kept.json": "EPYC, 2026-11-20",
    "data/fine_tuning_equality.json": "2026-11-26",
    "data/h100_step.json": "H100, 2026-11-26",
}
_FORMS = {
    "float32": "float32",
    "int8_rows": "int8 by rows",
    "int4, blocks of 32": "int4",
}


# What README calls it -> its name in engines.json.
_FORMS_OF_OURS_AND_OTHERS = {
    "`int8_calibrated`, which `tune` makes, in OpenVINO": "int8_calibrated, OpenVINO",
    "`int8_rows` in ONNX Runtime": "int8_rows, ONNX Runtime",
    "`int8` in ONNX Runtime": "int8, ONNX Runtime",
    "float32 in ONNX Runtime": "float32, ONNX Runtime",
    "others: NNCF in OpenVINO": "OpenVINO, NNCF",
    "others: `quantize_dynamic` in ONNX Runtime": "ONNX Runtime, quantize_dynamic",
    "others: float32 in OpenVINO": "OpenVINO, float32",
}


class Claim(NamedTuple):
    """A row of the summary; the command and the JSON file are those that give the number."""

    claim: str
    number: str
    interval: str
    runs: str
    command: str
    file: str  # relative to docs/results


# --- Numbers of the JSON files ---


def content(file: str) -> Any:
    """A JSON file, relative to docs/results."""
    return json.loads((ROOT / _RESULTS / file).read_text())


def scores_by_task() -> dict[str, dict[str, list[float]]]:
    """Task -> model -> the scores of its runs in percent, each model at the better of its rates."""
    names = {fine_tuning.FOLDED: _FOLDED, fine_tuning.FOLDED_LONG: _LONG}
    names[fine_tuning.TEACHER] = _TEACHER
    runs = fine_tuning.all_runs()
    scores: dict[str, dict[str, list[float]]] = {}
    for task, definition in TASKS.items():
        by_model = {}
        for model, name in names.items():
            best = fine_tuning.runs_at_best_rate(runs, task, model)
            if best:
                by_model[name] = fine_tuning.scores_of(best, definition.metrics[0])
        if _FOLDED in by_model and _TEACHER in by_model:
            scores[task] = by_model
    return scores


def loss_of_folding(by_model: Mapping[str, Sequence[float]], model: str = _FOLDED) -> float:
    """By how many points the median of a folded model is below that of its teacher."""
    return statistics.median(by_model[_TEACHER]) - statistics.median(by_model[model])


def parameters() -> tuple[int, int]:
    """The numbers of parameters of the folded model and of its teacher."""
    folded = content("data/fold_training.json")["published"]["parameters"]
    sizes = content("data/fold_sizes.json")["runs"]
    (teacher,) = {run["parameters"] for run in sizes if run["size"] == "384-none"}
    return folded, teacher


def texts_per_second() -> dict[str, float]:
    """Texts per second by engine and model, such as `int8-folded`."""
    runs = content("data/texts_per_second.json")["runs"]
    return {run["which"]: run["texts_per_second"] for run in runs}


def forms(model: str) -> dict[str, dict[str, float]]:
    """The files of a model, float32 and quantized: megabytes, scores, cosines."""
    return content("data/small_forms.json")[model]["forms"]


# --- README ---


def headline() -> list[str]:
    """What is smaller, what is kept, and what is lost."""
    return [
        *tables.wrapped(_smaller(), "  "),
        *tables.wrapped(_kept(), "  "),
        *tables.wrapped(_lost(), "  "),
    ]


def _smaller() -> str:
    folded, teacher = parameters()
    float32, teacher_in_float32 = (forms(name)["float32"] for name in (_FOLDED, _TEACHER))
    int8, teacher_in_int8 = (forms(name)["int8_rows"] for name in (_FOLDED, _TEACHER))
    return (
        f"- **Smaller:** `{_FOLDED}`, which is in this repository, has {folded / 1e6:.1f} million parameters. Its"
        f" teacher {_TEACHER}, from which it was folded, has {teacher / 1e6:.1f} million. As an ONNX file it has"
        f" {float32['megabytes']:.0f} MB instead of {teacher_in_float32['megabytes']:.0f} MB, and in 8-bit integers"
        f" (`int8_rows`) {int8['megabytes']:.0f} MB instead of {teacher_in_int8['megabytes']:.0f} MB."
    )


def _kept() -> str:
    sts_b = content("data/folded_forms.json")["spearman"]["TensorFlow"]["test"]
    sts_b_of_teacher = content("data/real_weights.json")["spearman"]["TensorFlow"]["test"]
    by_task = scores_by_task()
    others = [loss_of_folding(scores) for task, scores in by_task.items() if task != _SQUAD]
    return (
        "- **Kept:** similarity of sentences. STS-B has pairs of sentences with similarities that people gave. On its"
        f" test set, the rank correlation with them (Spearman's) is {sts_b:.3f}; the teacher has"
        f" {sts_b_of_teacher:.3f}. Neither was trained on these labels. Fine-tuned on {_in_words(len(others))} tasks,"
        f" the model is at most {_at_most(max(others))} points below its teacher (scores in percent)."
    )


def _lost() -> str:
    by_task = scores_by_task()
    on_squad = loss_of_folding(by_task[_SQUAD])
    long_on_squad = loss_of_folding(by_task[_SQUAD], _LONG)
    teacher, folded = (content("data/fold_depths.json")["sizes"][row]["none"] for row in (0, 1))
    return (
        f"- **Lost:** answers to questions. On SQuAD, it is {on_squad:.1f} points below its teacher;"
        f" [{_LONG}](models/{_LONG}/README.md), which learned from longer texts, is {long_on_squad:.1f} below it."
        " **It is not faster:** it has as many layers as its teacher, and in float32"
        f" {folded[_SPEED] / teacher[_SPEED]:.2f} times its speed"
        " ([measurement](docs/results/fold.md#half-of-the-layers))."
    )


def _at_most(points: float) -> str:
    """A bound with one decimal, rounded up."""
    return f"{math.ceil(10 * points) / 10:.1f}"


def _in_words(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number]


def differences_from_original() -> dict[str, str]:
    """What was compared with google-research/albert -> the largest difference."""
    names = {
        "every layer, pooled": "every layer, pooled output, log probabilities",
        "eight training losses": "losses of eight LAMB steps",
        "every variable after": "every variable after these eight steps",
        "tokens of all real text": "tokens of 687,885 lines of real text",
    }
    rows = content("data/not_kept.json")["pages"]["faithful.md"]["numbers"]["rows"]
    differences = {}
    for start, name in names.items():
        (measured,) = [measured for what, _, measured in rows if what.startswith(start)]
        differences[name] = "none" if measured == "equal" else measured
    return differences


class Comparison(NamedTuple):
    """A task that was learned here and in transformers with at least three seeds."""

    task: str
    here: list[float]
    there: list[float]
    difference: str


def beside_transformers() -> list[Comparison]:
    """The scores here and in transformers, from equal weights and settings."""
    runs = fine_tuning.all_runs()
    comparisons = []
    for task, _, here, there in fine_tuning.pairs(runs):
        if min(len(here), len(there)) >= 3:
            metric = TASKS[task].metrics[0]
            name = f"{task.removesuffix('-2400')}, {here[0]['steps']} steps ({_METRICS[metric]})"
            scores_here = fine_tuning.scores_of(here, metric)
            scores_there = fine_tuning.scores_of(there, metric)
            difference = fine_tuning.difference(here, there, metric)
            comparisons.append(Comparison(name, scores_here, scores_there, difference))
    return comparisons


def table_beside_transformers() -> list[str]:
    """The means of both, their difference with its interval, and the number of seeds."""
    rows = []
    for comparison in beside_transformers():
        here = statistics.mean(comparison.here)
        there = statistics.mean(comparison.there)
        seeds = len(comparison.here)
        rows.append((comparison.task, f"{here:.1f}", f"{there:.1f}", comparison.difference, seeds))
    return tables.table("task | here | transformers | difference | seeds", rows)


def gains_of_int8() -> dict[str, float]:
    """Where it was measured -> how many times as fast the folded model is in int8 as in float32."""
    per_second = texts_per_second()
    folded = content("data/fold_depths.json")["sizes"][1]
    ways = _ways_side_by_side()
    return {
        "Xeon with AMX": per_second["int8-folded"] / per_second["onnx-folded"],
        "Xeon without AMX, side by side": ways["int8, ONNX Runtime"][_SPEED]
        / ways["float32, ONNX Runtime"][_SPEED],
        "Xeon without AMX, forms": forms(_FOLDED)["int8"][_SPEED]
        / forms(_FOLDED)["float32"][_SPEED],
        "Xeon without AMX, depths": folded["int8"][_SPEED] / folded["none"][_SPEED],
    }


def _ways_side_by_side() -> dict[str, dict[str, float]]:
    """Engine and form -> what was measured of the folded model, on a processor without AMX that hides nothing."""
    for run in content("data/engines.json")["runs"]:
        has_amx = "amx_int8" in run["instructions"]
        if run["model"] == _FOLDED and not run["hidden"] and not has_amx:
            return run["ways"]
    raise ValueError("engines.json has no run of the folded model")


def _from_to(values: Collection[float]) -> str:
    """The range of some numbers with one decimal; one number if both ends look the same."""
    ends = [f"{end:.1f}" for end in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


def speed() -> list[str]:
    """The sentences about int8 and packed rows."""
    gains = gains_of_int8()
    with_amx = gains.pop("Xeon with AMX")
    tasks = content("data/small_tasks_in_forms.json")["tasks"]
    changed = [task["int8"]["changed"] for name, task in tasks.items() if name != "STS-B"]
    lost = [task["float32"]["score"] - task["int8"]["score"] for task in tasks.values()]
    similarity_lost = (
        forms(_FOLDED)["float32"]["sts_b_spearman"] - forms(_FOLDED)["int8"]["sts_b_spearman"]
    )
    gain_of_int8 = (
        f"In int8, the folded model is {_from_to(gains.values())} times as fast in ONNX Runtime as in float32 on a Xeon"
        f" without AMX, and {with_amx:.1f} times on one with AMX. In the same batches, side by side on a Xeon without"
        " AMX ([measurement](docs/guides/speed.md#measured-side-by-side)):"
    )
    costs_of_int8 = (
        f"Int8 changes answers: similarity on STS-B loses {similarity_lost:.3f}, and {_in_words(len(tasks))} fine-tuned"
        f" tasks lose {min(lost):.1f} to {max(lost):.1f} points, with {min(changed):.0f} to {max(changed):.0f} % other"
        " answers ([by task](docs/results/small_forms.md#fine-tuned-models)). Packed rows, which contain several short"
        f" texts, make pretraining at length 512 about {_gain_of_packing():.0f} times as fast"
        " ([results](docs/results/speed.md))."
    )
    return [
        *tables.wrapped(gain_of_int8),
        "",
        *table_of_forms(),
        "",
        *tables.wrapped(costs_of_int8),
    ]


def table_of_forms() -> list[str]:
    """A row for each form of the folded model here and in others, the fastest first."""
    ways = {name: _ways_side_by_side()[way] for name, way in _FORMS_OF_OURS_AND_OTHERS.items()}
    rows = [
        (name, f"{way[_SPEED]:.0f}", f"{way['median_cosine']:.3f}", f"{way['megabytes']:.1f}")
        for name, way in sorted(ways.items(), key=lambda item: -item[1][_SPEED])
    ]
    head = "form | texts per second of one core | median cosine with float32 | MB"
    return tables.table(head, rows)


def _speeds_in_int8() -> str:
    """Texts per second and cosines of int8 here and in others."""
    ways = _ways_side_by_side()
    return "; ".join(
        f"{name} {ways[way][_SPEED]:.0f} ({ways[way]['median_cosine']:.3f})"
        for name, way in _FORMS_OF_OURS_AND_OTHERS.items()
        if "float32" not in name
    )


def _gain_of_packing() -> float:
    measured = content(_BENCHMARK)["measurements"]
    single = measured["training_step.8x512.float32.ours"]["values"]
    packed = measured["training_step.8x512.float32.ours_packed"]["values"]
    return packed["examples_a_second"] / single["examples_a_second"]


def of_the_folded_model() -> list[str]:
    """What the guide to folding says about the model in this repository."""
    sts_b = content("data/folded_forms.json")["spearman"]["TensorFlow"]["test"]
    sts_b_of_teacher = content("data/real_weights.json")["spearman"]["TensorFlow"]["test"]
    by_task = scores_by_task()
    others = [loss_of_folding(scores) for task, scores in by_task.items() if task != _SQUAD]
    on_squad = loss_of_folding(by_task[_SQUAD])
    long_on_squad = loss_of_folding(by_task[_SQUAD], _LONG)
    similarity = (
        "- It keeps the similarity of sentences: Spearman's correlation with the judgments of people is"
        f" {sts_b:.3f} on the test set of STS-B, where its teacher has {sts_b_of_teacher:.3f}."
    )
    tasks = (
        f"- Fine-tuned, it is within {_at_most(max(others))} points of its teacher on {_in_words(len(others))} tasks,"
        f" and {on_squad:.1f} points below it on SQuAD. `models/{_LONG}`, which learned from long texts and pairs, is"
        f" [{long_on_squad:.1f} points below it](../results/fold.md#tasks)."
    )
    return [*tables.wrapped(similarity, "  "), *tables.wrapped(tasks, "  ")]


# --- The page of results ---


def claims_of_folding() -> list[Claim]:
    """What a folded model keeps and loses."""
    training = content("data/fold_training.json")
    teacher_on_sts_b = content("data/fold_sizes.json")["teacher"]["stsb_test"]
    folded_parameters, teacher_parameters = parameters()
    sts_b = [training[name]["stsb_test"] for name in ("published", "again")]
    rows = [
        Claim(
            "similarity of sentences is kept: STS-B test, Spearman, percent",
            f"{sts_b[0]:.2f}; teacher {teacher_on_sts_b:.2f}",
            f"{min(sts_b):.2f} to {max(sts_b):.2f}",
            "2",
            _FOLD,
            "data/fold_training.json",
        ),
        Claim(
            "there are fewer parameters",
            f"{folded_parameters:,}; teacher {teacher_parameters:,}",
            "exact",
            "",
            _FOLD,
            "data/fold_training.json",
        ),
    ]
    for task, by_model in scores_by_task().items():
        rows.append(_fine_tuned(task, by_model, _FOLDED))
        if _LONG in by_model:
            rows.append(_fine_tuned(task, by_model, _LONG))
    recall = content("data/folded_fine_tuning.json")["SQuAD paragraphs"]["three_groups"]
    bm25 = content("data/baselines.json")["search"]["BM25"]
    rows.append(
        Claim(
            "BM25 is better in search: recall@10 of SQuAD's paragraphs, without training",
            f"{recall['recall_at_10']:.3f}; BM25 {bm25['recall_at_10']:.3f}",
            "",
            "1",
            "`albert-tf embed --do_train=false --eval_kind=retrieval`",
            "data/folded_fine_tuning.json",
        )
    )
    return rows


def _fine_tuned(task: str, by_model: Mapping[str, list[float]], model: str) -> Claim:
    folded = by_model[model]
    teacher = by_model[_TEACHER]
    name = "" if model == _FOLDED else f", {model}"
    runs = fine_tuning.runs_at_best_rate(fine_tuning.all_runs(), task, model)
    in_main_file = content("data/fine_tuning.json")["runs"]
    is_in_file_of_seeds = any(run not in in_main_file for run in runs)
    return Claim(
        f"fine-tuned on {task}{name}: {_METRICS[TASKS[task].metrics[0]]}, percent",
        f"{statistics.median(folded):.1f}; teacher {statistics.median(teacher):.1f}",
        f"{_range(folded)}; teacher {_range(teacher)}",
        f"{len(folded)}; teacher {len(teacher)}",
        "[`lab.fine_tuning`](fold.md#commands)",
        "data/fold_long_seeds.json" if is_in_file_of_seeds else "data/fine_tuning.json",
    )


def _range(values: Sequence[float]) -> str:
    if len(values) == 1:
        return "one run"
    return f"{min(values):.1f} to {max(values):.1f}"


def claims_of_use() -> list[Claim]:
    """Files, speed, and few labels."""
    return [*_claims_of_files(), *_claims_of_speed(), *_claims_of_training()]


def _claims_of_files() -> list[Claim]:
    rows = []
    for form, name in _FORMS.items():
        folded = forms(_FOLDED)[form]
        teacher = forms(_TEACHER)[form]
        rows.append(
            Claim(
                f"an ONNX file in {name}: megabytes; STS-B test, Spearman",
                f"{folded['megabytes']:.1f}, {folded['sts_b_spearman']:.3f};"
                f" teacher {teacher['megabytes']:.1f}, {teacher['sts_b_spearman']:.3f}",
                "",
                "1",
                "`python -m lab.small_forms`",
                "data/small_forms.json",
            )
        )
    return rows


def _claims_of_speed() -> list[Claim]:
    rows = []
    per_second = texts_per_second()
    for engine, name in {"tf": "TensorFlow", "onnx": "ONNX", "int8": "ONNX, int8"}.items():
        rows.append(
            Claim(
                f"folding does not make a model faster: texts per second on two CPU cores, {name}",
                f"{per_second[f'{engine}-folded']:,.0f}; teacher {per_second[f'{engine}-minilm']:,.0f}",
                "",
                "1",
                "[not kept](../project/history.md)",
                "data/texts_per_second.json",
            )
        )
    others = {"PyTorch": "st_torch", "ONNX": "st_onnx", "OpenVINO": "st_openvino"}
    rows.append(
        Claim(
            "the teacher in sentence-transformers: texts per second on the same cores",
            ", ".join(f"{name} {per_second[which]:.0f}" for name, which in others.items()),
            "",
            "1",
            "[not kept](../project/history.md)",
            "data/texts_per_second.json",
        )
    )
    return [*rows, *_claims_of_repeatable_speed(), _first_answer()]


def _claims_of_repeatable_speed() -> list[Claim]:
    """What programs that were kept measured on a processor without AMX."""
    rows = []
    teacher, folded = content("data/fold_depths.json")["sizes"][:2]
    speeds = [
        f"{folded[form][_SPEED]:.0f}; teacher {teacher[form][_SPEED]:.0f}" for form in _SPEEDS
    ]
    rows.append(
        Claim(
            "folding does not make a model faster: texts per second of processor time, ONNX in float32, and in int8",
            ", and ".join(speeds),
            "",
            "3",
            "[`lab.fold.depths`](fold.md#commands)",
            "data/fold_depths.json",
        )
    )
    ways = _ways_side_by_side()
    passes = {len(way["seconds"]) for way in ways.values()}
    rows.append(
        Claim(
            "int8 here and in others, in the same batches: texts per second of one core (cosine with float32)",
            _speeds_in_int8(),
            "",
            f"{min(passes)} passes",
            f"`python -m lab.inference models/{_FOLDED}`",
            "data/engines.json",
        )
    )
    return rows


def _first_answer() -> Claim:
    first = content("data/first_answer.json")
    with_onnx_runtime = first["median"]["folder, ONNX Runtime"]["wall_seconds"]
    with_tensorflow = first["median"]["folder, TensorFlow"]["wall_seconds"]
    return Claim(
        "`albert-tf predict` answers soon: seconds from its start to its first answer",
        f"{with_onnx_runtime:.1f}; in TensorFlow {with_tensorflow:.1f}",
        "",
        str(first["about"]["repeats"]),
        f"`python -m lab.first_answer models/{_FOLDED}`",
        "data/first_answer.json",
    )


def _claims_of_training() -> list[Claim]:
    rows = []
    few_labels = content("data/few_labels.json")["macro_f1"]
    for name in ("SST-2, 32", "articles, 32", "authors, 32"):
        vectors = few_labels[name][HEAD]
        words = few_labels[name][TF_IDF]
        rows.append(
            Claim(
                f"few labels, {name} of each: macro F1 of a logistic regression on vectors, percent",
                f"{statistics.mean(vectors):.1f}; on TF-IDF {statistics.mean(words):.1f}",
                f"{interval(vectors)}; {interval(words)}",
                str(len(vectors)),
                "`python -m lab.few_labels --data_dir=DATA`",
                "data/few_labels.json",
            )
        )
    packed = content(_BENCHMARK)["measurements"]["training_step.8x512.float32.ours_packed"][
        "values"
    ]
    rows.append(
        Claim(
            "packed rows make pretraining at length 512 faster, times",
            f"{_gain_of_packing():.2f}",
            "",
            str(packed["repeats"]),
            "`make bench`",
            _BENCHMARK,
        )
    )
    return rows


def claims_of_equality() -> list[Claim]:
    """Differences from google-research/albert and transformers."""
    rows = [
        Claim(
            f"equal to google-research/albert, largest difference: {what}",
            difference,
            "",
            "1",
            "`tests/training/test_golden.py`, with `ALBERT_TEST_DATA`",
            "data/not_kept.json",
        )
        for what, difference in differences_from_original().items()
    ]
    losses = content("data/fine_tuning_equality.json")["losses"]["CoLA"]
    rows.append(
        Claim(
            f"equal to transformers, largest difference: losses of {len(losses['here'])} steps of CoLA",
            f"{losses['largest_difference']:g}",
            "",
            "1",
            "[not kept](../project/history.md)",
            "data/fine_tuning_equality.json",
        )
    )
    for comparison in beside_transformers():
        here = statistics.mean(comparison.here)
        there = statistics.mean(comparison.there)
        rows.append(
            Claim(
                f"learns like transformers from the same weights: {comparison.task}, percent",
                f"{here:.1f}; transformers {there:.1f}",
                f"difference {comparison.difference}",
                f"{len(comparison.here)}; transformers {len(comparison.there)}",
                _COMPARED,
                "data/fine_tuning.json",
            )
        )
    return [*rows, _step_on_a_gpu()]


def _step_on_a_gpu() -> Claim:
    step = content("data/h100_step.json")
    runs = {
        "": step["here"],
        "transformers ": step["transformers"]["eager"],
        "compiled ": step["transformers"]["compiled"],
    }
    medians = {name: statistics.median(run["milliseconds"]) for name, run in runs.items()}
    return Claim(
        "a pretraining step of albert-base on one H100, 64 examples of 512 tokens: milliseconds",
        "; ".join(f"{name}{median:.1f}" for name, median in medians.items()),
        "",
        str(len(step["here"]["milliseconds"])),
        "[not kept](../project/history.md)",
        "data/h100_step.json",
    )


def table_of(rows: Sequence[Claim]) -> list[str]:
    """The Markdown table of claims."""
    cells = [(*row[:-1], f"[{_MADE[row.file]}]({row.file})") for row in rows]
    head = "claim | number | range or interval | runs | command | machine, date, all numbers"
    return tables.table(head, cells)


# --- The picture ---


def draw() -> None:
    """What folding keeps, and what it loses: score by size of the file, and fine-tuned tasks."""
    figure, ((sizes, tasks),) = new_figure(2, width=4.2, height=3.1)
    above_and_below = (9, -16)
    for color, model, offset in zip(COLORS, (_FOLDED, _TEACHER), above_and_below, strict=False):
        points = [forms(model)[form] for form in _FORMS]
        megabytes = [point["megabytes"] for point in points]
        scores = [point["sts_b_spearman"] for point in points]
        sizes.plot(megabytes, scores, "o-", color=color, label=model)
        for form, place in zip(_FORMS.values(), zip(megabytes, scores, strict=True), strict=True):
            name = f"{form.replace(' by rows', '_rows')}\n{place[0]:.0f} MB"
            options = {"textcoords": "offset points", "fontsize": 7, "ha": "center"}
            sizes.annotate(name, place, (0, offset), color=color, va="center", **options)
    sizes.set_xscale("log")
    sizes.set_xticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    sizes.minorticks_off()
    sizes.set(xlabel="megabytes of the ONNX file", ylabel="STS-B test, Spearman")
    sizes.set(title="kept: similarity of sentences", ylim=(0.75, 0.85), xlim=(4, 130))
    sizes.legend(fontsize=7, loc="lower right")

    by_task = scores_by_task()
    names = list(by_task)[::-1]
    for row, task in enumerate(names):
        medians = {name: statistics.median(scores) for name, scores in by_task[task].items()}
        ends = [medians[_FOLDED], medians[_TEACHER]]
        tasks.plot(ends, [row, row], "-", color="#999999", lw=1.5, zorder=1)
        tasks.plot(ends[0], row, "o", color=COLORS[0], label="" if row else _FOLDED)
        tasks.plot(ends[1], row, "o", color=COLORS[1], label="" if row else _TEACHER)
        if _LONG in medians:
            label = _LONG if task == "SST-2" else ""
            tasks.plot(medians[_LONG], row, "o", mfc="none", color=COLORS[0], label=label)
        of_long = by_task[task].get(_LONG, [])
        if 0.0 in of_long:
            note = f"{_LONG}: {of_long.count(0.0)} of {len(of_long)} seeds learned nothing"
            tasks.text(medians[_TEACHER] + 2, row, note, va="center", fontsize=6)
    tasks.set_yticks(range(len(names)), [f"{task}, {_short_metric(task)}" for task in names])
    tasks.set(xlabel="score after fine-tuning, percent", title="lost: SQuAD", xlim=(10, 100))
    tasks.legend(fontsize=6, loc="center left")
    save(figure, ROOT / PICTURE)


def _short_metric(task: str) -> str:
    """The name of the metric of a task, in one word."""
    return _METRICS[TASKS[task].metrics[0]].removesuffix(" correlation")


def parts() -> dict[str, dict[str, list[str]]]:
    """Page -> name of a part -> its lines."""
    return {
        "README.md": {
            "headline": headline(),
            "original": tables.table(
                "what | largest difference", differences_from_original().items()
            ),
            "transformers": table_beside_transformers(),
            "speed": speed(),
        },
        f"{_RESULTS}/summary.md": {
            "folding": table_of(claims_of_folding()),
            "use": table_of(claims_of_use()),
            "equality": table_of(claims_of_equality()),
        },
        "docs/guides/fold.md": {"folded model": of_the_folded_model()},
        **engines_report.parts(content("data/engines_of_data_preparation.json")),
    }


def main() -> None:
    """Replaces the parts of the pages, and draws."""
    for page, by_name in parts().items():
        replace_parts(str(ROOT / page), by_name)
    draw()


if __name__ == "__main__":
    main()
