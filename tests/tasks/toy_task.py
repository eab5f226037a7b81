"""A task in one file of a user: which of two texts is longer.

python tests/tasks/toy_task.py --train_file=pairs.txt --eval_file=pairs.txt --init_checkpoint=... --output_dir=...
"""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.core.files import read_bytes
from albert_tf.core.settings import changed, setting
from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.serving.in_graph.text import GraphText
from albert_tf.tasks import metrics, runner
from albert_tf.tasks.classification.predictor import PairPredictor
from albert_tf.tasks.classification.text_pairs import TextExample, make_pair_features
from albert_tf.tasks.definition import TaskDefinition
from albert_tf.tasks.finetuning import FineTuningTask, raw_file
from albert_tf.tasks.predictor import best_label
from albert_tf.tasks.presets import row
from albert_tf.tasks.sequences import PairSettings
from albert_tf.tasks.settings import FineTuningConfig
from albert_tf.tasks.source import FILE_FLAGS, Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongerConfig(FineTuningConfig):
    """Settings of the task."""

    train_file: str = setting("", "Pairs of texts to train on.", required=True, input_path=True)
    eval_file: str = setting("", "Pairs of texts to evaluate on.", input_path=True)
    predict_file: str = setting("", "Pairs of texts to predict for.", input_path=True)
    max_seq_length: int = changed(FineTuningConfig, "max_seq_length", 40)


class LongerSource(Source):
    """Files with two texts in each line, a tab between them; the label follows from the texts."""

    task_name = "longer"
    labels = ("first", "second")

    def read(self, split):
        """See `Source`."""
        path = getattr(self.config, FILE_FLAGS[split])
        lines = read_bytes(path).decode().splitlines() if path else []
        return [self._example(number, *line.split("\t")) for number, line in enumerate(lines)]

    def _example(self, number: int, first: str, second: str) -> TextExample:
        return TextExample(str(number), first, second, label=int(len(second) > len(first)))

    def featuriser(self, tokenizer):
        """See `Source`."""
        return make_pair_features, PairSettings(tokenizer, self.config.max_seq_length)


class LongerTask(FineTuningTask):
    """Trains and evaluates."""

    model_class = AlbertForSequenceClassification
    source_class = LongerSource
    best_metric = "accuracy"
    usual_predictions_file = "predictions/longer.tsv"

    def evaluate(self, predictions):
        """See `Task`."""
        answers = np.argmax(predictions["probabilities"], axis=1)
        return {"accuracy": metrics.accuracy(answers, self.column("eval", "label_ids"))}

    def evaluation_files(self, predictions):
        """See `Task`."""
        return raw_file(predictions, "eval")

    def prediction_files(self, predictions):
        """See `Task`."""
        probabilities = predictions["probabilities"]
        rows = [best_label("prediction", self.labels, row) for row in probabilities]
        return self.answer_files(rows, predictions)


class LongerPredictor(PairPredictor):
    """Answers with a finished model."""

    expects = "two texts with a tab between"

    def answers(self, examples):
        """See `Predictor`: `longer`, the longer text."""
        logits_B2 = self.outputs(self.table(examples))["logits"]
        return [
            {"longer": (example.text_a, example.text_b)[best]}
            for example, best in zip(examples, logits_B2.argmax(axis=-1), strict=True)
        ]


def longer_signatures(model, tokenizer, settings):
    """See `TaskDefinition`: texts in, the longer text out."""
    text = GraphText(tokenizer, settings["max_seq_length"])
    specs = [tf.TensorSpec([None], tf.string, name=name) for name in ("text_a", "text_b")]

    @tf.function(input_signature=specs, autograph=False)
    def longer(text_a, text_b):
        best = tf.argmax(model(text.pairs(text_a, text_b))["logits"], axis=-1)
        return {"longer": tf.where(best == 0, text_a, text_b)}

    return text, {"serving_default": longer}


DEFINITION = TaskDefinition(
    names=("longer",),
    settings=LongerConfig,
    source=LongerSource,
    task=LongerTask,
    predictors={"AlbertForSequenceClassification": LongerPredictor},
    signatures=longer_signatures,
    presets={"paper": {"longer": row(2e-3, 6, 0.0, 9, 1, 33, eval_every_steps=3)}},
)

if __name__ == "__main__":
    runner.run(DEFINITION)
