"""The evaluation step: losses, metrics and predictions over one data set."""

from collections.abc import Mapping

import numpy as np
import orbit
import tensorflow as tf

from albert_tf.data.datasets import EXAMPLE_INDEX, Data
from albert_tf.training.step import Accumulators, ratio_names, with_total_loss
from albert_tf.training.task import Predictions, Task


class Evaluator(orbit.StandardEvaluator):
    """Losses, metrics and predictions of a task over one data set.

    Args:
      task: gives losses, metrics and predictions.
      model: what is evaluated.
      data: the data set.
      batch_size: examples in a step, over all devices.
      has_labels: whether there is something to compare with; predictions only if not.
    """

    def __init__(self, task: Task, model, data: Data, *, batch_size: int, has_labels: bool):
        self.strategy = tf.distribute.get_strategy()
        super().__init__(
            self.strategy.distribute_datasets_from_function(
                lambda context: data.evaluation_dataset(batch_size, context)
            )
        )
        self.task = task
        self.model = model
        self.num_examples = data.num_examples
        self.num_steps = data.evaluation_steps(batch_size)
        self.predictions: Predictions = {}
        self._has_labels = has_labels
        names = ratio_names(task, model, data) if has_labels else []
        self.accumulators = Accumulators(names)

    def eval_begin(self):
        """Starts from nothing; the state is a list of what the steps return."""
        self.accumulators.reset()
        return []

    @tf.autograph.experimental.do_not_convert
    def eval_step(self, iterator):
        """Adds one global batch; returns the predictions for it."""

        def device_step(features):
            outputs = self.model(features, training=False)
            kept = dict(self.task.predictions(outputs, features))
            if kept:
                kept[EXAMPLE_INDEX] = features[EXAMPLE_INDEX]
            if not self._has_labels:
                return {}, kept
            ratios = {**self.task.losses(outputs, features), **self.task.metrics(outputs, features)}
            return {name: tf.stack(ratio) for name, ratio in ratios.items()}, kept

        pairs, kept = self.strategy.run(device_step, args=(next(iterator),))
        for name, pair in pairs.items():
            summed = self.strategy.reduce(tf.distribute.ReduceOp.SUM, pair, axis=None)
            self.accumulators.add({name: summed})
        return {name: self.strategy.gather(value, axis=0) for name, value in kept.items()}

    def eval_reduce(self, state, step_outputs):
        """Collects the predictions of a step."""
        return [*state, {name: value.numpy() for name, value in step_outputs.items()}]

    def eval_end(self, state):
        """Losses and metrics over all examples, with `loss`, the sum of the losses."""
        self.predictions = collected(state, self.num_examples)
        results = with_total_loss(self.accumulators.results()) if self._has_labels else {}
        return {**results, **(self.task.evaluate([self.predictions]) if self._has_labels else {})}


def collected(steps: list[Mapping[str, np.ndarray]], num_examples: int) -> Predictions:
    """Predictions of batches in the order of the examples.

    Args:
      steps: what each step gave, [B, ...], with the examples' indices; -1 is no example.
      num_examples: n.

    Returns:
      Arrays [n, ...] by name; where a second axis differs from step to step, rows end in NaN.
    """
    found = {}
    for name in set(steps[0] if steps else ()) - {EXAMPLE_INDEX}:
        shape = np.max([step[name].shape[1:] for step in steps], axis=0).astype(int)
        first = steps[0][name]
        is_ragged = any(step[name].shape[1:] != first.shape[1:] for step in steps)
        array = np.full((num_examples, *shape), np.nan if is_ragged else 0, first.dtype)
        for step in steps:
            is_real = step[EXAMPLE_INDEX] >= 0
            values = step[name][is_real]
            inside = tuple(slice(0, size) for size in values.shape[1:])
            array[(step[EXAMPLE_INDEX][is_real], *inside)] = values
        found[name] = array
    return found
