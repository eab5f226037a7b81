"""RACE: chooses which of some options answers a question about a passage (original run_race.py, race_utils.py)."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.model.heads import AlbertForMultipleChoice
from albert_tf.tasks.finetuning import LabelTask, majority_share
from albert_tf.tasks.race import passages
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.race.source import RaceSource
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.training.losses import Ratio
from albert_tf.training.task import Features, Outputs, Predictions


class RaceTask(LabelTask):
    """Chooses one of four options, or of as many as a question has; for the arguments see `FineTuningTask`."""

    model_class = AlbertForMultipleChoice
    source_class = RaceSource
    best_metric = "accuracy"
    answer_key = "answer"
    has_output_per_label = False  # one score, of any option

    def __init__(self, config: RaceConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        # The model's configuration has the letters of the training data; other data may have more or fewer.
        most = max(table.choices for table in self.tables.values())
        self.labels = tuple(passages.LETTERS[:most])

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Cross entropy of the right options."""
        return super().losses(_of_options(outputs, features), features)

    def _teachers_outputs(self, features: Features) -> Outputs:
        return _of_options(super()._teachers_outputs(features), features)

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Probabilities [B, C]; 0 in places without an option."""
        return super().predictions(_of_options(outputs, features), features)

    def _labels_of(self, item: passages.RaceQuestion) -> Sequence[str]:
        return self.labels[: len(item.options)]

    def evaluate(self, predictions: Predictions) -> Mapping[str, float]:
        """Accuracy over all questions, over those of middle schools, and over those of high schools."""
        hits = self._answers(predictions) == self._column("eval", "label_ids")
        is_high = self._column("eval", "is_high") == 1
        groups = {"accuracy_middle": ~is_high, "accuracy_high": is_high}
        results = {"accuracy": float(hits.mean())}
        for name, group in groups.items():
            if group.any():
                results[name] = float(hits[group].mean())
        return results

    def majority_levels(self) -> Mapping[str, float]:
        """Accuracy if the most frequent option is always chosen."""
        if not self.eval_data:
            return {}
        return {"accuracy": majority_share(self._column("eval", "label_ids"))}

    def _describe(self, item, answer, truth, probability):
        return (
            f"{item.id}: {item.question}\n"
            f"  chose {self.labels[answer]} ({probability:.3f}) {item.options[answer]}\n"
            f"  true  {self.labels[truth]} {item.options[truth]}"
        )


def _of_options(outputs: Outputs, features: Features) -> Outputs:
    """The outputs with logits of -1e30 in places without an option, whose sequences are [CLS] alone."""
    if "logits" not in outputs:
        return outputs
    is_option_BC = tf.reduce_sum(features["input_mask"], axis=-1) > 1
    return {**outputs, "logits": tf.where(is_option_BC, outputs["logits"], -1e30)}
