"""Token ids of one text or two -> the sequences that a model reads.

[CLS] first text [SEP]                       segment_ids  0 0 0 0
[CLS] first text [SEP] second text [SEP]     segment_ids  0 0 0 0 | 1 1 1
"""

from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.data.feature_table import FeatureTable
from albert_tf.text.tokenizer import Tokenizer


def pack_pairs(
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[np.ndarray, np.ndarray | None]],
    columns: Mapping[str, np.ndarray],
    choices: int = 1,
) -> FeatureTable:
    """A table of sequences of two texts.

    Args:
      tokenizer: whose [CLS] and [SEP] are added.
      pairs: token ids of both texts of each sequence, int32 [tokens]; None where there is no second text.
      columns: of the table.
      choices: sequences of an example.

    Returns:
      A table with the sequences `input_ids` and `segment_ids`.
    """
    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    parts, segment_lengths = [np.zeros(0, np.int32)], []
    for first, second in pairs:
        parts += [cls, first, sep]
        parts += [second, sep] if second is not None else []
        segment_lengths += [len(first) + 2, len(second) + 1 if second is not None else 0]
    lengths = np.array(segment_lengths, np.int64)
    segments = np.tile(np.array([0, 1], np.int32), len(lengths) // 2)
    return FeatureTable(
        np.concatenate([[0], np.cumsum(lengths.reshape(-1, 2).sum(axis=1))]).astype(np.int64),
        {"input_ids": np.concatenate(parts), "segment_ids": np.repeat(segments, lengths)},
        columns,
        choices,
    )
