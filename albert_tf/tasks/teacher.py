"""The teacher of a fine-tuning (--teacher): a finished model of the same task, whose probabilities are learned, too."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf.formats import pretrained
from albert_tf.formats.weights import Weights
from albert_tf.tasks.settings import FineTuningConfig
from albert_tf.tasks.start import Head, check_cleaning
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.losses import Ratio, cross_entropy, divergence
from albert_tf.training.task import Features, Outputs

_TARGETS = "teacher/"  # begins the names of a teacher's outputs among the features of the losses
_MOST_SHOWN_LABELS = 9


class Teacher:
    """A finished model that is asked once per step of training."""

    def __init__(self, weights: Weights):
        self._weights = weights
        self._model: Any = None

    def build(self, *, dtype: str) -> None:
        """Builds the model, with the precision of its student."""
        self._model, _ = pretrained.build_model(self._weights, dtype=dtype)

    def targets(self, features: Features) -> Features:
        """The outputs of the teacher for a batch, under the names that `outputs_of_teacher` finds."""
        outputs = self._model(features, training=False)
        return {f"{_TARGETS}{name}": value for name, value in outputs.items()}


def read_teacher(
    config: FineTuningConfig, head: Head, labels: Sequence[str], tokenizer: Tokenizer
) -> Teacher | None:
    """The model of --teacher; None without one, or in a task that has no such flag.

    Raises:
      UserError: it is of another task, or reads text in another way than its student.
    """
    path = getattr(config, "teacher", "")
    if not path:
        return None
    if head.source.is_multi_label or len(labels) == 1:
        config.refuse("teacher", "is for tasks with one of several labels")
    weights = pretrained.read_weights(path)

    own_class = head.model_class.__name__
    if weights.model_class != own_class or not head.fits(weights.config.labels):
        expected = _described(own_class, labels)
        got = _described(weights.model_class, weights.config.labels)
        config.refuse("teacher", f"={path}: expected {expected}, got {got}")
    if not weights.has_vocabulary_of(tokenizer):
        config.refuse("teacher", f"={path}: has another vocabulary than the model")
    check_cleaning(config, weights, tokenizer)
    positions = weights.config.max_position_embeddings
    if config.max_seq_length > positions:
        reason = f"={path}: has {positions} positions, fewer than --max_seq_length"
        config.refuse("teacher", reason)
    return Teacher(weights)


def _described(model_class: str, labels: Sequence[str]) -> str:
    return f"{model_class} with {', '.join(labels[:_MOST_SHOWN_LABELS])}"


def outputs_of_teacher(features: Features) -> Outputs:
    """The outputs of the teacher among the features of a loss; nothing in evaluations or without a teacher."""
    return {
        name.removeprefix(_TARGETS): value
        for name, value in features.items()
        if name.startswith(_TARGETS)
    }


def taught_cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    logits_of_teacher: tf.Tensor | None,
    config: FineTuningConfig,
) -> Ratio:
    """The cross entropy of labels; with a teacher, half of it and half of the divergence from the teacher's logits.

    Args:
      logits: float [..., C], and those of the teacher; labels are int [...] and weights float [...].
      config: has the temperature of the divergence, if the task can have a teacher.
    """
    loss = cross_entropy(logits, labels, weights)
    if logits_of_teacher is None:
        return loss
    temperature = config.teacher_temperature  # type: ignore[attr-defined]
    of_teacher = divergence(logits, logits_of_teacher, weights, temperature)
    return Ratio(0.5 * (loss.sum + of_teacher.sum), loss.count)
