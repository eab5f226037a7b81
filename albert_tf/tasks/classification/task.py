"""Classification and regression of one text or two: GLUE, and a user's own files (original run_classifier.py)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.feature_table import FeatureTable
from albert_tf.formats import weights as model_weights
from albert_tf.formats.weights import Weights
from albert_tf.model.config import EMBEDDING, POOLER, AlbertConfig
from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.tasks import label_answers, metrics
from albert_tf.tasks.classification import glue, linear_models, multi_label
from albert_tf.tasks.classification.losses import LOSSES
from albert_tf.tasks.classification.predictor import reached_labels
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.classification.text_pairs import FIRST_WINDOW, TextExample, mean_of_windows
from albert_tf.tasks.finetuning import FineTuningTask, raw_file
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.start import Head
from albert_tf.training.losses import Ratio
from albert_tf.training.task import Features, Files, Metrics, Outputs, Predictions

_ERRORS_FILE = "predictions/eval_errors.txt"


def make_task(config: ClassifierConfig, run: FineTuningRunConfig) -> "TextTask":
    """The task for the settings; for the arguments see `FineTuningTask`."""
    if config.is_multi_label:
        return MultiLabelTask(config, run)
    if config.is_regression:
        return ScoreTask(config, run)
    return ClassificationTask(config, run)


class TextHead(Head):
    """A head with a score for each label, of what --classifier_pooling names; for the arguments see `Head`."""

    @property
    def _settings(self) -> ClassifierConfig:
        config = self.source.config
        assert isinstance(config, ClassifierConfig)
        return config

    def labels_of(self, weights):
        """See `Head`; the only output of a regression is its score, however a model of others calls it.

        Behind a sigmoid, it is another number than that of the losses and metrics here.
        """
        labels = super().labels_of(weights)
        is_score = self._settings.is_regression and len(labels) == 1
        return self.source.labels if is_score and not weights.config.has_sigmoid else labels

    def fits(self, labels):
        """See `Head`; a head that is fitted at once does not begin with another's values."""
        return not self._settings.train_head_only and super().fits(labels)

    def described(self, config: AlbertConfig, *, is_new: bool, is_trained: bool) -> AlbertConfig:
        """See `Head`."""
        del is_trained
        pooling = self._settings.classifier_pooling
        if not pooling and not is_new:
            pooling = config.classifier_pooling
        elif not pooling:
            pooling = EMBEDDING if self._settings.train_head_only else POOLER
        source = self.source
        return config.with_labels(
            source.labels,
            source.task_name,
            is_multi_label=source.is_multi_label,
            pooling=pooling,
        )

    def initial_weights(self, weights: Weights, config: AlbertConfig, *, is_new: bool) -> Weights:
        """See `Head`; the vector of an embedding model must be made as that model does it."""
        if not is_new:
            self._check_reads_the_same(weights.config, config, weights.source)
            return weights
        reads_embedding = config.classifier_pooling == EMBEDDING
        if reads_embedding and weights.config.sentence_embedding != config.sentence_embedding:
            reason = f"says another way to make vectors than {weights.source}; leave it out"
            self._settings.refuse("albert_config_file", reason)
        return weights.without_head(keeps_vectors=reads_embedding)

    def _check_reads_the_same(self, trained: AlbertConfig, config: AlbertConfig, source: str):
        if trained.classifier_pooling != config.classifier_pooling:
            reason = f"the head of {source} was trained with {trained.classifier_pooling}"
            self._settings.refuse(
                "classifier_pooling", f"={config.classifier_pooling}: {reason}; leave it out"
            )


