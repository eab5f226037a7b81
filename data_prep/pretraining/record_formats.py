"""What a record of an example holds: all of the original's features, or only what cannot be computed from the rest.

`albert_tf/data/records.py` and `albert_tf/data/compact_records.py` read these records; `docs/file_formats.md`
describes them.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from data_prep.pretraining import sentence_pairs
from data_prep.pretraining.sentence_pairs import MaskingRule, Sequences


class RecordBatch(NamedTuple):
    """The features of B records.

    Fields:
      features: name -> int32 or float32 [B, values].
      lengths: name -> int32 [B], how many of the values each record gets; all of those that are not named here.
      num_masked: predictions in all of them.
    """

    features: Mapping[str, np.ndarray]
    lengths: Mapping[str, np.ndarray]
    num_masked: int


def full_records(sequences: Sequences, rule: MaskingRule) -> RecordBatch:
    """The original's features, masked and filled up with 0.

    Source: create_pretraining_data.py:119-186.
    """
    is_piece, in_b = (
        np.arange(sequences.input_ids.shape[1]) < ends[:, None]
        for ends in (sequences.num_pieces, sequences.first_b)
    )
    in_b = is_piece & ~in_b
    starts_word = rule.is_word_start.copy()
    starts_word[[rule.cls_id, rule.sep_id]] = True
    token_boundary = starts_word[sequences.input_ids] & is_piece  # before anything is masked
    predictions = sentence_pairs.mask_batch(*_to_mask(sequences), rule)
    is_used = np.arange(rule.num_slots) < predictions.counts[:, None]
    features = {
        "input_ids": sequences.input_ids,
        "input_mask": is_piece.astype(np.int32),
        "segment_ids": in_b.astype(np.int32),
        "token_boundary": token_boundary.astype(np.int32),
        "masked_lm_positions": predictions.positions,
        "masked_lm_ids": predictions.ids,
        "masked_lm_weights": is_used.astype(np.float32),
        "next_sentence_labels": sequences.labels,
    }
    return RecordBatch(features, {}, int(predictions.counts.sum()))


def compact_records(sequences: Sequences, rule: MaskingRule) -> RecordBatch:
    """Masked pieces and predictions without padding; a position is told by its distance from the one before."""
    predictions = sentence_pairs.mask_batch(*_to_mask(sequences), rule)
    gaps = np.diff(predictions.positions, axis=1, prepend=np.int32(0))
    return RecordBatch(
        {**_segments(sequences), "gaps": gaps, "masked": predictions.ids},
        {"pieces": sequences.num_pieces, "gaps": predictions.counts, "masked": predictions.counts},
        int(predictions.counts.sum()),
    )


def unmasked_records(sequences: Sequences, _rule: MaskingRule) -> RecordBatch:
    """Pieces without padding, to be masked by whoever reads them."""
    return RecordBatch(_segments(sequences), {"pieces": sequences.num_pieces}, 0)


def _segments(sequences: Sequences) -> dict[str, np.ndarray]:
    return {
        "pieces": sequences.input_ids,
        "first_b": sequences.first_b[:, None],
        "label": sequences.labels,
    }


def _to_mask(sequences: Sequences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return sequences.input_ids, sequences.num_pieces, sequences.mask_seeds


# By --record_format and --masking.
RECORD_MAKERS: Mapping[tuple[str, str], Callable[[Sequences, MaskingRule], RecordBatch]] = {
    ("full", "static"): full_records,
    ("compact", "static"): compact_records,
    ("compact", "dynamic"): unmasked_records,
}
