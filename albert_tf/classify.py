r"""Fine-tunes ALBERT on a GLUE task, or to classify or score texts of your own.

    albert-tf classify --task_name=MRPC --data_dir=glue --init_checkpoint=albert_base \
        --output_dir=runs/mrpc --preset=paper
    albert-tf classify --task_name=tsv --train_file=train.tsv --eval_file=dev.tsv \
        --text_columns=review --label_column=stars --init_checkpoint=albert_base \
        --output_dir=runs/reviews
"""

from albert_tf.tasks import runner
from albert_tf.tasks.classification.definition import DEFINITION


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    runner.run(DEFINITION, __doc__)


if __name__ == "__main__":
    run()
