"""Makes one measurement in its own process; `measure.in_process` starts it.

python -m lab.benchmarks.worker NAME SETTINGS_AS_JSON RESULT_FILE
"""

import json
import sys

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab.benchmarks import measure, registry


def main(name: str, settings: str, result_file: str) -> None:
    """Calls the function of a measurement, and writes its values and the peak memory of this process."""
    try:
        values = registry.find(name).function(measure.BenchSettings(**json.loads(settings)))
    except UserError as error:  # the report quotes this line as the reason
        sys.exit(str(error))
    result = {"values": values, "peak_bytes": measure.peak_bytes()}
    files.write_bytes(result_file, json.dumps(result).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
