"""The cheap parts of a block in one pass over memory: bias and activation, residual and LayerNorm, attention.

In training on a processor, what lies between the matrix products costs a third of the step if TensorFlow does it
operation by operation, because each of them reads and writes everything again. Here such a part is one kernel,
compiled by XLA, and the backward pass computes it again from its input instead of keeping what is between. What is
not trained keeps TensorFlow's operations: an XLA kernel is compiled anew for every length.

Shape legend: `modeling.py`; X rows of a batch, B * L; T query, key and value side by side, 3 D; K a head and a column
for the mask, H + 1.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.core import quiet


def bias_activation(
    hidden_XF: tf.Tensor, bias_F: tf.Tensor, activation: Callable, *, training: bool
) -> tf.Tensor:
    """activation(hidden + bias), [X, F] -> [X, F].

    Args:
      hidden_XF: of any float type, as the result.
      bias_F: of the same type.
      activation: a function of a tensor, value by value.
      training: whether gradients will be wanted.
    """
    if not training:
        return activation(tf.nn.bias_add(hidden_XF, bias_F))
    _compile_first_kernel()
    forward, backward = _bias_activation_kernels(activation)

    @tf.custom_gradient
    def function(hidden_XF, bias_F):
        def gradient(upstream_XF):
            gradient_XF = backward(hidden_XF, bias_F, upstream_XF)
            return gradient_XF, _sum_of_rows(gradient_XF)

        return forward(hidden_XF, bias_F), gradient

    return function(hidden_XF, bias_F)


@functools.cache
def _bias_activation_kernels(activation: Callable) -> tuple[Callable, Callable]:
    """Forward and backward kernel; they compute in float32, as XLA rounds after every operation on bfloat16."""

    @compiled
    def forward(hidden_XF, bias_F):
        return tf.cast(activation(_float32_sum(hidden_XF, bias_F)), hidden_XF.dtype)

    @compiled
    def backward(hidden_XF, bias_F, upstream_XF):
        with tf.GradientTape() as tape:
            sum_XF = _float32_sum(hidden_XF, bias_F)
            tape.watch(sum_XF)
            output_XF = activation(sum_XF)
        gradient_XF = tape.gradient(output_XF, sum_XF, tf.cast(upstream_XF, tf.float32))
        return tf.cast(gradient_XF, hidden_XF.dtype)

    return forward, backward


def residual_norm(
    update_XD: tf.Tensor,
    bias_D: tf.Tensor,
    residual_XD: tf.Tensor,
    gamma_D: tf.Tensor,
    beta_D: tf.Tensor,
    epsilon: float,
    *,
    drop: Callable | None = None,
    training: bool,
) -> tf.Tensor:
    """LayerNorm(drop(update + bias) + residual), [X, D] float32 (original modeling.py:429-432).

    Args:
      update_XD: of any float type.
      bias_D: of the same type.
      residual_XD: of any float type.
      gamma_D: float32.
      beta_D: float32.
      epsilon: added to the variance.
      drop: dropout of a tensor; None drops nothing.
      training: whether gradients will be wanted.
    """
    if not training:
        update_XD = tf.nn.bias_add(update_XD, bias_D)
        return norm(_float32_sum(update_XD, residual_XD), gamma_D, beta_D, epsilon)
    if drop:
        update_XD, bias_D = drop(tf.nn.bias_add(update_XD, bias_D)), tf.zeros_like(bias_D)

    @tf.custom_gradient
    def function(update_XD, bias_D, residual_XD, gamma_D, beta_D):
        def gradient(upstream_XD):
            gradient_XD, gamma_rows_XD = _norm_backward(
                update_XD, bias_D, residual_XD, gamma_D, upstream_XD, epsilon
            )
            return (
                tf.cast(gradient_XD, update_XD.dtype),
                tf.cast(_sum_of_rows(gradient_XD), bias_D.dtype),
                tf.cast(gradient_XD, residual_XD.dtype),
                _sum_of_rows(gamma_rows_XD),
                _sum_of_rows(upstream_XD),
            )

        output_XD = _norm_forward(update_XD, bias_D, residual_XD, gamma_D, beta_D, epsilon)
        return output_XD, gradient

    return function(update_XD, bias_D, residual_XD, gamma_D, beta_D)


def compiled(function: Callable) -> Callable:
    """The function as one kernel of XLA's."""
    return tf.function(function, jit_compile=True, autograph=False)


@functools.cache
def _compile_first_kernel() -> None:
    """With the first kernel of a process, XLA prints notes on itself; here it is one of no use, and they are lost."""
    with quiet.silent(), tf.init_scope(), tf.device("CPU:0"):
        compiled(tf.identity)(tf.zeros([]))


def _float32_sum(first, *others):
    return sum((tf.cast(other, tf.float32) for other in others), tf.cast(first, tf.float32))


