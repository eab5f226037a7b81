"""RACE: which of four options answers a question about a passage (original run_race.py, race_utils.py)."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.model.heads import AlbertForMultipleChoice
from albert_tf.tasks import metrics
from albert_tf.tasks.finetuning import (
    FineTuningTask,
    answer_rows,
    averaged,
    commonest_share,
    example_weights,
)
from albert_tf.tasks.race.source import RaceSource
from albert_tf.training.losses import Ratio, cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions


class RaceTask(FineTuningTask):
    """Chooses one of four options.

    Args:
      config: settings of the task.
      run: what is asked for, and the model to start from.

    Raises:
      UserError: the files, the model and the flags do not fit together.
    """

    model_class = AlbertForMultipleChoice
    source_class = RaceSource
    best_metric = "accuracy"

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy over the options."""
        labels, weights = features["label_ids"][:, 0], example_weights(features)
        return {"label_loss": cross_entropy(outputs["logits"], labels, weights)}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C]."""
        return {"probabilities": tf.nn.softmax(outputs["logits"])}

    # --- Results ---

    def evaluate(self, members: Sequence[Predictions]) -> Mapping[str, float]:
        """Accuracy over all questions, and over those of middle and of high schools."""
        hits = self._choices(members) == self._column("eval", "label_ids")
        is_high = self._column("eval", "is_high") == 1
        groups = {"accuracy_middle": ~is_high, "accuracy_high": is_high}
        found = {name: float(hits[group].mean()) for name, group in groups.items() if group.any()}
        return {"accuracy": float(hits.mean()), **found}

    def _choices(self, members: Sequence[Predictions]) -> np.ndarray:
        return np.argmax(averaged(members, "probabilities"), axis=1)

    def collapsed(self, members: Sequence[Predictions]) -> str:
        """Says so if one option is chosen throughout."""
        found = set(self._choices(members))
        if len(found) > 1 or len(self.items["eval"]) < 2:
            return ""
        letter = self.labels[found.pop()]
        count = len(self.items["eval"])
        return f"the model chooses option {letter} for all of the {count:,} questions"

    def chance_levels(self) -> Mapping[str, float]:
        """Accuracy of always choosing the commonest option."""
        if not self.eval_data:
            return {}
        return {"accuracy": commonest_share(self._column("eval", "label_ids"))}

    def evaluation_files(self, members: Sequence[Predictions]) -> Files:
        """A table of confusions and the worst errors, and the raw predictions."""
        return {
            "predictions/eval_errors.txt": self._error_report(members),
            **self._raw_file(members, "eval"),
        }

    def _error_report(self, members: Sequence[Predictions]) -> str:
        labels = self._column("eval", "label_ids")
        probabilities = averaged(members, "probabilities")
        choices = self._choices(members)
        parts = [
            metrics.format_confusion(
                metrics.confusion_table(choices, labels, len(self.labels)), self.labels
            )
        ]
        worst = metrics.worst_errors(probabilities, labels)
        parts.append(f"The {len(worst)} worst errors of {len(labels):,} questions\n")
        for index in worst:
            question = self.items["eval"][index]
            parts.append(
                f"{question.id}: {question.question}\n"
                f"  chose {self.labels[choices[index]]} ({probabilities[index].max():.3f})"
                f" {question.options[choices[index]]}\n"
                f"  true  {self.labels[labels[index]]} {question.options[labels[index]]}"
            )
        return "\n".join(parts) + "\n"

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """The option chosen for each question, with probabilities, and the raw predictions."""
        ids = [question.id for question in self.items["predict"]]
        probabilities = averaged(members, "probabilities")
        text = answer_rows(ids, self.labels, self._choices(members), probabilities)
        return {"predictions/predictions.tsv": text, **self._raw_file(members, "predict")}
