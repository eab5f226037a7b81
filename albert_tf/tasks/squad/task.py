"""SQuAD 1.1 and 2.0: spans of a context, or no answer (original run_squad_v1.py, run_squad_v2.py, squad_utils.py)."""

import json
import math
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.core import files
from albert_tf.data.reading import example_weights
from albert_tf.model.heads import AlbertForSpan, AlbertForSpanOrNone
from albert_tf.tasks.finetuning import FineTuningTask
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.answers import Answers
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.tasks.squad.source import SquadSource
from albert_tf.training.losses import Ratio, binary_cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions

THRESHOLD_FILE = "predictions/null_threshold.json"


class SquadTask(FineTuningTask):
    """Answers questions by a part of their context; for the arguments see `FineTuningTask`."""

    source_class = SquadSource
    config: SquadConfig
    best_metric = "f1"
    usual_predictions_file = "predictions/predictions.json"
    shown_metrics = (
        *("loss", "exact_match", "exact", "f1"),
        *("best_threshold", "exact_threshold_0", "f1_threshold_0"),
    )

    def __init__(self, config: SquadConfig, run: FineTuningRunConfig):
        self.has_null = config.version == "2.0"
        self.model_class = AlbertForSpanOrNone if self.has_null else AlbertForSpan
        super().__init__(config, run)
        self.questions = {split: [one for _, one in items] for split, items in self.items.items()}

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of windows."""
        count = tf.reduce_sum(example_weights(features))
        return {"span_loss": count, **({"answerable_loss": count} if self.has_null else {})}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Half of the sum of the cross entropies of start and end; for 2.0 also half of that of having no answer.

        Source: original squad_utils.py:1640-1664. There, the softmax of SQuAD 1.1 includes padding; here it does not,
        so that the padded length of a batch does not change its loss.
        """
        weights, wanted = example_weights(features), self._teachers_outputs(features)
        is_padding = 1.0 - tf.cast(features["input_mask"], tf.float32)
        total = 0.0
        for part in ("start", "end"):
            name, mask = (f"{part}_logits", 1e30 * is_padding)
            if self.has_null:
                name, mask = f"{part}_log_probs", 0.0
            theirs = wanted[name] - mask if wanted else None
            labels = features[f"{part}_positions"][:, 0]
            total += self._label_loss(outputs[name] - mask, labels, weights, theirs).sum
        losses = {"span_loss": Ratio(0.5 * total, tf.reduce_sum(weights))}
        if self.has_null:
            label = features["is_impossible"][:, 0]
            loss = binary_cross_entropy(outputs["cls_logits"], label, weights)
            losses["answerable_loss"] = Ratio(0.5 * loss.sum, loss.count)
        return losses

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Scores of the starts and ends of every window, and of having no answer."""
        names = squad_answers.V2_OUTPUTS if self.has_null else squad_answers.V1_OUTPUTS
        return {name: outputs[name] for name in names}

    def _answers(self, predictions: Predictions, split: str) -> Answers:
        """Each question's best answers and null odds."""
        config, questions = self.config, self.questions[split]
        spans = squad_answers.candidate_spans(
            self.tables[split],
            predictions,
            n_best_size=config.n_best_size,
            max_answer_length=config.max_answer_length,
        )
        best = squad_answers.best_answers(questions, spans, config.n_best_size)
        return Answers(questions, best, spans.null_odds if self.has_null else None)

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """Exact match and F1 in percent; for SQuAD 2.0 see `ScoresV2.results`."""
        return self._scores(self._answers(predictions, "eval"))

    def _scores(self, answers: Answers) -> dict[str, float]:
        questions, best = answers.questions, answers.texts()
        if not self.has_null:
            return squad_answers.score_v1(questions, best)
        return squad_answers.ScoresV2(questions, best, answers.null_odds_by_id()).results()

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The answers for the development file, and the best threshold."""
        answers = self._answers(predictions, "eval")
        threshold = self._scores(answers).get("best_threshold", math.inf)
        contents: dict[str, str | bytes] = {
            **_answer_files("eval_", answers, threshold),
            **self._raw_file(predictions, "eval"),
        }
        if self.has_null:
            contents[THRESHOLD_FILE] = json.dumps({"null_threshold": threshold}) + "\n"
        return contents

    def prediction_files(self, predictions: Predictions) -> Files:
        """The answers to the questions of --predict_file."""
        answers = self._answers(predictions, "predict")
        threshold = self._threshold() if self.has_null else math.inf
        contents = dict(_answer_files("", answers, threshold))
        contents = {self.predictions_file(): contents.pop(self.usual_predictions_file), **contents}
        return {**contents, **self._raw_file(predictions, "predict")}

    def task_settings(self):
        """See `FineTuningTask`; includes the threshold of null odds."""
        threshold = {"null_threshold": self._threshold()} if self.has_null else {}
        return {**super().task_settings(), **threshold}

    def _threshold(self) -> float:
        """The given threshold of null odds; or the best one of an evaluation of this model, 0 without one."""
        if self.config.null_threshold != "best":
            return float(self.config.null_threshold)
        path = f"{self.run.output_dir}/{THRESHOLD_FILE}"
        if files.exists(path):
            return float(files.read_json(path)["null_threshold"])
        # A threshold fits the weights that it was chosen for, and training changes those of the initial checkpoint.
        is_used = self._weights and not self.run.do_train
        return float(self._weights.task_settings.get("null_threshold", 0.0)) if is_used else 0.0


def _answer_files(prefix: str, answers: Answers, threshold: float) -> Files:
    contents = {"predictions": answers.texts(threshold), "nbest_predictions": answers.nbest()}
    if answers.null_odds is not None:
        contents["null_odds"] = answers.null_odds_by_id()
    return {
        f"predictions/{prefix}{name}.json": json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        for name, content in contents.items()
    }
