r"""Fine-tunes ALBERT on RACE, read from its unpacked archive.

    albert-tf race --data_dir=RACE --init_checkpoint=albert_base --output_dir=runs/race \
        --preset=paper

The archive has the folders train/, dev/ and test/, each with middle/ and high/.
"""

from albert_tf.tasks import runner
from albert_tf.tasks.race.definition import DEFINITION


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    runner.run(DEFINITION, __doc__)


if __name__ == "__main__":
    run()
