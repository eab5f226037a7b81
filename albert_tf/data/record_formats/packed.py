"""Packed records: each is a row of several whole examples, which do not attend to each other.

Most examples are shorter than the longest one, so up to half of a batch of single examples is padding. Rows are packed
when the records are written, from thousands of examples, so nearly all are full, and a run can be resumed at any row.

A record has the tokens of its examples one after the other and, for each example, the number of tokens, the start of
segment B and the label; with --masking=static also the predictions. With --masking=dynamic, each example is masked
while reading, as a function of (seed, epoch, row, place in the row), by the same function as in data preparation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from albert_tf.data.record_formats import base
from albert_tf.data.record_formats.full import pretraining_schema

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.data.pretraining_examples import Masked, MaskingRule, Sequences

# float [B, S]: 1 = the row has an example at this place.
SENTENCE_WEIGHTS = "sentence_weights"
# On a CPU, each example of a row adds a column to queries and keys; more tiny examples would hardly fill a row better.
MAX_EXAMPLES_PER_ROW = 16
# Counts in metadata.json: the largest numbers of examples in a row, and of predictions that a row can have.
_MAX_EXAMPLES = "max_examples_per_row"
_MAX_PREDICTIONS = "max_predictions_per_row"


class PackedFormat(base.RecordFormat):
    """Rows of several examples, without padding and without what can be computed from the rest."""

    help = "several examples in a row of --max_seq_length, so that training computes no padding"
    masking = ("static", "dynamic")
    needed = ("max_seq_length", "masking", "counts")

    def rows(
        self, lengths: np.ndarray, max_seq_length: int, seed: np.uint64
    ) -> tuple[np.ndarray, np.ndarray]:
        from albert_tf.data.packing import pack
        from albert_tf.data.pretraining_examples import shuffled

        packed, per_row = pack(lengths, max_seq_length, MAX_EXAMPLES_PER_ROW)
        new_rows = shuffled(len(per_row), seed)  # `pack` sorts the examples by their lengths
        new_row_of_example = np.repeat(np.argsort(new_rows), per_row)
        return packed[np.argsort(new_row_of_example, kind="stable")], per_row[new_rows]

    def features(
        self, sequences: Sequences, masked: Masked | None, per_row: np.ndarray, rule: MaskingRule
    ) -> base.RecordBatch:
        num_tokens = sequences.num_tokens
        one_each = np.ones(len(sequences.labels), np.int32)
        # Name -> values [examples, n], and how many of the n are used.
        parts = {
            "tokens": (masked.input_ids if masked else sequences.input_ids, num_tokens),
            "num_tokens": (num_tokens[:, None], one_each),
            "first_b": (sequences.first_b[:, None], one_each),
            "label": (sequences.labels, one_each),
        }
        if masked:
            tokens_of_rows = _sums_of_rows(num_tokens, per_row)
            first_of_row = np.repeat(np.cumsum(tokens_of_rows) - tokens_of_rows, per_row)
            starts = np.cumsum(num_tokens) - num_tokens - first_of_row
            positions = (masked.positions + starts[:, None]).astype(np.int32)
            parts["gaps"] = (positions, masked.counts)
            parts["masked"] = (masked.ids, masked.counts)
        joined = {name: _joined_values(*values, per_row) for name, values in parts.items()}
        features = {name: values for name, (values, _) in joined.items()}
        if masked:
            features["gaps"] = np.diff(features["gaps"], axis=1, prepend=np.int32(0))
        wanted = np.clip(np.rint(num_tokens * rule.masked_lm_prob), 1, rule.max_predictions)
        slots = _sums_of_rows(wanted, per_row)
        maxima = {
            _MAX_EXAMPLES: int(per_row.max(initial=0)),
            _MAX_PREDICTIONS: int(slots.max(initial=0)),
        }
        lengths = {name: used for name, (_, used) in joined.items()}
        return base.RecordBatch(features, lengths, maxima)

    def schema(self, metadata: base.Metadata) -> base.Schema:
        counts = metadata["counts"]
        sizes = [counts.get(name, 0) for name in (_MAX_PREDICTIONS, _MAX_EXAMPLES)]
        return packed_schema(metadata["max_seq_length"], *sizes)

    def parser(self, metadata: base.Metadata, schema: base.Schema, seed: int) -> base.Parser:
        names = ("input_ids", "masked_lm_positions", "first_positions")
        sizes = [schema[name][0] for name in names]
        if metadata["masking"] == "dynamic":
            return _dynamic_parser(metadata, seed, *sizes)
        return lambda _numbers, serialized: _parse_rows(serialized, *sizes)[0]


def packed_schema(row_length: int, slots: int, num_examples: int) -> base.Schema:
    """Features of rows, for `AlbertEncoder` and for the losses: L tokens, P prediction slots, S examples."""
    import tensorflow as tf

    schema = dict(pretraining_schema(row_length, slots))
    del schema["input_mask"]
    return {
        **schema,
        **dict.fromkeys(("example_numbers", "position_ids"), (row_length, tf.int64)),
        "first_positions": (num_examples, tf.int64),
        "next_sentence_labels": (num_examples, tf.int64),
        SENTENCE_WEIGHTS: (num_examples, tf.float32),
    }


def _joined_values(
    values: np.ndarray, counts: np.ndarray, per_row: np.ndarray, width: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The first `counts` [examples] of the values [examples, n] of the examples of each row, one after the other.

    Returns the values [rows, width], padded with 0, to the smallest width that is enough, and their number in each row.
    """
    counts_of_rows = _sums_of_rows(counts, per_row)
    rows = np.zeros((len(per_row), width or counts_of_rows.max(initial=0)), values.dtype)
    is_used = np.arange(rows.shape[1]) < counts_of_rows[:, None]
    rows[is_used] = values[np.arange(values.shape[1]) < counts[:, None]]
    return rows, counts_of_rows


