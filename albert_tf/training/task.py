"""The Task interface: everything that the training loop needs from a task.

The loop calls a task in this order:

    at the start            `resolve`, `settings`, `data_files`, `build_model`, `vocabulary_files`, `majority_levels`
    for a training batch    `loss_counts`, `targets`, `losses` with `training`, `metrics`
    or, if `is_fitted`      `fixed_inputs` for all batches, `fit`
    for an evaluated batch  `predictions`, `losses`, `metrics`; without labels `predictions` alone
    after an evaluation     `evaluate`
    at the end              `evaluation_files`, `prediction_files`, `save_model`
"""

import abc
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.core.settings import Settings
from albert_tf.data.datasets import Data
from albert_tf.model.config import AlbertConfig
from albert_tf.training.losses import Ratio
from albert_tf.training.settings import OptimizerConfig, RunConfig

Features = Mapping[str, tf.Tensor]
Outputs = Mapping[str, tf.Tensor]
# Values by name; None where a metric is undefined, such as a correlation of equal scores.
Metrics = Mapping[str, float | None]
# Outputs for every example of a data set: name -> [examples, ...].
Predictions = Mapping[str, np.ndarray]
# Contents of files by their paths inside the run's folder.
Files = Mapping[str, str | bytes]


class Task(abc.ABC):
    """A task: its data, model, losses, metrics and files."""

    model_config: AlbertConfig  # after the data and the initial checkpoint were read
    train_data: Data | None = None
    eval_data: Data | None = None
    predict_data: Data | None = None
    best_metric: str  # maximized by the best checkpoint, which is not chosen where it is undefined
    shown_metrics: tuple[str, ...] = ()  # in the printed line of an evaluation; empty shows all
    keeps: str = "last"  # or "best": the checkpoint that is evaluated and saved as the model
    loss_epsilons: Mapping[str, float] = {}  # added to the counts that losses are divided by
    # Names inside the run's folder that `predictions_file` may have had in earlier uses of the run.
    older_predictions: Sequence[str] = ()
    # Whether the losses compare the examples of a batch. With several micro-batches, they then get the outputs of the
    # whole batch: tensors [B, ...] under the same names as for each micro-batch, without `targets`.
    compares_examples: bool = False
    # Whether `fit` trains the model at once, as one step, from what `fixed_inputs` computes of every example.
    is_fitted: bool = False

    def data_files(self) -> Mapping[str, Mapping[str, str]]:
        """For "eval" and "predict" the `file` of the data, as it was given, and the `sha256` of its content."""
        return {}

    @abc.abstractmethod
    def settings(self) -> Mapping[str, Settings | Mapping]:
        """Groups of settings for the run's config.json, besides "run" and "optimizer"; "model" has the configuration.

        A run is resumed only if they are the same, except for settings that do not change results.
        """

    def resolve(
        self, run: RunConfig, optimizer: OptimizerConfig
    ) -> tuple[RunConfig, OptimizerConfig]:
        """Settings of the run and of the optimizer; every None that depends on the task is replaced by a value."""
        return run, optimizer

    def vocabulary_files(self) -> Files:
        """The files of the model's folder that are known before training, so that every checkpoint can be used."""
        return {}

    @abc.abstractmethod
    def build_model(self, *, dtype: str, recompute_activations: bool, seed: int):
        """A new model; it has the values of the initial checkpoint if there is one."""

    def targets(self, features: Features) -> Features:
        """More features for the losses in training, such as a teacher's outputs; they are computed once in a step.

        Evaluations do not have them, because their losses should not depend on a teacher.
        """
        return {}

    @abc.abstractmethod
    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """For each loss in training the count that divides it, float32 scalars, which are first summed over devices."""

    @abc.abstractmethod
    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """The losses, which have equal weights, under the names of `loss_counts`.

        Args:
          outputs: the outputs of the model.
          features: the batch; in training also its `targets`.
          training: whether the losses are minimized. Those of an evaluation should not depend on how the model is
            trained, such as on weights of labels, so that runs can be compared.
        """

    def metrics(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Metrics that are sums over examples."""
        return {}

    def fixed_inputs(self, model, features: Features) -> Mapping[str, tf.Tensor]:
        """What `fit` needs of every example, [B, ...]; it does not depend on the variables that `fit` sets."""
        return {}

    def fit(self, model, inputs: Predictions) -> Metrics:
        """Sets the variables that are trained, given the `fixed_inputs` of all examples; returns the loss."""
        return {}

    def facts_about_fit(self) -> Mapping[str, str | float]:
        """Rows of the model card about `fit`."""
        return {}

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Outputs for every example, [B, ...], that `evaluate` and the files need."""
        return {}

    def evaluate(self, predictions: Predictions) -> Metrics:
        """Metrics of the predictions for `eval_data`; one that is None or not finite is undefined."""
        return {}

    def evaluation_files(self, predictions: Predictions) -> Files:
        """Files about the predictions for `eval_data`."""
        return {}

    def predictions_file(self) -> str:
        """The main one of the `prediction_files`."""
        return ""

    def prediction_files(self, predictions: Predictions) -> Files:
        """Files with the answers for `predict_data`."""
        return {}

    @abc.abstractmethod
    def save_model(self, model, folder: str, history: Mapping[str, Mapping]) -> None:
        """Writes the trained model's folder; `history` has rows of its card in the groups "Training" and "Results"."""

    def majority_levels(self) -> Metrics:
        """The majority-class baseline: the value of each metric if the most frequent answer is always given."""
        return {}
