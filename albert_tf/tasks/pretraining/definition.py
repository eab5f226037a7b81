"""The definition of pretraining for the programs."""

from albert_tf.tasks.definition import TaskDefinition
from albert_tf.tasks.pretraining.predictor import PretrainedPredictor
from albert_tf.tasks.pretraining.settings import PretrainingConfig


def _task(config, run):
    from albert_tf.tasks.pretraining.task import PretrainingTask  # TensorFlow

    return PretrainingTask(config, run)


DEFINITION = TaskDefinition(
    names=("pretraining",),
    settings=PretrainingConfig,
    task=_task,
    predictors={"AlbertForPreTraining": PretrainedPredictor},
)
