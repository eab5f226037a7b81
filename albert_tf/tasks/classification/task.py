"""Classification and regression of one text or two: GLUE, and a user's own files (original run_classifier.py)."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.tasks import metrics
from albert_tf.tasks.classification import glue, pair_ranking
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.finetuning import (
    FineTuningTask,
    answer_rows,
    averaged,
    commonest_share,
    example_weights,
)
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.training.losses import Ratio, cross_entropy, squared_error
from albert_tf.training.task import Features, Files, Outputs, Predictions


class ClassificationTask(FineTuningTask):
    """One GLUE task, or a task of the user's own.

    Args:
      config: settings of the task.
      run: what is asked for, and the model to start from.

    Raises:
      UserError: the files, the model and the flags do not fit together.
    """

    model_class = AlbertForSequenceClassification
    source_class = TextSource
    source: TextSource

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.is_regression = self.source.is_regression
        self.label_column = self.source.label_columns[0]
        self.metric_names = self._metric_names()
        self.best_metric = self.metric_names[0]

    def _metric_names(self) -> tuple[str, ...]:
        if self.source.glue:
            return self.source.glue.metrics
        return ("pearson", "spearman") if self.is_regression else ("accuracy", "macro_f1")

    # --- Training ---

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy, or the squared error of a score (original classifier_utils.py:779-830)."""
        weights = example_weights(features)
        if features["input_ids"].shape.rank == 3:
            return {"label_loss": self._ranking_loss(outputs, features)}
        labels = features[self.label_column][:, 0]
        if self.is_regression:
            return {"label_loss": squared_error(outputs["logits"][:, 0], labels, weights)}
        return {"label_loss": cross_entropy(outputs["logits"], labels, weights)}

    def _ranking_loss(self, outputs: Outputs, features: Features) -> Ratio:
        """Cross entropy of which row of a pair has the answer, and of the labels of both, half each."""
        weights = example_weights(features)
        scores_B2 = self._score(outputs["logits"])
        first_is_best = tf.zeros_like(features["label_ids"][:, 0])
        ranking = cross_entropy(scores_B2, first_is_best, weights)
        both = tf.stack([weights, weights], axis=1)
        labels = cross_entropy(outputs["logits"], features["label_ids"], both)
        return Ratio(0.5 * ranking.sum + 0.25 * labels.sum, ranking.count)

    def _score(self, logits):
        """How much more likely the answer is here than not, as a difference of logits [..., 2]."""
        positive = pair_ranking.POSITIVE_LABELS[self.task_name]
        return logits[..., positive] - logits[..., 1 - positive]

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C], or scores [B, 1]."""
        if self.is_regression:
            return {"scores": outputs["logits"]}
        return {"probabilities": tf.nn.softmax(outputs["logits"])}

    # --- Results ---

    def _answers(self, members: Sequence[Predictions], split: str = "eval") -> np.ndarray:
        """Scores, float [examples], or indices of labels, int [examples]."""
        if self.is_regression:
            return averaged(members, "scores")[:, 0]
        probabilities = averaged(members, "probabilities")
        if not self.config.pair_ranking:
            return np.argmax(probabilities, axis=1)
        positive = pair_ranking.POSITIVE_LABELS[self.task_name]
        questions = [example.text_a for example in self.items[split]]
        scores = self._score(np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)))
        return np.where(pair_ranking.is_best(questions, scores), positive, 1 - positive)

    def evaluate(self, members: Sequence[Predictions]) -> Mapping[str, float]:
        """Every metric of the task, for all examples and, where there are several groups, for each group.

        The first metric of a task with groups is that of its first group (MNLI: matched, as in the paper).
        """
        answers, labels = self._answers(members), self._column("eval", self.label_column)
        groups = np.array([example.group for example in self.items["eval"]])
        names = list(dict.fromkeys(groups))
        results = {}
        for metric in self.metric_names:
            for name in names:
                of_group = groups == name
                key = metric if name == names[0] else f"{metric}_{name}"
                results[key] = metrics.METRICS[metric](answers[of_group], labels[of_group])
        return results

    def collapsed(self, members: Sequence[Predictions]) -> str:
        """Says so if every prediction is the same."""
        answers = self._answers(members)
        if self.is_regression:
            is_same, what = np.ptp(answers) < 1e-3, f"the score {answers[0]:.3f}"
        else:
            is_same, what = len(set(answers)) == 1, f"the label {self.labels[answers[0]]!r}"
        if not is_same or len(set(self._column("eval", self.label_column))) == 1:
            return ""
        return f"the model predicts {what} for all of the {len(answers):,} examples"

    def chance_levels(self) -> Mapping[str, float]:
        """Accuracy of always giving the commonest label."""
        if not self.eval_data or "accuracy" not in self.metric_names:
            return {}
        groups = [example.group for example in self.items["eval"]]
        labels = self._column("eval", "label_ids")[np.array(groups) == groups[0]]
        return {"accuracy": commonest_share(labels)}

    def evaluation_files(self, members: Sequence[Predictions]) -> Files:
        """A table of confusions and the worst errors, and the raw predictions."""
        return {
            "predictions/eval_errors.txt": self._error_report(members),
            **self._raw_file(members, "eval"),
        }

    def _error_report(self, members: Sequence[Predictions]) -> str:
        labels, answers = self._column("eval", self.label_column), self._answers(members)
        if self.is_regression:
            parts = []
            worst = metrics.worst_score_errors(answers, labels)
            said = [f"predicted {answers[i]:.2f}, true {labels[i]:.2f}" for i in worst]
        else:
            probabilities = averaged(members, "probabilities")
            table = metrics.confusion_table(answers, labels, len(self.labels))
            parts = [metrics.format_confusion(table, self.labels)]
            worst = metrics.worst_errors(probabilities, labels)
            said = [
                f"predicted {self.labels[answers[i]]} ({probabilities[i].max():.3f}),"
                f" true {self.labels[labels[i]]}"
                for i in worst
            ]
        parts.append(f"The {len(worst)} worst errors of {len(labels):,} examples\n")
        for index, words in zip(worst, said, strict=True):
            example = self.items["eval"][index]
            texts = [text for text in (example.text_a, example.text_b) if text]
            parts.append("\n".join([f"row {example.row}: {words}", *(f"  {t}" for t in texts)]))
        return "\n".join(parts) + "\n"

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """Readable answers with probabilities, the leaderboard's file of a GLUE task, and the raw predictions."""
        examples, answers = self.items["predict"], self._answers(members, "predict")
        found = {
            "predictions/predictions.tsv": self._readable(members),
            **self._raw_file(members, "predict"),
        }
        if not self.source.glue:
            return found
        for group in dict.fromkeys(example.group for example in examples):
            chosen = [i for i, example in enumerate(examples) if example.group == group]
            name, text = glue.submission_tsv(
                self.source.glue, group, [examples[i].id for i in chosen], answers[chosen]
            )
            found[f"predictions/{name}"] = text
        return found

    def _readable(self, members: Sequence[Predictions]) -> str:
        answers = self._answers(members, "predict")
        ids = [example.id for example in self.items["predict"]]
        if self.is_regression:
            rows = [f"{id}\t{score:.4f}" for id, score in zip(ids, answers, strict=True)]
            return "\n".join(["id\tscore", *rows]) + "\n"
        return answer_rows(ids, self.labels, answers, averaged(members, "probabilities"))
