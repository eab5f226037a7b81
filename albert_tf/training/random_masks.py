"""Masks tokens inside a step of training, for the masked-LM head of a student (BERT, 1810.04805, section 3.1).

Shape legend: `model/encoder.py`; P is the number of masked tokens in a text that fills L.
"""

import tensorflow as tf

from albert_tf.model.encoder import fold_seed

_MASKED, _REPLACED = 0.8, 0.1  # of the masked tokens, [MASK] and any token; the rest stays
_SITES = 2_000_001, 2_000_002, 2_000_003  # of the draws; places with dropout have smaller numbers
_OF_EVALUATION = 0, 1  # the seed if there is none


def masked_weights(mask_BL: tf.Tensor) -> tf.Tensor:
    """1 for a masked token, float32 [B, P]; every text that has a token has at least one."""
    inner_B = tf.reduce_sum(tf.cast(mask_BL, tf.int32), axis=1) - 2
    wanted_B = tf.minimum(_number_masked(inner_B), inner_B)
    most = _number_masked(tf.shape(mask_BL)[1] - 2)
    return tf.cast(tf.range(most) < wanted_B[:, None], tf.float32)


def masked(inputs, seed, *, mask_id: int, vocab_size: int, longest: int):
    """The inputs with masked tokens, and `masked_lm_positions` int32 [B, P].

    Args:
      inputs: `input_ids` and `input_mask`, int [B, L]; each row is [CLS], a text, [SEP], and padding.
      seed: int32 [2]; if it is None, as in evaluations, all texts of a length have the same positions masked.
      longest: the largest L; draws have this length, so that they do not depend on padding.
    """
    ids_BL, mask_BL = inputs["input_ids"], tf.cast(inputs["input_mask"], tf.int32)
    batch, length = tf.unstack(tf.shape(ids_BL))
    rows = 1 if seed is None else batch
    seed = tf.constant(_OF_EVALUATION) if seed is None else seed
    order, kind, other = (
        tf.random.stateless_uniform([rows, longest], fold_seed(seed, site))[:, :length]
        for site in _SITES
    )
    # [CLS] has nothing before it, [SEP] padding behind it.
    is_inner_BL = tf.pad(mask_BL[:, 1:], [[0, 0], [0, 1]]) * tf.minimum(tf.range(length), 1)
    weights_BP = masked_weights(mask_BL)
    order_BL = tf.where(is_inner_BL > 0, order, -1.0)
    positions_BP = tf.math.top_k(order_BL, tf.shape(weights_BP)[1]).indices
    is_masked_BL = tf.einsum("BPL,BP->BL", tf.one_hot(positions_BP, length), weights_BP) > 0
    other = tf.cast(other * vocab_size, ids_BL.dtype)
    new = tf.where(kind < _MASKED, tf.cast(mask_id, ids_BL.dtype), other)
    new_BL = tf.where(is_masked_BL & (kind < _MASKED + _REPLACED), new, ids_BL)
    return {**inputs, "input_ids": new_BL}, {"masked_lm_positions": positions_BP}


def _number_masked(tokens):
    """15 % of a number of tokens, at least one."""
    return tf.maximum(1, (15 * tokens + 50) // 100)
