"""The small tasks: for each its files, program, settings and metrics; a new task is one entry."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError
from lab.experiments.preparation import cut_by_article


@dataclasses.dataclass(frozen=True)
class Task:
    """A task; the defaults of its flags are for a model of a few million parameters."""

    program: str  # fine-tunes
    metrics: tuple[str, ...]  # those of results.json that are shown, the most important first
    max_seq_length: int
    num_train_epochs: float
    paths: Mapping[str, str]  # flag -> pattern below --data_dir; of a folder, a file in it
    flags: Mapping[str, object] = dataclasses.field(default_factory=dict)  # floats: of the length
    in_percent: bool = False  # whether the program's metrics are percentages

    def files(self, data_dir: pathlib.Path, own_dir: pathlib.Path) -> dict[str, str]:
        """The flags with paths; SQuAD's development file is cut in two, below `own_dir`, if there is no other.

        Raises:
          UserError: a file is missing.
        """
        found = {flag: sorted(data_dir.glob(pattern)) for flag, pattern in self.paths.items()}
        if self.program == "run_squad.py" and not found["train_file"] and found["eval_file"]:
            cut_by_article(str(found["eval_file"][0]), str(own_dir))
            found = {"train_file": [own_dir / "train.json"], "eval_file": [own_dir / "dev.json"]}
        if missing := [self.paths[flag] for flag, paths in found.items() if not paths]:
            raise UserError(f"--data_dir={data_dir}: has no {missing[0]}")
        is_folder = "data_dir" in found
        return {
            flag: str(first.parent if is_folder else first) for flag, (first, *_) in found.items()
        }


def _pair(folder: str, ending: str) -> dict[str, str]:
    return {"train_file": f"{folder}/train{ending}", "eval_file": f"{folder}/dev{ending}"}


def _glue(name: str, max_seq_length: int, epochs: float, *metrics: str) -> Task:
    # Whole in glue/, or a part of it in glue_partial/.
    paths, flags = {"data_dir": f"glue*/{name}/train.tsv"}, {"task_name": name}
    return Task("run_classifier.py", metrics, max_seq_length, epochs, paths, flags)


def _texts(folder: str, text: str, label: str, length: int) -> Task:
    flags = {"task_name": "tsv", "text_columns": text, "label_column": label}
    metrics = ("accuracy", "macro_f1")
    return Task("run_classifier.py", metrics, length, 3, _pair(folder, ".tsv"), flags)


def _entities(folder: str, epochs: float, separator: str, **flags: object) -> Task:
    metrics = ("f1", "precision", "recall")
    flags = {"word_separator": separator, "doc_stride": 1 / 2, **flags}
    return Task("run_tagger.py", metrics, 64, epochs, _pair(folder, ".conll"), flags)


ENGLISH = {
    "SST-2": _glue("SST-2", 64, 1, "accuracy"),
    "MRPC": _glue("MRPC", 128, 4, "accuracy", "f1"),
    "STS-B": _glue("STS-B", 128, 4, "pearson", "spearman"),
    "RTE": _glue("RTE", 128, 5, "accuracy"),
    "CoLA": _glue("CoLA", 64, 3, "matthews", "accuracy"),
    "QNLI": _glue("QNLI", 128, 3, "accuracy"),
    "MNLI": _glue("MNLI", 128, 3, "accuracy"),
    "QQP": _glue("QQP", 128, 3, "accuracy", "f1"),
    "SQuAD": Task(
        *("run_squad.py", ("exact_match", "f1"), 128, 2, _pair("squad", "-v1.1.json")),
        {"version": "1.1", "doc_stride": 1 / 2, "max_query_length": 1 / 4},
        in_percent=True,
    ),
    "RACE": Task(
        *("run_race.py", ("accuracy", "accuracy_middle", "accuracy_high"), 128, 1),
        {"data_dir": "race/train"},
        {"max_qa_length": 3 / 8},
    ),
    "WNUT": _entities("tagging/wnut17", 10, "space", optimizer="adamw", learning_rate="5e-4"),
}
CHINESE = {
    "ChnSentiCorp": _texts("chinese/ChnSentiCorp", "text_a", "label", 128),
    "MSRA": _entities("tagging/msra_zh", 4, "none", optimizer="lamb", learning_rate="5e-3"),
}
TASKS = {**ENGLISH, **CHINESE, "packages": _texts("packages", "text", "package", 64)}
GROUPS = {"english": ENGLISH, "chinese": CHINESE}


def facts_of_model(model: str) -> dict[str, Any]:
    """The sizes, and the flags for the vocabulary and the case, of a model."""
    from albert_tf.formats import pretrained

    weights = pretrained.read_weights(model)
    vocabulary = "vocab_file" if weights.vocabulary.endswith(".txt") else "spm_model_file"
    cleaning = {name: str(value).lower() for name, value in weights.cleaning.items()}
    flags = {vocabulary: weights.vocabulary, **cleaning}
    return {"config": json.loads(weights.config.to_json_string()), "flags": flags}
