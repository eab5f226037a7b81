"""Shards of records: takes examples from stored blocks, shuffles, masks, packs and writes them.

The content of a shard, and every random number, depends only on the text, the settings and the seed, never on the
number of workers or their speed.
"""

import itertools
import shutil
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.core import compilation, files
from albert_tf.core.files import OutputFile
from albert_tf.data.pretraining_examples import (
    A_END,
    A_START,
    B_END,
    B_START,
    LABEL,
    Sequences,
    combine_seeds,
    join_pairs,
    seeds_of,
    shuffled,
)
from albert_tf.data.record_metadata import MOST_EXAMPLES, MOST_PREDICTIONS, PACKED
from albert_tf.data_prep.pretraining import packing, record_writer
from albert_tf.data_prep.pretraining.blocks import Job, as_documents, plan_pass, stored_pairs
from albert_tf.data_prep.pretraining.plan import Plan
from albert_tf.data_prep.pretraining.record_formats import (
    RECORD_MAKERS,
    most_predictions_of_rows,
    rows_of,
)

BATCH_RECORDS = 256  # made and encoded together: about 1 MB
# On a CPU, each example of a row adds a column to queries and keys; more tiny examples would hardly fill a row better.
MOST_EXAMPLES_OF_ROW = 16
_MAXIMA = (MOST_EXAMPLES, MOST_PREDICTIONS)


def compile_functions(job: Job, program: str) -> None:
    """Makes the vocabulary's tables and compiles all functions, so that worker processes need not do it again."""
    with compilation.announced(program, "the functions that make records", 20):
        documents = as_documents(job.tokenizer, [], [])
        pairs, _ = plan_pass(job, documents, 0, 0)
        seeds = seeds_of(combine_seeds(0, 0), np.arange(len(pairs)))
        order = shuffled(len(pairs), combine_seeds(0, 0))
        _encode(job, documents.ids, pairs, seeds[order], np.ones(len(pairs), np.int64))
        packing.pack(np.ones(1, np.int64), 1, 1)


def make_shard(job: Job, planned: tuple[Plan, int]) -> dict[str, Any]:
    """Makes a shard, unless it is complete already; returns its counts."""
    plan, shard = planned
    path = job.settings.shard_path(shard, plan.num_shards)
    if counts := job.work.counts_of(path):
        return counts
    counts = {}
    parts = {part: _part_file(job, part) for part in plan.parts_of(shard)}
    with job.work.writing(path, counts) as output:
        for part, part_file in parts.items():
            if counts_of_part := job.work.counts_of(part_file):
                # Both TFRecord and gzip files may be joined.
                with files.errors_named(part_file, "read"), files.open_binary(part_file) as file:
                    shutil.copyfileobj(file, output, 1 << 20)
                del counts_of_part["bytes"]
                _add(counts, counts_of_part)
            else:
                _write_part(job, plan, part, output, counts)
    if len(parts) > 1:
        for part_file in parts.values():
            job.work.remove_file(part_file)
    return counts


def make_part(job: Job, planned: tuple[Plan, int]) -> int:
    """Makes a part of a shard for `make_shard`, unless it is complete already; returns its number of examples."""
    plan, part = planned
    path = _part_file(job, part)
    counts = job.work.counts_of(path) or {}
    if not counts:
        with job.work.writing(path, counts) as output:
            _write_part(job, plan, part, output, counts)
    return counts["examples"]


def _part_file(job: Job, part: int) -> str:
    return job.work.file(f"part-{part:06d}")


