"""Predicts labels or scores of texts with a finished model."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.core.probabilities import sigmoid, softmax
from albert_tf.data.feature_table import FeatureTable
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.classification import glue, multi_label, text_pairs
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.predictor import Answer, Item, Predictor, best_label, defaults_of
from albert_tf.tasks.ranking import checked_texts, ranked
from albert_tf.tasks.sequences import PairSettings


class PairPredictor(Predictor):
    """The base of predictors for one text or two: "text", "text<TAB>text", or {"text_a": ..., "text_b": ...}.

    Texts may also have the names of the columns on which the model was trained, which then count alone. If these are
    known, other numbers of texts are rejected; a tab in the text of a model of one text is white space.
    """

    expects = 'a text, two texts with a tab between, or {"text_a": ..., "text_b": ...}'

    _columns: tuple[str, ...] = ()

    def __init__(self, model, tokenizer, task_settings, *args, **kwargs):
        super().__init__(model, tokenizer, task_settings, *args, **kwargs)
        self._columns = _columns_of(task_settings, model.config)
        if len(self._columns) == 1:
            self.expects = f'a text, or {{"{self._columns[0]}": ...}}'
        elif self._columns:
            # GLUE's own columns have names such as "#1 String".
            are_of_user = "text_columns" in task_settings
            self.prompts = self._columns if are_of_user else ("text_a", "text_b")
            first, second = self.prompts
            self.expects = f'two texts with a tab between, or {{"{first}": ..., "{second}": ...}}'
            self.empty = "\t"

    @property
    def num_texts(self) -> int:
        """How many texts the model reads, 1 or 2; 0 if it is not known."""
        return len(self._columns)

    def check(self, item: Item) -> text_pairs.TextExample:
        columns = self._columns
        texts: list[Any] = []
        if isinstance(item, str):
            texts = [item] if len(columns) == 1 else item.split("\t")
        elif isinstance(item, Mapping):
            names = columns
            if not columns or columns[0] not in item:
                names = ("text_a" if "text_a" in item else "text", "text_b")
            texts = [item.get(name) for name in names]
            if len(columns) < 2 and not texts[-1]:
                texts = texts[:1]

        allowed_numbers = (len(columns),) if columns else (1, 2)
        if len(texts) not in allowed_numbers:
            self.refuse(item)
        if not all(isinstance(text, str) for text in texts):
            self.refuse(item)
        self.count(texts[0])
        return text_pairs.TextExample.of_texts("", texts)

    def table(self, examples: Sequence[text_pairs.TextExample]) -> FeatureTable:
        """The sequences of examples."""
        settings = PairSettings(self.tokenizer, self.task_settings["max_seq_length"])
        return text_pairs.make_pair_features(settings, examples)


def _columns_of(task_settings: Mapping[str, Any], config: AlbertConfig) -> tuple[str, ...]:
    """Names of the columns with the one or two texts of a model; none if they are not known."""
    names = task_settings.get("text_columns")
    if names:
        return tuple(map(str.strip, names.split(",")))
    task = glue.find_task(str(config.foreign.get("finetuning_task")))
    return task.text_columns if task else ()


class ClassificationPredictor(PairPredictor):
    """Predicts a label with probabilities, several labels with probabilities, or a score."""

    default_settings = defaults_of(ClassifierConfig, "windows")

    def answers(self, examples):
        """See `Predictor`: `label` and `probability`, or `labels`, and `probabilities` by label; or `score`."""
        settings = text_pairs.TextFeatureSettings(
            self.tokenizer, **self.settings("max_seq_length", "windows")
        )
        table = text_pairs.make_text_features(settings, examples)
        if settings.windows:  # nothing is cut
            table = dataclasses.replace(table, uncut_lengths={})

        # A row for each text, or for each window; `mean_of_windows` makes one for each text.
        logits_BC = self.outputs(table)["logits"]
        labels = self.model.config.labels
        if self.model.config.is_multi_label:
            rows = text_pairs.mean_of_windows(table, sigmoid(logits_BC))
            return [reached_labels(labels, row) for row in rows]
        if len(labels) == 1:
            scores_B = logits_BC[:, 0]
            if self.model.config.score_is_probability:
                scores_B = sigmoid(scores_B)
            scores = text_pairs.mean_of_windows(table, scores_B)
            name = "score" if labels[0] == "LABEL_0" else labels[0]  # a name that nobody gave
            return [{name: float(score)} for score in scores]
        rows = text_pairs.mean_of_windows(table, softmax(logits_BC))
        return [best_label("label", labels, row) for row in rows]

    def check(self, item):
        example = super().check(item)
        if example.text_b and self.task_settings["windows"]:
            raise UserError("the model reads one text in windows; got two texts")
        return example

    def num_windowed_characters(self, example):
        return len(example.text_a) if self.task_settings["windows"] else 0

    def may_have_windows(self):
        return len(self._columns) < 2 and not self.task_settings["windows"]

    def rank(self, query: str, texts: Iterable[str], top_k: int | None = None) -> list[Answer]:
        """See `Predictor.rank`: of two labels, the probability of `better_label` is the score."""
        before = dataclasses.replace(self.report.tokens)
        answers = self.ranking(query, texts, top_k)
        self.warn(before)
        return answers

    def ranking(self, query: str, texts: Iterable[str], top_k: int | None = None) -> list[Answer]:
        """`rank` without warnings."""
        self.check_ranks()
        texts = checked_texts(texts)
        if not texts:
            return ranked(np.zeros(0), texts, top_k)
        pairs = [text_pairs.TextExample("", query, text) for text in texts]
        scores = np.array([score for score, _ in self.relevance(pairs)], np.float32)
        return ranked(scores, texts, top_k)

    def check_ranks(self) -> None:
        """Raises a UserError if the model does not score pairs of query and text."""
        labels = self.model.config.labels
        if len(labels) > 2 or self.model.config.is_multi_label:
            raise UserError(f"rank needs a model with one score or two labels, not {len(labels)}")
        if len(self._columns) == 1:
            raise UserError("rank needs a model of two texts; this one was trained on single texts")
        better_label(labels)

    def relevance(self, pairs: Sequence[text_pairs.TextExample]) -> list[tuple[float, int]]:
        """The score that ranks each pair of query and text, and the number of its tokens that the model reads."""
        table = self.table(pairs)
        labels = self.model.config.labels
        logits_BC = self.outputs(table)["logits"]
        scores_B = logits_BC[:, 0]
        if len(labels) == 2:
            scores_B = softmax(logits_BC)[:, better_label(labels)]
        if self.model.config.has_sigmoid:
            scores_B = sigmoid(scores_B)
        return list(zip(scores_B.tolist(), table.lengths.tolist(), strict=True))


def better_label(labels: Sequence[str]) -> int:
    """Of one or two labels, the index of the one that says that two texts belong together."""
    if len(labels) == 1:
        return 0
    first, last = (label.lower() for label in labels)
    for index, (label, other) in enumerate([(first, last), (last, first)]):
        if other in (f"not_{label}", f"not-{label}", f"not {label}"):
            return index
    if (first, last) in (("0", "1"), ("false", "true"), ("no", "yes"), ("label_0", "label_1")):
        return 1
    hint = "train with the labels 0 and 1, or with --kind=regression"
    raise UserError(f"rank cannot tell which of {' and '.join(labels)} means relevant; {hint}")


def reached_labels(labels: Sequence[str], probabilities_C: np.ndarray) -> Answer:
    """An answer with `labels`, those that reach the threshold, and the `probabilities` of all labels."""
    reached = probabilities_C >= multi_label.THRESHOLD
    return {
        "labels": [label for label, is_reached in zip(labels, reached, strict=True) if is_reached],
        "probabilities": dict(zip(labels, probabilities_C.tolist(), strict=True)),
    }
