"""RACE: chooses which of four options answers a question about a passage (original run_race.py, race_utils.py)."""

from collections.abc import Mapping

from albert_tf.model.heads import AlbertForMultipleChoice
from albert_tf.tasks.finetuning import LabelTask, majority_share
from albert_tf.tasks.race.source import RaceSource
from albert_tf.training.task import Predictions


class RaceTask(LabelTask):
    """Chooses one of four options; for the arguments see `FineTuningTask`."""

    model_class = AlbertForMultipleChoice
    source_class = RaceSource
    best_metric = "accuracy"
    answer_key = "answer"

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
