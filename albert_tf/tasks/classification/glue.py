"""GLUE: the table of its tasks, reading their files, and writing the leaderboard's files of answers."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.tasks.classification.text_pairs import TextExample
from albert_tf.tasks.classification.tsv import check_texts
from albert_tf.tasks.labels import parse_value
from albert_tf.user_files.table_files import chosen, read_table

OWN_TASK = "table"  # the name of a task of the user's own
_OWN_FORMATS = ("tsv", "csv", "json", "jsonl", "parquet")
SPLITS = ("train", "dev", "test")
_ONE_FILE = {split: {"": f"{split}.tsv"} for split in SPLITS}
# Group -> ending of its name on the leaderboard.
_GROUPS = {"": "", "matched": "-m", "mismatched": "-mm"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A task of GLUE: its files, labels and metrics."""

    name: str
    labels: tuple[str, ...] = ("0", "1")  # in the order of a model's outputs; none for scores
    # Split -> group -> file name; the group is "" if the split is one file.
    files: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=lambda: _ONE_FILE)
    text_columns: tuple[str, ...] = ("sentence1", "sentence2")  # of one text or two
    label_column: str = "label"
    id_column: str = "index"  # without it, examples are numbered from 0
    columns_without_header: tuple[str, ...] = ()  # of training and development files
    # Whether rows without a label are skipped, as in the original: a line break inside a text has broken them.
    skips_broken_rows: bool = False
    metrics: tuple[str, ...] = ("accuracy",)  # in `tasks.metrics.METRICS`; first that of the paper

    @property
    def folder(self) -> str:
        """Its name in the benchmark's archive."""
        return "diagnostic" if self.name == "AX" else self.name

    @property
    def is_regression(self) -> bool:
        """Whether the task predicts scores in `SCORE_RANGE` instead of labels."""
        return not self.labels


# The range of STS-B, which is the only regression.
SCORE_RANGE = (0.0, 5.0)

_NLI_LABELS = ("contradiction", "entailment", "neutral")
_TWO_WAY_LABELS = ("entailment", "not_entailment")

