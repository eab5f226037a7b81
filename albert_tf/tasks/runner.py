"""The program of a fine-tuning task: flags, presets, runs."""

from albert_tf.core import flags
from albert_tf.tasks import registry
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig


def run(definition: registry.TaskDefinition, description: str = "") -> None:
    """Fine-tunes as the command line says; ends the process.

    Args:
      definition: the task.
      description: what the program does, for --help.
    """
    registry.register(definition)

    def main(run, optimizer, config) -> None:
        # Imported here, so that a wrong flag is refused before TensorFlow is loaded.
        from albert_tf.tasks import repeated_runs

        repeated_runs.fine_tune(registry.resolve(definition.task), config, run, optimizer)

    flags.run(
        main,
        FineTuningRunConfig,
        FineTuningOptimizerConfig,
        definition.settings,
        description=description,
        defaults=definition.preset,
    )
