"""Assigns examples to parts and shards.

A *unit* is one pass through a block (there are `dupe_factor` passes), or a fraction of a pass if the corpus is small.
All units are shuffled and distributed over *parts* of about 128 MiB of records each. A shard is one part, or several
consecutive parts if `num_shards` asks for few large ones. So the passes through a document end up in different parts,
and a part mixes about 64 units from the whole corpus.

A plan depends only on the text, the settings and the seed, never on the number of workers.
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

PART_BYTES = 128 << 20
SMALL_PART_EXAMPLES = 2000  # in the smaller parts of a small corpus, so that all cores have work
MAX_SMALL_PARTS = 64
UNITS_OF_PART = 64


class Plan(NamedTuple):
    """How the passes through all blocks are distributed over parts, and parts over shards.

    In a large corpus, every pass through a block is a unit, or a few units (slices). In a small corpus, every pass is
    distributed over all parts, example by example.
    """

    num_blocks: int
    num_passes: int
    num_slices: int
    num_parts: int
    num_shards: int
    seed: int

    @property
    def is_small(self) -> bool:
        """Whether every part takes examples of every pass."""
        return self.num_slices == self.num_parts

    def units_of(self, part: int) -> list[tuple[int, int, int]]:
        """The (block, pass, slice) of each unit of a part, sorted; for a small corpus, slice is always 0."""
        if self.is_small:
            return list(itertools.product(range(self.num_blocks), range(self.num_passes), [0]))
        units = np.sort(_shuffled_units(self)[part :: self.num_parts])
        sizes = (self.num_blocks, self.num_passes, self.num_slices)
        return list(zip(*(axis.tolist() for axis in np.unravel_index(units, sizes)), strict=True))

    def parts_of(self, shard: int) -> range:
        """The parts of a shard."""
        parts_per_shard = self.num_parts // self.num_shards
        return range(shard * parts_per_shard, (shard + 1) * parts_per_shard)


@functools.lru_cache(maxsize=1)
def _shuffled_units(plan: Plan) -> np.ndarray:
    num_units = plan.num_blocks * plan.num_passes * plan.num_slices
    return shuffled(num_units, combine_seeds(plan.seed, num_units))


def plan_parts(settings: PretrainingDataSettings, text_counts: Mapping[str, Any]) -> Plan:
    """Decides on the number of parts and shards.

    Raises:
      UserError: there are no examples, or fewer than files.
    """
    if not text_counts.get("sentences"):
        raise UserError(f"--input_file={settings.input_file}: holds no text")
    num_examples = text_counts["examples"]
    if not num_examples:
        raise UserError(
            f"--input_file={settings.input_file}: no document has two sentences, or one of two words"
        )
    num_slots = settings.max_predictions_per_seq * (1 + settings.do_permutation)
    # The size of a full record, for all formats: the examples of a part are in memory together.
    example_bytes = 300 + 5 * settings.max_seq_length + 9 * num_slots
    small_parts = min(MAX_SMALL_PARTS, math.ceil(num_examples / SMALL_PART_EXAMPLES))
    wanted = max(small_parts, math.ceil(num_examples * example_bytes / PART_BYTES))
    num_shards = settings.num_shards or wanted
    if num_shards > num_examples:
        raise UserError(
            f"--num_shards={num_shards}: the text gives {num_examples} examples, too few for it"
        )
    num_parts = math.ceil(wanted / num_shards) * num_shards
    num_passes = text_counts["blocks"] * settings.dupe_factor
    num_slices = math.ceil(UNITS_OF_PART * num_parts / num_passes)
    return Plan(
        num_blocks=text_counts["blocks"],
        num_passes=settings.dupe_factor,
        num_slices=min(num_parts, num_slices),
        num_parts=num_parts,
        num_shards=num_shards,
        seed=settings.random_seed,
    )
