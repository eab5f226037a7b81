"""How long the first answer takes: `albert-tf predict` of one line, by engine and environment, in turn.

    make runtime
    python -m lab.first_answer models/albert-minilm-l6

Each command is a process of its own, from its start to its end; processor time includes that of all its threads.
"""

import dataclasses
import datetime
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.export import export_model
from lab import machine, tables
from lab.report import replace_parts

_ROOT = pathlib.Path(__file__).parents[1]
_LINE = "A man is playing a guitar on stage.\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstAnswerSettings(Settings):
    """The model, and how often each command is timed."""

    model: str = setting("", "Folder of a model.", required=True, input_path=True)
    runtime_python: str = setting(
        ".venv.runtime/bin/python", "Python of the environment that `make runtime` makes."
    )
    repeats: int = setting(5, "Runs of each command.", minimum=1)
    output_file: str = setting("docs/results/data/first_answer.json", "JSON file of the results.")


def timed(command: Sequence[str]) -> dict[str, float]:
    """Seconds of a command that reads one line, and the most memory that it used."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, input=_LINE, capture_output=True, text=True, env=environment)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise UserError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor_seconds": processor, "wall_seconds": wall}


def table_of(content: Mapping[str, Any]) -> list[str]:
    """A row for each command."""
    rows = [
        (name, f"{result['processor_seconds']:.2f}", f"{result['wall_seconds']:.2f}")
        for name, result in content["median"].items()
    ]
    return tables.table("model and engine | processor seconds | seconds", rows)


def main(settings: FirstAnswerSettings) -> None:
    """Times all commands in turn, and writes their medians."""
    here = [sys.executable, "-m", "albert_tf", "predict"]
    runtime = [settings.runtime_python, "-m", "albert_tf", "predict"]
    with tempfile.TemporaryDirectory() as folder:
        export = export_model(settings.model, folder, format="onnx")
        commands = {
            "folder, TensorFlow": [*here, settings.model, "--engine=tensorflow"],
            "folder, ONNX Runtime": [*here, settings.model, "--engine=onnxruntime"],
            "ONNX export": [*here, export],
            "ONNX export, without TensorFlow installed": [*runtime, export],
        }
        times: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for _ in range(settings.repeats):
            for name, command in commands.items():
                times[name].append(timed(command))

    results: dict[str, Any] = {}
    for name, runs in times.items():
        results[name] = {
            key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]
        }
    about = {
        "date": str(datetime.date.today()),
        "processor": machine.processor_name(),
        "commit": machine.commit("."),
        "repeats": settings.repeats,
        "load_average": round(os.getloadavg()[0], 1),
    }
    content = {"about": about, "median": results}
    files.write_bytes(settings.output_file, files.json_bytes(content))
    replace_parts("docs/results/exports.md", {"first answer": table_of(content)})
    for name, result in results.items():
        print(f"{name:<45}{result['processor_seconds']:>8.2f}{result['wall_seconds']:>8.2f}")


if __name__ == "__main__":
    flags.run(main, FirstAnswerSettings, description=__doc__, positional=("model",))
