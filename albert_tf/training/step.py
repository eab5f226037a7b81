"""The training step: gradients of the global batch, clipped once, applied once.

The step is the same under every strategy. Each device processes its part of the global batch. Every loss is divided by
its count over the whole batch; gradients are summed over devices and then clipped. Apart from dropout masks and
rounding, the result depends neither on the number of devices nor on gradient accumulation.
"""

from collections.abc import Callable

import orbit
import tensorflow as tf

from albert_tf.model import device
from albert_tf.training import optimizers
from albert_tf.training.state import RunState


class Trainer(orbit.StandardTrainer):
    """The training step of a run, with its data; `make_dataset` makes other global batches than those of the task."""

    def __init__(self, state: RunState, make_dataset: Callable[[], tf.data.Dataset] | None = None):
        config = state.run_config

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            if make_dataset:
                return make_dataset()
            assert state.task.train_data
            return state.task.train_data.training_dataset(
                config.train_batch_size,
                seed=config.seed,
                first_step=state.first_step,
                context=context,
            )

        self.strategy = state.strategy
        super().__init__(self.strategy.distribute_datasets_from_function(dataset))
        self.task, self.model, self.optimizer = state.task, state.model, state.optimizer
        self.global_step, self.accumulators = state.global_step, state.accumulators
        self._seed = config.seed
        self._num_micro_batches = config.gradient_accumulation_steps
        trains = getattr(self.optimizer, "inner_optimizer", self.optimizer).trains
        self._variables = [*filter(trains, self.model.trainable_variables)]
        on_gpu = device.target_device() == "GPU"
        compute = self._gradients_of_batch = self._batch_gradients
        if config.jit_compile == "on" or (config.jit_compile == "auto" and on_gpu):
            self._gradients_of_batch = tf.function(compute, jit_compile=True, autograph=False)

    @tf.autograph.experimental.do_not_convert
    def train_step(self, iterator):
        """Makes one update from the next global batch; called inside a tf.function."""
        pairs = self.strategy.run(self._device_step, args=(next(iterator),))
        for name, pair in pairs.items():
            total = self.strategy.reduce(tf.distribute.ReduceOp.SUM, pair, axis=None)
            self.accumulators.add({name: total})
        self.global_step.assign_add(1)

    def _device_step(self, features) -> dict[str, tf.Tensor]:
        """Computes one device's part; returns the device's own (sum, count) pairs, float32 [2] each."""
        context = tf.distribute.get_replica_context()
        total = tf.distribute.ReduceOp.SUM
        counts = context.all_reduce(total, dict(self.task.loss_counts(features)))
        seed = tf.stack([tf.constant(self._seed, tf.int32), tf.cast(self.global_step, tf.int32)])
        shared = dict(self.task.step_inputs(tf.random.experimental.stateless_fold_in(seed, -1)))
        seed = tf.random.experimental.stateless_fold_in(seed, context.replica_id_in_sync_group)
        gradients, row_square_sums, pairs = self._gradients_of_batch(features, shared, counts, seed)
        gradients, row_square_sums = context.all_reduce(total, [gradients, row_square_sums])
        if hasattr(self.optimizer, "get_unscaled_gradients"):
            scale = tf.cast(self.optimizer.loss_scale, tf.float32)
            gradients = self.optimizer.get_unscaled_gradients(gradients)
            row_square_sums = {name: rows / scale**2 for name, rows in row_square_sums.items()}
        row_sums = [row_square_sums.get(str(index)) for index in range(len(gradients))]
        clipped, _ = optimizers.clip_by_global_norm(
            gradients, row_sums, optimizers.MAX_GRADIENT_NORM
        )
        pairs_to_apply = zip(clipped, self._variables, strict=True)
        self.optimizer.apply_gradients(pairs_to_apply, skip_gradients_aggregation=True)
        return pairs

    def _batch_gradients(self, features, shared, counts, seed):
        """Sums of `_micro_batch_gradients` over the micro-batches of a device's batch."""
        size = self._num_micro_batches
        if size == 1:
            return self._micro_batch_gradients(features, shared, counts, seed)
        split = {name: tf.stack(tf.split(value, size)) for name, value in features.items()}

        def gradients_of(index):
            micro_batch = {name: value[index] for name, value in split.items()}
            micro_batch_seed = tf.random.experimental.stateless_fold_in(seed, index)
            return self._micro_batch_gradients(micro_batch, shared, counts, micro_batch_seed)

        _, totals = tf.while_loop(
            lambda index, _: index < size,
            lambda index, totals: (
                index + 1,
                tf.nest.map_structure(tf.add, totals, gradients_of(index)),
            ),
            (tf.constant(1), gradients_of(tf.constant(0))),
            maximum_iterations=size - 1,
        )
        return totals

    def _micro_batch_gradients(self, features, shared, counts, seed):
        """Gradients by variable; sums of squares of embedding rows, by the variable's index; (sum, count) pairs."""
        with tf.GradientTape() as tape:
            outputs = self.model({**features, **shared}, training=True, seed=seed)
            ratios = dict(self.task.losses(outputs, features))
            loss = self._loss(ratios, counts)
            if weights := self.task.layer_weights:
                loss *= 1.0 - sum(weights)
                for weight, of_layer in zip(weights, outputs["other_layers"], strict=True):
                    loss += weight * self._loss(self.task.losses(of_layer, features), counts)
            if hasattr(self.optimizer, "get_scaled_loss"):
                loss = self.optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(
            loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        row_square_sums = {
            str(index): optimizers.square_sum(gradient.values)
            for index, gradient in enumerate(gradients)
            if isinstance(gradient, tf.IndexedSlices)
        }
        ratios.update(self.task.metrics(outputs, features))
        pairs = {name: tf.stack(ratio) for name, ratio in ratios.items()}
        return [tf.convert_to_tensor(gradient) for gradient in gradients], row_square_sums, pairs

    def _loss(self, ratios, counts) -> tf.Tensor:
        """The sum of the losses, each divided by its count over the whole batch."""
        epsilons = self.task.loss_epsilons
        return tf.add_n(
            [ratio.sum / (counts[name] + epsilons.get(name, 0.0)) for name, ratio in ratios.items()]
        )
