"""The parts of pages about the engines of data preparation: a table, and what a hundred workers would wait for.

They are made from the JSON file that `engines.py` writes.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.data_prep.pretraining.blocks import BLOCK_BYTES
from albert_tf.data_prep.pretraining.plan import plan_shards
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from lab import tables

FILE = "docs/results/data/engines_of_data_preparation.json"
PAGE_OF_TABLE = "docs/results/speed.md"
PAGE_OF_CLUSTERS = "docs/guides/cluster.md"

MAX_SEQ_LENGTH = 512
MAX_PREDICTIONS = 77
NUM_WORKERS = 100
LARGE_TEXT = 20_000_000_000  # bytes: English Wikipedia and some books
_QUIET_LOAD = 0.5
_SHARDS_LOOKED_AT = 20  # their mean stands for all


def parts(content: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Page -> name of a part -> its lines."""
    return {
        PAGE_OF_TABLE: {"engines of data preparation": table_and_source(content)},
        PAGE_OF_CLUSTERS: {"a hundred workers": hundred_workers(content)},
    }


# --- The table.


def table_and_source(content: Mapping[str, Any]) -> list[str]:
    """The table of all runs, and how it was made."""
    about = content["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    rounds = "one round" if about["rounds"] == 1 else f"medians of {about['rounds']} rounds"
    load = f"the load of the machine was {about['load_average']} before"
    if about["load_average"] > _QUIET_LOAD:
        load += ", by other programs, so compare processor seconds"
    source = (
        f"{about['cores']} cores of an {about['processor']}, {about['date']}, {rounds} in which all runs take turns;"
        f" {load}; {versions}."
    )
    return [
        *table(content),
        "",
        "    make bench-cluster BENCH_FLAGS=--write",
        "",
        *tables.wrapped(source),
    ]


def table(content: Mapping[str, Any]) -> list[str]:
    """A row for each engine and number of workers."""
    header = "engine | workers | seconds | processor seconds | x local | x local, processor | idle"
    return tables.table(header, [row(content, name) for name in content["runs"]])


def row(content: Mapping[str, Any], name: str) -> list[str]:
    """A row of the table; ratios are to the local engine with as many workers, in the same round."""
    engine, _, num_workers = name.partition(":")
    runs = content["runs"]
    costs = runs[name]
    seconds = statistics.median(costs["seconds"])
    processor_seconds = statistics.median(costs["processor_seconds"])
    cores = min(int(num_workers), content["about"]["cores"])
    idle = max(0.0, 1 - processor_seconds / (seconds * cores))
    cells = [engine, num_workers, f"{seconds:.1f}", f"{processor_seconds:.1f}"]
    local = runs.get(f"local:{num_workers}")
    for kind in ("seconds", "processor_seconds"):
        cells.append(f"{_ratio(costs[kind], local[kind]):.2f}" if local else "")
    return [*cells, f"{idle:.0%}"]


def _ratio(samples: Sequence[float], of_local: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    ratios = [sample / local for sample, local in zip(samples, of_local, strict=True)]
    return statistics.median(ratios)


# --- A hundred workers.


class Large(NamedTuple):
    """What a run of a large text consists of, computed from a small one."""

    num_blocks: int
    num_shards: int
    work_seconds: float  # of processors
    bytes_read: float  # of stored blocks, by all shards
    driver_seconds: float  # of one processor

    @property
    def busy_workers(self) -> int:
        """How many workers one driver keeps busy."""
        return math.floor(self.work_seconds / self.driver_seconds)


def large(content: Mapping[str, Any], text_bytes: int) -> Large:
    """A run of a text of the same kind, with the same settings."""
    small = content["text"]
    scale = text_bytes / small["text_bytes"]
    settings = PretrainingDataSettings(
        input_file="text",
        output_dir="records",
        spm_model_file="vocabulary",
        max_seq_length=MAX_SEQ_LENGTH,
        max_predictions_per_seq=MAX_PREDICTIONS,
        dupe_factor=content["about"]["passes"],
    )
    num_blocks = math.ceil(text_bytes / BLOCK_BYTES)
    counts = {
        "blocks": num_blocks,
        "sentences": small["sentences"],
        "examples": round(small["examples"] * scale),
    }
    plan = plan_shards(settings, counts)
    looked_at = range(min(_SHARDS_LOOKED_AT, plan.num_shards))
    blocks_of_shards = [len({block for block, _, _ in plan.units_of(k)}) for k in looked_at]
    # 2 bytes for each token, 20 for each example.
    block_bytes = (2 * small["tokens"] + 20 * small["examples"]) / small["blocks"]
    work_seconds = statistics.median(content["runs"]["local:1"]["processor_seconds"])
    return Large(
        num_blocks=num_blocks,
        num_shards=plan.num_shards,
        work_seconds=scale * (work_seconds - content["start"]["processor_seconds"]),
        bytes_read=plan.num_shards * statistics.mean(blocks_of_shards) * block_bytes,
        driver_seconds=(num_blocks + plan.num_shards) * content["driver"]["milliseconds"] / 1000,
    )


def least_text(content: Mapping[str, Any]) -> int:
    """Megabytes of text from which on there are blocks and shards for all workers."""
    for megabytes in itertools.count(50, 50):
        run = large(content, megabytes * 1_000_000)
        if min(run.num_blocks, run.num_shards) >= NUM_WORKERS:
            return megabytes
    raise AssertionError("every text is too small")


def hundred_workers(content: Mapping[str, Any]) -> list[str]:
    """A list of what limits them, with its numbers."""
    small = content["text"]
    run = large(content, LARGE_TEXT)
    gigabytes = LARGE_TEXT / 1e9
    hours = run.work_seconds / 3600
    minutes = run.work_seconds / NUM_WORKERS / 60
    read = run.bytes_read / 1e9
    needed = run.bytes_read / (run.work_seconds / NUM_WORKERS) / 1e9
    driver = content["driver"]
    statements = [
        f"- **Blocks and shards.** A block is a MiB of text, and one worker makes a shard. The text of"
        f" {small['text_bytes'] / 1e6:.0f} MB has {small['blocks']} blocks and {small['shards']} shards, so more"
        f" workers have nothing to do. From {least_text(content)} MB on, a hundred workers have work; with"
        " `--num_shards`, there must be at least 100 files.",
        f"- **The shared file system.** {gigabytes:.0f} GB of text with ten passes take {hours:.1f} processor hours,"
        f" which is {minutes:.1f} minutes on a hundred cores. The corpus is read once. But each of"
        f" {run.num_shards:,} shards reads the stored blocks that its examples come from, {read:,.0f} GB together,"
        f" {run.bytes_read / LARGE_TEXT:.0f} times the text. So a hundred workers wait for a file system that gives"
        f" less than {needed:.1f} GB/s.",
        f"- **The driver** hands out numbers of blocks and shards and adds up their counts. On Dask, client and"
        f" scheduler together need {driver['milliseconds']:.1f} ms of a core for each item (measured with"
        f" {driver['items']:,} items without work). The {run.num_blocks + run.num_shards:,} items of"
        f" {gigabytes:.0f} GB take it {run.driver_seconds:.0f} seconds, so it keeps about {run.busy_workers} workers"
        " busy; more workers do not make the run shorter.",
    ]
    return [line for statement in statements for line in tables.wrapped(statement, "  ")]