def _add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Adds the counts of a part to those of its shard."""
    for name, count in counts.items():
        before = total.get(name, 0)
        total[name] = max(before, count) if name in _MAXIMA else before + count


def _write_part(
    job: Job, plan: Plan, part: int, output: OutputFile, counts: dict[str, Any]
) -> None:
    """Appends the examples of a part, shuffled, to a file, and adds them to the counts."""
    settings = job.settings
    ids, pairs, seeds = _pairs_of_part(job, plan, part)
    order = shuffled(len(pairs), combine_seeds(settings.random_seed, part, 1))
    per_row = np.ones(len(order), np.int64)
    if settings.record_format == PACKED:
        order, per_row = _packed(job, pairs, order, combine_seeds(settings.random_seed, part, 2))
    compressor = zlib.compressobj(wbits=31) if settings.compression == "gzip" else None
    ends = np.cumsum(per_row)
    for first_row in range(0, len(per_row), BATCH_RECORDS):
        rows = slice(first_row, first_row + BATCH_RECORDS)
        chosen = order[ends[first_row] - per_row[first_row] : ends[rows][-1]]
        sequences, num_masked, records = _encode(
            job, ids, pairs[chosen], seeds[chosen], per_row[rows]
        )
        output.write(compressor.compress(records) if compressor else records)
        most = most_predictions_of_rows(sequences.num_tokens, per_row[rows], job.masking_rule)
        num_changed = int(sequences.labels.sum())
        made = {
            "examples": len(chosen),
            "rows": len(per_row[rows]),
            "pieces": int(sequences.num_tokens.sum()),
            "masked_pieces": num_masked,
            "label_0": len(chosen) - num_changed,
            "label_1": num_changed,
            MOST_EXAMPLES: int(per_row[rows].max()),
            MOST_PREDICTIONS: most,
        }
        _add(counts, made)
    if compressor:
        output.write(compressor.flush())


def _packed(
    job: Job, pairs: np.ndarray, order: np.ndarray, seed: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Which examples of a part share a row: the indices of the pairs, row after row, and the examples of each row.

    The rows are shuffled, because `packing.pack` sorts the examples by their lengths.
    """
    row_length = job.settings.max_seq_length
    segments = pairs[order][:, [A_END, B_END]] - pairs[order][:, [A_START, B_START]]
    lengths = np.minimum(segments.sum(axis=1) + 3, row_length)  # [CLS], [SEP], [SEP]
    packed, per_row = packing.pack(lengths, row_length, MOST_EXAMPLES_OF_ROW)
    new_rows = shuffled(len(per_row), seed)
    new_row_of_example = np.repeat(np.argsort(new_rows), per_row)
    by_new_row = np.argsort(new_row_of_example, kind="stable")
    return order[packed[by_new_row]], per_row[new_rows]


def _encode(
    job: Job, ids: np.ndarray, pairs: np.ndarray, seeds: np.ndarray, per_row: np.ndarray
) -> tuple[Sequences, int, memoryview]:
    """The examples of pairs, how many of their tokens are masked, and their records.

    Args:
      job: job of the run.
      ids: the token ids that the pairs refer to.
      pairs: int64 [examples, 5], of `plan_pairs`.
      seeds: uint64 [examples], of `plan_pairs`.
      per_row: integers [records], number of examples in each record.
    """
    settings = job.settings
    sequences = join_pairs(
        ids, pairs, seeds, job.masking_rule, max_seq_length=settings.max_seq_length
    )
    is_packed = settings.record_format == PACKED
    record_format = "compact" if is_packed else settings.record_format
    batch = RECORD_MAKERS[record_format, settings.masking](sequences, job.masking_rule)
    if is_packed:
        batch = rows_of(batch, per_row)
    records = record_writer.encode_examples(batch.features, batch.lengths).data
    return sequences, batch.num_masked, records


def _pairs_of_part(job: Job, plan: Plan, part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of the blocks of a part, and its pairs and their seeds (`stored_pairs`)."""
    ids_of_blocks, all_pairs, all_seeds = [], [], []
    first_id, num_dealt = 0, 0
    for block, units_of_block in itertools.groupby(plan.units_of(part), key=lambda unit: unit[0]):
        units = list(units_of_block)
        ids, passes = stored_pairs(job, block, [number for _, number, _ in units])
        pairs_of_block = []
        for (_, number, slice_index), (pairs, seeds) in zip(units, passes, strict=True):
            # Shuffled, because the same documents of each pass could otherwise end up in the same part.
            order = shuffled(len(pairs), combine_seeds(plan.seed, number, block, 1))
            first = (part - num_dealt) % plan.num_parts if plan.is_small else slice_index
            rows = order[first :: plan.num_slices]
            num_dealt += len(pairs)
            pairs_of_block.append(pairs[rows])
            all_seeds.append(seeds[rows])
        ids, pairs = _without_unused_ids(ids, np.concatenate(pairs_of_block))
        pairs[:, :LABEL] += first_id
        all_pairs.append(pairs)
        ids_of_blocks.append(ids)
        first_id += len(ids)
    return np.concatenate(ids_of_blocks), np.concatenate(all_pairs), np.concatenate(all_seeds)


def _without_unused_ids(ids: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ids that pairs refer to, and the pairs with the new positions.

    A part of a small corpus takes a few pairs from every block; with all ids it would hold the whole corpus.
    """
    changes = np.zeros(len(ids) + 1, np.int32)  # changes of the number of segments that an id is in
    np.add.at(changes, pairs[:, [A_START, B_START]], 1)
    np.add.at(changes, pairs[:, [A_END, B_END]], -1)
    is_used = np.cumsum(changes[:-1]) > 0
    new_places = np.concatenate([[0], np.cumsum(is_used)])
    new_pairs = pairs.copy()
    new_pairs[:, :LABEL] = new_places[pairs[:, :LABEL]]
    return ids[is_used], new_pairs
