"""How fast training reads records: reading, parsing, shuffling, batching and, if records need it, masking.

    taskset -c 0 python -m lab.benchmarks.input_pipeline records/full records/packed records/dynamic

The rates are per second of processor time, which other programs on the machine hardly change.
"""

import argparse
import time

from lab.benchmarks import measure

_BATCH, _BATCHES, _BUFFER = 256, 50, 10_000
_WARM_UP_ROUNDS = 1 + _BUFFER // (_BATCH * _BATCHES)  # fill the shuffle buffer


def line(folder: str, rounds: int = 7) -> str:
    """A line with the rate at which a folder's records are read."""
    from albert_tf.data import reading
    from albert_tf.data.record_set import find_pretraining_records

    record_set = find_pretraining_records(folder, "input_file")
    order = reading.Reading(_BATCH, shuffle=True, buffer_examples=_BUFFER, seed=1)
    batches = iter(reading.training_dataset(record_set, record_set.schema, order))
    examples = _BATCHES * _BATCH * record_set.num_examples / record_set.num_records
    rates = []
    for _ in range(_WARM_UP_ROUNDS + rounds):
        start = time.process_time()
        for _ in range(_BATCHES):
            next(batches)
        rates.append(examples / (time.process_time() - start))
    rate = measure.statistics_of(rates[_WARM_UP_ROUNDS:])
    num_bytes = sum(shard["bytes"] for shard in record_set.metadata["shards"])
    return (
        f"{folder}: {num_bytes / record_set.num_examples:,.0f} bytes per example; examples per second of one core"
        f" {rate['median']:,.0f} ({rate['min']:,.0f} to {rate['max']:,.0f})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="folders of records")
    for folder in parser.parse_args().folders:
        print(line(folder), flush=True)
