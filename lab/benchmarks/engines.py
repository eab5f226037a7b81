r"""Time of create_pretraining_data on each engine: 25 MB of text, ten passes; start of the workers included.

    make bench-cluster BENCH_FLAGS=--engines=local:2,dask:2,portable:1
    make bench-cluster BENCH_FLAGS=--write

Prints a table: seconds, processor seconds of all processes, and both as multiples of the local engine's at the same
number of workers. `idle` is the share of the time in which cores did nothing for the run, of as many cores as there are
workers. All runs take turns, several rounds. On a busy machine, compare processor seconds. Every engine must give the
same files.

With Dask among the engines, it also measures what its driver needs for each item. `--write` makes all runs, and writes
the JSON file and its parts of pages (`engines_report.py`).
"""

import contextlib
import dataclasses
import datetime
import filecmp
import importlib.metadata
import os
import pathlib
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting
from albert_tf.core.workers import num_cores
from albert_tf.data_prep.engines.choice import engine_of
from albert_tf.data_prep.engines.settings import DaskSettings
from albert_tf.data_prep.pretraining import blocks
from lab import machine
from lab.benchmarks import engines_report
from lab.benchmarks.inputs import cut_text, record_flags, run_module
from lab.benchmarks.measure import BenchSettings
from lab.report import replace_parts

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
    ("portable", 2),
)
NUM_ITEMS = 1500  # without work, for the cost of the driver


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnginesSettings(BenchSettings):
    """Which runs are made."""

    engines: str = setting("", "Runs such as local:2,dask:2 (engine:workers); by default, all.")
    rounds: int = setting(3, "How often each run is made.", minimum=1)
    write: bool = setting(
        False,
        f"Whether to write {engines_report.FILE} and the parts of the pages that have its numbers.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.write and self.engines:
            self.refuse("write", "contradicts --engines: the pages have all runs")

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
            all_runs = ", ".join(f"{engine}:{num_workers}" for engine, num_workers in RUNS)
            self.refuse("engines", f"={self.engines}: expected some of {all_runs}")
        return runs


class Cost(NamedTuple):
    """What a run took."""

    seconds: float
    processor_seconds: float  # of all its processes, and of Beam's job service


def main(settings: EnginesSettings) -> None:
    """Makes all runs and prints the table."""
    text = cut_text(settings, MEGABYTES)
    run_flags = {
        **record_flags(settings, text, engines_report.MAX_SEQ_LENGTH),
        "dupe_factor": PASSES,
    }
    folder = settings.work / "engines"
    # Workers of Beam run the `python` of the PATH.
    environment = pathlib.Path(sys.executable).parent
    os.environ["PATH"] = f"{environment}{os.pathsep}{os.environ['PATH']}"
    content: dict[str, Any] = {"about": about(settings)}
    tiny = {**run_flags, "input_file": cut_text(settings, 0.05)}
    measured(tiny, folder / "tiny", "local", 1)  # fills numba's cache of compiled functions
    content["start"] = measured(tiny, folder / "tiny", "local", 1)._asdict()

    costs: dict[tuple[str, int], list[Cost]] = {run: [] for run in settings.runs}
    first: pathlib.Path | None = None
    for number in range(1, settings.rounds + 1):
        for engine, num_workers in settings.runs:
            records = folder / f"{engine}_{num_workers}"
            cost = measured(run_flags, records, engine, num_workers)
            costs[engine, num_workers].append(cost)
            first = first or records
            check_equal(first, records)
            took = f"{cost.seconds:.1f} s, {cost.processor_seconds:.1f} processor seconds"
            print(f"[{number}/{settings.rounds}] {engine}:{num_workers} {took}", flush=True)
    content["runs"] = {
        f"{engine}:{num_workers}": {
            "seconds": [round(cost.seconds, 2) for cost in of_run],
            "processor_seconds": [round(cost.processor_seconds, 2) for cost in of_run],
        }
        for (engine, num_workers), of_run in costs.items()
    }
    print("\n".join(engines_report.table(content)))

    if any(engine == "dask" for engine, _ in settings.runs):
        samples = [driver_milliseconds() for _ in range(settings.rounds)]
        content["driver"] = {
            "items": NUM_ITEMS,
            "milliseconds": round(statistics.median(samples), 2),
        }
        print(f"driver of Dask: {content['driver']['milliseconds']} ms of a core for each item")
    if settings.write:
        assert first
        content["text"] = text_of(first)
        files.write_bytes(engines_report.FILE, files.json_bytes(content))
        for page, parts in engines_report.parts(content).items():
            replace_parts(page, parts)
    shutil.rmtree(folder)


def about(settings: EnginesSettings) -> dict[str, Any]:
    """When and where the runs were made."""
    return {
        "date": f"{datetime.date.today()}",
        "processor": machine.processor_name(),
        "cores": num_cores(),
        "commit": machine.commit(".", short=True),
        "load_average": round(os.getloadavg()[0], 1),
        "rounds": settings.rounds,
        "passes": PASSES,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """The versions of the engines that are installed."""
    installed = {}
    for name in ("distributed", "apache-beam"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def text_of(records: pathlib.Path) -> dict[str, int]:
    """Counts of a run."""
    metadata = files.read_json(str(records / "metadata.json"))
    names = ("text_bytes", "blocks", "sentences", "tokens", "examples")
    counts = {name: metadata["counts"][name] for name in names}
    record_bytes = sum(shard["bytes"] for shard in metadata["shards"])
    return {**counts, "shards": len(metadata["shards"]), "record_bytes": record_bytes}


def measured(
    run_flags: Mapping[str, Any], folder: pathlib.Path, engine: str, num_workers: int
) -> Cost:
    """Runs the program once, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    before = processor_seconds_of_children()
    with options_of(engine, num_workers) as options:
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


def driver_milliseconds() -> float:
    """Processor time of Dask's client and scheduler, which are threads of this process, for an item without work."""
    spans = [blocks.Span("/shared/corpus/text-0001.txt", 0, blocks.BLOCK_BYTES)]
    items = [blocks.Block(number, spans) for number in range(NUM_ITEMS)]
    settings = DaskSettings(runner="dask", num_workers=2)
    with engine_of(settings)(settings, None) as engine:
        list(engine.map(counts_without_work, items[:50]))
        start = time.process_time()
        list(engine.map(counts_without_work, items))
        seconds = time.process_time() - start
    return 1000 * seconds / NUM_ITEMS


def counts_without_work(shared: None, block: blocks.Block) -> dict[str, int]:
    """As many counts as `store_block` returns."""
    return {f"count_{number}": block.number for number in range(12)}


@contextlib.contextmanager
def options_of(engine: str, num_workers: int) -> Iterator[dict[str, str]]:
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
        options = f"--job_endpoint=127.0.0.1:{port} --environment_type=LOOPBACK"
        if num_workers > 1:
            # By default, all workers are threads of the program, which share one core for most of their work.
            options += f" --experiments=use_loopback_process_worker=True --direct_num_workers={num_workers}"
        yield {"pipeline_options": options}
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
