"""Classification and regression of one text or two: GLUE, and a user's own files (original run_classifier.py)."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.core.checksums import with_sums
from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.tasks import metrics
from albert_tf.tasks.classification import glue, pair_ranking
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.finetuning import (
    LabelTask,
    averaged,
    commonest_share,
    example_weights,
)
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.training.losses import Ratio, cross_entropy, squared_error
from albert_tf.training.task import Features, Files, Outputs, Predictions


class ClassificationTask(LabelTask):
    """One GLUE task, or a task of the user's own; arguments as of `FineTuningTask`."""

    model_class = AlbertForSequenceClassification
    source_class = TextSource
    source: TextSource

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.is_regression = self.source.is_regression
        self.label_column = self.source.label_columns[0]
        if self.source.glue:
            self.metric_names = self.source.glue.metrics
        elif self.is_regression:
            self.metric_names = ("pearson", "spearman")
        else:
            self.metric_names = ("accuracy", "macro_f1")
        self.best_metric = self.metric_names[0]

    # --- Training ---

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy, or the squared error of a score (original classifier_utils.py:779-830)."""
        if features["input_ids"].shape.rank == 3:
            return {"label_loss": self._ranking_loss(outputs, features)}
        if not self.is_regression:
            return super().losses(outputs, features)
        scores, labels = outputs["logits"][:, 0], features[self.label_column][:, 0]
        return {"label_loss": squared_error(scores, labels, example_weights(features))}

    def _ranking_loss(self, outputs: Outputs, features: Features) -> Ratio:
        """Half the cross entropy of which row of a pair has the answer, and half that of both labels."""
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
        return super().predictions(outputs, features)

    # --- Results ---

    def _answers(self, members: Sequence[Predictions], split: str = "eval") -> np.ndarray:
        """Scores, float [examples], or indices of labels, int [examples]."""
        if self.is_regression:
            return averaged(members, "scores")[:, 0]
        if not self.config.pair_ranking:
            return super()._answers(members, split)
        probabilities = averaged(members, "probabilities")
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
        if not self.is_regression:
            return super().collapsed(members)
        scores = self._answers(members)
        if np.ptp(scores) >= 1e-3 or len(set(self._column("eval", self.label_column))) == 1:
            return ""
        return (
            f"the model predicts the score {scores[0]:.3f} for all of the {len(scores):,} examples"
        )

    def chance_levels(self) -> Mapping[str, float]:
        """Accuracy of always giving the commonest label."""
        if not self.eval_data or "accuracy" not in self.metric_names:
            return {}
        groups = [example.group for example in self.items["eval"]]
        labels = self._column("eval", "label_ids")[np.array(groups) == groups[0]]
        return {"accuracy": commonest_share(labels)}

    def _describe(self, item, answer, truth, probability):
        words = f"predicted {answer:.2f}, true {truth:.2f}"
        if not self.is_regression:
            words = (
                f"predicted {self.labels[answer]} ({probability:.3f}), true {self.labels[truth]}"
            )
        texts = [f"  {text}" for text in (item.text_a, item.text_b) if text]
        return "\n".join([f"row {item.row}: {words}", *texts])

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """Readable answers with probabilities, the leaderboard's file of a GLUE task, and the raw predictions."""
        examples, answers = self.items["predict"], self._answers(members, "predict")
        if self.is_regression:
            rows = [
                f"{item.id}\t{score:.4f}" for item, score in zip(examples, answers, strict=True)
            ]
            text = "\n".join(["id\tscore", *rows]) + "\n"
            contents = {"predictions/predictions.tsv": text, **self._raw_file(members, "predict")}
        else:
            contents = super().prediction_files(members)
        if self.source.glue:
            groups = np.array([example.group for example in examples])
            files = {}
            for group in dict.fromkeys(groups.tolist()):
                indices = np.flatnonzero(groups == group)
                ids = [examples[index].id for index in indices]
                name, text = glue.submission_tsv(self.source.glue, group, ids, answers[indices])
                files[name] = text.encode()
            folder = glue.SUBMISSION_FOLDER
            contents |= {f"{folder}/{name}": content for name, content in with_sums(files).items()}
        return contents
