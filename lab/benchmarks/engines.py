r"""Time of create_pretraining_data on each engine: 25 MB of text, ten passes; start of the workers included.

    make bench-cluster BENCH_FLAGS=--engines=local:2,dask:2,direct:2

Prints a table: seconds, processor seconds of all processes, and both as multiples of the local engine's at the same
number of workers. `idle` is the share of the time in which cores did nothing for the run, of as many cores as there are
workers. On a busy machine, compare processor seconds. Every engine must give the same files.
"""

import contextlib
import dataclasses
import filecmp
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting
from lab.benchmarks.inputs import cut_text, record_flags, run_module
from lab.benchmarks.measure import BenchSettings

MEGABYTES = 25
PASSES = 10
RUNS = (
    ("local", 1),
    ("local", 2),
    ("local", 4),
    ("dask", 1),
    ("dask", 2),
    ("dask", 4),
    ("portable", 1),
    ("direct", 2),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnginesSettings(BenchSettings):
    """Which runs are made."""

    engines: str = setting("", "Runs such as local:2,dask:2 (engine:workers); by default, all.")

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Engines and numbers of workers."""
        if not self.engines:
            return list(RUNS)
        names = self.engines.split(",")
        runs = [
            (engine, num_workers)
            for engine, num_workers in RUNS
            if f"{engine}:{num_workers}" in names
        ]
        if len(runs) != len(names):
            known = ", ".join(f"{engine}:{num_workers}" for engine, num_workers in RUNS)
            self.refuse("engines", f"={self.engines}: expected some of {known}")
        return runs


class Cost(NamedTuple):
    """What a run took."""

    seconds: float
    processor_seconds: float  # of all its processes, and of Beam's job service


def main(settings: EnginesSettings) -> None:
    """Measures all runs and prints the table."""
    text = cut_text(settings, MEGABYTES)
    run_flags = {**record_flags(settings, text, 512), "dupe_factor": PASSES}
    folder = settings.work / "engines"
    warm_up = {**run_flags, "input_file": cut_text(settings, 0.05)}
    measured(warm_up, folder / "warm_up", "local", 1)  # fills numba's cache of compiled functions
    costs: dict[tuple[str, int], Cost] = {}
    first: pathlib.Path | None = None
    print(
        "| engine | workers | seconds | processor seconds | x local | x local, processor | idle |"
    )
    print("|---|---|---|---|---|---|---|")
    for engine, num_workers in settings.runs:
        records = folder / f"{engine}_{num_workers}"
        cost = measured(run_flags, records, engine, num_workers)
        costs[engine, num_workers] = cost
        first = first or records
        check_equal(first, records)
        print(row(engine, num_workers, cost, costs.get(("local", num_workers))), flush=True)
    shutil.rmtree(folder)


def row(engine: str, num_workers: int, cost: Cost, local: Cost | None) -> str:
    """A row of the table."""
    cores = min(num_workers, os.cpu_count() or 1)
    idle = max(0.0, 1 - cost.processor_seconds / (cost.seconds * cores))
    ratios = " | "
    if local:
        seconds = cost.seconds / local.seconds
        processor_seconds = cost.processor_seconds / local.processor_seconds
        ratios = f"{seconds:.2f} | {processor_seconds:.2f}"
    numbers = f"{cost.seconds:.1f} | {cost.processor_seconds:.1f}"
    return f"| {engine} | {num_workers} | {numbers} | {ratios} | {idle:.0%} |"


def measured(run_flags: dict, folder: pathlib.Path, engine: str, num_workers: int) -> Cost:
    """Runs the program once, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    before = processor_seconds_of_children()
    with options_of(engine) as options:
        run_module(
            "data_prep.create_pretraining_data",
            **run_flags,
            output_dir=folder,
            runner=engine,
            num_workers=num_workers,
            **options,
        )
        seconds = time.monotonic() - start
    return Cost(seconds, processor_seconds_of_children() - before)


@contextlib.contextmanager
def options_of(engine: str) -> Iterator[dict[str, str]]:
    """The flags of an engine; starts Beam's job service for `portable`."""
    if engine != "portable":
        yield {}
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = "apache_beam.runners.portability.local_job_service_main"
    command = [sys.executable, "-m", module, f"--port={port}"]
    service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        endpoint = f"--job_endpoint=127.0.0.1:{port} --environment_type=LOOPBACK"
        yield {"pipeline_options": endpoint}
    finally:
        service.terminate()
        service.wait()


def processor_seconds_of_children() -> float:
    """Processor seconds of all processes that this one, or one of its children, has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check_equal(expected: pathlib.Path, records: pathlib.Path) -> None:
    """Raises a `UserError` if two folders differ."""
    names = sorted(path.name for path in expected.iterdir() if path.name != ".lock")
    equal, _, _ = filecmp.cmpfiles(expected, records, names, shallow=False)
    if sorted(equal) != names:
        raise UserError(f"{records}: differs from {expected}")


if __name__ == "__main__":
    flags.run(main, EnginesSettings, description=__doc__)
