"""The definition of pretraining for the programs."""

from albert_tf.tasks.definition import TaskDefinition, imported
from albert_tf.tasks.pretraining.predictor import PretrainedPredictor
from albert_tf.tasks.pretraining.settings import PretrainingConfig

DEFINITION = TaskDefinition(
    names=("pretraining",),
    settings=PretrainingConfig,
    task=imported("albert_tf.tasks.pretraining.task", "PretrainingTask"),
    predictors={"AlbertForPreTraining": PretrainedPredictor},
)
