"""The operations of a block in plain form, written like their definitions.

`cpu_ops.py` has the same functions with the same arguments, for training. This module is used in inference and, with
`AlbertEncoder(plain=True)`, also in training.

Tensors are of any float type, and a result has the type of the first argument, unless it says float32. `drop` is
dropout of a tensor; None drops nothing.

Shape legend: `encoder.py`. A mask has a factor for each of the S examples of a row; without packing, S is 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from albert_tf.model.numbers import NOT_ATTENDED


def split_heads(projected_BLJ, bias_J, num_heads: int) -> list[tf.Tensor]:
    """Query, key and value, [B, N, L, H] each, from their joint projection without bias."""
    length = projected_BLJ.shape[1] or tf.shape(projected_BLJ)[1]
    head_size = projected_BLJ.shape[2] // (3 * num_heads)
    biased_BLJ = bias_add(projected_BLJ, bias_J)
    parts = tf.reshape(biased_BLJ, [-1, length, 3, num_heads, head_size])
    return tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))


class AttentionMask(NamedTuple):
    """Which positions attend to which, as two float32 factors of the bias that is added to the scores.

    The product of the factors over S is 0 where position L attends to position M, and -10000 elsewhere. It has no
    gradient.
    """

    queries_BLS: tf.Tensor | None  # None: S is 1, and all positions attend to the same ones
    keys_BMS: tf.Tensor

    def bias(self) -> tf.Tensor:
        """The bias that is added to the scores of all heads, [B, 1, L, M], or [B, 1, 1, M] if it is equal for all L."""
        if self.queries_BLS is None:
            return self.keys_BMS[:, None, None, :, 0]
        return tf.einsum("BLS,BMS->BLM", self.queries_BLS, self.keys_BMS)[:, None]


def padding_mask(is_token_BM: tf.Tensor) -> AttentionMask:
    """A mask with which every position attends to all tokens; in `is_token_BM`, 1 is a token, and 0 is padding."""
    keys_BM = (1.0 - tf.cast(is_token_BM, tf.float32)) * NOT_ATTENDED
    return AttentionMask(None, keys_BM[..., None])


def example_mask(example_numbers_BL: tf.Tensor, most_examples: int) -> AttentionMask:
    """A mask with which every position attends to the tokens of its own example.

    `example_numbers_BL` count from 1 on, with 0 for padding; `most_examples` is S, the largest number of an example.
    """
    is_of_example_BLS = tf.one_hot(example_numbers_BL - 1, most_examples)
    return AttentionMask(is_of_example_BLS, (1.0 - is_of_example_BLS) * NOT_ATTENDED)


def attention(query_BNLH, key_BNMH, value_BNMH, mask: AttentionMask, drop: Callable | None = None):
    """drop(softmax(query key / sqrt(H) + bias of the mask)) value of every head, [B, N, L, H]."""
    probabilities_BNLM = attention_probabilities(query_BNLH, key_BNMH, mask)
    return tf.matmul(drop(probabilities_BNLM) if drop else probabilities_BNLM, value_BNMH)


def self_attention(
    projected_BLJ,
    bias_J,
    num_heads: int,
    mask: AttentionMask,
    drop: Callable | None = None,
    *,
    split: Callable = split_heads,
    attend: Callable = attention,
) -> tf.Tensor:
    """`attention` of all heads, [B, L, D], from the joint projection of query, key and value."""
    context_BNLH = attend(*split(projected_BLJ, bias_J, num_heads), mask, drop=drop)
    length = projected_BLJ.shape[1] or tf.shape(projected_BLJ)[1]
    context_BLNH = tf.transpose(context_BNLH, [0, 2, 1, 3])
    return tf.reshape(context_BLNH, [-1, length, projected_BLJ.shape[-1] // 3])


def attention_probabilities(query_BNLH, key_BNMH, mask: AttentionMask) -> tf.Tensor:
    """softmax(query key / sqrt(H) + bias), [B, N, L, M]; in float32, then cast to the query's type."""
    scale = tf.cast(query_BNLH.shape[-1] ** -0.5, query_BNLH.dtype)
    scores_BNLM = tf.matmul(query_BNLH * scale, key_BNMH, transpose_b=True)
    probabilities_BNLM = tf.nn.softmax(tf.cast(scores_BNLM, tf.float32) + mask.bias())
    return tf.cast(probabilities_BNLM, query_BNLH.dtype)


def bias_add(tensor, bias_D) -> tf.Tensor:
    """tensor + bias, [..., D]; the gradient of the bias is a sum in float32 for every type.

    `tf.nn.bias_add` sums it in the type of the tensor. On a CPU, such a sum in bfloat16 stops growing at 256 times the
    size of a term, which is the gradient of one token.
    """
    sum32 = tf.nn.bias_add(tf.cast(tensor, tf.float32), tf.cast(bias_D, tf.float32))
    return tf.cast(sum32, tensor.dtype)


def bias_activation(hidden_BLF, bias_F, activation: Callable) -> tf.Tensor:
    """activation(hidden + bias), [B, L, F]."""
    return activation(bias_add(hidden_BLF, bias_F))


def residual_norm(
    update_BLD, bias_D, residual_BLD, gamma_D, beta_D, epsilon: float, drop: Callable | None = None
) -> tf.Tensor:
    """LayerNorm(drop(update + bias) + residual), [B, L, D] float32 (original modeling.py:429-432)."""
    biased_BLD = bias_add(update_BLD, bias_D)
    dropped_BLD = drop(biased_BLD) if drop else biased_BLD
    sum_BLD = tf.cast(dropped_BLD, tf.float32) + tf.cast(residual_BLD, tf.float32)
    return layer_norm(sum_BLD, gamma_D, beta_D, epsilon)


def layer_norm(tensor, gamma_D, beta_D, epsilon: float) -> tf.Tensor:
    """LayerNorm over the last axis, float32 [..., D] -> [..., D]."""
    mean, variance = tf.nn.moments(tensor, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(tensor, mean, variance, beta_D, gamma_D, epsilon)
