"""Full records: one example with the original's features, masked and padded, which the original's scripts read too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from albert_tf.data.record_formats.base import Metadata, Parser, RecordBatch, RecordFormat, Schema

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.data.pretraining_examples import Masked, MaskingRule, Sequences


class FullFormat(RecordFormat):
    """The original's records (create_pretraining_data.py:119-186)."""

    help = "one example with the original's features, padded, which the original's scripts can read, too"
    needed = ("max_seq_length", "max_predictions_per_seq")

    def features(
        self, sequences: Sequences, masked: Masked | None, per_row: np.ndarray, rule: MaskingRule
    ) -> RecordBatch:
        assert masked, "full records are always masked"
        # [32, 128], of 32 examples in sequences of 128: whether there is a token, and whether it is in segment B.
        position = np.arange(sequences.input_ids.shape[1])
        is_token = position < sequences.num_tokens[:, None]
        in_b = is_token & (position >= sequences.first_b[:, None])

        # [30000] -> [32, 128]: whether a token starts a word, as the special tokens do.
        starts_word = rule.is_word_start.copy()
        starts_word[[rule.cls_id, rule.sep_id]] = True
        token_boundary = starts_word[sequences.input_ids] & is_token

        # [32, 20]: which of the 20 predictions an example has.
        is_used = np.arange(rule.max_predictions) < masked.counts[:, None]
        return RecordBatch(
            {
                "input_ids": masked.input_ids,
                "input_mask": is_token.astype(np.int32),
                "segment_ids": in_b.astype(np.int32),
                "token_boundary": token_boundary.astype(np.int32),
                "masked_lm_positions": masked.positions,
                "masked_lm_ids": masked.ids,
                "masked_lm_weights": is_used.astype(np.float32),
                "next_sentence_labels": sequences.labels,
            }
        )

    def schema(self, metadata: Metadata) -> Schema:
        return pretraining_schema(metadata["max_seq_length"], metadata["max_predictions_per_seq"])

    def parser(self, metadata: Metadata, schema: Schema, seed: int) -> Parser:
        return lambda _numbers, serialized: parse_batch(serialized, schema)


def pretraining_schema(max_seq_length: int, slots: int) -> Schema:
    """The features of one example that training uses, [L] each, or [P] for its prediction slots.

    `next_sentence_labels` keeps its historic name: 0 = segments in order, 1 = swapped.
    """
    import tensorflow as tf

    return {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), (max_seq_length, tf.int64)),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), (slots, tf.int64)),
        "masked_lm_weights": (slots, tf.float32),
        "next_sentence_labels": (1, tf.int64),
    }


def parse_batch(serialized: tf.Tensor, schema: Schema) -> dict[str, tf.Tensor]:
    """Records of fixed numbers of values, string [B] -> features [B, values], int32 (a TPU's integer) or float32."""
    import tensorflow as tf

    fixed = {name: tf.io.FixedLenFeature([size], dtype) for name, (size, dtype) in schema.items()}
    features = tf.io.parse_example(serialized, fixed)
    integers = {name: value for name, value in features.items() if value.dtype == tf.int64}
    return features | {name: tf.cast(value, tf.int32) for name, value in integers.items()}
