r"""Distills a trained encoder into a smaller one, from plain text.

    albert-tf fold all-MiniLM-L6-v2 --output_dir=folded --embedding_size=128
    albert-tf distill --teacher=all-MiniLM-L6-v2 --init_checkpoint=folded --input_file=text.txt \
        --eval_file=held_out.txt --train_minutes=30 --output_dir=runs/distilled

The same command resumes a run that was stopped or killed.
"""

from collections.abc import Mapping, Set
from typing import Any

from albert_tf import functions
from albert_tf.core import files, flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.program import Program
from albert_tf.formats.layouts import describe
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


def defaults(values: Mapping[str, Any], given_names: Set[str]) -> dict[str, Any]:
    """Texts are not longer than student and teacher can read, as far as their files say it without TensorFlow."""
    if "max_seq_length" in given_names:
        return {}
    most = values["max_seq_length"]
    for path in (values["init_checkpoint"], values["teacher"]):
        if path and "://" not in path and not path.startswith(files.HUB_PREFIX):
            most = min(most, describe(path).max_position_embeddings or most)
    if most == values["max_seq_length"]:
        return {}
    print(f"--max_seq_length is {most}, as the models have no more positions", flush=True)
    return {"max_seq_length": most}


program = Program(
    main=main,
    settings_classes=(DistillationRunConfig, DistillationOptimizerConfig, DistillationConfig),
    description=__doc__,
    defaults=defaults,
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("distill"))

if __name__ == "__main__":
    run()
