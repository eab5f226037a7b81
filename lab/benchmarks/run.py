"""Makes all measurements, one process after the other, and writes a table and the numbers.

    python -m lab.benchmarks.run --quick --only=training_step
    python -m lab.benchmarks.run --resume

`make bench` and `make bench-quick` install what it needs and run it. README.md describes the measurements.
"""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import time
from collections.abc import Callable
from typing import Any

import psutil

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.workers import num_cores
from lab.benchmarks import measure, registry
from lab.benchmarks.measure import BenchSettings, Measurement
from lab.machine import commit, processor_info, processor_name

RESULTS_FILE = "results.json"
_MUST_BE_EQUAL = ("quick", "text_file", "spm_model_file")  # to resume a run
_PACKAGES = (
    *("albert-tf", "tensorflow", "tf-keras", "tf-models-official", "tensorflow-text", "numpy"),
    *("numba", "sentencepiece"),
)


def main(settings: BenchSettings) -> None:
    """Makes the chosen measurements, and the report."""
    chosen = choose(settings)
    if settings.list:
        print("\n".join(measurement.name for measurement in chosen))
        return
    folder = ResultsFolder(settings)
    start = time.monotonic()
    for number, measurement in enumerate(chosen, 1):
        if folder.is_done(measurement.name):
            continue
        print(f"[{number}/{len(chosen)}] {measurement.name}", end=" ", flush=True)
        seconds_left = settings.run_seconds - (time.monotonic() - start)
        result = _measured(measurement, settings, folder, seconds_left)
        folder.put(measurement.name, result)
        spent = result.get("process_seconds", 0.0)
        print(f"{result['status']}, {spent:.0f} s {result.get('reason', '')}".strip(), flush=True)
    folder.add_seconds(time.monotonic() - start)
    # Imported here, so that this process is still small while others are measured.
    from lab.report import benchmark_table

    lines = benchmark_table(files.read_json(str(folder.path / RESULTS_FILE)))
    files.write_bytes(str(folder.path / "table.md"), ("\n".join(lines) + "\n").encode())
    print(f"{folder.path}/table.md: {time.monotonic() - start:.0f} s")


def choose(settings: BenchSettings) -> list[Measurement]:
    """The chosen measurements in their order.

    Raises:
      UserError: a name in --only is neither a measurement's name nor the beginning of one.
    """
    if not settings.only:
        return [each for each in registry.MEASUREMENTS if each.in_quick or not settings.quick]
    prefixes = tuple(f"{name}." for name in settings.only.split(",") if name)
    for prefix in prefixes:
        if not any(f"{each.name}.".startswith(prefix) for each in registry.MEASUREMENTS):
            reason = f"={prefix[:-1]}: no such measurement; --list prints their names"
            settings.refuse("only", reason)
    return [each for each in registry.MEASUREMENTS if f"{each.name}.".startswith(prefixes)]


def _measured(
    measurement: Measurement, settings: BenchSettings, folder: "ResultsFolder", seconds_left: float
) -> dict[str, Any]:
    """The result of a measurement, or the reason why there is none."""
    if seconds_left <= 0:
        return {"status": "not run", "reason": "the time was over (--max_minutes)"}
    for name in measurement.inputs:
        made = folder.make_input(registry.find(name), settings)
        if made["status"] != "done":
            return {"status": "failed", "reason": f"{name}: {made['reason']}"}
    limit_seconds = min(measurement.limit_seconds, seconds_left)
    return measure.in_process(measurement.name, settings, limit_seconds)


class ResultsFolder:
    """The folder of the results; its results.json contains the results so far.

    Raises:
      UserError: the folder contains results and --resume is not given, or they belong to another corpus or kind of run.
    """

    def __init__(self, settings: BenchSettings):
        today = datetime.date.today().isoformat()
        name = f"{today}-quick" if settings.quick else today
        self.path = pathlib.Path(settings.output_dir or f"lab/benchmarks/results/{name}")
        self._file = self.path / RESULTS_FILE
        self._values: dict[str, Any] = {
            "date": today,
            "machine": machine(),
            "versions": versions(),
            "commit": commit("."),
            "environment": measure.ENVIRONMENT,
            "settings": settings.to_dict(),
            "inputs": {},
            "measurements": {},
        }
        if self._file.exists():
            if not settings.resume:
                raise UserError(
                    f"{self._file}: holds results; continue them with --resume, or give another --output_dir"
                )
            before = files.read_json(str(self._file))
            for flag in _MUST_BE_EQUAL:
                if before["settings"][flag] != getattr(settings, flag):
                    value = str(before["settings"][flag]).lower()
                    settings.refuse(flag, f"was {value!r} for the results in {self.path}")
            kept = ("date", "inputs", "measurements", "seconds")
            self._values |= {name: before[name] for name in kept if name in before}
        self._write()

    def is_done(self, name: str) -> bool:
        """Whether a measurement has values."""
        return self._values["measurements"].get(name, {}).get("status") == "done"

    def put(self, name: str, result: dict[str, Any]) -> None:
        """Stores the result of a measurement."""
        self._values["measurements"][name] = {**result, "commit": self._values["commit"]}
        self._write()

    def add_seconds(self, seconds: float) -> None:
        """Adds the time of a run."""
        self._values["seconds"] = self._values.get("seconds", 0.0) + seconds
        self._write()

    def make_input(self, needed: Measurement, settings: BenchSettings) -> dict[str, Any]:
        """See the function."""
        return make_input(needed, settings, self._put_input)

    def _put_input(self, name: str, result: dict[str, Any]) -> None:
        self._values["inputs"][name] = result
        self._write()

    def _write(self) -> None:
        files.write_bytes(str(self._file), f"{json.dumps(self._values, indent=1)}\n".encode())


def make_input(
    needed: Measurement,
    settings: BenchSettings,
    record: Callable[[str, dict[str, Any]], None] = lambda name, result: None,
) -> dict[str, Any]:
    """Makes data for measurements, and the data that it is made from, unless it exists."""
    done = settings.work / f"{needed.name}.done"
    if done.exists():
        return json.loads(done.read_text())
    for name in needed.inputs:
        made = make_input(registry.find(name), settings, record)
        if made["status"] != "done":
            return made
    print(f"({needed.name})", end=" ", flush=True)
    result = measure.in_process(needed.name, settings, needed.limit_seconds)
    record(needed.name, result)
    if result["status"] == "done":
        files.write_bytes(str(done), json.dumps(result).encode())
    return result


def machine() -> dict[str, Any]:
    """A description of the machine and its load."""
    features = processor_info().get("flags", "").split()
    wanted = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    return {
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": num_cores(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
        "instructions": [name for name in wanted if name in features],
        "memory_bytes": psutil.virtual_memory().total,
    }


def versions() -> dict[str, str]:
    """The versions of the measured packages that are installed."""
    packages = importlib.metadata.distributions()
    found = {package.name.replace("_", "-"): package.version for package in packages}
    return {name: found[name] for name in _PACKAGES if name in found}


if __name__ == "__main__":
    flags.run(main, BenchSettings, description=__doc__)
