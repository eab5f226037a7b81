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

        # Examples of 4, 2 and 5 tokens in rows of 8 -> packed [2, 1, 0] and per_row [2, 1].
        packed, per_row = pack(lengths, max_seq_length, MAX_EXAMPLES_PER_ROW)
        # The rows in a new order, as `pack` sorts the examples by their lengths: [1, 0] -> [0, 2, 1] and [1, 2].
        new_rows = shuffled(len(per_row), seed)
        new_row_of_example = np.repeat(np.argsort(new_rows), per_row)
        return packed[np.argsort(new_row_of_example, kind="stable")], per_row[new_rows]

    def features(
        self, sequences: Sequences, masked: Masked | None, per_row: np.ndarray, rule: MaskingRule
    ) -> base.RecordBatch:
        # 3 examples of 4, 2 and 5 tokens, of which the first two share a row: per_row is [2, 1].
        num_tokens = sequences.num_tokens
        one_each = np.ones(len(sequences.labels), np.int32)

        # Name -> values [3, n], and how many of the n are used, [3].
        input_ids = masked.input_ids if masked else sequences.input_ids
        parts = {
            "tokens": (input_ids, num_tokens),
            "num_tokens": (num_tokens[:, None], one_each),
            "first_b": (sequences.first_b[:, None], one_each),
            "label": (sequences.labels, one_each),
        }
        if masked:
            # [3], where each example begins: [0, 4, 6] in all rows joined -> [0, 4, 0] in its own row.
            tokens_of_rows = _sums_of_rows(num_tokens, per_row)
            first_of_row = np.repeat(np.cumsum(tokens_of_rows) - tokens_of_rows, per_row)
            starts = np.cumsum(num_tokens) - num_tokens - first_of_row
            # [3, P]: positions in the examples -> in the rows
            positions = (masked.positions + starts[:, None]).astype(np.int32)
            parts["gaps"] = (positions, masked.counts)
            parts["masked"] = (masked.ids, masked.counts)

        # [3, n] -> [2, m]: the values of a row's examples, one after the other, and how many of the m are used, [2].
        features = {}
        lengths = {}
        for name, (values, counts) in parts.items():
            features[name], lengths[name] = _joined_values(values, counts, per_row)
        if masked:
            # The positions 1, 3 and 5 of a row -> 1, 2 and 2, which are small numbers.
            features["gaps"] = np.diff(features["gaps"], axis=1, prepend=np.int32(0))

        # [3] -> [2]: how many predictions the rows can have.
        num_predictions = np.clip(
            np.rint(num_tokens * rule.masked_lm_prob), 1, rule.max_predictions
        )
        slots = _sums_of_rows(num_predictions, per_row)
        maxima = {
            _MAX_EXAMPLES: int(per_row.max(initial=0)),
            _MAX_PREDICTIONS: int(slots.max(initial=0)),
        }
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
    from albert_tf.data.packing import join_rows

    # [7 8 9 0] and [5 6 0 0] with the counts [3, 2], in one row -> [7 8 9 5 6].
    counts_of_rows = _sums_of_rows(counts, per_row)
    largest = counts_of_rows.max(initial=0)
    if width and largest > width:
        raise ValueError(f"a row has {largest} values, expected at most {width}")
    rows = np.zeros((len(per_row), width or largest), values.dtype)
    join_rows(values, counts, per_row, rows)
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
        # 2 rows of 8 tokens: the sizes [4 2 0] and [5 0 0] of up to 3 examples -> [4, 2, 5], and per_row [2, 1].
        is_used_BS = sizes_BS > 0
        sizes = sizes_BS[is_used_BS]
        per_row = is_used_BS.sum(axis=1)

        # [2, 3]: a number for each example, from which its masks follow.
        places = np.broadcast_to(np.arange(num_examples), sizes_BS.shape)
        numbers_BS = numbers[:, None] * num_examples + places

        # Tokens [2, 8] -> [3, 8]: each example in a row of its own, which is masked.
        ids = np.zeros((len(sizes), row_length), np.int32)
        is_token = np.arange(row_length) < sizes[:, None]
        in_row = np.arange(row_length) < sizes_BS.sum(axis=1)[:, None]
        ids[is_token] = rows[in_row]
        masked = mask_examples(numbers_BS[is_used_BS], ids, sizes)

        # [3, 8] -> [2, 8]: back into the rows.
        output = rows.copy()  # the input belongs to TensorFlow
        output[in_row] = masked.input_ids[is_token]

        # [3, n] -> [2, P]: positions and tokens of the predictions; the examples begin at [0 4 6] and [0 5 5].
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

    # A row of L = 8 tokens with examples of 4 and 2: the sizes [4 2 0] -> they end before [4 6 6].
    sizes_BS = _padded(parsed["num_tokens"], num_examples)
    ends_BS = tf.cumsum(sizes_BS, axis=1)
    place_L = tf.range(row_length)
    is_token_BL = place_L < ends_BS[:, -1:]
    token_BL = tf.cast(is_token_BL, tf.int32)

    # The number of examples that end before a place, [0 0 0 0 1 1 2 2]; after the last example, it is not used.
    place_BL = tf.zeros_like(is_token_BL, tf.int32) + place_L
    index_BL = tf.searchsorted(ends_BS, place_BL, side="right")
    index_BL = tf.minimum(index_BL, num_examples - 1)

    # The position of a token in its example, [0 1 2 3 0 1 ...], and the first position of that example's segment B.
    position_BL = place_L - tf.gather(ends_BS - sizes_BS, index_BL, batch_dims=1)
    first_b_BL = tf.gather(_padded(parsed["first_b"], num_examples), index_BL, batch_dims=1)

    # The gaps 1, 2, 2 of P = 4 -> the positions [1 3 5 5], of which three are used.
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
