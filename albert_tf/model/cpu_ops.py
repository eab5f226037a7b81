"""The operations of `plain_ops.py` for training: the same functions and arguments, with less memory traffic.

On a CPU, the operations between the matrix products take a third of a training step if TensorFlow computes them one by
one, because each of them reads and writes all values. Here they are one kernel, compiled by XLA. Its backward pass
computes intermediate values again from the input instead of storing them. Inference does not use these kernels, because
XLA compiles a kernel again for every length.

Shape legend: `encoder.py`; A width of a head with the factors of the mask, H + S.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.model import device, plain_ops
from albert_tf.model.device import compiled


def _is_on_cpu() -> bool:
    return device.target_device() == "CPU"


def _sum_of_rows(tensor: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [D], summed in float32; a matrix product with ones is fastest on a CPU, but inexact elsewhere."""
    rows_XD = tf.reshape(tensor, [-1, tensor.shape[-1]])
    if not _is_on_cpu():
        sums_D = tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(rows_XD, tf.float32))
        return tf.cast(sums_D, tensor.dtype)
    return tf.matmul(tf.ones([1, tf.shape(rows_XD)[0]], rows_XD.dtype), rows_XD)[0]


def _float32_sum(*tensors):
    return functools.reduce(tf.add, [tf.cast(tensor, tf.float32) for tensor in tensors])


def split_heads(projected_BLJ, bias_J, num_heads: int):
    @tf.custom_gradient
    def function(projected_BLJ, bias_J):
        def gradient(*upstream):
            # TensorFlow transposes faster than XLA on a CPU.
            parts = tf.transpose(tf.stack(upstream), [1, 3, 0, 2, 4])
            gradient_BLJ = tf.reshape(parts, tf.shape(projected_BLJ))
            return gradient_BLJ, _sum_of_rows(gradient_BLJ)

        return _split_heads(projected_BLJ, bias_J, num_heads), gradient

    return function(projected_BLJ, bias_J)


_split_heads = compiled(plain_ops.split_heads)


def attention(query_BNLH, key_BNMH, value_BNMH, mask: plain_ops.AttentionMask, drop=None):
    """See `plain_ops.attention`.

    The gradient of the softmax needs sum_M(P * dP) for each row of probabilities P. This equals
    sum_H(output * d output), which has H terms instead of M. The equality also holds with dropout.
    """

    @tf.custom_gradient
    def function(query_BNLH, key_BNMH, value_BNMH):
        # [2, 12, 512, 64] x [2, 12, 64, 512] -> [2, 12, 512, 512], and x [2, 12, 512, 64] -> [2, 12, 512, 64]
        probabilities_BNLM = _probabilities(query_BNLH, key_BNMH, mask)
        dropped_BNLM = drop(probabilities_BNLM) if drop else probabilities_BNLM
        output_BNLH = tf.matmul(dropped_BNLM, value_BNMH)

        def gradient(upstream_BNLH):
            # [2, 12, 512, 512], from which each gradient [2, 12, 512, 64] is one product
            scores_gradient_BNLM = gradient_of_scores(
                probabilities_BNLM,
                dropped_BNLM if drop else None,
                tf.matmul(upstream_BNLH, value_BNMH, transpose_b=True),
                upstream_BNLH,
                output_BNLH,
            )
            return (
                tf.matmul(scores_gradient_BNLM, key_BNMH),
                tf.matmul(scores_gradient_BNLM, query_BNLH, transpose_a=True),
                tf.matmul(dropped_BNLM, upstream_BNLH, transpose_a=True),
            )

        return output_BNLH, gradient

    return function(query_BNLH, key_BNMH, value_BNMH)


self_attention = functools.partial(plain_ops.self_attention, split=split_heads, attend=attention)


def _probabilities(query_BNLH, key_BNMH, mask: plain_ops.AttentionMask):
    """See `plain_ops.attention_probabilities`; on a CPU, the product of query and key includes the bias."""
    if not _is_on_cpu():
        return plain_ops.attention_probabilities(query_BNLH, key_BNMH, mask)
    # A few additional values in each head cost little time on a CPU, but much on other devices.
    query_BNLA, key_BNMA = _with_mask(query_BNLH, key_BNMH, *mask)
    scores_BNLM = tf.matmul(query_BNLA, key_BNMA, transpose_b=True)
    if not _softmax_is_float32(scores_BNLM.dtype):
        scores_BNLM = tf.cast(scores_BNLM, tf.float32)
    return tf.cast(tf.nn.softmax(scores_BNLM), query_BNLH.dtype)


@compiled
def _with_mask(query_BNLH, key_BNMH, queries_BLS, keys_BMS):
    """Query and key with A = H + S values per head, whose product is query key / sqrt(H) + bias of the mask."""
    scale = tf.cast(query_BNLH.shape[-1] ** -0.5, query_BNLH.dtype)
    queries_BNLS = tf.ones_like(query_BNLH[..., :1])
    if queries_BLS is not None:
        queries_BNLS = _for_heads(queries_BLS, query_BNLH)
    query_BNLA = tf.concat([query_BNLH * scale, queries_BNLS], axis=-1)
    return query_BNLA, tf.concat([key_BNMH, _for_heads(keys_BMS, key_BNMH)], axis=-1)


def _for_heads(factor_BLS, like_BNLH):
    """A factor of a mask, repeated for every head, [B, N, L, S], with the type of the other argument."""
    shape = tf.concat([tf.shape(like_BNLH)[:-1], tf.shape(factor_BLS)[-1:]], axis=0)
    return tf.broadcast_to(tf.cast(factor_BLS[:, None], like_BNLH.dtype), shape)


