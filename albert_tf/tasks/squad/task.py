"""SQuAD 1.1 and 2.0: spans of a context, or no answer (original run_squad_v1.py, run_squad_v2.py, squad_utils.py)."""

import json
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core import files
from albert_tf.data.reading import example_weights
from albert_tf.model.heads import AlbertForSpan, AlbertForSpanOrNone, ModelWithHead
from albert_tf.tasks.finetuning import FineTuningTask, raw_file
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.questions import SquadQuestion
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.tasks.squad.source import SquadSource
from albert_tf.tasks.start import Head
from albert_tf.tasks.teacher import outputs_of_teacher, taught_cross_entropy
from albert_tf.training.losses import Ratio, binary_cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions

THRESHOLD_FILE = "predictions/null_threshold.json"


def make_task(config: SquadConfig, run: FineTuningRunConfig) -> "SquadTask":
    """The task for the settings; for the arguments see `FineTuningTask`."""
    if config.version == "2.0":
        return SquadOrNoneTask(config, run)
    return SquadTask(config, run)


class SpanHead(Head):
    """A head with scores of starts and ends, which are the same in every model."""

    has_output_per_label = False


class SquadTask(FineTuningTask):
    """SQuAD 1.1: answers questions by a part of their context; for the arguments see `FineTuningTask`."""

    model_class: type[ModelWithHead] = AlbertForSpan
    source_class = SquadSource
    head_class = SpanHead
    config: SquadConfig
    best_metric = "f1"
    usual_predictions_file = "predictions/predictions.json"
    shown_metrics = (
        "loss",
        "exact_match",
        "exact",
        "f1",
        "best_threshold",
        "exact_threshold_0",
        "f1_threshold_0",
    )
    has_null = False  # whether a question may have no answer

    def __init__(self, config: SquadConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.questions: dict[str, list[SquadQuestion]] = {
            split: [question for _, question in items] for split, items in self.items.items()
        }

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of windows."""
        return {"span_loss": tf.reduce_sum(example_weights(features))}

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """Half of the sum of the cross entropies of start and end.

        Source: original squad_utils.py (create_v1_model). There, the softmax includes padding; here it does not, so
        that the padded length of a batch does not change its loss.
        """
        del training
        is_padding_BL = 1.0 - tf.cast(features["input_mask"], tf.float32)
        return {"span_loss": self.span_loss(outputs, features, "logits", 1e30 * is_padding_BL)}

    def span_loss(
        self, outputs: Outputs, features: Features, kind: str, subtracted: tf.Tensor | float
    ) -> Ratio:
        """Half of the sum of the losses of starts and ends, whose outputs are `start_` and `end_` with `kind`.

        `subtracted` is taken from the outputs [B, L] of the model and of its teacher.
        """
        of_teacher = outputs_of_teacher(features)
        weights_B = example_weights(features)
        total = 0.0
        for part in ("start", "end"):
            name = f"{part}_{kind}"
            logits_of_teacher = of_teacher[name] - subtracted if of_teacher else None
            positions_B = features[f"{part}_positions"][:, 0]
            loss = taught_cross_entropy(
                outputs[name] - subtracted, positions_B, weights_B, logits_of_teacher, self.config
            )
            total += loss.sum
        return Ratio(0.5 * total, tf.reduce_sum(weights_B))

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Scores of the starts and ends of every window."""
        return {name: outputs[name] for name in squad_answers.V1_OUTPUTS}

    def answers(self, predictions: Predictions, split: str) -> Answers:
        """Each question's best answers and null odds."""
        config = self.config
        questions = self.questions[split]
        spans = squad_answers.candidate_spans(
            self.tables[split],
            predictions,
            n_best_size=config.n_best_size,
            max_answer_length=config.max_answer_length,
        )
        best = squad_answers.best_answers(questions, spans, config.n_best_size)
        return Answers(questions, best, spans.null_odds if self.has_null else None)

    def scores(self, answers: Answers) -> dict[str, float]:
        """Exact match and F1 in percent."""
        return squad_answers.score_v1(answers.questions, answers.texts())

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """The scores of the best answers."""
        return self.scores(self.answers(predictions, "eval"))

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The answers for the development file."""
        answers = self.answers(predictions, "eval")
        return {**_answer_files("eval_", answers, math.inf), **raw_file(predictions, "eval")}

    def prediction_files(self, predictions: Predictions) -> Files:
        """The answers to the questions of --predict_file."""
        return self.files_of_answers(predictions, math.inf)

    def files_of_answers(self, predictions: Predictions, threshold: float) -> Files:
        """The answers to the questions of --predict_file; none where the null odds are above the threshold."""
        contents = dict(_answer_files("", self.answers(predictions, "predict"), threshold))
        answers = contents.pop(self.usual_predictions_file)
        return {
            self.predictions_file(): answers,
            **contents,
            **raw_file(predictions, "predict"),
        }


class SquadOrNoneTask(SquadTask):
    """SQuAD 2.0: a part of the context, or no answer; for the arguments see `FineTuningTask`."""

    model_class = AlbertForSpanOrNone
    has_null = True

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of windows, for both losses."""
        count = tf.reduce_sum(example_weights(features))
        return {"span_loss": count, "answerable_loss": count}

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """The loss of starts and ends, and half of the cross entropy of having no answer.

        Source: original squad_utils.py:1640-1664.
        """
        del training
        is_impossible_B = features["is_impossible"][:, 0]
        weights_B = example_weights(features)
        loss = binary_cross_entropy(outputs["cls_logits"], is_impossible_B, weights_B)
        return {
            "span_loss": self.span_loss(outputs, features, "log_probs", 0.0),
            "answerable_loss": Ratio(0.5 * loss.sum, loss.count),
        }

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Scores of the starts and ends of every window, and of having no answer."""
        return {name: outputs[name] for name in squad_answers.V2_OUTPUTS}

    def scores(self, answers: Answers) -> dict[str, float]:
        """See `ScoresV2.results`."""
        null_odds = answers.null_odds_by_id()
        return squad_answers.ScoresV2(answers.questions, answers.texts(), null_odds).results()

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The answers for the development file, and the best threshold."""
        answers = self.answers(predictions, "eval")
        threshold = self.scores(answers)["best_threshold"]
        return {
            **_answer_files("eval_", answers, threshold),
            **raw_file(predictions, "eval"),
            THRESHOLD_FILE: json.dumps({"null_threshold": threshold}) + "\n",
        }

    def prediction_files(self, predictions: Predictions) -> Files:
        """The answers to the questions of --predict_file."""
        return self.files_of_answers(predictions, self._threshold())

    def task_settings(self) -> dict[str, Any]:
        """See `FineTuningTask`; includes the threshold of null odds."""
        return {**super().task_settings(), "null_threshold": self._threshold()}

    def _threshold(self) -> float:
        """The given threshold of null odds; or the best one of an evaluation of this model, 0 without one."""
        if self.config.null_threshold != "best":
            return float(self.config.null_threshold)
        path = f"{self.run.output_dir}/{THRESHOLD_FILE}"
        if files.exists(path):
            return float(files.read_json(path)["null_threshold"])
        # A threshold fits the weights that it was chosen for, and training changes those of the initial checkpoint.
        weights = self.start.weights
        if self.run.do_train or not weights:
            return 0.0
        return float(weights.task_settings.get("null_threshold", 0.0))


def _answer_files(prefix: str, answers: Answers, threshold: float) -> Files:
    contents = {"predictions": answers.texts(threshold), "nbest_predictions": answers.nbest()}
    if answers.null_odds is not None:
        contents["null_odds"] = answers.null_odds_by_id()
    return {
        f"predictions/{prefix}{name}.json": json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        for name, content in contents.items()
    }
