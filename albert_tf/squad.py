r"""Fine-tunes ALBERT on SQuAD 1.1 or 2.0, evaluates it, and answers questions.

    albert-tf squad --version=2.0 --train_file=train-v2.0.json --eval_file=dev-v2.0.json \
        --init_checkpoint=albert_base --output_dir=runs/squad --preset=paper
    albert-tf squad --version=2.0 --do_train=false --do_eval=false --do_predict \
        --predict_file=questions.json --output_dir=runs/squad

The evaluation follows the official rules.
"""

from albert_tf.tasks import runner
from albert_tf.tasks.squad.definition import DEFINITION


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    runner.run(DEFINITION, __doc__)


if __name__ == "__main__":
    run()
