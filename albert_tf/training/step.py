"""The training step: gradients of the global batch, clipped, applied once.

A step is the same under every strategy: each device takes its part of the global batch, every loss is divided once by
its count over the whole batch, gradients are summed over devices and then clipped, so that neither devices nor
gradient accumulation change the result.
"""

from collections.abc import Mapping

import orbit
import tensorflow as tf

from albert_tf.data.datasets import Data
from albert_tf.training import optimizers
from albert_tf.training.settings import RunConfig
from albert_tf.training.task import Task


class Accumulators(tf.Module):
    """Sums of (sum, count) pairs over steps, as variables of the run's state.

    Args:
      names: of the ratios.
    """

    def __init__(self, names):
        super().__init__()

        def zeros(name: str) -> tf.Variable:
            aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
            return tf.Variable(tf.zeros([2]), trainable=False, name=name, aggregation=aggregation)

        self.pairs = {name: zeros(name) for name in names}

    def add(self, ratios: Mapping[str, tf.Tensor]) -> None:
        """Adds [2] tensors of (sum, count)."""
        for name, pair in ratios.items():
            self.pairs[name].assign_add(pair)

    def reset(self) -> None:
        """Sets all to zero."""
        for variable in self.pairs.values():
            variable.assign(tf.zeros([2]))

    def results(self) -> dict[str, float]:
        """Each sum divided by its count; 0 where nothing was counted."""
        pairs = {name: variable.numpy() for name, variable in self.pairs.items()}
        return {name: float(pair[0] / pair[1]) if pair[1] else 0.0 for name, pair in pairs.items()}


class Trainer(orbit.StandardTrainer):
    """The training step of a task.

    Args:
      task: gives losses and metrics.
      model: what is trained.
      optimizer: ours, or a LossScaleOptimizer around it.
      global_step: number of steps done; incremented by each.
      accumulators: where losses and metrics are added up.
      dataset: distributed batches.
      run: accumulation, compilation, seed.
      max_gradient_norm: see `OptimizerConfig`.
    """

    def __init__(
        self,
        task: Task,
        *,
        model,
        optimizer,
        global_step: tf.Variable,
        accumulators: Accumulators,
        dataset,
        run: RunConfig,
        max_gradient_norm: float,
    ):
        super().__init__(dataset)
        self.task = task
        self.model = model
        self.optimizer = optimizer
        self.global_step = global_step
        self.strategy = tf.distribute.get_strategy()
        self.accumulators = accumulators
        self._run = run
        self._max_gradient_norm = max_gradient_norm
        self._variables = model.trainable_variables
        self._gradients_of_batch = self._batch_gradients
        if run.jit_compile == "on" or (
            run.jit_compile == "auto" and tf.config.list_logical_devices("GPU")
        ):
            self._gradients_of_batch = tf.function(
                self._batch_gradients, jit_compile=True, autograph=False
            )

    @tf.autograph.experimental.do_not_convert
    def train_step(self, iterator):
        """One update from the next global batch; called inside a tf.function."""
        ratios = self.strategy.run(self._device_step, args=(next(iterator),))
        summed = {
            name: self.strategy.reduce(tf.distribute.ReduceOp.SUM, pair, axis=None)
            for name, pair in ratios.items()
        }
        self.accumulators.add(summed)
        self.global_step.assign_add(1)

    def _device_step(self, features) -> dict[str, tf.Tensor]:
        """What one device does: returns its own (sum, count) pairs, [2] each."""
        context = tf.distribute.get_replica_context()
        counts = context.all_reduce(
            tf.distribute.ReduceOp.SUM, dict(self.task.loss_counts(features))
        )
        step = tf.cast(self.global_step, tf.int32)
        seed = tf.stack([tf.constant(self._run.seed, tf.int32), step])
        seed = tf.random.experimental.stateless_fold_in(seed, context.replica_id_in_sync_group)
        gradients, row_square_sums, ratios = self._gradients_of_batch(features, counts, seed)
        gradients, row_square_sums = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [gradients, row_square_sums]
        )
        if hasattr(self.optimizer, "get_unscaled_gradients"):
            scale = tf.cast(self.optimizer.loss_scale, tf.float32)
            gradients = self.optimizer.get_unscaled_gradients(gradients)
            row_square_sums = {name: rows / scale**2 for name, rows in row_square_sums.items()}
        clipped, _ = optimizers.clip_by_global_norm(
            gradients,
            [row_square_sums.get(str(index)) for index in range(len(gradients))],
            self._max_gradient_norm,
        )
        self.optimizer.apply_gradients(
            zip(clipped, self._variables, strict=True), skip_gradients_aggregation=True
        )
        return ratios

    def _batch_gradients(self, features, counts, seed):
        """Gradients, squares of embedding rows, and (sum, count) pairs of one device's batch, in pieces if asked."""
        pieces = self._run.gradient_accumulation_steps
        if pieces == 1:
            return self._piece_gradients(features, counts, seed)
        split = {name: tf.stack(tf.split(value, pieces)) for name, value in features.items()}

        def piece_gradients(index):
            piece = {name: value[index] for name, value in split.items()}
            piece_seed = tf.random.experimental.stateless_fold_in(seed, index)
            return self._piece_gradients(piece, counts, piece_seed)

        _, totals = tf.while_loop(
            lambda index, _: index < pieces,
            lambda index, totals: (
                index + 1,
                tf.nest.map_structure(tf.add, totals, piece_gradients(index)),
            ),
            (tf.constant(1), piece_gradients(tf.constant(0))),
            maximum_iterations=pieces - 1,
        )
        return totals

    def _piece_gradients(self, features, counts, seed):
        with tf.GradientTape() as tape:
            outputs = self.model(features, training=True, seed=seed)
            ratios = dict(self.task.losses(outputs, features))
            loss = tf.add_n(
                [
                    ratio.sum / (counts[name] + self.task.loss_epsilons.get(name, 0.0))
                    for name, ratio in ratios.items()
                ]
            )
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


def ratio_names(task: Task, model, data: Data) -> list[str]:
    """Names of the task's losses and metrics, found without computing anything."""

    def ratios(features):
        outputs = model(features, training=False)
        return {**task.losses(outputs, features), **task.metrics(outputs, features)}

    specs = dict(data.spec(1))
    return list(
        tf.function(ratios, autograph=False).get_concrete_function(specs).structured_outputs
    )


def with_total_loss(results: dict[str, float]) -> dict[str, float]:
    """The same, with `loss`, the sum of the losses, in front; a single loss has that name alone."""
    losses = {name: value for name, value in results.items() if name.endswith("_loss")}
    parts = {} if len(losses) == 1 else losses
    others = {name: value for name, value in results.items() if name not in losses}
    return {"loss": sum(losses.values()), **parts, **others}
