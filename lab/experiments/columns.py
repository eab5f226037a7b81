"""The columns of tables: the path of a number in a row's JSON, and its format."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

# The tasks of the paper's Tables 2 to 8, each with a column, and averaged in "average".
TABLE_TASKS = ("squad1.1", "squad2.0", "mnli", "sst2", "race")

Result = Mapping[str, Any]
# The numbers of a row and seed: two if the paper gives a pair such as F1/EM, none if it was not measured.
Values = tuple[float, ...]


class Column(NamedTuple):
    """A column: its title, and functions of a row's JSON."""

    title: str
    values: Callable[[Result], Values]
    digits: int = 1  # number of decimals
    chance: Callable[[Result], Values] | None = None  # score of the most frequent answer
    examples: Callable[[Result], Values] | None = None  # number of examples of an accuracy


def _at(*path: str, factor: float = 1.0) -> Callable[[Result], Values]:
    """A getter of the number at a path below `measures`."""

    def values(result: Result) -> Values:
        value = result["measures"]
        for name in path:
            value = (value or {}).get(name)
        return () if value is None else (factor * value,)

    return values


def _sentences(title: str, task: str, kind: str, where: str = "") -> Column:
    """Accuracy on pairs of a sentence task, on the development set or on other text."""
    return Column(
        title,
        _at("intrinsic", f"{task}_{kind}{where}", factor=100),
        chance=_at("intrinsic", f"{task}_commonest{where}", factor=100),
        examples=_at("intrinsic", "examples", f"{task}{where}"),
    )


def _task(task: str, *metrics: str, factor: float = 100.0) -> Callable[[Result], Values]:
    """A getter of those metrics that a task has; SQuAD 1.1 and 2.0 have different names."""
    getters = [_at(f"task {task}", metric, factor=factor) for metric in metrics]
    return lambda result: tuple(value for get in getters for value in get(result))


def _average(result: Result) -> Values:
    """The mean of the paper's five tasks, with the mean of F1 and EM for SQuAD."""
    cells = [COLUMNS[task].values(result) for task in TABLE_TASKS]
    return (statistics.fmean(map(statistics.fmean, cells)),) if all(cells) else ()


def _layer(kind: str, which: Callable, least: int = 1) -> Callable[[Result], Values]:
    """A getter of a number computed from those of all layers, if there are at least `least`."""

    def values(result: Result) -> Values:
        changes = result["measures"].get("layer_changes")
        layers = changes["pieces"][kind] if changes else ()
        return (which(layers),) if len(layers) >= least else ()

    return values


def roughness(distances: Sequence[float]) -> float:
    """Sum of absolute changes from layer to layer, minus the absolute net change, divided by the mean."""
    steps = [abs(after - before) for before, after in itertools.pairwise(distances)]
    return (sum(steps) - abs(distances[-1] - distances[0])) / statistics.fmean(distances)


_SQUAD = ("f1", "exact_match", "exact")

COLUMNS = {
    "parameters": Column("parameters (the paper's, M)", _at("parameters", "paper"), 0),
    "masked_lm": Column("MLM", _at("intrinsic", "masked_lm_accuracy", factor=100), 2),
    "nsp": _sentences("NSP", "nsp", "own_head"),
    "sop": _sentences("SOP", "sop", "own_head"),
    "nsp_probe": _sentences("NSP, probe", "nsp", "probe"),
    "sop_probe": _sentences("SOP, probe", "sop", "probe"),
    "nsp_held_out": _sentences("NSP, held-out text", "nsp", "own_head", "_held_out"),
    "sop_held_out": _sentences("SOP, held-out text", "sop", "own_head", "_held_out"),
    "squad1.1": Column("SQuAD 1.1", _task("squad1.1", *_SQUAD, factor=1.0)),
    "squad2.0": Column("SQuAD 2.0", _task("squad2.0", *_SQUAD, factor=1.0)),
    "mnli": Column("MNLI", _task("mnli", "accuracy")),
    "sst2": Column("SST-2", _task("sst2", "accuracy")),
    "race": Column("RACE", _task("race", "accuracy")),
    "average": Column("Avg", _average),
    "qnli": Column("QNLI", _task("qnli", "accuracy")),
    "qqp": Column("QQP", _task("qqp", "accuracy")),
    "rte": Column("RTE", _task("rte", "accuracy")),
    "mrpc": Column("MRPC", _task("mrpc", "accuracy")),
    "cola": Column("CoLA", _task("cola", "matthews")),
    "stsb": Column("STS-B", _task("stsb", "pearson")),
    "speedup": Column("speed-up", lambda result: result.get("speedup", ()), 2),
    "speedup_same_shape": Column(
        "against BERT of its shape", lambda result: result.get("speedup_same_shape", ()), 2
    ),
    "minutes": Column("minutes", _at("pretraining", "minutes")),
    "steps": Column("steps", _at("pretraining", "steps"), 0),
    "distance_first": Column("L2, first layer", _layer("l2_distance", lambda values: values[0])),
    "distance_last": Column("L2, last layer", _layer("l2_distance", lambda values: values[-1])),
    "degrees_first": Column("degrees, first layer", _layer("degrees", lambda values: values[0])),
    "degrees_last": Column("degrees, last layer", _layer("degrees", lambda values: values[-1])),
    "roughness": Column("roughness of L2", _layer("l2_distance", roughness, 2), 2),
}

# The columns that need a probe, by sentence task; an experiment without them trains none.
PROBE_COLUMNS = {task: {f"{task}_probe", f"{task}_held_out"} for task in ("nsp", "sop")}


def shown(values: Values, digits: int) -> str:
    """A number, or a pair separated by a slash, such as "88.6/81.5"."""
    return "/".join(f"{value:,.{digits}f}" for value in values)
