"""Packed pretraining records: each record is a row of several whole examples, which do not attend to each other.

Most examples are shorter than the longest one, so up to half of a batch of single examples is padding. Rows are packed
when the records are written (`albert_tf/data_prep/pretraining/packing.py`). There, thousands of examples are available,
so nearly all rows are full, and a run can be resumed at any row without knowing the lengths of earlier examples.

A record has the tokens of its examples one after the other and, for each example, the number of tokens, the start of
segment B and the label; with --masking=static also the predictions. With --masking=dynamic, each example is masked
while reading, as a function of (seed, epoch, row, place in the row), by the same function as in data preparation.
"""

import numpy as np
import tensorflow as tf

from albert_tf.data.compact_records import (
    Metadata,
    Parser,
    mask_function,
    masked,
    padded,
    predictions,
)

# float [B, S]: 1 = the row has an example at this place.
SENTENCE_WEIGHTS = "sentence_weights"


def static_parser(row_length: int, slots: int, num_examples: int) -> Parser:
    """The function that parses rows of masked tokens.

    Args:
      row_length: L.
      slots: P.
      num_examples: S.
    """

    def parse(_numbers: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features, parsed = _parse_rows(serialized, row_length, num_examples, ("gaps", "masked"))
        return {**features, **predictions(parsed, slots)}

    return parse


def dynamic_parser(
    metadata: Metadata, row_length: int, slots: int, num_examples: int, seed: int
) -> Parser:
    """The function that parses and masks rows of unmasked tokens.

    Args:
      metadata: metadata of the records, with the settings of the masks.
      row_length: L.
      slots: P.
      num_examples: S.
      seed: seed of the masks.
    """
    # Loads numba, which takes half a second.
    from albert_tf.data.pretraining_examples import joined_values

    mask_examples = mask_function(metadata, seed)

    def mask(numbers: np.ndarray, rows: np.ndarray, sizes_BS: np.ndarray):
        """Masks each example separately; returns rows, positions and tokens [B, P], and how many of the P are used."""
        is_used_BS = sizes_BS > 0
        sizes, per_row = sizes_BS[is_used_BS], is_used_BS.sum(axis=1)
        places = np.broadcast_to(np.arange(num_examples), sizes_BS.shape)
        numbers_BS = numbers[:, None] * num_examples + places
        ids = np.zeros((len(sizes), row_length), np.int32)
        is_token = np.arange(row_length) < sizes[:, None]
        in_row = np.arange(row_length) < sizes_BS.sum(axis=1)[:, None]
        ids[is_token] = rows[in_row]
        ids, positions, labels, counts = mask_examples(numbers_BS[is_used_BS], ids, sizes)
        output = rows.copy()  # the input belongs to TensorFlow
        output[in_row] = ids[is_token]
        firsts_BS = np.cumsum(sizes_BS, axis=1) - sizes_BS
        positions += firsts_BS[is_used_BS][:, None]
        labels_BP, _ = joined_values(labels, counts, per_row, slots)
        positions_BP, counts_B = joined_values(positions, counts, per_row, slots)
        return output, positions_BP, labels_BP, counts_B.astype(np.int32)

    def parse(numbers: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features, parsed = _parse_rows(serialized, row_length, num_examples)
        sizes_BS = padded(parsed["tokens"], num_examples)
        return {**features, **masked(mask, numbers, features["input_ids"], sizes_BS, slots)}

    return parse


def _parse_rows(
    serialized: tf.Tensor, row_length: int, num_examples: int, more_lists: tuple[str, ...] = ()
) -> tuple[dict[str, tf.Tensor], dict[str, tf.RaggedTensor]]:
    """The features that do not depend on masks, and the lists as they were parsed."""
    lists = ("pieces", "tokens", "first_b", "label", *more_lists)
    parsed = tf.io.parse_example(
        serialized, {name: tf.io.RaggedFeature(tf.int64) for name in lists}
    )
    parsed = {name: tf.cast(value, tf.int32) for name, value in parsed.items()}
    sizes_BS = padded(parsed["tokens"], num_examples)
    ends_BS = tf.cumsum(sizes_BS, axis=1)
    place_L = tf.range(row_length)
    is_token_BL = place_L < ends_BS[:, -1:]
    # The number of examples that end before a place; after the last example, the value is not used.
    index_BL = tf.searchsorted(
        ends_BS, tf.zeros_like(is_token_BL, tf.int32) + place_L, side="right"
    )
    index_BL = tf.minimum(index_BL, num_examples - 1)
    position_BL = place_L - tf.gather(ends_BS - sizes_BS, index_BL, batch_dims=1)
    first_b_BL = tf.gather(padded(parsed["first_b"], num_examples), index_BL, batch_dims=1)
    token_BL = tf.cast(is_token_BL, tf.int32)
    features = {
        "input_ids": padded(parsed["pieces"], row_length),
        "example_numbers": (index_BL + 1) * token_BL,
        "position_ids": position_BL * token_BL,
        "segment_ids": tf.cast(position_BL >= first_b_BL, tf.int32) * token_BL,
        "first_positions": tf.where(sizes_BS > 0, ends_BS - sizes_BS, 0),
        "next_sentence_labels": padded(parsed["label"], num_examples),
        SENTENCE_WEIGHTS: tf.cast(sizes_BS > 0, tf.float32),
    }
    return features, {name: parsed[name] for name in ("tokens", *more_lists)}