def norm(tensor: tf.Tensor, gamma_D: tf.Tensor, beta_D: tf.Tensor, epsilon: float) -> tf.Tensor:
    """LayerNorm over the last axis, [..., D] float32 -> the same; TensorFlow's operations."""
    mean, variance = tf.nn.moments(tensor, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(tensor, mean, variance, beta_D, gamma_D, epsilon)


@compiled
def _norm_forward(update_XD, bias_D, residual_XD, gamma_D, beta_D, epsilon):
    return norm(_float32_sum(update_XD, bias_D, residual_XD), gamma_D, beta_D, epsilon)


@compiled
def _norm_backward(update_XD, bias_D, residual_XD, gamma_D, upstream_XD, epsilon):
    """The gradient of the sum, [X, D], and the rows that add up to that of gamma, [X, D]."""
    sum_XD = _float32_sum(update_XD, bias_D, residual_XD)
    mean_X1, variance_X1 = tf.nn.moments(sum_XD, axes=[-1], keepdims=True)
    scale_X1 = tf.math.rsqrt(variance_X1 + epsilon)
    normal_XD = (sum_XD - mean_X1) * scale_X1
    slope_XD = upstream_XD * gamma_D
    mean_slope_X1 = tf.reduce_mean(slope_XD, axis=-1, keepdims=True)
    mean_product_X1 = tf.reduce_mean(slope_XD * normal_XD, axis=-1, keepdims=True)
    gradient_XD = scale_X1 * (slope_XD - mean_slope_X1 - normal_XD * mean_product_X1)
    return gradient_XD, upstream_XD * normal_XD


def attention(
    projected_XT: tf.Tensor,
    bias_T: tf.Tensor,
    adder_B11M: tf.Tensor,
    num_heads: int,
    *,
    drop: Callable | None = None,
    training: bool,
) -> tf.Tensor:
    """drop(softmax(query key H ** -0.5 + adder)) value of every head, [X, D]; the softmax is float32 in every type.

    The gradient of the softmax needs, for each row, the sum of its probabilities times their slopes. That is
    the product of the output's row with its own slope: H values instead of M.

    Args:
      projected_XT: query, key and value, of any float type.
      bias_T: of the same type, added to them.
      adder_B11M: float32; 0, or -10000 for positions that are not attended to; gets no gradient.
      num_heads: N.
      drop: dropout of a tensor; None drops nothing.
      training: whether gradients will be wanted.
    """
    if not training:
        query_BNLH, key_BNMH, value_BNMH = _heads(projected_XT, bias_T, adder_B11M, num_heads)
        probabilities_BNLM = _probabilities(query_BNLH, key_BNMH, adder_B11M)
        return _merged(tf.matmul(probabilities_BNLM, value_BNMH))

    @tf.custom_gradient
    def function(projected_XT, bias_T):
        if _is_on_processor():
            query_BNLK, key_BNMK, value_BNMH = _heads_with_mask(
                projected_XT, bias_T, adder_B11M, num_heads
            )
            probabilities_BNLM = _probabilities(query_BNLK, key_BNMK)
        else:
            query_BNLK, key_BNMK, value_BNMH = _heads(projected_XT, bias_T, adder_B11M, num_heads)
            probabilities_BNLM = _probabilities(query_BNLK, key_BNMK, adder_B11M)
        dropped_BNLM = drop(probabilities_BNLM) if drop else probabilities_BNLM
        output_BNLH = tf.matmul(dropped_BNLM, value_BNMH)
        head_size = output_BNLH.shape[-1]

        def gradient(upstream_XD):
            upstream_BLNH = tf.reshape(upstream_XD, tf.shape(_swapped(output_BNLH)))
            upstream_BNLH = _swapped(upstream_BLNH)
            value_slopes_BNMH = tf.matmul(dropped_BNLM, upstream_BNLH, transpose_a=True)
            slopes_BNLM = tf.matmul(upstream_BNLH, value_BNMH, transpose_b=True)
            slopes_BNLM = _slopes_of_scores(
                probabilities_BNLM,
                dropped_BNLM if drop else None,
                slopes_BNLM,
                upstream_BNLH,
                output_BNLH,
            )
            query_slopes_BNLH = tf.matmul(slopes_BNLM, key_BNMK[..., :head_size])
            key_slopes_BNMH = tf.matmul(slopes_BNLM, query_BNLK[..., :head_size], transpose_a=True)
            scale = tf.cast(head_size**-0.5, query_slopes_BNLH.dtype)
            parts = tf.stack([query_slopes_BNLH * scale, key_slopes_BNMH, value_slopes_BNMH])
            gradient_XT = tf.transpose(parts, [1, 3, 0, 2, 4])
            gradient_XT = tf.reshape(gradient_XT, tf.shape(projected_XT))
            return gradient_XT, _sum_of_rows(gradient_XT)

        return _merged(output_BNLH), gradient

    return function(projected_XT, bias_T)


def _heads(projected_XT, bias_T, adder_B11M, num_heads: int):
    """Query, scaled for the scores, key and value, [B, N, L, H] each."""
    batch, length = tf.shape(adder_B11M)[0], tf.shape(adder_B11M)[-1]
    head_size = projected_XT.shape[-1] // (3 * num_heads)
    projected = tf.nn.bias_add(projected_XT, bias_T)
    projected = tf.reshape(projected, [batch, length, 3, num_heads, head_size])
    query_BNLH, key_BNMH, value_BNMH = tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))
    return query_BNLH * tf.cast(head_size**-0.5, query_BNLH.dtype), key_BNMH, value_BNMH