class TextTask(FineTuningTask):
    """The base of tasks that give labels or scores to texts.

    Attributes:
      answer_column: the column of the true answers in the features, which decides the loss.
      class_weights: the weights of the labels in training, float32 [C]; None if all count alike.
    """

    model_class = AlbertForSequenceClassification
    source_class = TextSource
    head_class = TextHead
    packs = True
    source: TextSource
    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.is_fitted = config.train_head_only
        self.answer_column = self.source.label_columns[0]
        self.class_weights: np.ndarray | None = None
        if config.class_weights and run.do_train:
            self.class_weights = multi_label.balanced_weights(
                self.tables["train"].columns[self.answer_column],
                len(self.labels),
                is_multi_label=self.source.is_multi_label,
            )
            print(multi_label.weights_in_words(self.labels, self.class_weights), flush=True)

    def build_model(self, **options: Any) -> AlbertForSequenceClassification:
        """See `FineTuningTask`; a frozen encoder must have what the head reads."""
        model = super().build_model(**options)
        assert isinstance(model, AlbertForSequenceClassification)
        if self.is_fitted and model.uses_pooler and {*model_weights.POOLER} & {*self.initialized}:
            reason = "the model has no trained pooler, and --train_head_only trains none"
            self.config.refuse("classifier_pooling", f"=pooler: {reason}; leave it out")
        return model

    def fixed_inputs(self, model, features: Features) -> Mapping[str, tf.Tensor]:
        """What the head reads of the texts."""
        return {"vectors": model.vectors(features)}

    def fit(self, model, inputs: Predictions) -> Metrics:
        """Fits the head of --train_head_only; returns the mean loss of the training data."""
        strength = self.config.inverse_regularization
        vectors = inputs["vectors"]
        answers = self.tables["train"].columns[self.answer_column]
        match self.answer_column:
            case "label_ids":
                fitted = linear_models.fit_labels(
                    vectors, answers[:, 0], len(self.labels), strength, self.class_weights
                )
            case "label_sets":
                fitted = linear_models.fit_label_sets(
                    vectors, answers, strength, self.class_weights
                )
            case "label_scores":
                fitted = linear_models.fit_scores(vectors, answers[:, 0], strength)
            case _:
                raise ValueError(f"{self.answer_column}: expected a column of `LOSSES`")
        model.head.output_weights.assign(fitted.weights.astype(np.float32))
        model.head.output_bias.assign(fitted.bias.astype(np.float32))
        return {"loss": fitted.loss}

    def facts_about_fit(self) -> Mapping[str, str | float]:
        """What --train_head_only fits."""
        kind = "ridge regression" if self.config.is_regression else "logistic regression"
        return {
            "head": f"{kind} on vectors of the frozen encoder ({self.model_config.classifier_pooling})",
            "inverse regularization C": self.config.inverse_regularization,
        }

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """What the loss of the answers' kind is divided by."""
        return {"label_loss": LOSSES[self.answer_column].count(features, self.class_weights)}

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """The loss of the answers' kind; in evaluations without the weights of labels, so that runs can be compared."""
        class_weights = self.class_weights if training else None
        compute = LOSSES[self.answer_column].compute
        return {"label_loss": compute(outputs["logits"], features, class_weights, self.config)}

    def of_texts(self, predictions: Predictions, name: str, split: str) -> np.ndarray:
        """A prediction of every text, [examples, ...]: the mean of its windows."""
        return mean_of_windows(self.tables[split], predictions[name])

    def true_answers(self, split: str) -> np.ndarray:
        """The true labels or score of every text, [examples, 1], or [examples, C] for several labels."""
        return _of_first_windows(self.tables[split], self.answer_column)


def _of_first_windows(table: FeatureTable, name: str) -> np.ndarray:
    """A column with a row per text; those of a text's windows are equal."""
    column = table.columns[name]
    is_first = table.columns.get(FIRST_WINDOW)
    return column if is_first is None else column[is_first[:, 0] == 1]


def _with_texts(line: str, example: TextExample) -> str:
    """A line about an example, and its texts below."""
    texts = [f"  {text}" for text in (example.text_a, example.text_b) if text]
    return "\n".join([f"{example.row}: {line}", *texts])


