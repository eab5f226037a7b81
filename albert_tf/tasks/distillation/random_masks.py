"""Masks tokens inside a step of training, for the masked-LM head of a student (BERT, 1810.04805, section 3.1).

Shape legend: `model/encoder.py`; P is the number of masked tokens in a text that fills L.
"""

import tensorflow as tf

from albert_tf.model.encoder import fold_seed

# What a masked token becomes: [MASK] or any token; the rest stays.
_SHARE_OF_MASK = 0.8
_SHARE_OF_ANY_TOKEN = 0.1
# The places of the draws; places with dropout have smaller numbers.
_SITE_OF_ORDER = 2_000_001
_SITE_OF_KIND = 2_000_002
_SITE_OF_TOKEN = 2_000_003
_SEED_OF_EVALUATION = (0, 1)


def masked_weights(mask_BL: tf.Tensor) -> tf.Tensor:
    """1 for a masked token, float32 [B, P]; every text that has a token has at least one."""
    # [B], without [CLS] and [SEP]: texts of 60, 22 and 2 tokens, L = 60 -> [58, 20, 0].
    num_inner_B = tf.reduce_sum(tf.cast(mask_BL, tf.int32), axis=1) - 2

    # [B]: [9, 3, 0]; an empty text has no token to mask.
    num_masked_B = tf.minimum(_number_masked(num_inner_B), num_inner_B)

    # [B] -> [B, P]: nine times 1, three times 1 and six times 0, and nine times 0.
    most = _number_masked(tf.shape(mask_BL)[1] - 2)
    return tf.cast(tf.range(most) < num_masked_B[:, None], tf.float32)


def masked(inputs, seed, *, mask_id: int, vocab_size: int, longest: int):
    """The inputs with masked tokens, and `masked_lm_positions` int32 [B, P].

    Args:
      inputs: `input_ids` and `input_mask`, int [B, L]; each row is [CLS], a text, [SEP], and padding.
      seed: int32 [2]; if it is None, as in evaluations, all texts of a length have the same positions masked.
      longest: the largest L; draws have this length, so that they do not depend on padding.
    """
    ids_BL = inputs["input_ids"]
    mask_BL = tf.cast(inputs["input_mask"], tf.int32)
    batch, length = tf.unstack(tf.shape(ids_BL))

    # [B, L], or [1, L] for all texts: numbers from 0 to 1.
    rows = 1 if seed is None else batch
    seed = tf.constant(_SEED_OF_EVALUATION) if seed is None else seed
    order = _draws(rows, longest, seed, _SITE_OF_ORDER)[:, :length]
    kind = _draws(rows, longest, seed, _SITE_OF_KIND)[:, :length]
    token = _draws(rows, longest, seed, _SITE_OF_TOKEN)[:, :length]

    # [B, L], the text: [CLS] a b [SEP] and one [PAD] -> [0 1 1 0 0]; a token is behind it, and it is not the first.
    is_followed_BL = tf.pad(mask_BL[:, 1:], [[0, 0], [0, 1]])
    is_inner_BL = is_followed_BL * tf.minimum(tf.range(length), 1)

    # [B, L] -> [B, P], the positions with the largest draws; a short text uses the first of them, by its weights.
    weights_BP = masked_weights(mask_BL)
    order_BL = tf.where(is_inner_BL > 0, order, -1.0)
    positions_BP = tf.math.top_k(order_BL, tf.shape(weights_BP)[1]).indices

    # [B, P] -> [B, L]: the positions [2, 1] with the weights [1, 0] -> [0 0 1 0 0].
    is_masked_BL = tf.einsum("BPL,BP->BL", tf.one_hot(positions_BP, length), weights_BP) > 0

    # [B, L]: [MASK], any token, or the token that is there.
    any_token = tf.cast(token * vocab_size, ids_BL.dtype)
    replacement = tf.where(kind < _SHARE_OF_MASK, tf.cast(mask_id, ids_BL.dtype), any_token)
    is_replaced_BL = is_masked_BL & (kind < _SHARE_OF_MASK + _SHARE_OF_ANY_TOKEN)
    new_BL = tf.where(is_replaced_BL, replacement, ids_BL)
    return {**inputs, "input_ids": new_BL}, {"masked_lm_positions": positions_BP}


def _draws(rows, longest: int, seed: tf.Tensor, site: int) -> tf.Tensor:
    """Uniform numbers in [0, 1), float32 [rows, longest], which no other site shares."""
    return tf.random.stateless_uniform([rows, longest], fold_seed(seed, site))


def _number_masked(tokens):
    """15 % of a number of tokens, at least one."""
    return tf.maximum(1, (15 * tokens + 50) // 100)
