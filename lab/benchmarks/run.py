"""Makes all measurements, one process after the other, and writes a table and the numbers.

    python -m lab.benchmarks.run --quick --only=training_step

README.md describes the measurements.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import time
from typing import Any

import psutil

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.workers import num_cores
from lab import hidden_instructions
from lab.benchmarks import measure, registry
from lab.benchmarks.measure import BenchSettings, Measurement
from lab.machine import commit, processor_name

RESULTS_FILE = "results.json"
_PACKAGES = (
    "albert-tf",
    "tensorflow",
    "tf-keras",
    "tf-models-official",
    "tensorflow-text",
    "numpy",
    "numba",
    "sentencepiece",
    "onnxruntime",
    "openvino",
)


def main(settings: BenchSettings) -> None:
    """Makes the chosen measurements, and the report."""
    chosen = choose(settings)
    if settings.list:
        print("\n".join(measurement.name for measurement in chosen))
        return
    content = about(settings)
    name = content["date"] + "-quick" * settings.quick
    folder = settings.output_dir or f"lab/benchmarks/results/{name}"
    path = os.path.join(folder, RESULTS_FILE)
    if os.path.exists(path):
        raise UserError(f"{path}: holds results; give another --output_dir")
    start = time.monotonic()
    for number, measurement in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {measurement.name}", end=" ", flush=True)
        seconds_left = settings.run_seconds - (time.monotonic() - start)
        result = _measured(measurement, settings, seconds_left)
        content["measurements"][measurement.name] = result
        files.write_bytes(path, f"{json.dumps(content, indent=1)}\n".encode())
        spent = result.get("process_seconds", 0.0)
        print(f"{result['status']}, {spent:.0f} s {result.get('reason', '')}".strip(), flush=True)
    # Imported here, so that this process is still small while others are measured.
    from lab.report import benchmark_table

    page = "\n".join(benchmark_table(content)) + "\n"
    files.write_bytes(os.path.join(folder, "table.md"), page.encode())
    print(f"{folder}/table.md: {time.monotonic() - start:.0f} s")


def choose(settings: BenchSettings) -> list[Measurement]:
    """The chosen measurements in their order; a name in --only may be the beginning of a measurement's name."""
    if not settings.only:
        return [each for each in registry.MEASUREMENTS if each.in_quick or not settings.quick]
    prefixes = tuple(f"{name}." for name in settings.only.split(",") if name)
    for prefix in prefixes:
        if not any(f"{each.name}.".startswith(prefix) for each in registry.MEASUREMENTS):
            reason = f"={prefix[:-1]}: no such measurement; --list prints their names"
            settings.refuse("only", reason)
    return [each for each in registry.MEASUREMENTS if f"{each.name}.".startswith(prefixes)]


def _measured(
    measurement: Measurement, settings: BenchSettings, seconds_left: float
) -> dict[str, Any]:
    """The result of a measurement, or the reason why there is none."""
    if seconds_left <= 0:
        return {"status": "not run", "reason": "the time was over (--max_minutes)"}
    try:
        if measurement.inputs:
            measurement.inputs(settings)
    except UserError as error:
        return {"status": "failed", "reason": str(error)}
    limit_seconds = min(measurement.limit_seconds, seconds_left)
    return measure.in_process(measurement.name, settings, limit_seconds)


def about(settings: BenchSettings) -> dict[str, Any]:
    """What is written besides the measurements."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "commit": commit("."),
        "environment": measure.ENVIRONMENT,
        "settings": settings.to_dict(),
        "measurements": {},
    }


def machine() -> dict[str, Any]:
    """A description of the machine and its load."""
    return {
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": num_cores(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
        "instructions": hidden_instructions.instructions(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def versions() -> dict[str, str]:
    """The versions of the measured packages that are installed."""
    packages = importlib.metadata.distributions()
    installed = {package.name.replace("_", "-"): package.version for package in packages}
    return {name: installed[name] for name in _PACKAGES if name in installed}


if __name__ == "__main__":
    flags.run(main, BenchSettings, description=__doc__)
