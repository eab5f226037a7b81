"""The seam between the loop and what it trains.

A task says what its records hold, builds its model, and gives losses and metrics as (sum, count); the loop does the
rest. A further benchmark is one file here and one runner.
"""

import abc
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.losses import Ratio
from albert_tf.records import RecordSet, Schema

Features = Mapping[str, tf.Tensor]
Outputs = Mapping[str, tf.Tensor]


class Task(abc.ABC):
    """What is trained and measured.

    Attributes:
      model_config: sizes of the model, known once the records and the initial checkpoint were looked at.
      schema: features of a record.
      train_records: what is trained on, or None.
      eval_records: what is evaluated on, or None.
      reading: keyword arguments `shuffle` and `buffer_examples` of `records.Reading`.
      best_metric: the metric that the best checkpoint has most of.
      loss_epsilons: what is added to the global count that a loss is divided by; 0 where a loss has no entry.
    """

    train_records: RecordSet | None = None
    eval_records: RecordSet | None = None
    schema: Schema
    reading: Mapping
    best_metric: str
    loss_epsilons: Mapping[str, float] = {}

    @abc.abstractmethod
    def settings(self) -> Mapping[str, Mapping]:
        """The task's settings by group, for the run's config.json."""

    @abc.abstractmethod
    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int):
        """A new model, or one with the values of an initial checkpoint."""

    @abc.abstractmethod
    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """What each loss will be divided by once it is summed over all devices; a function of the batch alone."""

    @abc.abstractmethod
    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """The losses, of equal weight, under the names of `loss_counts`."""

    @abc.abstractmethod
    def metrics(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """What is measured besides the losses."""

    @abc.abstractmethod
    def save_model(self, model, folder: str) -> None:
        """Writes the finished model's folder."""

    def chance_levels(self) -> Mapping[str, float]:
        """What a guess without a model reaches, by metric."""
        return {}
