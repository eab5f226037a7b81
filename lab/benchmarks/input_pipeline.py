"""How fast training reads records: reading, parsing, shuffling, batching and, if records need it, masking.

As a part of the benchmark, it measures seconds on all cores. As a program,

    taskset -c 0 python -m lab.benchmarks.input_pipeline records/full records/packed records/dynamic

it measures any records, in seconds of processor time, which other programs on the machine hardly change.
"""

import argparse
import functools
import time
from collections.abc import Iterator

from lab.benchmarks import measure
from lab.benchmarks.inputs import RECORDS, records_path
from lab.benchmarks.measure import BenchSettings, Measurement, Values

_BATCH, _BATCHES, _BUFFER = 256, 50, 10_000
_WARM_UP_ROUNDS = 1 + _BUFFER // (_BATCH * _BATCHES)  # fill the shuffle buffer


def read(settings: BenchSettings, *, length: int, kind: str, deterministic: bool) -> Values:
    """Reads batches as training does.

    Returns:
      The values of `repeated` for `batches` batches of `batch` examples on average; `examples_a_second`;
      `record_bytes`, the size of an example.
    """
    import tensorflow as tf

    if deterministic:  # as --deterministic does
        tf.config.experimental.enable_op_determinism()
        tf.random.set_seed(1)
    batches, batch, num_bytes = _training_batches(records_path(settings, length, kind))
    timing = measure.repeated(
        lambda: _take(batches), settings.seconds / 4, warm_up=_WARM_UP_ROUNDS, least=5
    )
    return {
        **timing,
        "batch": batch,
        "batches": _BATCHES,
        "record_bytes": num_bytes,
        "examples_a_second": batch * _BATCHES / timing["median"],
    }


def _training_batches(folder: str) -> tuple[Iterator, float, float]:
    """The stream of batches of `_BATCH` records, the mean number of examples in a batch, and an example's bytes."""
    from albert_tf.data import reading
    from albert_tf.data.record_set import find_pretraining_records

    record_set = find_pretraining_records(folder, "input_file")
    order = reading.Reading(_BATCH, shuffle=True, buffer_examples=_BUFFER, seed=1)
    num_bytes = sum(shard["bytes"] for shard in record_set.metadata["shards"])
    dataset = reading.training_dataset(record_set, record_set.schema, order)
    examples = _BATCH * record_set.num_examples / record_set.num_records
    return iter(dataset), examples, num_bytes / record_set.num_examples


def _take(batches: Iterator) -> None:
    for _ in range(_BATCHES):
        next(batches)


def _line(folder: str) -> str:
    """A line with the rate at which a folder's records are read."""
    batches, batch, num_bytes = _training_batches(folder)
    rates = []
    for _ in range(_WARM_UP_ROUNDS + 7):
        start = time.process_time()
        _take(batches)
        rates.append(batch * _BATCHES / (time.process_time() - start))
    rate = measure.statistics_of(rates[_WARM_UP_ROUNDS:])
    return (
        f"{folder}: {num_bytes:,.0f} bytes an example; examples a second of one core"
        f" {rate['median']:,.0f} ({rate['min']:,.0f} to {rate['max']:,.0f})"
    )


MEASUREMENTS = tuple(
    Measurement(
        f"input_pipeline.{length}.{kind}{'.deterministic' * deterministic}",
        functools.partial(read, length=length, kind=kind, deterministic=deterministic),
        inputs=(name,),
        in_quick=(length, kind, deterministic) == (128, "full", False),
    )
    for (length, kind), name in RECORDS.items()
    for deterministic in ((False, True) if length == 128 else (False,))
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="folders of records")
    for folder in parser.parse_args().folders:
        print(_line(folder), flush=True)
