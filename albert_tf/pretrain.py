r"""Pretrains ALBERT on TFRecords of masked sentence-order examples.

    albert-tf pretrain --input_file=records/ --eval_file=held_out/ --model=albert-base-v2 \
        --output_dir=runs/base --train_batch_size=256 --learning_rate_scaling=sqrt

The same command resumes a run that was stopped or killed.
"""

from albert_tf import functions
from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.program import Program
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig


def main(run: RunConfig, optimizer: OptimizerConfig, pretraining: PretrainingConfig) -> dict:
    """Creates the task, passes it to the training loop, and returns the content of results.json."""
    # Imported here, so that a wrong flag is an error before TensorFlow is loaded.
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.training import loop

    return loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)


program = Program(
    main=main,
    settings_classes=(
        RunConfig,
        OptimizerConfig,
        PretrainingConfig,
    ),
    description=__doc__,
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("pretrain"))

if __name__ == "__main__":
    run()