@compiled
def _heads_with_mask(projected_XT, bias_T, adder_B11M, num_heads: int):
    """`_heads`, the adder a column of the keys that meets ones of the queries: no pass over the scores adds it.

    Heads of H + 1 values cost a processor nothing, and other devices much.
    """
    query_BNLH, key_BNMH, value_BNMH = _heads(projected_XT, bias_T, adder_B11M, num_heads)
    column_B1M1 = tf.cast(tf.transpose(adder_B11M, [0, 1, 3, 2]), key_BNMH.dtype)
    column_BNM1 = tf.broadcast_to(column_B1M1, tf.shape(key_BNMH[..., :1]))
    query_BNLK = tf.concat([query_BNLH, tf.ones_like(column_BNM1)], axis=-1)
    return query_BNLK, tf.concat([key_BNMH, column_BNM1], axis=-1), value_BNMH


def _probabilities(query_BNLK, key_BNMK, adder_B11M=None):
    """softmax(query key + adder), [B, N, L, M]."""
    scores_BNLM = tf.matmul(query_BNLK, key_BNMK, transpose_b=True)
    if adder_B11M is None and _softmax_is_float32(scores_BNLM.dtype):
        return tf.nn.softmax(scores_BNLM)
    scores_BNLM = tf.cast(scores_BNLM, tf.float32)
    if adder_B11M is not None:
        scores_BNLM += adder_B11M
    return tf.cast(tf.nn.softmax(scores_BNLM), query_BNLK.dtype)


@functools.cache
def _is_on_processor() -> bool:
    return all(device.device_type == "CPU" for device in tf.config.list_logical_devices())


@functools.cache
def _softmax_is_float32(dtype: tf.DType) -> bool:
    """Whether the processor's softmax of a type computes in float32 and rounds once, as oneDNN's does."""
    with tf.init_scope(), tf.device("CPU:0"):
        scores = tf.cast(tf.random.stateless_normal([64, 96], seed=[1, 2], stddev=4.0), dtype)
        expected = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), dtype)
        return bool(tf.reduce_all(tf.nn.softmax(scores) == expected))


def _swapped(tensor):
    """[B, N, L, H] -> [B, L, N, H] and back."""
    return tf.transpose(tensor, [0, 2, 1, 3])


def _merged(output_BNLH):
    """[B, N, L, H] -> [X, D]."""
    num_heads, head_size = output_BNLH.shape[1], output_BNLH.shape[3]
    return tf.reshape(_swapped(output_BNLH), [-1, num_heads * head_size])


@compiled
def _slopes_of_scores(probabilities_BNLM, dropped_BNLM, slopes_BNLM, upstream_BNLH, output_BNLH):
    """The gradient of the scores, [B, N, L, M], from that of the dropped probabilities; None: nothing was dropped."""
    probabilities_BNLM = tf.cast(probabilities_BNLM, tf.float32)
    slopes32_BNLM = tf.cast(slopes_BNLM, tf.float32)
    product_BNLH = tf.cast(upstream_BNLH, tf.float32) * tf.cast(output_BNLH, tf.float32)
    row_BNL1 = tf.reduce_sum(product_BNLH, axis=-1, keepdims=True)
    if dropped_BNLM is None:
        gradient_BNLM = probabilities_BNLM * (slopes32_BNLM - row_BNL1)
    else:
        kept_BNLM = tf.cast(dropped_BNLM, tf.float32) * slopes32_BNLM
        gradient_BNLM = kept_BNLM - probabilities_BNLM * row_BNL1
    return tf.cast(gradient_BNLM, slopes_BNLM.dtype)


def _sum_of_rows(rows_XD: tf.Tensor) -> tf.Tensor:
    """[X, D] -> [D]; on a processor a matrix product with ones, the fastest there but inexact elsewhere."""
    if not _is_on_processor():
        return tf.raw_ops.BiasAddGrad(out_backprop=rows_XD)
    return tf.matmul(tf.ones([1, tf.shape(rows_XD)[0]], rows_XD.dtype), rows_XD)[0]
