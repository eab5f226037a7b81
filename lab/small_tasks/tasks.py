"""The small tasks: for each its files, program, settings and metrics. A new task is one entry."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping

from lab.small_tasks import data
from lab.small_tasks.data import Files


@dataclasses.dataclass(frozen=True)
class Task:
    """A task; the defaults of its flags are for a model of a few million parameters."""

    program: str  # fine-tunes
    metrics: tuple[str, ...]  # those of results.json that are shown, the most important first
    max_seq_length: int
    epochs: float
    # (--data_dir, folder for new files) -> flags with paths
    files: Callable[[pathlib.Path, pathlib.Path], Files]
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Flags, as shares of the length.
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    optimizer: str = ""  # the optimizer and learning rate are the program's if none are given
    learning_rate: float = 0.0
    in_percent: bool = False  # whether the program's metrics are percentages


_ACCURACY, _ACCURACY_F1 = ("accuracy",), ("accuracy", "f1")


def _glue(name: str, max_seq_length: int, epochs: float, metrics: tuple[str, ...]) -> Task:
    return Task("run_classifier.py", metrics, max_seq_length, epochs, data.glue(name))


def _texts(files: Callable, text: str, label: str, length: int = 128) -> Task:
    flags = {"task_name": "tsv", "text_columns": text, "label_column": label}
    metrics = ("accuracy", "macro_f1")
    return Task("run_classifier.py", metrics, length, 3, files, flags)


def _entities(
    name: str, epochs: float, separator: str, optimizer: str, learning_rate: float
) -> Task:
    return Task(
        "run_tagger.py",
        ("f1", "precision", "recall"),
        *(64, epochs),
        data.files(f"tagging/{name}/train.conll", f"tagging/{name}/dev.conll"),
        {"word_separator": separator},
        {"doc_stride": 1 / 2},
        optimizer=optimizer,
        learning_rate=learning_rate,
    )


ENGLISH = {
    "SST-2": _glue("SST-2", 64, 1, _ACCURACY),
    "MRPC": _glue("MRPC", 128, 4, _ACCURACY_F1),
    "STS-B": _glue("STS-B", 128, 4, ("pearson", "spearman")),
    "RTE": _glue("RTE", 128, 5, _ACCURACY),
    "CoLA": _glue("CoLA", 64, 3, ("matthews", "accuracy")),
    "QNLI": _glue("QNLI", 128, 3, _ACCURACY),
    "MNLI": _glue("MNLI", 128, 3, _ACCURACY),
    "QQP": _glue("QQP", 128, 3, _ACCURACY_F1),
    "SQuAD": Task(
        *("run_squad.py", ("exact_match", "f1"), 128, 2),
        data.squad,
        flags={"version": "1.1"},
        shares={"doc_stride": 1 / 2, "max_query_length": 1 / 4},
        in_percent=True,
    ),
    "RACE": Task(
        *("run_race.py", ("accuracy", "accuracy_middle", "accuracy_high"), 128, 1),
        data.folder("race"),
        shares={"max_qa_length": 3 / 8},
    ),
    "WNUT": _entities("wnut17", 10, "space", "adamw", 5e-4),
}
CHINESE = {
    "ChnSentiCorp": _texts(
        data.files("chinese/ChnSentiCorp/train.tsv", "chinese/ChnSentiCorp/dev.tsv"),
        *("text_a", "label"),
    ),
    "MSRA": _entities("msra_zh", 4, "none", "lamb", 5e-3),
}
# Tasks of docs/results/small_models.md.
OTHER = {
    "packages": _texts(data.files("packages/train.tsv", "packages/dev.tsv"), "text", "package", 64),
}
TASKS: Mapping[str, Task] = {**ENGLISH, **CHINESE, **OTHER}
GROUPS = {"english": ENGLISH, "chinese": CHINESE}


def chosen(names: str) -> list[str]:
    """The tasks in --tasks, where the name of a group means all of its tasks.

    Raises:
      KeyError: there is no such task or group.
    """
    found = []
    for name in names.split(","):
        found += GROUPS.get(name, [name])
    if unknown := [name for name in found if name not in TASKS]:
        raise KeyError(unknown[0])
    return list(dict.fromkeys(found))
