"""The losses of texts with labels or scores, by the kind of answer (`LOSSES`).

B is the number of examples, C that of labels.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import example_weights
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.teacher import outputs_of_teacher, taught_cross_entropy
from albert_tf.training.losses import Ratio, binary_cross_entropy, squared_error
from albert_tf.training.task import Features


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss: what divides it, and its value; the weights of labels are float32 [C], or None."""

    # (features, weights of labels) -> float32 scalar
    count: Callable[[Features, np.ndarray | None], tf.Tensor]
    # (logits [B, C], features, weights of labels, settings) -> sum and count
    compute: Callable[[tf.Tensor, Features, np.ndarray | None, ClassifierConfig], Ratio]


def _weights_of_examples(features: Features, class_weights: np.ndarray | None) -> tf.Tensor:
    """The weight of each example, which is that of its label, float32 [B]."""
    weights_B = example_weights(features)
    if class_weights is None:
        return weights_B
    return weights_B * tf.gather(class_weights, features["label_ids"][:, 0])


def _count_of_label(features: Features, class_weights: np.ndarray | None) -> tf.Tensor:
    """The number of examples, or the sum of the weights of their labels."""
    return tf.reduce_sum(_weights_of_examples(features, class_weights))


def _loss_of_label(logits_BC, features, class_weights, config) -> Ratio:
    """Cross entropy of the one label (original classifier_utils.py:779-830)."""
    return taught_cross_entropy(
        logits_BC,
        features["label_ids"][:, 0],
        _weights_of_examples(features, class_weights),
        outputs_of_teacher(features).get("logits"),
        config,
    )


def _count_of_score(features: Features, class_weights: np.ndarray | None) -> tf.Tensor:
    """The number of examples."""
    del class_weights
    return tf.reduce_sum(example_weights(features))


def _loss_of_score(logits_B1, features, class_weights, config) -> Ratio:
    """Squared error of the score (original classifier_utils.py:779-830)."""
    del class_weights, config
    scores_B = features["label_scores"][:, 0]
    return squared_error(logits_B1[:, 0], scores_B, example_weights(features))


def _count_of_labels(features: Features, class_weights: np.ndarray | None) -> tf.Tensor:
    """The number of decisions: examples times labels."""
    del class_weights
    num_labels = features["label_sets"].shape[1]
    return tf.reduce_sum(example_weights(features)) * num_labels


def _loss_of_labels(logits_BC, features, class_weights, config) -> Ratio:
    """Binary cross entropy of each label, as torch.nn.BCEWithLogitsLoss with `pos_weight` for true labels."""
    del config
    labels_BC = features["label_sets"]
    weights_BC = tf.repeat(example_weights(features)[:, None], labels_BC.shape[1], axis=1)
    count = tf.reduce_sum(weights_BC)
    if class_weights is not None:
        weights_BC *= tf.where(labels_BC == 1, class_weights[None], 1.0)
    loss = binary_cross_entropy(logits_BC, labels_BC, weights_BC)
    return Ratio(loss.sum, count)


# Name of the column of true answers -> its loss.
LOSSES: Mapping[str, Loss] = {
    "label_ids": Loss(_count_of_label, _loss_of_label),
    "label_scores": Loss(_count_of_score, _loss_of_score),
    "label_sets": Loss(_count_of_labels, _loss_of_labels),
}
