"""A measurement in a process of its own: warm-up and repeats, statistics, memory, what else the machine was doing.

`run.py` starts every measurement by `in_process`; the process, which is this file as a program, looks the name up in
the registry, calls the measurement's function and writes what it returns. So no measurement sees another one's memory,
caches of compiled functions or threads, and one that fails or hangs costs nothing but its own time.
"""

import contextlib
import dataclasses
import gc
import hashlib
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting

Values = dict[str, Any]  # what a measurement's function returns; JSON holds it

# Thread numbers are left to the libraries, which take all cores.
_DROPPED_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "KMP_AFFINITY", "LD_PRELOAD"),
)
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",  # the processor is what is compared
    "HF_HUB_OFFLINE": "1",
    "KERAS_BACKEND": "tensorflow",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """What is measured, on what, for how long."""

    output_dir: str = setting(
        "", "Folder of the results; benchmarks/results/ and the date if it is not given."
    )
    work_dir: str = setting(
        "build/benchmarks", "Folder of what is measured on, which further runs use again."
    )
    text_file: str = setting(
        "",
        "Corpus, one sentence a line and a blank line between documents: files, globs or folders, separated by"
        " commas; data_prep.sample_corpus makes one if it is not given.",
        input_path=True,
    )
    spm_model_file: str = setting(
        "", "SentencePiece model; one is trained on the corpus if it is not given.", input_path=True
    )
    glue_dir: str = setting(
        "",
        "Folder of GLUE's files, for fine-tuning, which is left out without it.",
        input_path=True,
    )
    original_dir: str = setting(
        "",
        "Folder with google-research/albert's create_pretraining_data.py and tokenization.py, which run beside ours;"
        " without it, a time that was measured once stands for them.",
        input_path=True,
    )
    only: str = setting(
        "", "Measurements to make, by name or beginning of the name, separated by commas."
    )
    quick: bool = setting(
        False, "Whether to make the most important measurements alone, and short."
    )
    resume: bool = setting(
        False, "Whether to go on with the results in --output_dir; finished measurements are kept."
    )
    list: bool = setting(False, "Whether to print the names of the measurements and do nothing.")
    max_minutes: float = setting(
        0.0, "Time after which nothing more is started; 0 is 40, or 5 with --quick.", minimum=0
    )

    @property
    def work(self) -> pathlib.Path:
        """The folder of what is measured on: one for each corpus and vocabulary."""
        made_from = json.dumps([self.quick, self.text_file, self.spm_model_file]).encode()
        name = ("quick-" if self.quick else "full-") + hashlib.sha256(made_from).hexdigest()[:8]
        return pathlib.Path(self.work_dir).resolve() / name

    @property
    def seconds(self) -> float:
        """How long a call is repeated, apart from the first repeats."""
        return 3.0 if self.quick else 15.0

    @property
    def run_seconds(self) -> float:
        """Time after which nothing more is started."""
        return 60 * (self.max_minutes or (5 if self.quick else 40))


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Something that can be measured.

    Attributes:
      name: what it is called in results and by --only; parts separated by dots.
      function: of the settings; gives the values.
      needs: modules that must be installed; it is left out without them.
      flags: settings that must be given; it is left out without them.
      inputs: names of what must have been made before (`inputs.py`).
      in_quick: whether --quick makes it.
      limit_seconds: time after which its process is ended.
    """

    name: str
    function: Callable[[BenchSettings], Values]
    needs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    in_quick: bool = False
    limit_seconds: float = 240.0


# --- Inside the process of a measurement ---


def repeated(
    call: Callable[[], Any],
    seconds: float,
    *,
    warm_up: int = 1,
    least: int = 3,
    most: int = 200,
    beside: Callable[[], Any] | None = None,
) -> Values:
    """Times a call again and again.

    Args:
      call: what is timed; it returns when the work is done.
      seconds: no further repeat starts after this time, once there are enough.
      warm_up: calls before, which are timed apart.
      least: repeats at least.
      most: repeats at most.
      beside: what is timed after each repeat, so that a machine whose speed changes changes both.

    Returns:
      `statistics_of` the repeats' seconds, with the times of the warm-up, and those of `beside` under that name.
    """
    warm_up_seconds = [_seconds_of(call) for _ in range(warm_up)]
    gc.collect()
    samples: list[float] = []
    samples_beside: list[float] = []
    while len(samples) < least or (sum(samples) < seconds and len(samples) < most):
        samples.append(_seconds_of(call))
        if beside:
            samples_beside.append(_seconds_of(beside))
    found = {**statistics_of(samples), "warm_up": warm_up_seconds}
    return {**found, "beside": statistics_of(samples_beside)} if beside else found


def _seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def statistics_of(samples: Sequence[float]) -> Values:
    """Median and spread of some numbers.

    Returns:
      `median`, `min`, `max`, `repeats` and the `samples` themselves.
    """
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "repeats": len(samples),
        "samples": list(samples),
    }


def peak_bytes() -> int:
    """The most memory that this process has had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_bytes() -> int:
    """The memory that this process has resident now; 0 where the system does not say."""
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


