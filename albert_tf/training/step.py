"""A step of training and of evaluation: from a batch on the devices to sums of losses and metrics.

Both steps are the same under every strategy. Each device processes its part of the global batch. In training, every
loss is divided by its count over the whole batch; gradients are summed over devices, clipped once and applied once.
Apart from dropout masks and rounding, the result depends neither on the number of devices nor on gradient
accumulation. Losses that compare the examples of a batch get the outputs of all micro-batches at once
(`_gradients_by_outputs`).
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orbit
import tensorflow as tf

from albert_tf.data.datasets import EXAMPLE_INDEX, Data
from albert_tf.model import device
from albert_tf.training import optimizers
from albert_tf.training.devices import num_workers
from albert_tf.training.state import (
    GRADIENT_NORM,
    STEP_METRICS,
    Accumulators,
    RunState,
    ratio_names,
)
from albert_tf.training.task import Features, Predictions, Task

_ZERO = tf.UnconnectedGradients.ZERO


class Trainer(orbit.StandardTrainer):
    """The training step of a run, with its data."""

    def __init__(self, state: RunState):
        config = state.run_config
        data = state.task.train_data
        assert data

        def dataset_of(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return data.training_dataset(
                config.train_batch_size,
                seed=config.seed,
                first_step=state.first_step,
                context=context,
            )

        self.strategy = state.strategy
        super().__init__(self.strategy.distribute_datasets_from_function(dataset_of))
        self.task = state.task
        self.model = state.model
        self.optimizer = state.optimizer
        self.global_step = state.global_step
        self.accumulators = state.accumulators
        self._scales_loss = hasattr(self.optimizer, "get_scaled_loss")
        self._seed = config.seed
        self._num_micro_batches = config.gradient_accumulation_steps
        trains = getattr(self.optimizer, "inner_optimizer", self.optimizer).trains
        self._variables = [*filter(trains, self.model.trainable_variables)]
        on_gpu = device.target_device() == "GPU"
        self._gradients_of_batch = self._batch_gradients
        if config.jit_compile == "on" or (config.jit_compile == "auto" and on_gpu):
            self._gradients_of_batch = tf.function(
                self._batch_gradients, jit_compile=True, autograph=False
            )

    @tf.autograph.experimental.do_not_convert
    def train_step(self, iterator):
        """Makes one update from the next global batch; called inside a tf.function."""
        pairs = self.strategy.run(self._device_step, args=(next(iterator),))
        self.accumulators.add(self.strategy, pairs)
        self.global_step.assign_add(1)

    def _device_step(self, features) -> dict[str, tf.Tensor]:
        """Computes one device's part; returns the device's own (sum, count) pairs, float32 [2] each."""
        # The counts of the global batch, and a seed [2] of this step and device.
        context = tf.distribute.get_replica_context()
        total = tf.distribute.ReduceOp.SUM
        counts = context.all_reduce(total, dict(self.task.loss_counts(features)))
        seed = tf.stack([tf.constant(self._seed, tf.int32), tf.cast(self.global_step, tf.int32)])
        seed = tf.random.experimental.stateless_fold_in(seed, context.replica_id_in_sync_group)

        # The sum of all devices, a gradient for each variable; scaled losses have scaled gradients.
        gradients, row_square_sums, pairs = self._gradients_of_batch(features, counts, seed)
        gradients, row_square_sums = context.all_reduce(total, [gradients, row_square_sums])
        if self._scales_loss:
            scale = tf.cast(self.optimizer.loss_scale, tf.float32)
            gradients = self.optimizer.get_unscaled_gradients(gradients)
            row_square_sums = {name: rows / scale**2 for name, rows in row_square_sums.items()}

        # The same update on each device.
        row_sums = [row_square_sums.get(str(index)) for index in range(len(gradients))]
        clipped, norm = optimizers.clip_by_global_norm(
            gradients, row_sums, optimizers.MAX_GRADIENT_NORM
        )
        pairs_to_apply = zip(clipped, self._variables, strict=True)
        self.optimizer.apply_gradients(pairs_to_apply, skip_gradients_aggregation=True)

        # Loss scaling leaves out a step whose norm is not finite. Without it, such a step has destroyed the model, and
        # the loop must see that. The devices' equal pairs are added up.
        pair = tf.stack([norm, 1.0])
        if self._scales_loss:
            pair = tf.where(tf.math.is_finite(norm), pair, tf.zeros([2]))
        return {**pairs, GRADIENT_NORM: pair / context.num_replicas_in_sync}

    def _batch_gradients(self, features, counts, seed):
        """Gradients by variable; sums of squares of embedding rows, by the variable's index; (sum, count) pairs.

        These are sums over the micro-batches of a device's batch.
        """
        size = self._num_micro_batches
        if size == 1:
            return self._micro_batch_gradients(features, counts, seed)
        split = {name: tf.stack(tf.split(value, size)) for name, value in features.items()}

        def micro_batch(index):
            part = {name: value[index] for name, value in split.items()}
            return part, tf.random.experimental.stateless_fold_in(seed, index)

        if self.task.compares_examples:
            return self._gradients_by_outputs(features, micro_batch, counts)

        def gradients_of(index):
            part, seed_of_part = micro_batch(index)
            return self._micro_batch_gradients(part, counts, seed_of_part)

        return _sum_over(size, gradients_of)

    def _gradients_by_outputs(self, features, micro_batch, counts):
        """The same for losses that compare the examples of a batch, in the memory of one micro-batch.

        The model computes each micro-batch twice, with the same dropout masks: first its outputs, without a gradient;
        then, when the losses of the whole batch have given the gradient of every output, the gradients of its
        variables. Source: Gao et al., arXiv 2101.06983 (gradient cache).
        """
        size = self._num_micro_batches

        def outputs_of(index):
            part, seed = micro_batch(index)
            return dict(self.model(part, training=True, seed=seed))

        # Micro-batches of 4 examples, whose vectors have 7 values: 2 x [4, 7] -> [8, 7].
        outputs = _joined_over(size, outputs_of)
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            ratios = dict(self.task.losses(outputs, features, training=True))
            loss = self._scaled(self._loss(ratios, counts))
        output_gradients = tape.gradient(loss, outputs, unconnected_gradients=_ZERO)
        # [8, 7] -> [2, 4, 7]
        upstream = {
            name: tf.stack(tf.split(gradient, size)) for name, gradient in output_gradients.items()
        }

        def gradients_of(index):
            with tf.GradientTape() as tape:
                part_outputs = outputs_of(index)
            gradients = tape.gradient(
                part_outputs,
                self._variables,
                output_gradients={name: value[index] for name, value in upstream.items()},
                unconnected_gradients=_ZERO,
            )
            return _dense(gradients)

        gradients, row_square_sums = _sum_over(size, gradients_of)
        ratios.update(self.task.metrics(outputs, features))
        return gradients, row_square_sums, _stacked(ratios)

    def _micro_batch_gradients(self, features, counts, seed):
        """See `_batch_gradients`; of one micro-batch, whose gradients the tape finds in one pass."""
        # Outside of the tape, because a teacher gets no gradient.
        features_and_targets = {**features, **self.task.targets(features)}
        with tf.GradientTape() as tape:
            outputs = self.model(features, training=True, seed=seed)
            ratios = dict(self.task.losses(outputs, features_and_targets, training=True))
            loss = self._scaled(self._loss(ratios, counts))
        gradients, row_square_sums = _dense(
            tape.gradient(loss, self._variables, unconnected_gradients=_ZERO)
        )
        ratios.update(self.task.metrics(outputs, features))
        return gradients, row_square_sums, _stacked(ratios)

    def _scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss, times the factor of loss scaling if the optimizer uses it."""
        if self._scales_loss:
            return self.optimizer.get_scaled_loss(loss)
        return loss

    def _loss(self, ratios, counts) -> tf.Tensor:
        """The sum of the losses, each divided by its count over the whole batch.

        A loss without a count is 0, with gradients of 0: a batch may have nothing that it is about, such as sentences
        none of whose words has a token.
        """
        epsilons = self.task.loss_epsilons
        means = []
        for name, ratio in ratios.items():
            count = counts[name] + epsilons.get(name, 0.0)
            means.append(tf.math.divide_no_nan(ratio.sum, count))
        return tf.add_n(means)


