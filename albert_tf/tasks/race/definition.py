r"""Fine-tunes ALBERT on RACE, read from its unpacked archive.

    albert-tf race --data_dir=RACE --init_checkpoint=albert_base --output_dir=runs/race \
        --preset=paper

The archive has the folders train/, dev/ and test/, each with middle/ and high/.
"""

from albert_tf.tasks.definition import TaskDefinition, imported
from albert_tf.tasks.presets import row
from albert_tf.tasks.race.predictor import ChoicePredictor
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.race.source import RaceSource

DEFINITION = TaskDefinition(
    names=("race",),
    settings=RaceConfig,
    source=RaceSource,
    task=imported("albert_tf.tasks.race.task", "RaceTask"),
    predictors={"AlbertForMultipleChoice": ChoicePredictor},
    presets={
        "paper": {"race": row(2e-5, 32, 0.1, 12000, 1000, 512)},
        "readme": {"race": row(1e-5, 32, 0.0, 12000, 1000, 512)},
    },
)

if __name__ == "__main__":
    raise SystemExit("this module only defines the task; run albert-tf race")
