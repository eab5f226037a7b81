"""Packed pretraining records: each is a row of several whole examples, which do not see each other.

Most examples are shorter than the longest one, so that a batch of single examples is up to half padding. Rows are made
when the records are written (`data_prep/pretraining/packing.py`): there, thousands of examples are at hand, so that
nearly all rows are full, and a run can be resumed at any row without knowing the lengths of earlier examples.

A record has the tokens of its examples one after the other, the number of tokens of each, its start of segment B and
its label; with --masking=static also the predictions. With --masking=dynamic, each example is masked while reading as a
function of (seed, epoch, row, place in the row), by the function that data preparation masks with.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Metadata = Mapping[str, Any]
# Maps B serialised rows, string [B], and their numbers, int64 [B], to features, int32 or float32 [B, values].
Parser = Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]

# float [B, S]: 1 = the row has such an example.
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
        num_masked = tf.cast(parsed["masked"].row_lengths(), tf.int32)
        is_used = tf.sequence_mask(num_masked, slots)
        positions = tf.cumsum(_padded(parsed["gaps"], slots), axis=1)
        return {
            **features,
            "masked_lm_positions": tf.where(is_used, positions, 0),
            "masked_lm_ids": _padded(parsed["masked"], slots),
            "masked_lm_weights": tf.cast(is_used, tf.float32),
        }

    return parse


def dynamic_parser(
    metadata: Metadata, row_length: int, slots: int, num_examples: int, seed: int
) -> Parser:
    """The function that parses and masks rows of unmasked tokens.

    Args:
      metadata: of the records, with the settings of the masks.
      row_length: L.
      slots: P.
      num_examples: S.
      seed: of the masks.
    """
    from albert_tf.data import pretraining_examples as examples  # loads numba: half a second

    settings = {name: metadata[name] for name in examples.MASKING_SETTINGS}
    vocabulary = examples.Vocabulary.from_json(metadata["vocabulary"], metadata["vocab_size"])
    rule = examples.masking_rule(vocabulary, **settings)

    def mask(numbers: np.ndarray, rows: np.ndarray, sizes_BS: np.ndarray):
        """Masks each example by itself; returns rows, positions and tokens [B, P], and how many of them are used."""
        is_used_BS = sizes_BS > 0
        sizes, per_row = sizes_BS[is_used_BS], is_used_BS.sum(axis=1)
        places = np.broadcast_to(np.arange(num_examples), sizes_BS.shape)
        numbers_BS = numbers[:, None] * num_examples + places
        ids = np.zeros((len(sizes), row_length), np.int32)
        is_token = np.arange(row_length) < sizes[:, None]
        in_row = np.arange(row_length) < sizes_BS.sum(axis=1)[:, None]
        ids[is_token] = rows[in_row]
        seeds = examples.seeds_of(seed, numbers_BS[is_used_BS])
        predictions = examples.mask_batch(ids, sizes, seeds, rule)
        output = rows.copy()
        output[in_row] = ids[is_token]
        firsts_BS = np.cumsum(sizes_BS, axis=1) - sizes_BS
        positions = predictions.positions + firsts_BS[is_used_BS][:, None]
        counts = predictions.counts
        return (
            output.astype(np.int32),
            *(
                examples.joined_values(values, counts, per_row, slots)[0].astype(np.int32)
                for values in (positions, predictions.ids)
            ),
            examples.joined_values(positions, counts, per_row, slots)[1].astype(np.int32),
        )

    def parse(numbers: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features, parsed = _parse_rows(serialized, row_length, num_examples)
        sizes_BS = _padded(parsed["tokens"], num_examples)
        ids, positions, masked, num_masked = tf.numpy_function(
            mask, [numbers, features["input_ids"], sizes_BS], [tf.int32] * 4, stateful=False
        )
        num_masked = tf.ensure_shape(num_masked, serialized.shape)
        return {
            **features,
            "input_ids": tf.ensure_shape(ids, features["input_ids"].shape),
            "masked_lm_positions": tf.ensure_shape(positions, [*serialized.shape, slots]),
            "masked_lm_ids": tf.ensure_shape(masked, [*serialized.shape, slots]),
            "masked_lm_weights": tf.sequence_mask(num_masked, slots, tf.float32),
        }

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
    sizes_BS = _padded(parsed["tokens"], num_examples)
    ends_BS = tf.cumsum(sizes_BS, axis=1)
    place_L = tf.range(row_length)
    is_token_BL = place_L < ends_BS[:, -1:]
    # How many examples end before a place; beyond the last one it does not matter.
    index_BL = tf.searchsorted(
        ends_BS, tf.zeros_like(is_token_BL, tf.int32) + place_L, side="right"
    )
    index_BL = tf.minimum(index_BL, num_examples - 1)
    position_BL = place_L - tf.gather(ends_BS - sizes_BS, index_BL, batch_dims=1)
    first_b_BL = tf.gather(_padded(parsed["first_b"], num_examples), index_BL, batch_dims=1)
    token_BL = tf.cast(is_token_BL, tf.int32)
    features = {
        "input_ids": _padded(parsed["pieces"], row_length),
        "example_numbers": (index_BL + 1) * token_BL,
        "position_ids": position_BL * token_BL,
        "segment_ids": tf.cast(position_BL >= first_b_BL, tf.int32) * token_BL,
        "first_positions": tf.where(sizes_BS > 0, ends_BS - sizes_BS, 0),
        "next_sentence_labels": _padded(parsed["label"], num_examples),
        SENTENCE_WEIGHTS: tf.cast(sizes_BS > 0, tf.float32),
    }
    return features, {name: parsed[name] for name in ("tokens", *more_lists)}


def _padded(values: tf.RaggedTensor, size: int) -> tf.Tensor:
    """Rows of up to `size` values, padded with 0."""
    return values.to_tensor(shape=[None, size])