@contextlib.contextmanager
def memory_of_processes(pid: int) -> Iterator[list[int]]:
    """Watches a process and all that it starts.

    Yields:
      A list whose only element is, at the end, the most bytes that all of them had together, pages that they share
      counted once; 0 where the system does not say.
    """
    most, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            most[0] = max(most[0], sum(map(_proportional_bytes, _descendants(pid))))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()


def _descendants(pid: int) -> list[int]:
    """A process and those that it has started, and so on."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


# --- Outside of it ---


def in_process(name: str, settings: BenchSettings, limit_seconds: float) -> Values:
    """Makes a measurement in a new process.

    Args:
      name: of the measurement, or of something that is measured on.
      settings: handed on.
      limit_seconds: time after which the process, and what it started, is ended.

    Returns:
      `status` ("done", "failed" or "over its time"), `reason` (the last line that it printed, if it failed),
      `values` (what its function returned), `peak_bytes`, `process_seconds`, `cpu_seconds`, and `others`, the share of
      the machine's processors that other programs had meanwhile (None where the system does not say).
    """
    logs = settings.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    answer, log = logs / f"{name}.json", logs / f"{name}.log"
    answer.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.measure", name, json.dumps(settings.to_dict())]
    busy, own, start = _busy_seconds(), _children_seconds(), time.monotonic()
    with open(log, "w") as file:
        process = subprocess.Popen(
            [*command, str(answer)],
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        is_over = not _ended(process, limit_seconds)
    elapsed, cpu = time.monotonic() - start, _children_seconds() - own
    found = json.loads(answer.read_text()) if answer.exists() else {}
    result = {
        "status": "done" if found and not process.returncode else "failed",
        "process_seconds": elapsed,
        "cpu_seconds": cpu,
        "others": busy and max(0.0, (_busy_seconds() - busy - cpu) / (elapsed * num_cores())),
        **found,
    }
    if is_over:
        result |= {"status": "over its time", "reason": f"ended after {limit_seconds:.0f} s"}
    elif result["status"] == "failed":
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        result["reason"] = lines[-1][:300] if lines else f"ended with {process.returncode}"
    return result


def _ended(process: subprocess.Popen, limit_seconds: float) -> bool:
    """Waits for a process; ends it with all that it started if it takes too long, or if we are interrupted."""
    try:
        process.wait(limit_seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment() -> dict[str, str]:
    """The environment of a measurement's process: fixed where it matters, else as it is."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
    return {**kept, **ENVIRONMENT}


def num_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _busy_seconds() -> float | None:
    """Processor seconds that all programs, and other machines on the same hardware, have had; None if unknown."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(
                int, file.readline().split()[1:9]
            )
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def main(name: str, settings: str, answer: str) -> None:
    """Makes the measurement; what `in_process` starts."""
    from benchmarks import registry

    try:
        values = registry.find(name).function(BenchSettings(**json.loads(settings)))
    except UserError as error:  # its one line is the reason that the report gives
        sys.exit(str(error))
    found = {"values": values, "peak_bytes": peak_bytes()}
    files.write_bytes(answer, json.dumps(found).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
