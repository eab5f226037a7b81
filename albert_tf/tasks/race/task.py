"""RACE: which of four options answers a question about a passage (original run_race.py, race_utils.py)."""

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.model.heads import AlbertForMultipleChoice
from albert_tf.tasks import metrics
from albert_tf.tasks.finetuning import FineTuningTask, answer_rows, averaged, commonest_share
from albert_tf.tasks.race.source import RaceSource
from albert_tf.training.task import Files, Predictions


class RaceTask(FineTuningTask):
    """Chooses one of four options; arguments as of `FineTuningTask`."""

    model_class = AlbertForMultipleChoice
    source_class = RaceSource
    best_metric = "accuracy"

    def evaluate(self, members: Sequence[Predictions]) -> Mapping[str, float]:
        """Accuracy over all questions, and over those of middle and of high schools."""
        hits = self._choices(members) == self._column("eval", "label_ids")
        is_high = self._column("eval", "is_high") == 1
        groups = {"accuracy_middle": ~is_high, "accuracy_high": is_high}
        results = {"accuracy": float(hits.mean())}
        for name, group in groups.items():
            if group.any():
                results[name] = float(hits[group].mean())
        return results

    def _choices(self, members: Sequence[Predictions]) -> np.ndarray:
        return np.argmax(averaged(members, "probabilities"), axis=1)

    def collapsed(self, members: Sequence[Predictions]) -> str:
        """Says so if one option is chosen throughout."""
        choices = self._choices(members)
        if len(set(choices)) > 1 or len(choices) < 2:
            return ""
        letter = self.labels[choices[0]]
        return f"the model chooses option {letter} for all of the {len(choices):,} questions"

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
        labels, choices = self._column("eval", "label_ids"), self._choices(members)
        probabilities = averaged(members, "probabilities")

        def describe(index: int) -> str:
            question, chosen, right = self.items["eval"][index], choices[index], labels[index]
            return (
                f"{question.id}: {question.question}\n"
                f"  chose {self.labels[chosen]} ({probabilities[index].max():.3f}) {question.options[chosen]}\n"
                f"  true  {self.labels[right]} {question.options[right]}"
            )

        return metrics.error_report(
            choices,
            labels,
            describe,
            names=self.labels,
            probabilities=probabilities,
            unit="questions",
        )

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """The option chosen for each question, with probabilities, and the raw predictions."""
        ids = [question.id for question in self.items["predict"]]
        probabilities = averaged(members, "probabilities")
        text = answer_rows(ids, self.labels, self._choices(members), probabilities)
        return {"predictions/predictions.tsv": text, **self._raw_file(members, "predict")}
