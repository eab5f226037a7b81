"""Settings of classification: a GLUE task, or files of your own."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.core.settings import Settings, setting
from albert_tf.model.config import CLASSIFIER_POOLINGS
from albert_tf.tasks.classification.glue import GLUE_TASKS, OWN_TASK, GlueTask, find_task, task_key
from albert_tf.tasks.metrics import METRICS, names_for
from albert_tf.tasks.settings import (
    FineTuningOptimizerConfig,
    FineTuningRunConfig,
    TaughtConfig,
    files_setting,
)

# Settings of a run that only steps of training use.
_OF_STEPS = (
    "train_batch_size",
    "gradient_accumulation_steps",
    "recompute_activations",
    "log_every_steps",
    "save_checkpoints_steps",
    "eval_every_steps",
    "early_stopping_patience",
    "seed",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TaughtConfig):
    """A GLUE task, or a classification or regression task of the user's own."""

    task_name: str = setting(
        "",
        f"GLUE task: {', '.join(GLUE_TASKS)}; `{OWN_TASK}` for files of your own, which --train_file implies.",
        of_model="default",
    )
    data_dir: str = setting("", "Folder of GLUE, or of the task.", changes_results=False)
    train_file: str = files_setting(
        "Training data of --task_name=table: a table (.tsv, .csv, .jsonl, .parquet, a folder of datasets)."
    )
    eval_file: str = files_setting("Development data of --task_name=table.")
    predict_file: str = files_setting(
        "Data of --do_predict, with or without labels; by default the test data of the GLUE task."
    )
    text_columns: str = setting(
        "",
        "Names of the one or two columns with text, separated by commas, for --task_name=table.",
        of_model="default",
    )
    label_column: str = setting(
        "label",
        "Column with the label or score of --task_name=table; or several, separated by commas, each with 0 or 1 for the"
        " label that it is named after: an example has any number of labels.",
        of_model="default",
    )
    kind: str = setting(
        "classification",
        "Type of --task_name=table: whether it predicts a label or a score.",
        choices=("classification", "regression"),
        of_model="fixed",
    )
    metrics: str = setting(
        "",
        f"Metrics of --task_name=table, separated by commas, of {', '.join(METRICS)}; the first selects the best"
        " checkpoint; f1 is that of the second of two labels. By default accuracy and macro_f1, of scores pearson and"
        " spearman.",
    )
    label_separator: str = setting(
        "",
        "Text between the labels of an example, such as a comma, of --task_name=table. If given, an example has any"
        " number of labels; an empty field has none.",
        of_model="fixed",
    )
    class_weights: str = setting(
        "",
        "Weights of the labels in the loss: `balanced` by their frequency in the training data.",
        choices=("", "balanced"),
    )
    skip_unlabeled: bool = setting(
        False,
        "Whether rows without a label or score are left out of training and evaluation data; otherwise they are an"
        " error. For --task_name=table with one label per text.",
    )
    windows: bool = setting(
        False,
        "Whether texts longer than --max_seq_length are read in windows, each beginning half a window after the one"
        " before, instead of being cut. In training, each window is an example with the label of its text; answers are"
        " the mean over the windows of a text. For --task_name=table with one text.",
        of_model="fixed",
    )
    classifier_pooling: str = setting(
        "",
        "What the scores of a text are made of: "
        + "; ".join(f"{name}, {help}" for name, help in CLASSIFIER_POOLINGS.items())
        + ". By default, that of --init_checkpoint if it has the head of the task, otherwise pooler, and with"
        " --train_head_only embedding.",
        choices=("", *CLASSIFIER_POOLINGS),
    )
    train_head_only: bool = setting(
        False,
        "Whether only the head is trained: a logistic regression (of scores, a ridge regression) on the vectors of the"
        " texts, which are computed once. It takes seconds, and suits few labeled texts.",
    )
    inverse_regularization: float = setting(
        1.0,
        "Inverse strength of the L2 regularization of --train_head_only: C of scikit-learn, for vectors of length 1 on"
        " average.",
        above=0,
        maximum=1e6,
    )

    def __post_init__(self):
        super().__post_init__()
        all_tasks = ", ".join([*GLUE_TASKS, OWN_TASK])
        if not self.task_name:
            self.refuse("task_name", f"is required without --train_file: one of {all_tasks}")
        if not self.glue and self.task_key != OWN_TASK:
            self.refuse("task_name", f"must be one of {all_tasks}; got {self.task_name!r}")
        unknown = {*self.metric_names} - {*names_for(is_regression=self.is_regression)}
        if unknown or (self.metrics and (self.task_key != OWN_TASK or self.is_multi_label)):
            names = ", ".join(names_for(is_regression=self.is_regression))
            reason = f"={self.metrics}: is for --task_name=table with one label per text; known are {names}"
            self.refuse("metrics", reason)
        if self.is_multi_label:
            self._check_separator()
        if self.skip_unlabeled and (self.task_key != OWN_TASK or self.is_multi_label):
            self.refuse("skip_unlabeled", "is for --task_name=table with one label per text")
        if self.class_weights and self.is_regression:
            self.refuse("class_weights", "is for labels, but this task has scores")
        if self.windows and (self.task_key != OWN_TASK or len(self.text_column_names) > 1):
            self.refuse("windows", "is for --task_name=table with one column in --text_columns")

    def check_with(self, others: Mapping[type[Settings], Any]) -> None:
        """See `FineTuningConfig`; checks that all flags have an effect on a head that is trained alone."""
        super().check_with(others)
        run = others[FineTuningRunConfig]
        if self.train_head_only:
            self._check_head_only(run, others[FineTuningOptimizerConfig])
        elif self.inverse_regularization != type(self).inverse_regularization:
            self.refuse("inverse_regularization", "needs --train_head_only")

    def _check_head_only(
        self, run: FineTuningRunConfig, optimizer: FineTuningOptimizerConfig
    ) -> None:
        if not run.do_train:
            self.refuse("train_head_only", "needs --do_train")
        if not run.init_checkpoint:
            reason = "needs --init_checkpoint, the model that makes the vectors"
            self.refuse("train_head_only", reason)
        without_effect: list[tuple[Settings, tuple[str, ...]]] = [
            (self, ("preset", "num_runs", "teacher", "teacher_temperature")),
            (run, _OF_STEPS),
            (optimizer, optimizer.names()),
        ]
        for settings, names in without_effect:
            for name in names:
                if getattr(settings, name) != getattr(type(settings), name):
                    reason = "has no effect with --train_head_only, which trains in no steps"
                    settings.refuse(name, f"{reason}: leave it out")

    def _check_separator(self) -> None:
        flag = "label_separator" if self.label_separator else "label_column"
        if self.task_key != OWN_TASK:
            self.refuse(flag, f"is for --task_name=table, not {self.task_name}")
        if self.kind == "regression":
            self.refuse(flag, "and --kind=regression contradict each other")
        if any(character in self.label_separator for character in "\t\r\n"):
            self.refuse("label_separator", "must not be a tab or a line break, which end a field")

    @property
    def is_regression(self) -> bool:
        """Whether a text gets a score instead of labels."""
        return self.glue.is_regression if self.glue else self.kind == "regression"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names in --metrics, or the defaults."""
        names = tuple(filter(None, map(str.strip, self.metrics.split(","))))
        return names or names_for(is_regression=self.is_regression)[:2]

    @property
    def task_key(self) -> str:
        """The name of the task in models and presets."""
        return task_key(self.task_name)

    @property
    def glue(self) -> GlueTask | None:
        """The task of GLUE; None for --task_name=table."""
        return find_task(self.task_name)

    @property
    def text_column_names(self) -> list[str]:
        """The names in --text_columns."""
        return [name.strip() for name in self.text_columns.split(",")]

    @property
    def label_column_names(self) -> list[str]:
        """The names in --label_column."""
        return [name.strip() for name in self.label_column.split(",")]

    @property
    def is_multi_label(self) -> bool:
        """Whether an example has any number of labels."""
        return bool(self.label_separator) or len(self.label_column_names) > 1

    @property
    def separator(self) -> str:
        """--label_separator, or the one between the names of columns."""
        return self.label_separator or ","

    def columns_of_tables(self, split: str) -> list[str]:
        """See `FineTuningConfig`; only texts where nothing is learned, as labels may be those of a GLUE task."""
        if self.glue:
            return []
        labels = self.label_column_names if split == "train" else []
        return [*self.text_column_names, *labels]

    def check_files(self, run: FineTuningRunConfig) -> None:
        """See `FineTuningConfig`; checks the folder of GLUE, or the columns of --task_name=table."""
        if not self.glue:
            self._check_columns()
            super().check_files(run)
            return
        self.check_predictions_file(run)
        if not self.glue.label_column and run.do_train:
            run.refuse("do_train", f"must be false: {self.task_name} has no training data")
        if not self.data_dir:
            self.refuse("data_dir", f"is required: the folder of {self.task_name}")
        if not ("://" in self.data_dir or os.path.isdir(self.data_dir)):
            self.refuse("data_dir", f"={self.data_dir}: no such folder")
        if self.train_file or self.eval_file:
            self.refuse("train_file", "and --eval_file belong to --task_name=table")
        if self.eval_fraction:
            self.refuse(
                "eval_fraction", f"is for --task_name=table: {self.task_name} has a dev set"
            )

    def _check_columns(self) -> None:
        for name in ("text_columns", "label_column"):
            if not getattr(self, name):
                self.refuse(name, "is required with --task_name=table")
        texts = self.text_column_names
        if len(texts) > 2 or not all(texts) or len(set(texts)) < len(texts):
            self.refuse("text_columns", f"must be one or two names, got {self.text_columns!r}")
        labels = self.label_column_names
        if not all(labels) or len({*labels}) < len(labels):
            self.refuse("label_column", f"must be different names, got {self.label_column!r}")
        in_both = {*labels} & {*texts}
        if in_both:
            reason = f"={min(in_both)} is in --text_columns, too: a model would read its answers"
            self.refuse("label_column", reason)
