"""All measurements in order: the most important come first, in case the time is not enough for all of them.

As a program, makes one of them in its own process; `measure.in_process` starts it:

    python -m lab.benchmarks.registry NAME SETTINGS_AS_JSON RESULT_FILE
"""

import json
import sys

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab.benchmarks import answers, measure, preparation, training_step
from lab.benchmarks.measure import Measurement

MEASUREMENTS: tuple[Measurement, ...] = (
    *training_step.STEPS,
    *preparation.MEASUREMENTS,
    *answers.MEASUREMENTS,
    *training_step.MEMORY,
)


def main(name: str, settings: str, result_file: str) -> None:
    """Calls the function of a measurement, and writes its values and the peak memory of this process."""
    measurement = next(entry for entry in MEASUREMENTS if entry.name == name)
    try:
        values = measurement.function(measure.BenchSettings(**json.loads(settings)))
    except UserError as error:  # the report quotes this line as the reason
        sys.exit(str(error))
    result = {"values": values, "peak_bytes": measure.peak_bytes()}
    files.write_bytes(result_file, json.dumps(result).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
