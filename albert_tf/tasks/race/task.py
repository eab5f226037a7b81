"""RACE: chooses which of some options answers a question about a passage (original run_race.py, race_utils.py)."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import example_weights
from albert_tf.model.heads import AlbertForMultipleChoice
from albert_tf.tasks import label_answers, metrics
from albert_tf.tasks.finetuning import FineTuningTask, raw_file
from albert_tf.tasks.race import passages
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.race.source import RaceSource
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.start import Head
from albert_tf.tasks.teacher import outputs_of_teacher, taught_cross_entropy
from albert_tf.training.losses import Ratio
from albert_tf.training.task import Features, Files, Outputs, Predictions

_NO_OPTION = -1e30  # the logit of a place without an option


class ChoiceHead(Head):
    """A head with one score, of any option."""

    has_output_per_label = False


class RaceTask(FineTuningTask):
    """Chooses one of four options, or of as many as a question has; for the arguments see `FineTuningTask`."""

    model_class = AlbertForMultipleChoice
    source_class = RaceSource
    head_class = ChoiceHead
    best_metric = "accuracy"

    def __init__(self, config: RaceConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        # The model's configuration has the letters of the training data; other data may have more or fewer.
        most = max(table.choices for table in self.tables.values())
        self.labels = tuple(passages.LETTERS[:most])

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """Cross entropy of the right options."""
        del training
        logits_of_teacher = outputs_of_teacher(features).get("logits")
        if logits_of_teacher is not None:
            logits_of_teacher = _of_options(logits_of_teacher, features)
        loss = taught_cross_entropy(
            _of_options(outputs["logits"], features),
            features["label_ids"][:, 0],
            example_weights(features),
            logits_of_teacher,
            self.config,
        )
        return {"label_loss": loss}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C]; 0 in places without an option."""
        return {"probabilities": tf.nn.softmax(_of_options(outputs["logits"], features))}

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """Accuracy over all questions, over those of middle schools, and over those of high schools."""
        answers = np.argmax(predictions["probabilities"], axis=1)
        is_right = answers == self.column("eval", "label_ids")
        is_high = self.column("eval", "is_high") == 1
        groups = {"accuracy_middle": ~is_high, "accuracy_high": is_high}
        results = {"accuracy": float(is_right.mean())}
        for name, group in groups.items():
            if group.any():
                results[name] = float(is_right[group].mean())
        return results

    def majority_levels(self) -> Mapping[str, float]:
        """Accuracy if the most frequent option is always chosen."""
        if not self.eval_data:
            return {}
        return {"accuracy": metrics.majority_share(self.column("eval", "label_ids"))}

    def evaluation_files(self, predictions: Predictions) -> Files:
        """A confusion table with the worst errors, and the raw predictions."""
        truths = self.column("eval", "label_ids")

        def describe(index: int, answer: int, probability: float) -> str:
            question = self.items["eval"][index]
            truth = truths[index]
            return (
                f"{question.id}: {question.question}\n"
                f"  chose {self.labels[answer]} ({probability:.3f}) {question.options[answer]}\n"
                f"  true  {self.labels[truth]} {question.options[truth]}"
            )

        report = label_answers.error_report(
            predictions["probabilities"], truths, self.labels, describe
        )
        return {"predictions/eval_errors.txt": report, **raw_file(predictions, "eval")}

    def prediction_files(self, predictions: Predictions) -> Files:
        """The answer to every question with the probability of every option, and the raw predictions."""
        letters = [self.labels[: len(question.options)] for question in self.items["predict"]]
        rows = label_answers.label_rows("answer", predictions["probabilities"], letters)
        return self.answer_files(rows, predictions)


def _of_options(logits_BC: tf.Tensor, features: Features) -> tf.Tensor:
    """The logits, with -1e30 in places without an option, whose sequences are [CLS] alone."""
    is_option_BC = tf.reduce_sum(features["input_mask"], axis=-1) > 1
    return tf.where(is_option_BC, logits_BC, _NO_OPTION)
