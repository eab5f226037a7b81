r"""Fine-tunes ALBERT to tag words, such as named entities, in files like CoNLL's.

    albert-tf tag --train_file=train.conll --eval_file=dev.conll --init_checkpoint=albert_base \
        --output_dir=runs/entities
    albert-tf tag --do_train=false --do_eval=false --do_predict --predict_file=new.conll \
        --output_dir=runs/entities
"""

from albert_tf.tasks.definition import TaskDefinition, imported
from albert_tf.tasks.tagging.predictor import TaggingPredictor
from albert_tf.tasks.tagging.settings import TaggingConfig
from albert_tf.tasks.tagging.source import TaggingSource

DEFINITION = TaskDefinition(
    names=("tagging",),
    settings=TaggingConfig,
    source=TaggingSource,
    task=imported("albert_tf.tasks.tagging.task", "TaggingTask"),
    predictors={"AlbertForTokenClassification": TaggingPredictor},
)

if __name__ == "__main__":
    raise SystemExit("this module only defines the task; run albert-tf tag")
