"""Measuring: settings, repeats, statistics, memory, and a separate process for each measurement.

`run.py` makes every measurement with `in_process`, which starts `registry.py`. So no measurement is affected by the
memory, compiled functions or threads of another one, and a failure or a hang affects only one measurement.
"""

import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil

from albert_tf.core.settings import Settings, setting
from lab import hidden_instructions

Values = dict[str, Any]  # what the function of a measurement returns; JSON can represent it

# Removed, so that each library chooses its number of threads as it does by default.
_DROPPED_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "KMP_AFFINITY",
    "LD_PRELOAD",
)
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",  # processors are compared, not GPUs
    "HF_HUB_OFFLINE": "1",
    "KERAS_BACKEND": "tensorflow",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """What is measured, with which data, and for how long."""

    output_dir: str = setting(
        "", "Folder of the results; empty means lab/benchmarks/results/ and the date."
    )
    work_dir: str = setting(
        "build/benchmarks", "Folder of corpora, records and models; later runs use them again."
    )
    only: str = setting(
        "", "Measurements to make, by name or beginning of the name, separated by commas."
    )
    quick: bool = setting(
        False, "Whether to make only the most important measurements, for a short time."
    )
    list: bool = setting(False, "Whether to print the names of the measurements and exit.")
    max_minutes: float = setting(
        0.0, "Time after which no measurement starts; 0 is 40, or 5 with --quick.", minimum=0
    )

    @property
    def work(self) -> pathlib.Path:
        """The folder of the data."""
        return pathlib.Path(self.work_dir).resolve() / ("quick" if self.quick else "full")

    @property
    def seconds(self) -> float:
        """For how long a call is repeated."""
        return 3.0 if self.quick else 6.0

    @property
    def run_seconds(self) -> float:
        """The time after which no measurement is started."""
        return 60 * (self.max_minutes or (5 if self.quick else 40))


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Something that can be measured."""

    name: str  # in results and for --only; its parts are separated by dots
    function: Callable[[BenchSettings], Values]
    inputs: Callable[[BenchSettings], Any] | None = None  # makes its data before (`inputs.py`)
    in_quick: bool = False  # whether it is part of --quick
    limit_seconds: float = 240.0  # time after which its process is killed


# --- Inside the process of a measurement ---


def repeated(
    call: Callable[[], Any],
    seconds: float,
    *,
    warm_up: int = 1,
    least: int = 3,
    most: int = 200,
) -> Values:
    """Times a call after `warm_up` others, until the seconds are over, but from `least` to `most` times.

    Returns:
      `median`, `min`, `max`, `repeats` (their number) and the `samples` themselves.
    """
    for _ in range(warm_up):
        call()
    gc.collect()
    samples: list[float] = []
    while len(samples) < least or (sum(samples) < seconds and len(samples) < most):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "repeats": len(samples),
        "samples": samples,
    }


def peak_bytes() -> int:
    """The largest resident memory so far of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


# --- Outside the process of a measurement ---


def in_process(name: str, settings: BenchSettings, limit_seconds: float) -> Values:
    """Makes a measurement in a new process, which is killed after a time.

    Returns:
      `status` ("done", "failed" or "over its time"); if it failed, `reason`, the last line that it printed; `values`,
      the result of its function; `peak_bytes`; `process_seconds`; and `others`, the share of the processors that other
      programs used meanwhile.
    """
    logs = settings.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    answer = logs / f"{name}.json"
    log = logs / f"{name}.log"
    answer.unlink(missing_ok=True)
    arguments = [name, json.dumps(settings.to_dict()), str(answer)]
    command = [sys.executable, "-m", "lab.benchmarks.registry", *arguments]
    dropped = {*_DROPPED_VARIABLES}
    if hidden_instructions.hidden():
        dropped.remove("LD_PRELOAD")  # which hides them
    kept = {name: os.environ[name] for name in os.environ.keys() - dropped}
    start = time.monotonic()
    before = _seconds_of_others()
    with open(log, "w") as file:
        options = {"env": kept | ENVIRONMENT, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, stdout=file, start_new_session=True, **options)
        is_over = not _ended(process, limit_seconds)
    elapsed = time.monotonic() - start
    seconds_of_others = _seconds_of_others() - before
    measured = json.loads(answer.read_text()) if answer.exists() else {}
    result = {
        "status": "done" if measured and not process.returncode else "failed",
        "process_seconds": elapsed,
        "others": max(0.0, seconds_of_others / (elapsed * (os.cpu_count() or 1))),
        **measured,
    }
    if is_over:
        result |= {"status": "over its time", "reason": f"ended after {limit_seconds:.0f} s"}
    elif result["status"] == "failed":
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        result["reason"] = lines[-1][:300] if lines else f"ended with {process.returncode}"
    return result


def _ended(process: subprocess.Popen, limit_seconds: float) -> bool:
    """Waits for a process; kills it and its children if it takes too long, or if this process is interrupted."""
    try:
        process.wait(limit_seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _seconds_of_others() -> float:
    """Seconds of processor time used so far by other programs, and by other machines on the same hardware."""
    not_busy = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is also in "user"
    times = psutil.cpu_times()._asdict()
    busy = sum(seconds for kind, seconds in times.items() if kind not in not_busy)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)  # those that have finished
    return busy - time.process_time() - children.ru_utime - children.ru_stime
