"""Assigns examples to shards.

A *unit* is one pass through a block (there are `dupe_factor` passes), or a slice of a pass if there are few of them.
Each shard takes about 64 units from the whole corpus, so the passes through a document end up in different shards. A
plan depends only on the text, the settings and the seed, never on the number of workers.
"""

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.data.pretraining_examples import combine_seeds, shuffled
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings

SHARD_BYTES = 128 << 20
SMALL_SHARD_EXAMPLES = 2000  # in the smaller shards of a small corpus, so that all cores have work
MAX_SMALL_SHARDS = 64
UNITS_OF_SHARD = 64


class Plan(NamedTuple):
    """How the passes through all blocks are distributed over shards."""

    num_blocks: int
    num_passes: int
    num_slices: int  # of a pass; in a small corpus, each shard has one slice of every pass
    num_shards: int
    seed: int

    def units_of(self, shard: int) -> list[tuple[int, int, int]]:
        """The (block, pass, slice) of each unit of a shard, sorted."""
        if self.num_slices == self.num_shards:
            passes = itertools.product(range(self.num_blocks), range(self.num_passes))
            # Slices of a pass differ by one example: no shard has all the longer ones.
            return [(*pair, (shard + sum(pair)) % self.num_slices) for pair in passes]
        units = np.sort(_shuffled_units(self)[shard :: self.num_shards])
        sizes = (self.num_blocks, self.num_passes, self.num_slices)
        return list(zip(*(axis.tolist() for axis in np.unravel_index(units, sizes)), strict=True))


@functools.lru_cache(maxsize=1)
def _shuffled_units(plan: Plan) -> np.ndarray:
    num_units = plan.num_blocks * plan.num_passes * plan.num_slices
    return shuffled(num_units, combine_seeds(plan.seed, num_units))


def plan_shards(settings: PretrainingDataSettings, text_counts: Mapping[str, Any]) -> Plan:
    """Decides on the number of shards; it is an error if there are no examples, or fewer than files."""
    source = f"--input_file={settings.input_file}"
    if not text_counts.get("sentences"):
        raise UserError(f"{source}: holds no text")
    num_examples = text_counts["examples"]
    if not num_examples:
        raise UserError(f"{source}: no document has two sentences, or one of two words")
    # The size of a full record, for all formats: the examples of a shard are in memory together.
    example_bytes = 300 + 5 * settings.max_seq_length + 9 * settings.max_predictions_per_seq
    small_shards = min(MAX_SMALL_SHARDS, math.ceil(num_examples / SMALL_SHARD_EXAMPLES))
    wanted = max(small_shards, math.ceil(num_examples * example_bytes / SHARD_BYTES))
    num_shards = settings.num_shards or wanted
    if num_shards > num_examples:
        raise UserError(f"--num_shards={num_shards}: the text gives {num_examples} examples only")
    num_passes = text_counts["blocks"] * settings.dupe_factor
    return Plan(
        num_blocks=text_counts["blocks"],
        num_passes=settings.dupe_factor,
        num_slices=min(num_shards, math.ceil(UNITS_OF_SHARD * num_shards / num_passes)),
        num_shards=num_shards,
        seed=settings.random_seed,
    )
