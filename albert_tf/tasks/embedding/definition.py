r"""Trains sentence embeddings: vectors whose cosines say how alike texts are.

    albert-tf embed --train_file=pairs.tsv --eval_file=dev.tsv --text_columns=question,answer \
        --init_checkpoint=albert_base --output_dir=runs/embedder
    albert-tf embed --train_file=train.tsv --eval_file=dev.tsv --text_columns=sentence1,sentence2 \
        --loss=cosent --score_column=score --init_checkpoint=albert_base --output_dir=runs/stsb
    albert-tf embed --do_train=false --eval_kind=scores --eval_file=dev.tsv \
        --text_columns=sentence1,sentence2 --init_checkpoint=albert_base --output_dir=runs/untrained

docs/guides/embeddings.md describes the data, and what to do with the trained model.
"""

from albert_tf.tasks.definition import TaskDefinition, imported
from albert_tf.tasks.embedding.predictor import EmbeddingPredictor
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.embedding.source import EmbeddingSource

DEFINITION = TaskDefinition(
    names=("embedding",),
    settings=EmbeddingConfig,
    source=EmbeddingSource,
    task=imported("albert_tf.tasks.embedding.task", "EmbeddingTask"),
    predictors={"AlbertForEmbedding": EmbeddingPredictor},
    of_initial_model=("pooling", "projection_size", "normalize"),
)

if __name__ == "__main__":
    raise SystemExit("this module only defines the task; run albert-tf embed")
