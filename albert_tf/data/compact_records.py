"""Reads compact pretraining records and restores the features of full records.

A compact record contains, without padding, only what cannot be computed from the rest: the tokens, the start of
segment B and the label. With --masking=static its tokens are masked, and it also contains the predictions; TensorFlow
operations alone can read it, on any host. With --masking=dynamic its tokens are masked while reading, as a function of
(seed, epoch, example), by the same function that masks in data preparation. TensorFlow has no operation that selects
spans one after the other, and a loop of small operations would be a second, slower implementation of masking. The
compiled function runs without Python's global lock, but in this process and not on another host.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Metadata = Mapping[str, Any]
# Maps B serialised examples, string [B], and their numbers, int64 [B], to the original's features, int32 or float32
# [B, values]. Masks that are drawn while reading depend on the numbers.
Parser = Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]


def num_slots(metadata: Metadata, max_predictions_per_seq: int) -> int:
    """P: the number of prediction slots of an example; permuted tokens are predicted too."""
    return max_predictions_per_seq * (1 + metadata["do_permutation"])


def mask_settings(metadata: Metadata) -> dict[str, Any]:
    """The settings of masks that are drawn while reading; empty if the records are masked."""
    if metadata.get("masking") != "dynamic":
        return {}
    from albert_tf.data.pretraining_examples import MASKING_SETTINGS

    return {name: metadata[name] for name in (*MASKING_SETTINGS, "word_start_rule")}


def static_parser(max_seq_length: int, slots: int) -> Parser:
    """The function that parses records of masked tokens.

    Args:
      max_seq_length: L.
      slots: P.
    """

    def parse(_numbers: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features, parsed = _parse_segments(serialized, max_seq_length, ("gaps", "masked"))
        return {**features, **predictions(parsed, slots)}

    return parse


def predictions(parsed: Mapping[str, tf.RaggedTensor], slots: int) -> dict[str, tf.Tensor]:
    """The features of B records that describe their predictions, [B, P] each, from their lists `gaps` and `masked`."""
    num_masked = tf.cast(parsed["masked"].row_lengths(), tf.int32)
    is_used = tf.sequence_mask(num_masked, slots)
    positions = tf.cumsum(padded(parsed["gaps"], slots), axis=1)
    return {
        "masked_lm_positions": tf.where(is_used, positions, 0),
        "masked_lm_ids": padded(parsed["masked"], slots),
        "masked_lm_weights": tf.cast(is_used, tf.float32),
    }


# Shapes and types of the arguments of the function that masks.
_NO_EXAMPLES = (((0,), np.int64), ((0, 1), np.int32), ((0,), np.int32))


def dynamic_parser(metadata: Metadata, max_seq_length: int, slots: int, seed: int) -> Parser:
    """The function that parses and masks records of unmasked tokens.

    Args:
      metadata: metadata of the records, with the settings of the masks.
      max_seq_length: L.
      slots: P, which may differ from the metadata.
      seed: seed of the masks.
    """
    max_predictions = slots // (1 + metadata["do_permutation"])
    mask = mask_function({**metadata, "max_predictions_per_seq": max_predictions}, seed)

    def parse(numbers: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        features, parsed = _parse_segments(serialized, max_seq_length)
        num_tokens = tf.cast(parsed["pieces"].row_lengths(), tf.int32)
        return {**features, **masked(mask, numbers, features["input_ids"], num_tokens, slots)}

    return parse


def mask_function(metadata: Metadata, seed: int) -> Callable[..., tuple[np.ndarray, ...]]:
    """The compiled function that masks examples.

    Args:
      metadata: metadata of the records, with the settings of the masks.
      seed: seed of the masks.

    Returns:
      A function of the numbers [B], tokens [B, L] and numbers of tokens [B] of examples, int64 and int32. It returns
      the masked tokens and the fields of `Predictions`.
    """
    # These imports load numba, which takes half a second.
    from albert_tf.core import compilation
    from albert_tf.data import pretraining_examples as examples

    settings = {name: metadata[name] for name in examples.MASKING_SETTINGS}
    vocabulary = examples.Vocabulary.from_json(metadata["vocabulary"], metadata["vocab_size"])
    rule = examples.masking_rule(vocabulary, **settings)

    def mask(numbers: np.ndarray, input_ids: np.ndarray, num_tokens: np.ndarray):
        output_ids = input_ids.copy()  # the input belongs to TensorFlow
        seeds = examples.seeds_of(seed, numbers)
        return output_ids, *examples.mask_batch(output_ids, num_tokens, seeds, rule)

    with compilation.announced("pretraining", "the function that masks", 7):
        mask(*(np.zeros(shape, type_) for shape, type_ in _NO_EXAMPLES))
    return mask


def masked(
    mask: Callable, numbers: tf.Tensor, input_ids: tf.Tensor, sizes: tf.Tensor, slots: int
) -> dict[str, tf.Tensor]:
    """The features of B records that masking changes or adds.

    Args:
      mask: a function of the next three arguments as arrays. It returns the masked tokens [B, L], the positions and
        labels of the predictions [B, P], and the numbers of predictions [B], int32.
      numbers: numbers of the records, int64 [B].
      input_ids: int32 [B, L].
      sizes: numbers of tokens, int32 [B] or more.
      slots: P.
    """
    ids, positions, labels, num_masked = tf.numpy_function(
        mask, [numbers, input_ids, sizes], [tf.int32] * 4, stateful=False
    )
    num_masked = tf.ensure_shape(num_masked, numbers.shape)
    return {
        "input_ids": tf.ensure_shape(ids, input_ids.shape),
        "masked_lm_positions": tf.ensure_shape(positions, [*numbers.shape, slots]),
        "masked_lm_ids": tf.ensure_shape(labels, [*numbers.shape, slots]),
        "masked_lm_weights": tf.sequence_mask(num_masked, slots, tf.float32),
    }


def _parse_segments(
    serialized: tf.Tensor, max_seq_length: int, more_lists: tuple[str, ...] = ()
) -> tuple[dict[str, tf.Tensor], dict[str, tf.RaggedTensor]]:
    """Parses what both kinds of records have: returns the features of the segments and the parsed lists."""
    lists = ("pieces", *more_lists)
    spec = {name: tf.io.FixedLenFeature([1], tf.int64) for name in ("first_b", "label")}
    spec |= {name: tf.io.RaggedFeature(tf.int64) for name in lists}
    parsed = tf.io.parse_example(serialized, spec)
    parsed = {name: tf.cast(value, tf.int32) for name, value in parsed.items()}
    input_mask = tf.sequence_mask(parsed["pieces"].row_lengths(), max_seq_length, tf.int32)
    in_b = tf.cast(tf.range(max_seq_length) >= parsed["first_b"], tf.int32)
    features = {
        "input_ids": padded(parsed["pieces"], max_seq_length),
        "input_mask": input_mask,
        "segment_ids": in_b * input_mask,
        "next_sentence_labels": parsed["label"],
    }
    return features, {name: parsed[name] for name in lists}


def padded(values: tf.RaggedTensor, size: int) -> tf.Tensor:
    """Rows of up to `size` values, padded with 0."""
    return values.to_tensor(shape=[None, size])
