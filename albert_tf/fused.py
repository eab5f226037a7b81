"""The cheap parts of a block in one pass over memory: bias and activation, residual and LayerNorm, attention.

In training on a processor, what lies between the matrix products costs a third of the step if TensorFlow does it
operation by operation, because each of them reads and writes everything again. Here such a part is one kernel,
compiled by XLA, and the backward pass computes it again from its input instead of keeping what is between. What is
not trained keeps TensorFlow's operations: an XLA kernel is compiled anew for every length.

Shape legend: `modeling.py`; X rows of a batch, B * L.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf import quiet


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
    @_compiled
    def forward(hidden_XF, bias_F):
        return activation(hidden_XF + bias_F)

    @_compiled
    def backward(hidden_XF, bias_F, upstream_XF):
        with tf.GradientTape() as tape:
            tape.watch(hidden_XF)
            output_XF = activation(hidden_XF + bias_F)
        return tape.gradient(output_XF, hidden_XF, upstream_XF)

    return forward, backward


def residual_norm(
    update_XD: tf.Tensor,
    residual_XD: tf.Tensor,
    gamma_D: tf.Tensor,
    beta_D: tf.Tensor,
    epsilon: float,
    *,
    training: bool,
) -> tf.Tensor:
    """LayerNorm(update + residual), [X, D] float32 (original modeling.py:429-432).

    Args:
      update_XD: of any float type.
      residual_XD: of any float type.
      gamma_D: float32.
      beta_D: float32.
      epsilon: added to the variance.
      training: whether gradients will be wanted.
    """
    if not training:
        sum_XD = _float32_sum(update_XD, residual_XD)
        mean_X1, variance_X1 = tf.nn.moments(sum_XD, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(sum_XD, mean_X1, variance_X1, beta_D, gamma_D, epsilon)

    @tf.custom_gradient
    def function(update_XD, residual_XD, gamma_D, beta_D):
        def gradient(upstream_XD):
            gradient_XD, gamma_rows_XD = _norm_backward(
                update_XD, residual_XD, gamma_D, upstream_XD, epsilon
            )
            return (
                tf.cast(gradient_XD, update_XD.dtype),
                tf.cast(gradient_XD, residual_XD.dtype),
                _sum_of_rows(gamma_rows_XD),
                _sum_of_rows(upstream_XD),
            )

        return _norm_forward(update_XD, residual_XD, gamma_D, beta_D, epsilon), gradient

    return function(update_XD, residual_XD, gamma_D, beta_D)


def _compiled(function: Callable) -> Callable:
    return tf.function(function, jit_compile=True, autograph=False)


@functools.cache
def _compile_first_kernel() -> None:
    """With the first kernel of a process, XLA prints notes on itself; here it is one of no use, and they are lost."""
    with quiet.silent(), tf.init_scope(), tf.device("CPU:0"):
        _compiled(tf.identity)(tf.zeros([]))


def _float32_sum(update_XD, residual_XD):
    return tf.cast(update_XD, tf.float32) + tf.cast(residual_XD, tf.float32)


@_compiled
def _norm_forward(update_XD, residual_XD, gamma_D, beta_D, epsilon):
    sum_XD = _float32_sum(update_XD, residual_XD)
    mean_X1, variance_X1 = tf.nn.moments(sum_XD, axes=[-1], keepdims=True)
    return tf.nn.batch_normalization(sum_XD, mean_X1, variance_X1, beta_D, gamma_D, epsilon)


@_compiled
def _norm_backward(update_XD, residual_XD, gamma_D, upstream_XD, epsilon):
    """The gradient of the sum, [X, D], and the rows that add up to that of gamma, [X, D]."""
    sum_XD = _float32_sum(update_XD, residual_XD)
    mean_X1, variance_X1 = tf.nn.moments(sum_XD, axes=[-1], keepdims=True)
    scale_X1 = tf.math.rsqrt(variance_X1 + epsilon)
    normal_XD = (sum_XD - mean_X1) * scale_X1
    slope_XD = upstream_XD * gamma_D
    mean_slope_X1 = tf.reduce_mean(slope_XD, axis=-1, keepdims=True)
    mean_product_X1 = tf.reduce_mean(slope_XD * normal_XD, axis=-1, keepdims=True)
    gradient_XD = scale_X1 * (slope_XD - mean_slope_X1 - normal_XD * mean_product_X1)
    return gradient_XD, upstream_XD * normal_XD


def attention(
    query_BNLH: tf.Tensor, key_BNMH: tf.Tensor, value_BNMH: tf.Tensor, adder_B11M: tf.Tensor
) -> tf.Tensor:
    """softmax(query key + adder) value, [B, N, L, H], for training; the softmax is float32 whatever the type.

    The gradient of the softmax needs, for each row, the sum of its probabilities times their slopes. That is
    the product of the output's row with its own slope: H values instead of M.

    Args:
      query_BNLH: of any float type, scaled by H ** -0.5.
      key_BNMH: of the same type.
      value_BNMH: of the same type.
      adder_B11M: float32, added to the scores; gets no gradient.
    """

    @tf.custom_gradient
    def function(query_BNLH, key_BNMH, value_BNMH):
        scores_BNLM = tf.matmul(query_BNLH, key_BNMH, transpose_b=True)
        scores_BNLM = tf.cast(scores_BNLM, tf.float32) + adder_B11M
        probabilities_BNLM = tf.cast(tf.nn.softmax(scores_BNLM), query_BNLH.dtype)
        output_BNLH = tf.matmul(probabilities_BNLM, value_BNMH)

        def gradient(upstream_BNLH):
            value_slopes_BNMH = tf.matmul(probabilities_BNLM, upstream_BNLH, transpose_a=True)
            slopes_BNLM = tf.matmul(upstream_BNLH, value_BNMH, transpose_b=True)
            slopes_BNLM = _slopes_of_scores(
                probabilities_BNLM, slopes_BNLM, upstream_BNLH, output_BNLH
            )
            return (
                tf.matmul(slopes_BNLM, key_BNMH),
                tf.matmul(slopes_BNLM, query_BNLH, transpose_a=True),
                value_slopes_BNMH,
            )

        return output_BNLH, gradient

    return function(query_BNLH, key_BNMH, value_BNMH)


@_compiled
def _slopes_of_scores(probabilities_BNLM, slopes_BNLM, upstream_BNLH, output_BNLH):
    product_BNLH = tf.cast(upstream_BNLH, tf.float32) * tf.cast(output_BNLH, tf.float32)
    row_BNL1 = tf.reduce_sum(product_BNLH, axis=-1, keepdims=True)
    difference_BNLM = tf.cast(slopes_BNLM, tf.float32) - row_BNL1
    product_BNLM = tf.cast(probabilities_BNLM, tf.float32) * difference_BNLM
    return tf.cast(product_BNLM, slopes_BNLM.dtype)


def _sum_of_rows(rows_XD: tf.Tensor) -> tf.Tensor:
    """[X, D] -> [D]; TensorFlow's gradient of a bias, which is faster than XLA's sum over the first axis."""
    return tf.raw_ops.BiasAddGrad(out_backprop=rows_XD)
