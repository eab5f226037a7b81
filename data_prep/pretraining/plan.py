"""Which examples go into which part and shard."""

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.errors import UserError
from data_prep.pretraining import sentence_pairs
from data_prep.pretraining.line_tokenizer import LineTokenizer
from data_prep.pretraining.record_folder import WorkFolder
from data_prep.pretraining.settings import PretrainingDataSettings

PART_BYTES = 128 << 20
SMALL_PART_EXAMPLES = 2000  # parts of a small corpus are smaller, for all cores to have work
MOST_SMALL_PARTS = 64
UNITS_OF_PART = 64


class InputError(UserError):
    """The text is wrong, so that nothing made of it is worth going on with."""


class Job(NamedTuple):
    """What every task of a run needs, in whichever process."""

    settings: PretrainingDataSettings
    tokenizer: LineTokenizer
    work: WorkFolder
    pair_rule: sentence_pairs.PairRule
    masking_rule: sentence_pairs.MaskingRule


class Plan(NamedTuple):
    """How the passes through all blocks are dealt to parts, and parts to shards.

    Of a large corpus, every pass through a block is a unit, or a few units (slices). Of a small one, every
    pass is dealt to all parts, example by example.
    """

    num_blocks: int
    num_passes: int
    num_slices: int
    num_parts: int
    num_shards: int
    seed: int

    @property
    def is_small(self) -> bool:
        """Whether every part takes something of every pass."""
        return self.num_slices == self.num_parts

    def units_of(self, part: int) -> list[tuple[int, int, int]]:
        """The (block, pass, slice) of a part, sorted; of a small corpus, slice is always 0."""
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
    return sentence_pairs.shuffled(num_units, sentence_pairs.combine_seeds(plan.seed, num_units))


def plan_parts(settings: PretrainingDataSettings, text_counts: dict[str, Any]) -> Plan:
    """Decides on the number of parts and shards.

    Args:
      settings: the settings.
      text_counts: what step 1 counted: `sentences`, `blocks`, and `examples` of all passes.

    Raises:
      UserError: there are no examples, or fewer than files.
    """
    num_examples = text_counts["examples"]
    if not text_counts["sentences"]:
        raise InputError(f"--input_file={settings.input_file}: holds no text")
    if not num_examples:
        raise InputError(
            f"--input_file={settings.input_file}: no document has two sentences, or one of two words"
        )
    num_slots = settings.max_predictions_per_seq * (1 + settings.do_permutation)
    # Of full records: compact ones get smaller files of as many examples, because these take the memory.
    example_bytes = 300 + 5 * settings.max_seq_length + 9 * num_slots  # of varints and names, about
    small_parts = min(MOST_SMALL_PARTS, math.ceil(num_examples / SMALL_PART_EXAMPLES))
    wanted = max(small_parts, math.ceil(num_examples * example_bytes / PART_BYTES))
    num_shards = len(settings.output_files) or settings.num_shards or wanted
    if num_shards > num_examples:
        raise InputError(f"the text gives {num_examples} examples, too few for {num_shards} files")
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


class Part(NamedTuple):
    """One of the parts of a plan, and where it goes."""

    plan: Plan
    index: int
    path: str


def _parts_of(job: Job, plan: Plan, shard: int, shard_path: str) -> list[Part]:
    """The parts of a shard; a single one is the shard."""
    indices = plan.parts_of(shard)
    if len(indices) == 1:
        return [Part(plan, indices[0], shard_path)]
    return [Part(plan, index, job.work.file(f"part-{index:06d}")) for index in indices]