def _sum_over(size: int, function: Callable):
    """The sums of the tensors that the function returns for each index below `size`, one index after the other."""

    def add(index, totals):
        return index + 1, tf.nest.map_structure(tf.add, totals, function(index))

    first = tf.constant(1), function(tf.constant(0))
    _, totals = tf.while_loop(
        lambda index, _: index < size, add, first, maximum_iterations=size - 1
    )
    return totals


def _joined_over(size: int, function: Callable) -> dict[str, tf.Tensor]:
    """The tensors [B, ...] that the function returns for each index below `size`, joined along their first axis."""
    first = function(tf.constant(0))
    types = tf.nest.map_structure(tf.TensorSpec.from_tensor, first)
    of_later_indices = tf.map_fn(
        function, tf.range(1, size), parallel_iterations=1, fn_output_signature=types
    )
    joined = {}
    for name, value in first.items():
        # [size - 1, B, ...] -> [(size - 1) x B, ...]
        shape = tf.concat([[-1], tf.shape(value)[1:]], axis=0)
        joined[name] = tf.concat([value, tf.reshape(of_later_indices[name], shape)], axis=0)
    return joined


def _dense(gradients: Sequence) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """Dense gradients, and the sums of squares of those that are embedding rows, by the gradient's index."""
    row_square_sums = {
        str(index): optimizers.square_sum(gradient.values)
        for index, gradient in enumerate(gradients)
        if isinstance(gradient, tf.IndexedSlices)
    }
    return [tf.convert_to_tensor(gradient) for gradient in gradients], row_square_sums


