"""Shards of records: takes examples from stored blocks, shuffles, masks, packs and writes them."""

import itertools
import os
from typing import Any

import numpy as np

from albert_tf.core.files import OutputFile
from albert_tf.data import pretraining_examples as examples
from albert_tf.data.record_formats import FORMATS
from albert_tf.data.record_formats.base import add_counts
from albert_tf.data_prep.pretraining import blocks
from albert_tf.data_prep.pretraining.plan import Plan

BATCH_RECORDS = 64  # made and encoded together: their arrays stay in the processor's cache


def compile_functions(job: blocks.Job) -> None:
    """Makes the vocabulary's tables and compiles all functions, so that worker processes need not do it again."""
    documents = blocks.as_documents(job, [], [])
    pairs = blocks.plan_pass(job, documents, 0, 0)
    seeds = examples.seeds_of(examples.combine_seeds(0, 0), np.arange(len(pairs)))
    order = examples.shuffled(len(pairs), examples.combine_seeds(0, 0))
    _encode(job, documents.ids, pairs, seeds[order], np.ones(len(pairs), np.int64))
    lengths = np.full(1, job.settings.max_seq_length)
    FORMATS[job.settings.record_format].rows(lengths, lengths[0], examples.combine_seeds(0))


def make_shard(job: blocks.Job, planned: tuple[Plan, int]) -> dict[str, Any]:
    """Makes a shard, unless it is complete already; returns its counts."""
    plan, shard = planned
    path = job.settings.shard_path(shard, plan.num_shards)
    counts = blocks.counts_of(job, path)
    if not counts:
        counts = {"examples": 0, "records": 0}
        with blocks.writing(job, path, counts) as output:
            _write_examples(job, plan, shard, output, counts)
    return {**counts, "file": os.path.basename(path)}


def _write_examples(
    job: blocks.Job, plan: Plan, shard: int, output: OutputFile, counts: dict[str, Any]
) -> None:
    """Writes the examples of a shard, shuffled, and counts them."""
    settings = job.settings
    record_format = FORMATS[job.settings.record_format]
    ids, pairs, seeds = _pairs_of_shard(job, plan, shard)
    order = examples.shuffled(len(pairs), examples.combine_seeds(settings.random_seed, shard, 1))
    lengths = examples.sequence_lengths(pairs[order], settings.max_seq_length)
    row_seed = examples.combine_seeds(settings.random_seed, shard, 2)
    by_row, per_row = record_format.rows(lengths, settings.max_seq_length, row_seed)
    order = order[by_row]
    ends = np.cumsum(per_row)
    for first_row in range(0, len(per_row), BATCH_RECORDS):
        rows = slice(first_row, first_row + BATCH_RECORDS)
        chosen = order[ends[first_row] - per_row[first_row] : ends[rows][-1]]
        records, made = _encode(job, ids, pairs[chosen], seeds[chosen], per_row[rows])
        output.write(records)
        add_counts(counts, made)


def _encode(
    job: blocks.Job, ids: np.ndarray, pairs: np.ndarray, seeds: np.ndarray, per_row: np.ndarray
) -> tuple[memoryview, dict[str, int]]:
    """The records of pairs (`plan_pairs`), and their counts; `per_row` is the number of examples in each record."""
    settings = job.settings
    rule = job.masking_rule
    sequences = examples.join_pairs(ids, pairs, seeds, rule, max_seq_length=settings.max_seq_length)
    record_format = FORMATS[settings.record_format]
    return record_format.encode(sequences, per_row, rule, settings.masking)


def _pairs_of_shard(
    job: blocks.Job, plan: Plan, shard: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of the blocks of a shard, and its pairs and their seeds (`stored_pairs`)."""
    all_ids = []
    all_pairs = []
    all_seeds = []
    first_id = 0
    for block, units in itertools.groupby(plan.units_of(shard), key=lambda unit: unit[0]):
        ids, pairs_of_passes = blocks.stored_pairs(job, block, plan.num_blocks)
        for _, number, slice_index in units:
            pairs = pairs_of_passes[number]
            # Shuffled, because the same documents of each pass could otherwise end up in the same shard.
            seed = examples.combine_seeds(plan.seed, number, block, 1)
            order = examples.shuffled(len(pairs), seed)
            # A copy, because `seeds_of` is compiled for contiguous arrays.
            rows = order[slice_index :: plan.num_slices].copy()
            chosen = pairs[rows].astype(np.int64)
            chosen[:, : examples.LABEL] += first_id
            all_pairs.append(chosen)
            seed = examples.combine_seeds(job.settings.random_seed, number, block, 2)
            all_seeds.append(examples.seeds_of(seed, rows))
        all_ids.append(ids)
        first_id += len(ids)
    return np.concatenate(all_ids), np.concatenate(all_pairs), np.concatenate(all_seeds)
