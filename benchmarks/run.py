"""Measures everything, one process after the other, and writes a table, plots and the raw numbers.

    python -m benchmarks.run [--quick] [--only=training_step,inference.ours] [--resume]

`make bench` and `make bench-quick` set it up and run it. What is measured is in benchmarks/README.md.
"""

import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from benchmarks import measure, registry
from benchmarks.measure import BenchSettings, Measurement

RESULTS_FILE = "results.json"
_MUST_BE_EQUAL = ("quick", "text_file", "spm_model_file")  # when a run is taken up
_PACKAGES = (
    *("albert-tf", "tensorflow", "tf-keras", "tf-models-official", "tensorflow-text", "numpy"),
    *("numba", "sentencepiece", "torch", "transformers", "keras-hub", "keras"),
)


def main(settings: BenchSettings) -> None:
    """Makes the measurements that are asked for, and the report."""
    chosen = choose(settings)
    if settings.list:
        print("\n".join(one.name for one in chosen))
        return
    results = Results(settings)
    start = time.monotonic()
    for number, one in enumerate(chosen, 1):
        if results.status(one.name) == "done":
            continue
        label = f"[{number}/{len(chosen)}] {one.name}"
        left = settings.run_seconds - (time.monotonic() - start)
        print(label, end=" ", flush=True)
        result = _measured(one, settings, results, left)
        results.put(one.name, result)
        spent = result.get("process_seconds", 0.0)
        print(f"{result['status']}, {spent:.0f} s {result.get('reason', '')}".strip(), flush=True)
    results.put_seconds(time.monotonic() - start)
    from benchmarks import (
        report,
    )  # only now: whatever this process holds, measured ones would inherit

    report.write(results.folder)
    print(f"{results.folder}/table.md: {time.monotonic() - start:.0f} s")


def choose(settings: BenchSettings) -> list[Measurement]:
    """The measurements that are asked for, in their order.

    Raises:
      UserError: a name in --only is none of a measurement, nor the beginning of one.
    """
    wanted = [name for name in settings.only.split(",") if name]
    for name in wanted:
        if not any(_is_named(one.name, name) for one in registry.MEASUREMENTS):
            settings.refuse("only", f"={name}: no such measurement; --list prints their names")
    if wanted:
        return [
            one
            for one in registry.MEASUREMENTS
            if any(_is_named(one.name, name) for name in wanted)
        ]
    return [one for one in registry.MEASUREMENTS if one.in_quick or not settings.quick]


def _is_named(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(wanted + ".")


def _measured(
    one: Measurement, settings: BenchSettings, results: "Results", seconds_left: float
) -> dict[str, Any]:
    """The result of a measurement, or why there is none."""
    missing = [name for name in one.needs if not is_installed(name)]
    if missing:
        reason = f"{', '.join(missing)} is not installed (pip install albert-tf[peers])"
        return {"status": "left out", "reason": reason}
    if absent := [name for name in one.flags if not getattr(settings, name)]:
        return {"status": "left out", "reason": f"--{absent[0]} is not given"}
    if seconds_left <= 0:
        return {"status": "not run", "reason": "the time was over (--max_minutes)"}
    for name in one.inputs:
        made = results.make_input(registry.find(name), settings)
        if made["status"] != "done":
            return {"status": "failed", "reason": f"{name}: {made['reason']}"}
    return measure.in_process(one.name, settings, min(one.limit_seconds, seconds_left))


def is_installed(module: str) -> bool:
    """Whether a module can be imported; it is not."""
    return importlib.util.find_spec(module) is not None


class Results:
    """The folder of the results, with what was measured so far in results.json.

    Raises:
      UserError: the folder holds results and --resume is not given, or they are of another corpus or kind of run.
    """

    def __init__(self, settings: BenchSettings):
        today = datetime.date.today().isoformat()
        name = f"{today}-quick" if settings.quick else today
        self.folder = pathlib.Path(settings.output_dir or f"benchmarks/results/{name}")
        self._path = self.folder / RESULTS_FILE
        self._values: dict[str, Any] = {
            "date": today,
            "machine": machine(),
            "versions": versions(),
            "commit": commit(),
            "environment": measure.ENVIRONMENT,
            "settings": settings.to_dict(),
            "inputs": {},
            "measurements": {},
        }
        if self._path.exists():
            if not settings.resume:
                raise UserError(
                    f"{self._path}: holds results; --resume goes on with them, or give another --output_dir"
                )
            held = files.read_json(str(self._path))
            for flag in _MUST_BE_EQUAL:
                if held["settings"][flag] != getattr(settings, flag):
                    was = str(held["settings"][flag]).lower()
                    settings.refuse(flag, f"was {was!r} for the results in {self.folder}")
            kept = ("date", "inputs", "measurements", "seconds")
            self._values |= {name: held[name] for name in kept if name in held}
        self._write()

    def status(self, name: str) -> str:
        """What became of a measurement; "" if it was not come to."""
        return self._values["measurements"].get(name, {}).get("status", "")

    def put(self, name: str, result: dict[str, Any]) -> None:
        """Keeps the result of a measurement."""
        self._values["measurements"][name] = {**result, "commit": self._values["commit"]}
        self._write()

    def put_seconds(self, seconds: float) -> None:
        """Adds the time of a run."""
        self._values["seconds"] = self._values.get("seconds", 0.0) + seconds
        self._write()

    def make_input(self, one: Measurement, settings: BenchSettings) -> dict[str, Any]:
        """Makes something that is measured on, and what it is made of, unless it is there."""
        done = settings.work / f"{one.name}.done"
        if done.exists():
            return json.loads(done.read_text())
        for name in one.inputs:
            made = self.make_input(registry.find(name), settings)
            if made["status"] != "done":
                return made
        print(f"({one.name})", end=" ", flush=True)
        result = measure.in_process(one.name, settings, one.limit_seconds)
        self._values["inputs"][one.name] = result
        self._write()
        if result["status"] == "done":
            files.write_bytes(str(done), json.dumps(result).encode())
        return result

    def _write(self) -> None:
        content = json.dumps(self._values, indent=1) + "\n"
        files.write_bytes(str(self._path), content.encode())


def machine() -> dict[str, Any]:
    """What the machine is, and how busy it is."""
    found = {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": measure.num_cores(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
    }
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                found["processor"] = value.strip()
            if name.strip() == "flags":
                wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
                found["instructions"] = [flag for flag in wanted if flag in value.split()]
        found["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return found


def versions() -> dict[str, str]:
    """The versions of the packages that take part; those that are not installed are left out."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def commit() -> str:
    """The commit that is measured, with "+" if files were changed since; "" outside of a repository."""

    def git(*arguments: Sequence[str]) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True)
        return done.stdout.strip() if not done.returncode else ""

    with contextlib.suppress(OSError):
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    return ""


if __name__ == "__main__":
    flags.run(main, BenchSettings)