@functools.cache
def _softmax_is_float32(dtype: tf.DType) -> bool:
    """Whether the CPU's softmax of this type computes in float32 and rounds once, as oneDNN's does."""
    with tf.init_scope(), tf.device("CPU:0"):
        scores = tf.cast(tf.random.stateless_normal([64, 96], seed=[1, 2], stddev=4.0), dtype)
        expected = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), dtype)
        return bool(tf.reduce_all(tf.nn.softmax(scores) == expected))


@compiled
def gradient_of_scores(probabilities_BNLM, dropped_BNLM, gradient_BNLM, upstream_BNLH, output_BNLH):
    """Gradient of query key, [B, N, L, M]; without dropout, `dropped_BNLM` is None."""
    gradient32_BNLM = tf.cast(gradient_BNLM, tf.float32)
    product_BNLH = tf.cast(upstream_BNLH, tf.float32) * tf.cast(output_BNLH, tf.float32)
    row_BNL1 = tf.reduce_sum(product_BNLH, axis=-1, keepdims=True)
    probabilities_BNLM = tf.cast(probabilities_BNLM, tf.float32)
    if dropped_BNLM is None:
        scores_gradient_BNLM = probabilities_BNLM * (gradient32_BNLM - row_BNL1)
    else:
        weighted_BNLM = tf.cast(dropped_BNLM, tf.float32) * gradient32_BNLM
        scores_gradient_BNLM = weighted_BNLM - probabilities_BNLM * row_BNL1
    scale = output_BNLH.shape[-1] ** -0.5
    return tf.cast(scores_gradient_BNLM * scale, gradient_BNLM.dtype)


def bias_activation(hidden_BLF, bias_F, activation: Callable):
    forward, backward = _bias_activation_kernels(activation)

    @tf.custom_gradient
    def function(hidden_BLF, bias_F):
        def gradient(upstream_BLF):
            gradient_BLF = backward(hidden_BLF, bias_F, upstream_BLF)
            return gradient_BLF, _sum_of_rows(gradient_BLF)

        return forward(hidden_BLF, bias_F), gradient

    return function(hidden_BLF, bias_F)


@functools.cache
def _bias_activation_kernels(activation: Callable) -> tuple[Callable, Callable]:
    """Forward and backward kernel. They compute in float32, because XLA rounds bfloat16 after every operation."""

    @compiled
    def forward(hidden_BLF, bias_F):
        return tf.cast(activation(_float32_sum(hidden_BLF, bias_F)), hidden_BLF.dtype)

    @compiled
    def backward(hidden_BLF, bias_F, upstream_BLF):
        with tf.GradientTape() as tape:
            sum_BLF = _float32_sum(hidden_BLF, bias_F)
            tape.watch(sum_BLF)
            output_BLF = activation(sum_BLF)
        gradient_BLF = tape.gradient(output_BLF, sum_BLF, tf.cast(upstream_BLF, tf.float32))
        return tf.cast(gradient_BLF, hidden_BLF.dtype)

    return forward, backward


def residual_norm(update_BLD, bias_D, residual_BLD, gamma_D, beta_D, epsilon: float, drop=None):
    if drop:
        update_BLD = drop(plain_ops.bias_add(update_BLD, bias_D))
        bias_D = tf.zeros_like(bias_D)

    @tf.custom_gradient
    def function(update_BLD, bias_D, residual_BLD, gamma_D, beta_D):
        def gradient(upstream_BLD):
            # [2, 512, 768] of both summands, and of gamma for each row, whose sum over rows is [768]
            gradient_BLD, gamma_rows_BLD = _norm_backward(
                update_BLD, bias_D, residual_BLD, gamma_D, upstream_BLD, epsilon
            )
            return (
                tf.cast(gradient_BLD, update_BLD.dtype),
                tf.cast(_sum_of_rows(gradient_BLD), bias_D.dtype),
                tf.cast(gradient_BLD, residual_BLD.dtype),
                _sum_of_rows(gamma_rows_BLD),
                _sum_of_rows(upstream_BLD),
            )

        output_BLD = _norm_forward(update_BLD, bias_D, residual_BLD, gamma_D, beta_D, epsilon)
        return output_BLD, gradient

    return function(update_BLD, bias_D, residual_BLD, gamma_D, beta_D)


@compiled
def _norm_forward(update_BLD, bias_D, residual_BLD, gamma_D, beta_D, epsilon):
    sum_BLD = _float32_sum(update_BLD, bias_D, residual_BLD)
    return plain_ops.layer_norm(sum_BLD, gamma_D, beta_D, epsilon)


@compiled
def _norm_backward(update_BLD, bias_D, residual_BLD, gamma_D, upstream_BLD, epsilon):
    """The gradient of the sum, [B, L, D], and the values [B, L, D] whose sum over rows is the gradient of gamma."""
    sum_BLD = _float32_sum(update_BLD, bias_D, residual_BLD)
    mean_BL1, variance_BL1 = tf.nn.moments(sum_BLD, axes=[-1], keepdims=True)
    scale_BL1 = tf.math.rsqrt(variance_BL1 + epsilon)
    normal_BLD = (sum_BLD - mean_BL1) * scale_BL1
    scaled_BLD = upstream_BLD * gamma_D
    mean_gradient_BL1 = tf.reduce_mean(scaled_BLD, axis=-1, keepdims=True)
    mean_product_BL1 = tf.reduce_mean(scaled_BLD * normal_BLD, axis=-1, keepdims=True)
    gradient_BLD = scale_BL1 * (scaled_BLD - mean_gradient_BL1 - normal_BLD * mean_product_BL1)
    return gradient_BLD, upstream_BLD * normal_BLD
