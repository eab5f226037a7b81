"""Evaluation: losses, metrics and predictions over one data set."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orbit
import tensorflow as tf

from albert_tf.data.datasets import EXAMPLE_INDEX, Data
from albert_tf.training.accumulators import Accumulators, ratio_names
from albert_tf.training.devices import num_workers
from albert_tf.training.state import RunState
from albert_tf.training.task import Features, Predictions, Task


class Evaluator(orbit.StandardEvaluator):
    """Losses, metrics and predictions of a run's model over one data set.

    Without labels, only predictions are made; `predictions` are those of the last evaluation.
    """

    def __init__(self, state: RunState, data: Data, *, has_labels: bool = True):
        batch_size = state.run_config.eval_batch_size
        self.strategy = state.strategy
        make_dataset = functools.partial(data.evaluation_dataset, batch_size)
        super().__init__(self.strategy.distribute_datasets_from_function(make_dataset))
        self.predictions: Predictions = {}
        self._task, self._model = state.task, state.model
        self._has_labels = has_labels
        self._interruption = state.interruption
        # Other workers would wait for this one.
        self._ends_at_once = num_workers(state.strategy) == 1
        self._num_examples = data.num_examples
        self._num_steps = data.evaluation_steps(batch_size)
        names: Iterable[str] = ()
        if has_labels:  # a training run already knows the names
            names = state.accumulators.pairs or ratio_names(state.task, state.model, data)
        self._accumulators = Accumulators(names)

    def results(self, max_steps: int | None = None) -> dict[str, float]:
        """Losses and metrics of the whole data set, or of its first batches; also sets `predictions`."""
        return self.evaluate(tf.constant(min(self._num_steps, max_steps or self._num_steps)))

    def eval_begin(self):
        """Resets the sums; the state of the evaluation is a list with the predictions of each step."""
        self._accumulators.reset()
        return []

    @tf.autograph.experimental.do_not_convert
    def eval_step(self, iterator):
        """Adds the losses and metrics of a global batch to the sums; returns its predictions."""

        device_step = functools.partial(
            evaluation_step, self._task, self._model, has_labels=self._has_labels
        )
        pairs, predictions = self.strategy.run(device_step, args=(next(iterator),))
        for name, pair in pairs.items():
            total = self.strategy.reduce(tf.distribute.ReduceOp.SUM, pair, axis=None)
            self._accumulators.add({name: total})
        return {name: self.strategy.gather(value, axis=0) for name, value in predictions.items()}

    def eval_reduce(self, state, step_outputs):
        """Appends the predictions of a step; ends the evaluation if a signal has interrupted it."""
        if self._ends_at_once:
            self._interruption.check()
        return [*state, {name: value.numpy() for name, value in step_outputs.items()}]

    def eval_end(self, state):
        """Sets `predictions`; returns losses and metrics."""
        self.predictions = in_example_order(state, self._num_examples)
        if not self._has_labels:
            return {}
        return {**self._accumulators.results(), **self._task.evaluate([self.predictions])}


def evaluation_step(task: Task, model, features: Features, *, has_labels: bool):
    """Evaluates on one device: returns (sum, count) pairs, float32 [2] each (none without labels), and predictions."""
    outputs = model(features, training=False)
    predictions = dict(task.predictions(outputs, features))
    if predictions:
        predictions[EXAMPLE_INDEX] = features[EXAMPLE_INDEX]
    if not has_labels:
        return {}, predictions
    ratios = {**task.losses(outputs, features), **task.metrics(outputs, features)}
    return {name: tf.stack(ratio) for name, ratio in ratios.items()}, predictions


def in_example_order(steps: Sequence[Mapping[str, np.ndarray]], num_examples: int) -> Predictions:
    """Predictions of batches as arrays in the order of the examples.

    Args:
      steps: for each batch, predictions [B, ...] and the indices of its examples; index -1 pads a short batch.
      num_examples: n, the number of examples.

    Returns:
      Arrays [n, ...] by name; if the size of the second axis differs between batches, rows are padded with NaN.
    """
    arrays = {}
    # In the order of the outputs: equal runs write equal files.
    for name in filter(EXAMPLE_INDEX.__ne__, steps[0] if steps else ()):
        shape = np.max([step[name].shape[1:] for step in steps], axis=0).astype(int)
        first = steps[0][name]
        is_ragged = any(step[name].shape[1:] != first.shape[1:] for step in steps)
        arrays[name] = np.full((num_examples, *shape), np.nan if is_ragged else 0, first.dtype)
        for step in steps:
            is_example = step[EXAMPLE_INDEX] >= 0
            values = step[name][is_example]
            inside: tuple[Any, ...] = tuple(map(slice, values.shape[1:]))
            arrays[name][(step[EXAMPLE_INDEX][is_example], *inside)] = values
    return arrays
