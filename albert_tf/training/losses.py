"""Losses and metrics, each as (sum, count): the division happens once, at the very end.

So no result depends on the batch size, on the number of devices or on a short last batch. Shape legend:
`modeling.py`.
"""

from typing import NamedTuple

import tensorflow as tf


class Ratio(NamedTuple):
    """A sum and the weight that it is to be divided by: float32 scalars, which add over batches and devices."""

    sum: tf.Tensor
    count: tf.Tensor


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted sum of the negative log probabilities of the labels, and the sum of the weights.

    Args:
      logits: [..., C] of any float type; computed in float32.
      labels: int [...].
      weights: float [...]; 0 leaves an item out.

    Raises:
      ValueError: the shapes do not fit.
    """
    logits, labels, weights = _checked(logits, labels, weights)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return Ratio(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def squared_error(predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted sum of squared differences, and the sum of the weights.

    Args:
      predictions: float [...].
      targets: float [...].
      weights: float [...]; 0 leaves an item out.
    """
    errors = tf.square(tf.cast(predictions, tf.float32) - tf.cast(targets, tf.float32))
    return Ratio(tf.reduce_sum(errors * weights), tf.reduce_sum(weights))


def binary_cross_entropy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted sum of the negative log probabilities of yes-or-no labels, and the sum of the weights.

    Args:
      logits: float [...]; larger = 1.
      labels: 0 or 1 [...].
      weights: float [...]; 0 leaves an item out.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.float32), logits=tf.cast(logits, tf.float32)
    )
    return Ratio(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def accuracy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted number of items whose largest logit is the label's, and the sum of the weights.

    Args:
      logits: [..., C] of any float type.
      labels: int [...].
      weights: float [...]; 0 leaves an item out.

    Raises:
      ValueError: the shapes do not fit.
    """
    logits, labels, weights = _checked(logits, labels, weights)
    hits = tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)
    return Ratio(tf.reduce_sum(hits * weights), tf.reduce_sum(weights))


def _checked(logits, labels, weights) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    logits, weights = tf.cast(logits, tf.float32), tf.cast(weights, tf.float32)
    labels = tf.convert_to_tensor(labels)
    logits.shape[:-1].assert_is_compatible_with(labels.shape)
    labels.shape.assert_is_compatible_with(weights.shape)
    return logits, labels, weights
