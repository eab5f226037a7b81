"""Classification and regression of one text or two: GLUE, and a user's own files (original run_classifier.py)."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import EXAMPLE_WEIGHTS, example_weights
from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.tasks import metrics
from albert_tf.tasks.classification import glue, multi_label
from albert_tf.tasks.classification.predictor import reached_labels
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.classification.text_pairs import FIRST_WINDOW, mean_of_windows
from albert_tf.tasks.finetuning import FineTuningTask, LabelTask, majority_share
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.training.losses import Ratio, binary_cross_entropy, squared_error
from albert_tf.training.task import Features, Files, Metrics, Outputs, Predictions


def make_task(config: ClassifierConfig, run: FineTuningRunConfig) -> FineTuningTask:
    """The task for the settings; for the arguments see `FineTuningTask`."""
    return (MultiLabelTask if config.is_multi_label else ClassificationTask)(config, run)


class TextTask(FineTuningTask):
    """The base of tasks that give labels or scores to texts, with weights of the labels in the loss, float32 [C]."""

    model_class = AlbertForSequenceClassification
    source_class = TextSource
    packs = True
    source: TextSource
    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.class_weights = None
        if not config.class_weights or not run.do_train:
            return
        truths = self.tables["train"].columns[self.source.label_columns[0]]
        self.class_weights = multi_label.balanced_weights(
            truths, len(self.labels), is_multi_label=self.source.is_multi_label
        )
        print(multi_label.weights_in_words(self.labels, self.class_weights), flush=True)

    def _values(self, predictions: Predictions, name: str, split: str) -> np.ndarray:
        return mean_of_windows(self.tables[split], predictions[name])

    def _labels(self, split: str, name: str) -> np.ndarray:
        """The labels of the texts, [examples, labels]; those of a text's windows are equal."""
        columns = self.tables[split].columns
        is_first = columns.get(FIRST_WINDOW)
        return columns[name] if is_first is None else columns[name][is_first[:, 0] == 1]

    def _column(self, split: str, name: str) -> np.ndarray:
        return self._labels(split, name)[:, 0]

    def _class_weights_for(self, features: Features) -> np.ndarray | None:
        """The weights of the labels in training; None in an evaluation, so that losses of runs are comparable."""
        return None if EXAMPLE_WEIGHTS in features else self.class_weights


class ClassificationTask(TextTask, LabelTask):
    """A GLUE task, or a task of the user's own; for the arguments see `FineTuningTask`."""

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.is_regression = self.source.is_regression
        self.label_column = self.source.label_columns[0]
        if self.source.glue:
            self.metric_names = self.source.glue.metrics
        else:
            self.metric_names = config.metric_names
            if "f1" in self.metric_names and len(self.labels) != 2:
                reason = f"=f1 is for two labels, not {len(self.labels)}: take macro_f1"
                config.refuse("metrics", reason)
        self.best_metric = self.metric_names[0]

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of examples, or the sum of the weights of their labels."""
        return {"label_loss": tf.reduce_sum(self._loss_weights(features))}

    def _loss_weights(self, features: Features) -> tf.Tensor:
        """The weight of each example in the loss, float32 [B]."""
        weights, class_weights = example_weights(features), self._class_weights_for(features)
        if class_weights is None:
            return weights
        return weights * tf.gather(class_weights, features["label_ids"][:, 0])

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy, or the squared error of a score (original classifier_utils.py:779-830)."""
        labels, weights = features[self.label_column][:, 0], self._loss_weights(features)
        if self.is_regression:
            return {"label_loss": squared_error(outputs["logits"][:, 0], labels, weights)}
        wanted = self._teachers_outputs(features).get("logits")
        return {"label_loss": self._label_loss(outputs["logits"], labels, weights, wanted)}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C], or scores [B, 1]."""
        if self.is_regression:
            return {"scores": outputs["logits"]}
        return super().predictions(outputs, features)

    def _answers(self, predictions: Predictions, split: str = "eval") -> np.ndarray:
        """Scores, float [examples], or indices of labels, int [examples]."""
        if self.is_regression:
            return self._values(predictions, "scores", split)[:, 0]
        return super()._answers(predictions, split)

    def evaluate(self, predictions: Predictions) -> Metrics:
        """Every metric of the task, for all examples and, if there are several groups, for each group.

        In a task with groups, the first metric is that of the first group (MNLI: matched, as in the paper).
        """
        answers, labels = self._answers(predictions), self._column("eval", self.label_column)
        probabilities = answers
        if not self.is_regression:
            probabilities = self._values(predictions, "probabilities", "eval")
        groups = np.array([example.group for example in self.items["eval"]])
        names = list(dict.fromkeys(groups))
        results: dict[str, float | None] = {}
        for metric in self.metric_names:
            for name in names:
                own = groups == name
                key = metric if name == names[0] else f"{metric}_{name}"
                of_group = (values[own] for values in (answers, labels, probabilities))
                value = metrics.measured(metric, *of_group)
                results[key] = metrics.official(metric, value) if self.source.glue else value
        return results

    def majority_levels(self) -> Mapping[str, float]:
        """The accuracy if the most frequent label is always given."""
        if not self.eval_data or "accuracy" not in self.metric_names:
            return {}
        groups = [example.group for example in self.items["eval"]]
        labels = self._column("eval", "label_ids")[np.array(groups) == groups[0]]
        return {"accuracy": majority_share(labels)}

    def _describe(self, item, answer, truth, probability):
        words = f"predicted {answer:.2f}, true {truth:.2f}"
        if not self.is_regression:
            answer, truth = self.labels[answer], self.labels[truth]
            words = f"predicted {answer} ({probability:.3f}), true {truth}"
        texts = [f"  {text}" for text in (item.text_a, item.text_b) if text]
        return "\n".join([f"{item.row}: {words}", *texts])

    def prediction_files(self, predictions: Predictions) -> Files:
        """Answers with probabilities to read, the leaderboard's file of a GLUE task, and the raw predictions."""
        examples, answers = self.items["predict"], self._answers(predictions, "predict")
        if self.is_regression:
            rows = [{"score": float(score)} for score in answers]
            contents = dict(self._answer_files(rows, predictions))
        else:
            contents = dict(super().prediction_files(predictions))
        if task := self.source.glue:
            groups = np.array([item.group for item in examples])
            for group in dict.fromkeys(groups.tolist()):
                own = groups == group
                ids = [examples[row].id for row in np.flatnonzero(own).tolist()]
                name, text = glue.submission_tsv(task, group, ids, answers[own])
                contents[f"predictions/{name}"] = text
        return contents