class GroupedTask(TextTask):
    """The base of tasks with one answer for each text, whose examples may be in groups (MNLI)."""

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        glue_task = self.source.glue
        self.metric_names = glue_task.metrics if glue_task else config.metric_names
        self.best_metric = self.metric_names[0]

    def measured(self, answers: np.ndarray, probabilities: np.ndarray | None) -> Metrics:
        """Every metric of the task, for all examples and, if there are several groups, for each group.

        In a task with groups, the first metric is that of the first group (MNLI: matched, as in the paper).

        Args:
          answers: scores, or indices of labels, [examples].
          probabilities: float [examples, C]; None for scores.
        """
        truths = self.true_answers("eval")[:, 0]
        groups = np.array([example.group for example in self.items["eval"]])
        names = list(dict.fromkeys(groups))
        results: dict[str, float | None] = {}
        for metric in self.metric_names:
            for name in names:
                chosen = groups == name
                value = metrics.measured(
                    metric,
                    answers[chosen],
                    truths[chosen],
                    None if probabilities is None else probabilities[chosen],
                )
                if self.source.glue:
                    value = metrics.official(metric, value)
                results[metric if name == names[0] else f"{metric}_{name}"] = value
        return results

    def submission_files(self, answers: np.ndarray) -> Files:
        """The files for the leaderboard of a GLUE task, one for each group; none for other tasks."""
        glue_task = self.source.glue
        if not glue_task:
            return {}
        examples = self.items["predict"]
        groups = np.array([example.group for example in examples])
        contents: dict[str, str | bytes] = {}
        for group in dict.fromkeys(groups.tolist()):
            chosen = groups == group
            ids = [examples[row].id for row in np.flatnonzero(chosen).tolist()]
            name, text = glue.submission_tsv(glue_task, group, ids, answers[chosen])
            contents[f"predictions/{name}"] = text
        return contents


class ClassificationTask(GroupedTask):
    """A task with one of several labels for each text; for the arguments see `FineTuningTask`."""

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        if not self.source.glue and "f1" in self.metric_names and len(self.labels) != 2:
            reason = f"=f1 is for two labels, not {len(self.labels)}: take macro_f1"
            config.refuse("metrics", reason)

    def evaluate(self, predictions: Predictions) -> Metrics:
        """The metrics of the most probable labels."""
        probabilities = self.of_texts(predictions, "probabilities", "eval")
        return self.measured(np.argmax(probabilities, axis=1), probabilities)

    def majority_levels(self) -> Mapping[str, float]:
        """The accuracy if the most frequent label is always given."""
        if not self.eval_data or "accuracy" not in self.metric_names:
            return {}
        groups = [example.group for example in self.items["eval"]]
        labels = self.true_answers("eval")[:, 0][np.array(groups) == groups[0]]
        return {"accuracy": metrics.majority_share(labels)}

    def evaluation_files(self, predictions: Predictions) -> Files:
        """A confusion table with the worst errors, and the raw predictions."""
        truths = self.true_answers("eval")[:, 0]

        def describe(index: int, answer: int, probability: float) -> str:
            predicted = f"predicted {self.labels[answer]} ({probability:.3f})"
            line = f"{predicted}, true {self.labels[truths[index]]}"
            return _with_texts(line, self.items["eval"][index])

        report = label_answers.error_report(
            self.of_texts(predictions, "probabilities", "eval"), truths, self.labels, describe
        )
        return {_ERRORS_FILE: report, **raw_file(predictions, "eval")}

    def prediction_files(self, predictions: Predictions) -> Files:
        """The label of every row, the leaderboard's file of a GLUE task, and the raw predictions."""
        probabilities = self.of_texts(predictions, "probabilities", "predict")
        rows = label_answers.label_rows("label", probabilities, [self.labels] * len(probabilities))
        return {
            **self.answer_files(rows, predictions),
            **self.submission_files(np.argmax(probabilities, axis=1)),
        }