def _stacked(ratios: Mapping) -> dict[str, tf.Tensor]:
    """Each sum with its count as one tensor, float32 [2]."""
    return {name: tf.stack(ratio) for name, ratio in ratios.items()}


class Evaluator(orbit.StandardEvaluator):
    """Losses, metrics and `predictions` of a run's model over one data set; without labels predictions alone."""

    def __init__(self, state: RunState, data: Data, *, has_labels: bool = True):
        batch_size = state.run_config.eval_batch_size
        self.strategy = state.strategy
        make_dataset = functools.partial(data.evaluation_dataset, batch_size)
        super().__init__(self.strategy.distribute_datasets_from_function(make_dataset))
        self.predictions: Predictions = {}
        self._task = state.task
        self._model = state.model
        self._has_labels = has_labels
        self._interruption = state.interruption
        # Other workers would wait for this one.
        self._ends_at_once = num_workers(state.strategy) == 1
        self._num_examples = data.num_examples
        self._num_steps = data.evaluation_steps(batch_size)
        names: Iterable[str] = ()
        if has_labels:  # a training run already knows the names
            names = state.accumulators.pairs
            if not names:
                names = ratio_names(state.task, state.model, data, training=False)
            names = [name for name in names if name not in STEP_METRICS]
        self._accumulators = Accumulators(names)

    def results(self, max_steps: int | None = None) -> dict[str, float | None]:
        """Losses and metrics of the whole data set, or of its first batches; sets `predictions`.

        None if undefined: if the loss is not finite, as of a model that has diverged, all are.
        """
        return self.evaluate(tf.constant(min(self._num_steps, max_steps or self._num_steps)))

    def eval_begin(self):
        """Resets the sums; the state of the evaluation is a list with the predictions of each step."""
        self._accumulators.reset()
        return []

    @tf.autograph.experimental.do_not_convert
    def eval_step(self, iterator):
        """Adds the losses and metrics of a global batch to the sums; returns its predictions."""
        pairs, predictions = self.strategy.run(self._device_step, args=(next(iterator),))
        self._accumulators.add(self.strategy, pairs)
        return {name: self.strategy.gather(value, axis=0) for name, value in predictions.items()}

    def _device_step(self, features: Features):
        return evaluation_step(self._task, self._model, features, has_labels=self._has_labels)

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
        results = {**self._accumulators.results(), **self._task.evaluate(self.predictions)}
        if "loss" in results and not _is_finite(results["loss"]):
            # A label would be chosen of outputs that are no numbers, too, and such a model could be the best one.
            return dict.fromkeys(results)
        # NaN is no JSON.
        return {name: value if _is_finite(value) else None for name, value in results.items()}


class FixedInputs(Evaluator):
    """Reads what `Task.fit` needs of the training data: after `results`, the `predictions` are the inputs."""

    def __init__(self, state: RunState):
        data = state.task.train_data
        assert data
        super().__init__(state, data, has_labels=False)

    def _device_step(self, features: Features):
        inputs = dict(self._task.fixed_inputs(self._model, features))
        return {}, {**inputs, EXAMPLE_INDEX: features[EXAMPLE_INDEX]}


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def evaluation_step(task: Task, model, features: Features, *, has_labels: bool):
    """Evaluates on one device: returns (sum, count) pairs, float32 [2] each (none without labels), and predictions."""
    outputs = model(features, training=False)
    predictions = dict(task.predictions(outputs, features))
    if predictions:
        predictions[EXAMPLE_INDEX] = features[EXAMPLE_INDEX]
    if not has_labels:
        return {}, predictions
    losses = task.losses(outputs, features, training=False)
    ratios = {**losses, **task.metrics(outputs, features)}
    return _stacked(ratios), predictions


def in_example_order(steps: Sequence[Mapping[str, np.ndarray]], num_examples: int) -> Predictions:
    """Predictions of batches, [B, ...] with the indices of their examples, as arrays in the order of the examples.

    The index -1 pads a short batch. If the sizes of other axes differ between batches, rows are padded with NaN.
    """
    arrays: dict[str, np.ndarray] = {}
    if not steps:
        return arrays
    # In the order of the outputs: equal runs write equal files.
    names = [name for name in steps[0] if name != EXAMPLE_INDEX]
    for name in names:
        # [4, 9, 384] and [4, 5, 384] of 7 examples, the last of which pads -> [7, 9, 384]
        first = steps[0][name]
        shape = np.max([step[name].shape[1:] for step in steps], axis=0).astype(int)
        is_ragged = any(step[name].shape[1:] != first.shape[1:] for step in steps)
        array = np.full((num_examples, *shape), np.nan if is_ragged else 0, first.dtype)
        for step in steps:
            is_example = step[EXAMPLE_INDEX] >= 0
            rows = step[EXAMPLE_INDEX][is_example]
            predictions = step[name][is_example]
            inside: tuple[Any, ...] = tuple(map(slice, predictions.shape[1:]))
            array[(rows, *inside)] = predictions
        arrays[name] = array
    return arrays
