"""A task in one file of a user, whose model has a head of its own: `toy_task.py` with a hidden layer before the scores.

python tests/tasks/own_head_task.py --train_file=pairs.txt --init_checkpoint=... --output_dir=...
"""

import tensorflow as tf

from albert_tf.model import heads
from albert_tf.model.encoder import Dense
from albert_tf.tasks import runner
from albert_tf.tasks.definition import TaskDefinition
from tests.tasks import toy_task

HIDDEN = 13  # width of the hidden layer


class AlbertForLonger(heads.ModelWithHead):
    """Encoder with a hidden layer and a score for each text."""

    def _build_head(self, initializers):
        width = self.config.hidden_size
        self.hidden = Dense(width, HIDDEN, initializers, "float32", tf.nn.relu)
        self.scores = Dense(HIDDEN, 2, initializers, "float32", use_bias=False)

    def call(self, inputs, training=False, seed=None):
        """`logits` [B, 2] float32."""
        pooled_BD = self.encoder(inputs, training=training, seed=seed)["pooled_output"]
        return {"logits": self.scores(self.hidden(pooled_BD))}

    def _head_layers(self):
        return {"longer/hidden/": self.hidden, "longer/scores/": self.scores}


heads.MODEL_CLASSES["AlbertForLonger"] = AlbertForLonger


class HiddenSource(toy_task.LongerSource):
    """The same data."""

    task_name = "longer_hidden"


class HiddenTask(toy_task.LongerTask):
    """Trains and evaluates the model above."""

    model_class = AlbertForLonger
    source_class = HiddenSource


DEFINITION = TaskDefinition(
    names=("longer_hidden",),
    settings=toy_task.LongerConfig,
    source=HiddenSource,
    task=HiddenTask,
    predictors={"AlbertForLonger": toy_task.LongerPredictor},
    signatures=toy_task.longer_signatures,
    presets={"paper": {"longer_hidden": toy_task.DEFINITION.presets["paper"]["longer"]}},
)

if __name__ == "__main__":
    runner.run(DEFINITION)
