"""Fine-tunes ALBERT on a GLUE task or on a classification or regression task of your own.

    python run_classifier.py --task_name=MRPC --data_dir=glue --init_checkpoint=albert_base --output_dir=runs/mrpc \
        --preset=paper
    python run_classifier.py --task_name=tsv --train_file=train.tsv --eval_file=dev.tsv --text_columns=review \
        --label_column=stars --init_checkpoint=albert_base --output_dir=runs/reviews
"""

from albert_tf.core import flags
from albert_tf.tasks import presets
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig


def main(
    run: FineTuningRunConfig, optimizer: FineTuningOptimizerConfig, classifier: ClassifierConfig
) -> None:
    """Hands the task to the protocol."""
    # Here, so that a wrong flag is refused before TensorFlow is loaded.
    from albert_tf.tasks import repeated_runs
    from albert_tf.tasks.classification.task import ClassificationTask

    repeated_runs.fine_tune(ClassificationTask, classifier, run, optimizer)


if __name__ == "__main__":
    flags.run(
        main,
        FineTuningRunConfig,
        FineTuningOptimizerConfig,
        ClassifierConfig,
        defaults=presets.for_classifier,
    )
