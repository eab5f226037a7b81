"""Size of pretraining records, and how fast training reads them: parsed, shuffled, batched, masked where that is due.

    taskset -c 0 python docs/record_speed.py records/full records/compact records/dynamic

Counts seconds of the processor, so that other programs on the machine change little.
"""

import statistics
import sys
import time

from albert_tf import records

BATCH, BATCHES, REPEATS = 256, 150, 5


def measure(folder: str) -> str:
    """A line about the records of a folder."""
    record_set = records.find_records(folder, "input_file")
    schema = records.pretraining_schema(*records.pretraining_lengths(record_set, "input_file"))
    reading = records.Reading(BATCH, shuffle=True, buffer_examples=10_000, seed=1)
    batches = iter(records.training_dataset(record_set, schema, reading))
    for _ in range(BATCHES):  # fills the buffers
        next(batches)
    rates = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(BATCHES):
            next(batches)
        rates.append(BATCH * BATCHES / (time.process_time() - start))
    num_bytes = sum(shard["bytes"] for shard in record_set.metadata["shards"])
    return (
        f"{folder}: {record_set.num_examples:,} examples, {num_bytes:,} bytes,"
        f" {num_bytes / record_set.num_examples:,.0f} each; examples a second"
        f" {statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
    )


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        print(measure(folder), flush=True)
