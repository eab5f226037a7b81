"""Losses and metrics as sums over steps, devices and micro-batches."""

from collections.abc import Iterable, Mapping

import tensorflow as tf

from albert_tf.data.datasets import Data
from albert_tf.training.task import Task


class Accumulators(tf.Module):
    """Sums of (sum, count) pairs over steps, in variables that checkpoints contain."""

    def __init__(self, names: Iterable[str]):
        super().__init__()
        settings = {"trainable": False, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
        self.pairs = {name: tf.Variable(tf.zeros([2]), name=name, **settings) for name in names}

    def add(self, pairs: Mapping[str, tf.Tensor]) -> None:
        """Adds (sum, count) pairs; each is float32 [2]."""
        for name, pair in pairs.items():
            self.pairs[name].assign_add(pair)

    def reset(self) -> None:
        """Sets all sums to zero."""
        for variable in self.pairs.values():
            variable.assign(tf.zeros([2]))

    def results(self) -> dict[str, float]:
        """Each sum divided by its count, or 0 if the count is 0.

        The first entry is `loss`, the sum of the losses; if a task has a single loss, `loss` is its only entry for
        losses. It is left out if no loss was added.
        """
        values, counts = {}, {}
        for name, variable in self.pairs.items():
            total, counts[name] = variable.numpy()
            values[name] = float(total / counts[name]) if counts[name] else 0.0
        losses = {name: value for name, value in values.items() if name.endswith("_loss")}
        metrics = {name: value for name, value in values.items() if name not in losses}
        if not any(counts[name] for name in losses):
            return metrics
        return {"loss": sum(losses.values()), **(losses if len(losses) > 1 else {}), **metrics}


def ratio_names(task: Task, model, data: Data) -> list[str]:
    """Names of the task's losses and metrics; traces the model without computing anything."""

    def ratios(features):
        outputs = model(features, training=False)
        return {**task.losses(outputs, features), **task.metrics(outputs, features)}

    traced = tf.function(ratios, autograph=False).get_concrete_function(dict(data.spec(1)))
    return list(traced.structured_outputs)