class ScoreTask(GroupedTask):
    """A task with a score for each text; for the arguments see `FineTuningTask`."""

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Scores [B, 1]."""
        return {"scores": outputs["logits"]}

    def evaluate(self, predictions: Predictions) -> Metrics:
        """The metrics of the scores."""
        scores = self.of_texts(predictions, "scores", "eval")[:, 0]
        return self.measured(scores, None)

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The scores that are farthest from the true ones, and the raw predictions."""
        scores = self.of_texts(predictions, "scores", "eval")[:, 0]
        truths = self.true_answers("eval")[:, 0]

        def describe(index: int) -> str:
            line = f"predicted {scores[index]:.2f}, true {truths[index]:.2f}"
            return _with_texts(line, self.items["eval"][index])

        report = metrics.error_report("", np.abs(scores - truths), scores != truths, describe)
        return {_ERRORS_FILE: report, **raw_file(predictions, "eval")}

    def prediction_files(self, predictions: Predictions) -> Files:
        """The score of every row, the leaderboard's file of a GLUE task, and the raw predictions."""
        scores = self.of_texts(predictions, "scores", "predict")[:, 0]
        rows = [{"score": float(score)} for score in scores]
        return {**self.answer_files(rows, predictions), **self.submission_files(scores)}


class MultiLabelTask(TextTask):
    """A task with any number of labels for each text; for the arguments see `FineTuningTask`."""

    best_metric = "micro_average_precision"  # does not need a threshold

    def __init__(self, config: ClassifierConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        for label in self.labels:
            if config.separator in label:
                reason = f"={config.separator} is in the label {label!r}; choose another"
                config.refuse("label_separator", reason)

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """The probability of each label, [B, C]."""
        return {"probabilities": tf.sigmoid(outputs["logits"])}

    def _probabilities(self, predictions: Predictions) -> np.ndarray:
        """Of the development data, [examples, C]; those of a diverged model are 0."""
        return np.nan_to_num(self.of_texts(predictions, "probabilities", "eval"))

    def evaluate(self, predictions: Predictions) -> Metrics:
        """Average precision and F1."""
        return multi_label.scores(self._probabilities(predictions), self.true_answers("eval"))

    def majority_levels(self) -> Metrics:
        """The average precision if the frequencies of the labels are the probabilities of every example."""
        if not self.eval_data:
            return {}
        truths = self.true_answers("eval")
        frequencies = np.broadcast_to(truths.mean(axis=0), truths.shape)
        return multi_label.average_precisions(frequencies, truths)

    def evaluation_files(self, predictions: Predictions) -> Files:
        """A table by label with the worst errors, and the raw predictions."""
        probabilities = self._probabilities(predictions)
        truths = self.true_answers("eval")
        predicted = probabilities >= multi_label.THRESHOLD
        is_wrong = predicted != (truths == 1)

        def describe(index: int) -> str:
            wrong = [
                f"{self.labels[label]} {probabilities[index, label]:.3f}"
                for label in np.flatnonzero(is_wrong[index])
            ]
            answer = self._in_words(predicted[index])
            truth = self._in_words(truths[index] == 1)
            line = f"predicted {answer}, true {truth} ({', '.join(wrong)})"
            return _with_texts(line, self.items["eval"][index])

        table = metrics.sklearn_metrics().classification_report(
            truths, predicted, target_names=self.labels, digits=3, zero_division=0
        )
        distances = np.abs(probabilities - truths)
        sureness = np.where(is_wrong, distances, 0).max(axis=1)
        report = metrics.error_report(table, sureness, is_wrong.any(axis=1), describe)
        return {_ERRORS_FILE: report, **raw_file(predictions, "eval")}

    def _in_words(self, has_label: np.ndarray) -> str:
        """The labels of an example, bool [C], written as in the files."""
        names = [self.labels[label] for label in np.flatnonzero(has_label)]
        return self.config.separator.join(names) or "(none)"

    def prediction_files(self, predictions: Predictions) -> Files:
        """The labels of every row with the probability of every label, and the raw predictions."""
        probabilities = self.of_texts(predictions, "probabilities", "predict")
        rows = [reached_labels(self.labels, row) for row in probabilities]
        return self.answer_files(rows, predictions)