class MultiLabelTask(TextTask):
    """A task with any number of labels for a text; for the arguments see `FineTuningTask`."""

    best_metric = "micro_average_precision"  # does not need a threshold

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        for label in self.labels:
            if config.separator in label:
                reason = f"={config.separator} is in the label {label!r}; choose another"
                config.refuse("label_separator", reason)

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of decisions: examples times labels."""
        return {"label_loss": tf.reduce_sum(example_weights(features)) * len(self.labels)}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Binary cross entropy, as torch.nn.BCEWithLogitsLoss with --class_weights as `pos_weight` of true labels."""
        labels_BC = features["label_sets"]
        weights_BC = tf.repeat(example_weights(features)[:, None], len(self.labels), axis=1)
        count = tf.reduce_sum(weights_BC)
        if (class_weights := self._class_weights_for(features)) is not None:
            weights_BC *= tf.where(labels_BC == 1, class_weights[None], 1.0)
        loss = binary_cross_entropy(outputs["logits"], labels_BC, weights_BC)
        return {"label_loss": Ratio(loss.sum, count)}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """The probability of each label, [B, C]."""
        return {"probabilities": tf.sigmoid(outputs["logits"])}

    def _evaluated(self, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and truths of the development data, [examples, C]; probabilities of a diverged model are 0."""
        probabilities = np.nan_to_num(self._values(predictions, "probabilities", "eval"))
        return probabilities, self._labels("eval", "label_sets")

    def evaluate(self, predictions: Predictions) -> Metrics:
        """Average precision and F1."""
        return multi_label.scores(*self._evaluated(predictions))

    def majority_levels(self) -> Metrics:
        """The average precision if the frequencies of the labels are the probabilities of every example."""
        if not self.eval_data:
            return {}
        truths = self._labels("eval", "label_sets")
        frequencies = np.broadcast_to(truths.mean(axis=0), truths.shape)
        return multi_label.average_precisions(frequencies, truths)

    def evaluation_files(self, predictions: Predictions) -> Files:
        """A table by label with the worst errors, and the raw predictions."""
        probabilities, truths = self._evaluated(predictions)
        predicted = probabilities >= multi_label.THRESHOLD
        wrong = predicted != (truths == 1)

        def describe(index: int) -> str:
            item = self.items["eval"][index]
            shown = ", ".join(
                f"{self.labels[i]} {probabilities[index, i]:.3f}"
                for i in np.flatnonzero(wrong[index])
            )
            words = [self._names(row[index]) or "(none)" for row in (predicted, truths == 1)]
            texts = [f"  {text}" for text in (item.text_a, item.text_b) if text]
            first = f"{item.row}: predicted {words[0]}, true {words[1]} ({shown})"
            return "\n".join([first, *texts])

        table = metrics.sklearn_metrics().classification_report(
            truths, predicted, target_names=self.labels, digits=3, zero_division=0
        )
        sureness = np.where(wrong, np.abs(probabilities - truths), 0).max(axis=1)
        report = metrics.error_report(table, sureness, wrong.any(axis=1), describe)
        return {"predictions/eval_errors.txt": report, **self._raw_file(predictions, "eval")}

    def _names(self, is_label: np.ndarray) -> str:
        """The labels of an example, written as in the files."""
        names = [name for name, is_own in zip(self.labels, is_label, strict=True) if is_own]
        return self.config.separator.join(names)

    def prediction_files(self, predictions: Predictions) -> Files:
        """The labels of every row with the probability of every label, and the raw predictions."""
        probabilities = self._values(predictions, "probabilities", "predict")
        answers = [reached_labels(self.labels, row) for row in probabilities]
        return self._answer_files(answers, predictions)
