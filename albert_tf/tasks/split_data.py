"""The features of the splits of a fine-tuning, and the shapes of their batches."""

from collections.abc import Sequence

import numpy as np

from albert_tf.data.feature_table import FeatureTable, lengths_to_pad_to
from albert_tf.model import device
from albert_tf.tasks.sequences import check_segments
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig
from albert_tf.tasks.source import Source
from albert_tf.text.tokenizer import Tokenizer

_BATCHES_FOR_LENGTHS = 1000


def tables_of(
    source: Source, tokenizer: Tokenizer, type_vocab_size: int
) -> dict[str, FeatureTable]:
    """The features of each split; a UserError if the model has no embedding for some segment."""
    tables = {
        split: source.features(split, items, tokenizer) for split, items in source.items.items()
    }
    for table in tables.values():
        check_segments(table, type_vocab_size)
    return tables


def may_pack(run: FineTuningRunConfig) -> bool:
    """Whether several examples may share a row.

    Elsewhere than on a CPU, a step is compiled for each shape. Micro-batches would tear rows and labels apart.
    """
    return device.target_device() == "CPU" and run.gradient_accumulation_steps == 1


def lengths_of(
    split: str,
    table: FeatureTable,
    config: FineTuningConfig,
    run: FineTuningRunConfig,
    is_packed: bool,
) -> Sequence[int]:
    """The lengths to which the batches of a split are padded."""
    lengths = table.lengths
    if split == "train" and not is_packed:
        # Random batches are as long as their longest texts: [1000, B] -> [1000].
        shape = (_BATCHES_FOR_LENGTHS, run.train_batch_size)
        lengths = np.random.default_rng(0).choice(lengths, shape).max(axis=1)
    number = 1 if device.target_device() == "TPU" else 4
    return lengths_to_pad_to(lengths, config.max_seq_length, number)
