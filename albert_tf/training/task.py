"""The seam between the loop and what it trains.

A task says what its data is, builds its model, gives losses and metrics as (sum, count), collects predictions, and
finishes them into final numbers and files; the loop does the rest. A further benchmark is one file here and one runner.
"""

import abc
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data.datasets import Data
from albert_tf.training.losses import Ratio
from albert_tf.training.settings import OptimizerConfig, RunConfig

Features = Mapping[str, tf.Tensor]
Outputs = Mapping[str, tf.Tensor]
# Per-example outputs of a whole data set: name -> [examples, ...].
Predictions = Mapping[str, np.ndarray]
# Contents by path inside the run's folder.
Files = Mapping[str, str | bytes]


class Task(abc.ABC):
    """What is trained and measured.

    Attributes:
      model_config: sizes of the model, known once the data and the initial checkpoint were looked at.
      train_data: what is trained on, or None.
      eval_data: what is evaluated on, or None.
      predict_data: what predictions are wanted for, or None.
      best_metric: the metric that the best checkpoint has most of.
      shown_metrics: what a line about an evaluation says; everything if empty.
      keeps: which checkpoint is evaluated, predicts and becomes the model at the end, "last" or "best".
      loss_epsilons: what is added to the global count that a loss is divided by; 0 where a loss has no entry.
    """

    train_data: Data | None = None
    eval_data: Data | None = None
    predict_data: Data | None = None
    best_metric: str
    shown_metrics: tuple[str, ...] = ()
    keeps: str = "last"
    loss_epsilons: Mapping[str, float] = {}

    @property
    def data(self) -> list[Data]:
        """All data of the task."""
        return [data for data in (self.train_data, self.eval_data, self.predict_data) if data]

    @abc.abstractmethod
    def settings(self) -> Mapping[str, Mapping]:
        """The task's settings by group, for the run's config.json; the model's are the group "model"."""

    def resolve(
        self, run: RunConfig, optimizer: OptimizerConfig
    ) -> tuple[RunConfig, OptimizerConfig]:
        """The settings of the loop, with what the user left open filled in."""
        return run, optimizer

    @abc.abstractmethod
    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int):
        """A new model, or one with the values of an initial checkpoint."""

    @abc.abstractmethod
    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """What each loss will be divided by once it is summed over all devices; a function of the batch alone."""

    @abc.abstractmethod
    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """The losses, of equal weight, under the names of `loss_counts`."""

    def metrics(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """What is measured besides the losses, batch by batch."""
        return {}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """What is kept of each example, [B, ...], to be finished over the whole data set."""
        return {}

    def evaluate(self, members: Sequence[Predictions]) -> Mapping[str, float]:
        """Final numbers for `eval_data`, of one model's predictions, or of several models', which are averaged."""
        return {}

    def collapsed(self, members: Sequence[Predictions]) -> str:
        """In words, what shows that the model gives the same answer to everything; "" if it does not."""
        return ""

    def evaluation_files(self, members: Sequence[Predictions]) -> Files:
        """Files about the predictions for `eval_data`."""
        return {}

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """Files with the answers for `predict_data`."""
        return {}

    @abc.abstractmethod
    def save_model(self, model, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the finished model's folder.

        Args:
          model: what `build_model` gave.
          folder: where to.
          history: what the model card says of the training, "Training" and "Results", as rows by name.
        """

    def chance_levels(self) -> Mapping[str, float]:
        """What a guess without a model reaches, by metric."""
        return {}
