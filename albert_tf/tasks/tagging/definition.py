"""The definition of tagging for the programs."""

from albert_tf.tasks.registry import TaskDefinition
from albert_tf.tasks.tagging.settings import TaggingConfig

DEFINITION = TaskDefinition(
    names=("tagging",),
    settings=TaggingConfig,
    source="albert_tf.tasks.tagging.source:TaggingSource",
    task="albert_tf.tasks.tagging.task:TaggingTask",
    predictors={
        "AlbertForTokenClassification": "albert_tf.tasks.tagging.predictor:TaggingPredictor"
    },
)