def _sums_of_rows(values: np.ndarray, per_row: np.ndarray) -> np.ndarray:
    """The sum of the examples' values in each row, [rows]."""
    # [4, 1, 2] with per_row [2, 0, 1] -> [5, 0, 2]; a row that only pads a part of a batch has no examples.
    row_of_example = np.repeat(np.arange(len(per_row)), per_row)
    sums = np.bincount(row_of_example, weights=values, minlength=len(per_row))
    return sums.astype(values.dtype)


def _dynamic_parser(
    metadata: base.Metadata, seed: int, row_length: int, slots: int, num_examples: int
) -> base.Parser:
    """The function that parses and masks rows of unmasked tokens."""
    import tensorflow as tf

    mask_examples = base.mask_function(metadata, seed)

    def mask(numbers: np.ndarray, rows: np.ndarray, sizes_BS: np.ndarray):
        """Masks each example separately; returns rows, positions and tokens [B, P], and how many of the P are used."""
        is_used_BS = sizes_BS > 0
        sizes = sizes_BS[is_used_BS]
        per_row = is_used_BS.sum(axis=1)
        places = np.broadcast_to(np.arange(num_examples), sizes_BS.shape)
        numbers_BS = numbers[:, None] * num_examples + places
        ids = np.zeros((len(sizes), row_length), np.int32)
        is_token = np.arange(row_length) < sizes[:, None]
        in_row = np.arange(row_length) < sizes_BS.sum(axis=1)[:, None]
        ids[is_token] = rows[in_row]
        masked = mask_examples(numbers_BS[is_used_BS], ids, sizes)
        output = rows.copy()  # the input belongs to TensorFlow
        output[in_row] = masked.input_ids[is_token]
        firsts_BS = np.cumsum(sizes_BS, axis=1) - sizes_BS
        masked.positions[:] += firsts_BS[is_used_BS][:, None]
        labels_BP, _ = _joined_values(masked.ids, masked.counts, per_row, slots)
        positions_BP, counts_B = _joined_values(masked.positions, masked.counts, per_row, slots)
        return output, positions_BP, labels_BP, counts_B.astype(np.int32)

    def parse(numbers, serialized):
        features, sizes_BS = _parse_rows(serialized, row_length, slots, num_examples)
        ids = features["input_ids"]
        outputs = tf.numpy_function(mask, [numbers, ids, sizes_BS], [tf.int32] * 4, stateful=False)
        shapes = (ids.shape, [*ids.shape[:1], slots], [*ids.shape[:1], slots], ids.shape[:1])
        ids, positions, labels, counts = map(tf.ensure_shape, outputs, shapes)
        return {
            **features,
            "input_ids": ids,
            "masked_lm_positions": positions,
            "masked_lm_ids": labels,
            "masked_lm_weights": tf.sequence_mask(counts, slots, tf.float32),
        }

    return parse


def _parse_rows(
    serialized: tf.Tensor, row_length: int, slots: int, num_examples: int
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The features of rows, without predictions if the tokens are unmasked, and the sizes of their examples [B, S]."""
    import tensorflow as tf

    names = ("tokens", "num_tokens", "first_b", "label", "gaps", "masked")
    lists = {name: tf.io.RaggedFeature(tf.int64) for name in names}  # empty if a record lacks it
    parsed = tf.io.parse_example(serialized, lists)
    parsed = {name: tf.cast(value, tf.int32) for name, value in parsed.items()}
    sizes_BS = _padded(parsed["num_tokens"], num_examples)
    ends_BS = tf.cumsum(sizes_BS, axis=1)
    place_L = tf.range(row_length)
    is_token_BL = place_L < ends_BS[:, -1:]
    # The number of examples that end before a place; after the last example, the value is not used.
    place_BL = tf.zeros_like(is_token_BL, tf.int32) + place_L
    index_BL = tf.searchsorted(ends_BS, place_BL, side="right")
    index_BL = tf.minimum(index_BL, num_examples - 1)
    position_BL = place_L - tf.gather(ends_BS - sizes_BS, index_BL, batch_dims=1)
    first_b_BL = tf.gather(_padded(parsed["first_b"], num_examples), index_BL, batch_dims=1)
    token_BL = tf.cast(is_token_BL, tf.int32)
    is_used_BP = tf.sequence_mask(tf.cast(parsed["masked"].row_lengths(), tf.int32), slots)
    masked_BP = tf.cumsum(_padded(parsed["gaps"], slots), axis=1)
    features = {
        "input_ids": _padded(parsed["tokens"], row_length),
        "example_numbers": (index_BL + 1) * token_BL,
        "position_ids": position_BL * token_BL,
        "segment_ids": tf.cast(position_BL >= first_b_BL, tf.int32) * token_BL,
        "first_positions": tf.where(sizes_BS > 0, ends_BS - sizes_BS, 0),
        "masked_lm_positions": tf.where(is_used_BP, masked_BP, 0),
        "masked_lm_ids": _padded(parsed["masked"], slots),
        "masked_lm_weights": tf.cast(is_used_BP, tf.float32),
        "next_sentence_labels": _padded(parsed["label"], num_examples),
        SENTENCE_WEIGHTS: tf.cast(sizes_BS > 0, tf.float32),
    }
    return features, sizes_BS


def _padded(values: tf.RaggedTensor, size: int) -> tf.Tensor:
    """Rows of up to `size` values, padded with 0."""
    return values.to_tensor(shape=[None, size])
