"""The definition of pretraining for the programs."""

from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.registry import TaskDefinition

DEFINITION = TaskDefinition(
    names=("pretraining",),
    settings=PretrainingConfig,
    task="albert_tf.tasks.pretraining.task:PretrainingTask",
    predictors={
        "AlbertForPreTraining": "albert_tf.tasks.pretraining.predictor:PretrainedPredictor"
    },
)
