r"""Fine-tunes ALBERT to tag words, such as named entities, in files like CoNLL's.

    albert-tf tag --train_file=train.conll --eval_file=dev.conll --init_checkpoint=albert_base \
        --output_dir=runs/entities
    albert-tf tag --do_train=false --do_eval=false --do_predict --predict_file=new.conll \
        --output_dir=runs/entities
"""

from albert_tf.tasks import runner
from albert_tf.tasks.tagging.definition import DEFINITION


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    runner.run(DEFINITION, __doc__)


if __name__ == "__main__":
    run()
