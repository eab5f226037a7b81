r"""Distills a trained encoder into a smaller one, from plain text.

    albert-tf fold all-MiniLM-L6-v2 --output_dir=folded --embedding_size=128
    albert-tf distill --teacher=all-MiniLM-L6-v2 --init_checkpoint=folded --input_file=text.txt \
        --eval_file=held_out.txt --train_minutes=30 --output_dir=runs/distilled

The same command resumes a run that was stopped or killed.
"""

from albert_tf import functions
from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.program import Program
from albert_tf.tasks.distillation.settings import (
    DistillationConfig,
    DistillationOptimizerConfig,
    DistillationRunConfig,
)


def main(
    run: DistillationRunConfig, optimizer: DistillationOptimizerConfig, task: DistillationConfig
) -> dict:
    """Creates the task, passes it to the training loop, and returns the content of results.json."""
    # Imported here, so that a wrong flag is an error before TensorFlow is loaded.
    from albert_tf.tasks.distillation.task import DistillationTask
    from albert_tf.training import loop

    return loop.run(lambda: DistillationTask(task, run), run, optimizer)


program = Program(
    main=main,
    settings_classes=(DistillationRunConfig, DistillationOptimizerConfig, DistillationConfig),
    description=__doc__,
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("distill"))

if __name__ == "__main__":
    run()
