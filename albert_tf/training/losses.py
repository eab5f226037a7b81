"""Losses and metrics as (sum, count) pairs, which are added up first and divided once at the end.

Results therefore do not depend on the batch size, the number of devices or a short last batch. C is the number of
classes.
"""

from typing import NamedTuple

import tensorflow as tf


class Ratio(NamedTuple):
    """A sum and the count that it is divided by: float32 scalars, which are added over batches and devices."""

    sum: tf.Tensor
    count: tf.Tensor


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted sum of the negative log probabilities of the labels int [...], and the sum of the weights.

    Logits are [..., C] of any float type, computed in float32; weights are float [...]; 0 excludes an item.
    """
    logits, labels, weights = _checked(logits, labels, weights)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return Ratio(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def divergence(
    logits: tf.Tensor, target_logits: tf.Tensor, weights: tf.Tensor, temperature: float
) -> Ratio:
    """Weighted sum of the Kullback-Leibler divergences from target probabilities, and the sum of the weights.

    Both logits [..., C] are divided by the temperature, and the sum is multiplied by its square, so that gradients do
    not depend on it. Source: Hinton et al., arXiv 1503.02531, section 2.
    """
    logits = tf.cast(logits, tf.float32) / temperature
    target_logits = tf.cast(target_logits, tf.float32) / temperature
    differences = tf.nn.log_softmax(target_logits) - tf.nn.log_softmax(logits)
    losses = temperature**2 * tf.reduce_sum(tf.nn.softmax(target_logits) * differences, axis=-1)
    return Ratio(tf.reduce_sum(losses * tf.cast(weights, tf.float32)), tf.reduce_sum(weights))


def squared_error(predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted sum of squared differences, and the sum of the weights."""
    errors = tf.square(tf.cast(predictions, tf.float32) - tf.cast(targets, tf.float32))
    return Ratio(tf.reduce_sum(errors * weights), tf.reduce_sum(weights))


def binary_cross_entropy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted sum of the negative log probabilities of binary labels, and the sum of the weights.

    All are [...]: the log odds of 1, the labels 0 or 1, and the weights, float; 0 excludes an item.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.float32), logits=tf.cast(logits, tf.float32)
    )
    return Ratio(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def accuracy(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Ratio:
    """Weighted number of items with the largest logit at the label, and the sum of the weights."""
    logits, labels, weights = _checked(logits, labels, weights)
    hits = tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)
    return Ratio(tf.reduce_sum(hits * weights), tf.reduce_sum(weights))


def _checked(logits, labels, weights) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    logits = tf.cast(logits, tf.float32)
    weights = tf.cast(weights, tf.float32)
    labels = tf.convert_to_tensor(labels)
    logits.shape[:-1].assert_is_compatible_with(labels.shape)
    labels.shape.assert_is_compatible_with(weights.shape)
    return logits, labels, weights
