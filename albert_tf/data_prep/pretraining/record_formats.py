"""Features of a record: all of the original's, or only those that cannot be computed from the others.

`records.py`, `compact_records.py` and `packed_records.py` in `albert_tf/data/` read these records;
`docs/file_formats.md` describes them.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from albert_tf.data.pretraining_examples import (
    MaskingRule,
    Predictions,
    Sequences,
    joined_values,
    mask_batch,
    sums_of_rows,
)


class RecordBatch(NamedTuple):
    """The features of B records.

    Fields:
      features: name -> int32 or float32 [B, values].
      lengths: name -> int32 [B], number of values that each record gets; features without an entry get all.
      num_masked: number of predictions in all records.
    """

    features: Mapping[str, np.ndarray]
    lengths: Mapping[str, np.ndarray]
    num_masked: int


def full_records(sequences: Sequences, rule: MaskingRule) -> RecordBatch:
    """The original's features, masked and padded with 0.

    Source: create_pretraining_data.py:119-186.
    """
    position = np.arange(sequences.input_ids.shape[1])
    is_token = position < sequences.num_tokens[:, None]
    in_b = is_token & (position >= sequences.first_b[:, None])
    starts_word = rule.is_word_start.copy()
    starts_word[[rule.cls_id, rule.sep_id]] = True
    token_boundary = starts_word[sequences.input_ids] & is_token  # before masking
    predictions = _mask(sequences, rule)
    is_used = np.arange(rule.num_slots) < predictions.counts[:, None]
    features = {
        "input_ids": sequences.input_ids,
        "input_mask": is_token.astype(np.int32),
        "segment_ids": in_b.astype(np.int32),
        "token_boundary": token_boundary.astype(np.int32),
        "masked_lm_positions": predictions.positions,
        "masked_lm_ids": predictions.ids,
        "masked_lm_weights": is_used.astype(np.float32),
        "next_sentence_labels": sequences.labels,
    }
    return RecordBatch(features, {}, int(predictions.counts.sum()))


def compact_records(sequences: Sequences, rule: MaskingRule) -> RecordBatch:
    """Masked tokens and predictions without padding; a position is stored as the distance from the previous one."""
    predictions = _mask(sequences, rule)
    gaps = np.diff(predictions.positions, axis=1, prepend=np.int32(0))
    return RecordBatch(
        {**_segments(sequences), "gaps": gaps, "masked": predictions.ids},
        {"pieces": sequences.num_tokens, "gaps": predictions.counts, "masked": predictions.counts},
        int(predictions.counts.sum()),
    )


def unmasked_records(sequences: Sequences, _rule: MaskingRule) -> RecordBatch:
    """Tokens without padding, which the reader masks."""
    return RecordBatch(_segments(sequences), {"pieces": sequences.num_tokens}, 0)


def _segments(sequences: Sequences) -> dict[str, np.ndarray]:
    first_b = sequences.first_b[:, None]
    return {"pieces": sequences.input_ids, "first_b": first_b, "label": sequences.labels}


def rows_of(batch: RecordBatch, per_row: np.ndarray) -> RecordBatch:
    """Rows of several examples each, made from compact records.

    Args:
      batch: compact records, masked or not.
      per_row: integers [rows], examples in each row.
    """
    features, num_tokens = dict(batch.features), batch.lengths["pieces"]
    one_each = np.ones(len(num_tokens), np.int32)
    tokens_before = np.cumsum(num_tokens) - num_tokens
    tokens_of_rows = sums_of_rows(num_tokens, per_row)
    before_row = np.repeat(np.cumsum(tokens_of_rows) - tokens_of_rows, per_row)
    first_tokens = tokens_before - before_row
    features["tokens"] = num_tokens[:, None]
    if "gaps" in features:
        features["gaps"] = np.cumsum(features["gaps"], axis=1) + first_tokens[:, None]
    joined = {
        name: joined_values(values, batch.lengths.get(name, one_each), per_row)
        for name, values in features.items()
    }
    rows = {name: values.astype(np.int32) for name, (values, _) in joined.items()}
    if "gaps" in rows:
        rows["gaps"] = np.diff(rows["gaps"], axis=1, prepend=np.int32(0))
    return RecordBatch(
        rows, {name: counts for name, (_, counts) in joined.items()}, batch.num_masked
    )


def most_predictions_of_rows(num_tokens: np.ndarray, per_row: np.ndarray, rule: MaskingRule) -> int:
    """The largest number of predictions that a row can have.

    Args:
      num_tokens: integers [examples], number of tokens of each example, row after row.
      per_row: integers [rows], examples in each row.
      rule: the masking rule.
    """
    wanted = np.rint(num_tokens * rule.masked_lm_prob)
    predictions = np.clip(wanted, 1, rule.max_predictions) * (1 + rule.permute)
    return int(sums_of_rows(predictions, per_row).max())


def _mask(sequences: Sequences, rule: MaskingRule) -> Predictions:
    return mask_batch(sequences.input_ids, sequences.num_tokens, sequences.mask_seeds, rule)


# By --record_format and --masking.
RECORD_MAKERS: Mapping[tuple[str, str], Callable[[Sequences, MaskingRule], RecordBatch]] = {
    ("full", "static"): full_records,
    ("compact", "static"): compact_records,
    ("compact", "dynamic"): unmasked_records,
}
