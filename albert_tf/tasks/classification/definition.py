r"""Fine-tunes ALBERT on a GLUE task, or to classify or score texts of your own.

    albert-tf classify --task_name=MRPC --data_dir=glue --init_checkpoint=albert_base \
        --output_dir=runs/mrpc --preset=paper
    albert-tf classify --train_file=train.tsv --eval_file=dev.tsv --text_columns=review \
        --label_column=stars --init_checkpoint=albert_base --output_dir=runs/reviews
"""

from collections.abc import Mapping
from typing import Any

from albert_tf.tasks.classification.glue import GLUE_TASKS, OWN_TASK, task_key
from albert_tf.tasks.classification.predictor import ClassificationPredictor
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.definition import TaskDefinition, imported
from albert_tf.tasks.presets import row

_PAPER = {
    "cola": row(1e-5, 16, 0.0, 5336, 320, 512),
    "stsb": row(2e-5, 16, 0.0, 3598, 214, 512),
    "sst2": row(1e-5, 32, 0.0, 20935, 1256, 512),
    "mnli": row(3e-5, 128, 0.0, 10000, 1000, 512),
    "qnli": row(1e-5, 32, 0.0, 33112, 1986, 512, eval_every_steps=200),
    "qqp": row(5e-5, 128, 0.1, 14000, 1000, 512),
    "rte": row(3e-5, 32, 0.1, 800, 200, 512),
    "mrpc": row(2e-5, 32, 0.0, 800, 200, 512),
    "wnli": row(2e-5, 16, 0.1, 2000, 250, 512),
}


def _implied(values: Mapping[str, Any]) -> dict[str, str]:
    """The task of a training on a file of one's own."""
    return {"task_name": OWN_TASK} if values["train_file"] else {}


DEFINITION = TaskDefinition(
    names=(*map(task_key, GLUE_TASKS), OWN_TASK),
    name_of=lambda values: task_key(values["task_name"]),
    implied=_implied,
    settings=ClassifierConfig,
    source=TextSource,
    task=imported("albert_tf.tasks.classification.task", "make_task"),
    predictors={"AlbertForSequenceClassification": ClassificationPredictor},
    presets={
        "paper": _PAPER,
        "readme": {name: values for name, values in _PAPER.items() if name != "wnli"},
    },
)

if __name__ == "__main__":
    raise SystemExit("this module only defines the task; run albert-tf classify")
