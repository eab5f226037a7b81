"""Fine-tunes ALBERT on RACE, from the plain archive (train/, dev/ and test/, each with middle/ and high/).

python run_race.py --data_dir=RACE --init_checkpoint=albert_base --output_dir=runs/race --preset=paper
"""

from albert_tf.core import flags
from albert_tf.tasks import presets
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig


def main(run: FineTuningRunConfig, optimizer: FineTuningOptimizerConfig, race: RaceConfig) -> None:
    """Hands the task to the protocol."""
    # Here, so that a wrong flag is refused before TensorFlow is loaded.
    from albert_tf.tasks import repeated_runs
    from albert_tf.tasks.race.task import RaceTask

    repeated_runs.fine_tune(RaceTask, race, run, optimizer)


if __name__ == "__main__":
    flags.run(
        main,
        FineTuningRunConfig,
        FineTuningOptimizerConfig,
        RaceConfig,
        defaults=presets.for_race,
    )