# Labels are in the original's order (classifier_utils.py, `get_labels`). Metrics are those of GLUE; the first one is
# that of the paper's Table 9: accuracy for MRPC and QQP, Pearson's correlation for STS-B (fairseq#1561).
_TASKS = (
    GlueTask(
        name="CoLA",
        text_columns=("sentence",),
        columns_without_header=("source", "label", "original_label", "sentence"),
        metrics=("matthews", "accuracy"),
    ),
    GlueTask(name="SST-2", text_columns=("sentence",)),
    GlueTask(
        name="MRPC",
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        metrics=("accuracy", "f1"),
    ),
    GlueTask(name="STS-B", labels=(), label_column="score", metrics=("pearson", "spearman")),
    GlueTask(
        name="QQP",
        text_columns=("question1", "question2"),
        label_column="is_duplicate",
        id_column="id",
        skips_broken_rows=True,
        metrics=("accuracy", "f1"),
    ),
    GlueTask(
        name="MNLI",
        labels=_NLI_LABELS,
        files={
            "train": {"": "train.tsv"},
            "dev": {"matched": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"},
            "test": {"matched": "test_matched.tsv", "mismatched": "test_mismatched.tsv"},
        },
        label_column="gold_label",
    ),
    GlueTask(name="QNLI", labels=_TWO_WAY_LABELS, text_columns=("question", "sentence")),
    GlueTask(name="RTE", labels=_TWO_WAY_LABELS),
    GlueTask(name="WNLI"),
    # The diagnostic set has no labels; a model trained on MNLI answers it. This is the leaderboard's metric for it.
    GlueTask(
        name="AX",
        labels=_NLI_LABELS,
        files={"test": {"": "diagnostic.tsv"}},
        label_column="",
        metrics=("matthews",),
    ),
)

GLUE_TASKS: Mapping[str, GlueTask] = {task.name: task for task in _TASKS}


def task_key(name: str) -> str:
    """A name without case, "-" and "_": "STS-B" is "stsb"; "diagnostic" is "ax"; names of formats mean a table."""
    key = name.strip().lower().replace("-", "").replace("_", "")
    if key in _OWN_FORMATS:
        return OWN_TASK
    return "ax" if key == "diagnostic" else key


def find_task(name: str) -> GlueTask | None:
    """The task with a given name, such as "sts-b" or "SST2"; `diagnostic` is AX."""
    return {task_key(task.name): task for task in _TASKS}.get(task_key(name))


def read_glue(task: GlueTask, data_dir: str, split: str) -> list[TextExample]:
    """The examples of a split, in the order of its files; those of the test split have no label.

    `data_dir` is the folder of GLUE, which contains the task's folder, or the task's folder itself.
    """
    names = task.files[split]
    paths = {group: _locate(task, data_dir, name) for group, name in names.items()}
    missing = [names[group] for group, path in paths.items() if not path]
    if len(missing) == len(names):
        in_folder_of_task = " or ".join(os.path.join(task.folder, name) for name in missing)
        direct = " or ".join(missing)
        raise UserError(f"--data_dir={data_dir}: has no {in_folder_of_task}, and no {direct}")
    if missing:
        print(f"{task.name}: continues without {', '.join(missing)}, not in {data_dir}", flush=True)

    examples: list[TextExample] = []
    for group, path in paths.items():
        if path:
            examples += read_glue_file(task, path, split, group=group, source=path)
    return examples


def _locate(task: GlueTask, data_dir: str, name: str) -> str:
    """The path of a file, or ""; another task's folder is an error, as names and columns are often the same."""
    in_folder_of_task = os.path.join(data_dir, task.folder, name)
    direct = os.path.join(data_dir, name)
    try:
        if files.exists(in_folder_of_task):
            return in_folder_of_task
        folder = os.path.basename(data_dir.rstrip("/"))
        for other in _TASKS:
            if folder == other.folder and other is not task:
                raise UserError(f"{data_dir}: is the folder of {other.name}, not of {task.name}")
        return direct if files.exists(direct) else ""
    except OSError as error:
        raise UserError(f"{data_dir}: cannot be read ({error.strerror})") from None


def read_glue_file(
    task: GlueTask, path: str, split: str, *, group: str = "", source: str
) -> list[TextExample]:
    """The examples of a file in a split's layout, by names of columns (classifier_utils.py, `MnliProcessor` ...)."""
    is_labelled = split != "test"
    header = task.columns_without_header if is_labelled else ()
    frame = read_table(path, source=source, header=header, fills_short_rows=task.skips_broken_rows)
    columns = [*task.text_columns]
    if task.id_column in frame.columns:
        columns.append(task.id_column)
    if is_labelled and task.label_column:
        columns.append(task.label_column)

    indices = {name: index for index, name in enumerate(task.labels)}
    examples: list[TextExample] = []
    num_skipped = 0
    rows = zip(frame.index, chosen(frame, columns, source), strict=True)
    for number, (row, cells) in enumerate(rows):
        fields = dict(zip(columns, cells, strict=True))
        label = fields.get(task.label_column)
        if label == "" and task.skips_broken_rows:
            num_skipped += 1
            continue
        index_or_score = None if label is None else parse_value(label, indices, f"{path}: {row}")
        texts = [fields[column] for column in task.text_columns]
        id = fields.get(task.id_column, str(number)).strip()
        examples.append(TextExample.of_texts(id, texts, label=index_or_score, group=group, row=row))

    if num_skipped:
        print(f"{path}: {num_skipped:,} rows without enough columns are left out", flush=True)
    if not examples:
        raise UserError(f"{source}: contains no rows with enough columns")
    check_texts(examples, task.text_columns, source)
    return examples


def submission_tsv(
    task: GlueTask, group: str, ids: Sequence[str], predictions: np.ndarray
) -> tuple[str, str]:
    """The name and the text of a group's file of answers, from indices of labels (int) or scores (float), [examples].

    Source: gluebenchmark.com, FAQ; run_classifier.py (`submit_results.tsv`), which leaves clipping to the user.
    """
    if task.is_regression:
        answers = [f"{score:.3f}" for score in np.clip(predictions, *SCORE_RANGE)]
    else:
        answers = [task.labels[index] for index in predictions]
    rows = [f"{id}\t{answer}\n" for id, answer in zip(ids, answers, strict=True)]
    return f"{task.name}{_GROUPS[group]}.tsv", "index\tprediction\n" + "".join(rows)
