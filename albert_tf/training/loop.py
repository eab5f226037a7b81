"""Training and evaluation of any task on any strategy: `run` is the only function that scripts call.

orbit's Controller drives the outer loop; the step inside is ours. A step is the same under every strategy: each
device takes its part of the global batch, every loss is divided once by its count over the whole batch, gradients
are summed over devices and then clipped, so that neither devices nor gradient accumulation change the result.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import orbit
import tensorflow as tf
import tf_keras
from official.common import distribute_utils
from orbit import controller as orbit_controller

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.progress import Progress
from albert_tf.data.datasets import EXAMPLE_INDEX, Data
from albert_tf.model.config import OptimizerConfig, RunConfig
from albert_tf.training import optimizers
from albert_tf.training.run_folder import (
    EVAL_METRICS_FILE,
    METRICS_FILE,
    RESULTS_FILE,
    Checkpoints,
    RunFolder,
    write_json,
)
from albert_tf.training.task import Predictions, Task

# Settings that may change when a run is taken up again: none changes what the steps compute.
_FREE_SETTINGS = frozenset(
    {
        *("output_dir", "overwrite_output_dir", "do_train", "do_eval", "stop_after_steps"),
        *("distribution_strategy", "num_devices", "tpu_name", "worker_hosts", "task_index"),
        *("recompute_activations", "jit_compile", "gradient_accumulation_steps", "deterministic"),
        *("steps_per_loop", "log_every_steps", "save_checkpoints_steps", "keep_checkpoint_max"),
        *("eval_every_steps", "eval_batch_size", "max_eval_steps", "eval_file", "spm_model_file"),
        # May have moved; the contents are checked.
        *("input_file", "albert_config_file", "init_checkpoint", "data_dir", "train_file"),
        *("do_predict", "predict_file", "feature_cache_dir", "num_workers", "preset", "num_runs"),
        *("restart_collapsed", "ensemble", "ensemble_selection", "early_stopping_evaluations"),
        *("null_threshold", "n_best_size"),
    }
)

# orbit prints every loop to standard output; our lines and bars say the same, once.
orbit_controller._log = lambda message: None
# Notes on deprecated functions that orbit and tf-models-official call.
tf.get_logger().setLevel("ERROR")


# Two strategies over the same devices number their collective operations alike, and the devices mix them up.
_strategies: dict[tuple, tf.distribute.Strategy] = {}


def make_strategy(run: RunConfig) -> tf.distribute.Strategy:
    """The strategy that the settings name; all runs of a process over the same devices share one.

    Raises:
      UserError: the devices that it needs are not there.
    """
    kind = run.distribution_strategy
    if kind == "auto":
        num_gpus = len(tf.config.list_physical_devices("GPU"))
        is_mirrored = max(num_gpus, run.num_devices) > 1
        kind = "tpu" if run.tpu_name else "mirrored" if is_mirrored else "one_device"
    devices = (kind, run.num_devices, run.tpu_name, run.worker_hosts, run.task_index)
    if devices not in _strategies:
        _strategies[devices] = _new_strategy(run, kind)
    return _strategies[devices]


def _new_strategy(run: RunConfig, kind: str) -> tf.distribute.Strategy:
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if kind == "mirrored" and not num_gpus:
        return _mirrored_cpus(run.num_devices or 1)
    if run.num_devices > num_gpus and kind == "mirrored":
        run.refuse("num_devices", f"is {run.num_devices}, but the machine has {num_gpus} GPUs")
    if kind == "multi_worker_mirrored" and run.worker_hosts:
        distribute_utils.configure_cluster(run.worker_hosts, run.task_index)
    if kind == "multi_worker_mirrored" and "TF_CONFIG" not in os.environ:
        run.refuse("worker_hosts", "(or TF_CONFIG) must be given for multi_worker_mirrored")
    if kind == "tpu" and not tf.config.list_logical_devices("TPU") and run.tpu_name == "local":
        run.refuse("tpu_name", "is local, but this machine has no TPU")
    with _explained_connection(run, kind):
        return distribute_utils.get_distribution_strategy(
            distribution_strategy=kind,
            num_gpus=run.num_devices or (min(num_gpus, 1) if kind == "one_device" else num_gpus),
            tpu_address=run.tpu_name or None,
        )


@contextlib.contextmanager
def _explained_connection(run: RunConfig, kind: str) -> Iterator[None]:
    """Turns errors about a TPU or other workers into one line that names the flag."""
    try:
        yield
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        if kind == "tpu":
            run.refuse("tpu_name", f"{run.tpu_name!r} cannot be reached ({reason})")
        if kind == "multi_worker_mirrored":
            run.refuse("worker_hosts", f"{run.worker_hosts!r} cannot be used ({reason})")
        raise


def _mirrored_cpus(num_devices: int) -> tf.distribute.Strategy:
    """Mirrored over logical CPU devices: for trying the multi-device step without GPUs."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    with contextlib.suppress(RuntimeError):  # already made, by an earlier run in this process
        logical = [tf.config.LogicalDeviceConfiguration()] * num_devices
        tf.config.set_logical_device_configuration(cpu, logical)
    devices = tf.config.list_logical_devices("CPU")[:num_devices]
    if len(devices) < num_devices:
        raise UserError(
            f"--num_devices={num_devices}: this process already has {len(devices)} CPU devices"
        )
    return tf.distribute.MirroredStrategy([device.name for device in devices])


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
            self._gradients_of_batch = tf.function(self._batch_gradients, jit_compile=True)

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


def ratio_names(task: Task, model, data: Data) -> list[str]:
    """Names of the task's losses and metrics, found without computing anything."""

    def ratios(features):
        outputs = model(features, training=False)
        return {**task.losses(outputs, features), **task.metrics(outputs, features)}

    specs = dict(data.spec(1))
    return list(tf.function(ratios).get_concrete_function(specs).structured_outputs)


def with_total_loss(results: dict[str, float]) -> dict[str, float]:
    """The same, with `loss`, the sum of the losses, in front; a single loss has that name alone."""
    losses = {name: value for name, value in results.items() if name.endswith("_loss")}
    parts = {} if len(losses) == 1 else losses
    others = {name: value for name, value in results.items() if name not in losses}
    return {"loss": sum(losses.values()), **parts, **others}


def run(
    make_task: Callable[[], Task], run_config: RunConfig, optimizer_config: OptimizerConfig
) -> dict:
    """Trains and evaluates a task as the settings say; takes up the run that --output_dir holds.

    Args:
      make_task: gives the task; called once devices and seeds are set.
      run_config: folder, batches, devices, intervals.
      optimizer_config: optimiser and schedule.

    Returns:
      The contents of results.json.

    Raises:
      UserError: the settings contradict the devices, the records or what the folder holds; the disk is full; a record
        is damaged; the loss is no longer finite.
    """
    strategy = make_strategy(run_config)
    tf_keras.utils.set_random_seed(run_config.seed)
    if run_config.deterministic:
        tf.config.experimental.enable_op_determinism()
    with strategy.scope():
        task = make_task()
        with _explained_errors(task, run_config):
            return Run(task, run_config, optimizer_config).complete()


@contextlib.contextmanager
def _explained_errors(task: Task, run_config: RunConfig) -> Iterator[None]:
    """Turns TensorFlow's errors about the user's files and memory into one line."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        reason = first_line(error)
        if "No space left" in reason or getattr(error, "errno", None) == errno.ENOSPC:
            raise UserError(
                f"--output_dir={run_config.output_dir}: no space left on the disk; make room and run the"
                " same command again, it goes on from the newest checkpoint"
            ) from None
        if isinstance(error, tf.errors.ResourceExhaustedError):
            raise UserError(
                f"out of memory ({reason}): lower --train_batch_size, or raise"
                " --gradient_accumulation_steps, or set --recompute_activations"
            ) from None
        if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
            # A record that the first look at the files did not come to?
            damaged = [file for data in task.data for file in data.damage()]
            if damaged or isinstance(error, tf.errors.DataLossError):
                raise UserError(
                    f"damaged records: {', '.join(damaged) or reason}: make the files anew, then run the"
                    " same command again"
                ) from None
        raise


class Run:
    """One run of a task: its state, its datasets, its loop.

    Args:
      task: what is trained.
      run_config: folder, batches, devices, intervals.
      optimizer_config: optimiser and schedule.

    Raises:
      UserError: see `run`.
    """

    def __init__(self, task: Task, run_config: RunConfig, optimizer_config: OptimizerConfig):
        self.started = time.monotonic()
        self.task = task
        self.strategy = tf.distribute.get_strategy()
        self.config, self.optimizer_config = task.resolve(run_config, optimizer_config)
        _check_batches(self.config, self.strategy.num_replicas_in_sync)
        self.folder = self._make_folder()
        self.model = task.build_model(
            dtype=run_config.mixed_precision,
            recompute_activations=run_config.recompute_activations,
            seed=run_config.seed,
        )
        # Only now, when all else was found to be right, is anything written or deleted. To create a variable, the
        # other workers wait for the chief: they look for checkpoints when it has deleted what it should.
        self.folder.open(trains=run_config.do_train)
        self._make_state()
        last = self.optimizer_config.num_train_steps
        self.last_step = min(last, run_config.stop_after_steps or last)
        self._last_logged = (self.first_step, time.monotonic())
        self._eval_results: dict[str, float] = {}
        self.chance = task.chance_levels()

    def _make_folder(self) -> RunFolder:
        settings = {
            "run": self.config.to_dict(),
            "optimizer": self.optimizer_config.to_dict(),
            **self.task.settings(),
        }
        free = _FREE_SETTINGS
        if not self.config.do_train:  # all that must fit is the model
            groups = [group for name, group in settings.items() if name != "model"]
            free = free.union(*groups)
        is_chief = _is_chief(self.strategy)
        return RunFolder(
            self.config.output_dir, settings, free, self.config.overwrite_output_dir, is_chief
        )

    def _make_state(self) -> None:
        """What a checkpoint holds, and its values if the folder has one."""
        self.global_step = orbit.utils.create_global_step()
        state = {"model": self.model, "global_step": self.global_step}
        if self.config.do_train:
            names = ratio_names(self.task, self.model, self.task.train_data)
            self.accumulators = state["accumulators"] = Accumulators(names)
            state["optimizer"] = self._make_optimizer()
        self.checkpoints = Checkpoints(self.folder, state, self.config.keep_checkpoint_max)
        path = self.checkpoints.latest
        if not self.config.do_train and self.task.keeps == "best":
            path = self.checkpoints.best_path or path
        if path:
            self.checkpoints.restore(path)
        self.first_step = int(self.global_step.numpy())

    def _make_optimizer(self):
        self.optimizer = optimizers.create_optimizer(
            self.optimizer_config, self.config.train_batch_size, self.model.named_variables()
        )
        self.schedule = self.optimizer.schedule
        if self.config.mixed_precision == "mixed_float16":
            self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(self.optimizer)
        return self.optimizer

    def complete(self) -> dict:
        """Trains, evaluates, predicts, writes the results and the model; returns the results."""
        if self.folder.is_chief:
            print(describe(self), flush=True)
        evaluator = self._make_evaluator(self.task.eval_data)
        if self.config.do_train:
            self._train(evaluator)
        elif evaluator:
            controller = self._make_controller(None, evaluator)
            self._eval_results = self._evaluate(controller, Progress("evaluating", 1))
        last = self._eval_results
        if self.config.do_train and self.task.keeps == "best" and self.checkpoints.best:
            self._return_to_best(evaluator)
        if evaluator:
            self.folder.write_files(self.task.evaluation_files([evaluator.predictions]))
        if self.task.predict_data:
            self._predict()
        return self._finish(evaluator, last)

    def _return_to_best(self, evaluator: Evaluator) -> None:
        """Puts the best checkpoint's state back, with its predictions."""
        if self.checkpoints.best["step"] == int(self.global_step.numpy()):
            return
        self.checkpoints.restore(self.checkpoints.best_path)
        controller = self._make_controller(None, evaluator)
        self._eval_results = controller.evaluate(evaluator.num_steps)
        self._eval_results.pop("steps_per_second")

    def _predict(self) -> None:
        predictor = self._make_evaluator(self.task.predict_data, has_labels=False)
        self._make_controller(None, predictor).evaluate(predictor.num_steps)
        files = self.task.prediction_files([predictor.predictions])
        self.folder.write_files(files)
        if self.folder.is_chief:
            print(f"predictions in {', '.join(map(self.folder.file, files))}", flush=True)

    def make_trainer(self, make_dataset: Callable[[], tf.data.Dataset] | None = None) -> Trainer:
        """The training step with its data.

        Args:
          make_dataset: gives other global batches than those of the task's training data.
        """

        def dataset(context):
            if make_dataset:
                return make_dataset()
            return self.task.train_data.training_dataset(
                self.config.train_batch_size,
                seed=self.config.seed,
                first_step=self.first_step,
                context=context,
            )

        return Trainer(
            self.task,
            model=self.model,
            optimizer=self.optimizer,
            global_step=self.global_step,
            accumulators=self.accumulators,
            dataset=self.strategy.distribute_datasets_from_function(dataset),
            run=self.config,
            max_gradient_norm=self.optimizer_config.max_gradient_norm,
        )

    def _make_evaluator(self, data: Data | None, has_labels: bool = True) -> Evaluator | None:
        if not data:
            return None
        batch_size = self.config.eval_batch_size
        return Evaluator(self.task, self.model, data, batch_size=batch_size, has_labels=has_labels)

    def _make_controller(self, trainer, evaluator, **options) -> orbit.Controller:
        return orbit.Controller(
            global_step=self.global_step,
            trainer=trainer,
            evaluator=evaluator,
            strategy=self.strategy,
            **options,
        )

    def _train(self, evaluator: Evaluator | None) -> None:
        self.folder.cut_metrics(self.first_step)
        every = self.config.eval_every_steps if evaluator else self.last_step
        with Progress("training", self.last_step, first=self.first_step) as self._progress:
            controller = self._make_controller(
                self.make_trainer(),
                evaluator,
                steps_per_loop=self._steps_to_next_event,
                train_actions=[self._after_steps],
            )
            step = self.first_step
            if evaluator and step and (step % every == 0 or step == self.last_step):
                # A kill may have come between this checkpoint and its evaluation.
                logged = self.folder.logged(EVAL_METRICS_FILE).get(step)
                done = step == self.last_step or self._stops_early()
                if not logged or (done and self.task.keeps == "best"):  # its predictions are wanted
                    logged = self._evaluate(controller, self._progress)
                self._eval_results = logged
            while step < self.last_step and not self._stops_early():
                step = min((step // every + 1) * every, self.last_step)
                controller.train(step, checkpoint_at_completion=False)
                if evaluator:
                    self._eval_results = self._evaluate(controller, self._progress)

    def _stops_early(self) -> bool:
        """Whether the last evaluations were all no better than one before."""
        patience, best = self.config.early_stopping_evaluations, self.checkpoints.best
        if not patience or not best:
            return False
        later = [step for step in self.folder.logged(EVAL_METRICS_FILE) if step > best["step"]]
        return len(later) >= patience

    def _steps_to_next_event(self, step: int) -> int:
        """How many steps run on the device without a return to Python."""
        run = self.config
        intervals = (run.log_every_steps, run.save_checkpoints_steps)
        events = [(step // interval + 1) * interval for interval in intervals]
        return min(*events, self.last_step, step + run.steps_per_loop) - step

    def _after_steps(self, _outputs) -> None:
        """Checks, logs and saves whatever is due at this step."""
        step = int(self.global_step.numpy())
        if step % self.config.log_every_steps == 0 or step == self.last_step:
            self._log(step)
        if step % self.config.save_checkpoints_steps == 0 or step == self.last_step:
            self.checkpoints.save(step)

    def _log(self, step: int) -> None:
        results = with_total_loss(self.accumulators.results())
        self.accumulators.reset()
        last_step, last_time = self._last_logged
        self._last_logged = (step, time.monotonic())
        if not all(abs(value) < float("inf") for value in results.values()):
            raise UserError(
                f"the loss is {results['loss']} between steps {last_step} and {step}; the newest checkpoint"
                f" is {self.checkpoints.latest}: lower --learning_rate or raise --num_warmup_steps"
            )
        examples = (step - last_step) * self.config.train_batch_size
        values = {
            "step": step,
            **results,
            "learning_rate": float(self.schedule(step - 1)),
            "examples_per_second": round(examples / (self._last_logged[1] - last_time), 3),
        }
        self.folder.append_metrics(METRICS_FILE, values)
        self.folder.write_summaries("train", step, values)
        if self.folder.is_chief:
            shown = {name: f"{value:.4f}" for name, value in results.items()}
            shown["examples/s"] = f"{values['examples_per_second']:.1f}"
            self._progress.update(step, shown)

    def _evaluate(self, controller: orbit.Controller, progress: Progress) -> dict[str, float]:
        started = time.monotonic()
        steps = controller.evaluator.num_steps
        steps = min(steps, self.config.max_eval_steps or steps)
        results = controller.evaluate(steps)
        results.pop("steps_per_second")
        step = int(self.global_step.numpy())
        self.folder.append_metrics(EVAL_METRICS_FILE, {"step": step, **results})
        self.folder.write_summaries("eval", step, results)
        is_best = self.config.do_train and self.checkpoints.save_if_best(
            step, self.task.best_metric, results[self.task.best_metric]
        )
        if self.folder.is_chief:
            names = self.task.shown_metrics or results
            shown = "  ".join(f"{name} {results[name]:.4f}" for name in names if name in results)
            progress.say(
                f"evaluation at step {step}  {shown}{'  (best so far)' if is_best else ''}"
            )
        # What examples_per_second is measured from: an evaluation is no training.
        last_step, last_time = self._last_logged
        self._last_logged = (last_step, last_time + time.monotonic() - started)
        return results

    def _finish(self, evaluator: Evaluator | None, last: Mapping[str, float]) -> dict:
        """Writes the results, the model and the files about the evaluation.

        Args:
          evaluator: what was evaluated last, or None.
          last: results of the last step, where those of another one are kept.
        """
        results = {
            "step": int(self.global_step.numpy()),
            "num_parameters": self.model.count_params(),
            "eval": self._eval_results,
            "chance": self.chance,
            "best": self.checkpoints.best,
            "seconds": round(time.monotonic() - self.started, 1),
            "steps_in_this_process": self._last_logged[0] - self.first_step,
        }
        if self.task.keeps == "best":
            results["last"] = last
        if evaluator and (words := self.task.collapsed([evaluator.predictions])):
            results["collapsed"] = words
            print(
                f"COLLAPSED: {words}; another --seed, a lower --learning_rate or more warm-up may help"
            )
        if not self.config.do_train:  # what the training has written stays
            new = {name: results[name] for name in ("eval", "collapsed") if name in results}
            results = {
                **results,
                **self.folder.read_json(RESULTS_FILE),
                **(new if evaluator else {}),
            }
        if self.folder.is_chief:
            with self.folder.writing():
                if self.config.do_train:
                    history = self._history(results)
                    self.task.save_model(self.model, self.folder.file("model"), history)
                write_json(self.folder.file(RESULTS_FILE), results)
            print(f"results in {self.folder.file(RESULTS_FILE)}", flush=True)
        return results

    def _history(self, results: Mapping) -> dict[str, dict]:
        """What the model card says of the training and the evaluation."""
        config, optimizer = self.config, self.optimizer_config
        training = {
            "steps": results["step"],
            "batch, examples": config.train_batch_size,
            "optimizer": optimizer.optimizer,
            "peak learning rate": optimizer.peak_learning_rate(config.train_batch_size),
            "warm-up steps": optimizer.num_warmup_steps,
            "numbers": config.mixed_precision,
            "seed": config.seed,
        }
        measured = {}
        for name, value in results["eval"].items():
            chance = f" (chance {self.chance[name]:.4f})" if name in self.chance else ""
            measured[name] = f"{value:.4f}{chance}"
        return {"Training": training, "Results": measured}


def _is_chief(strategy: tf.distribute.Strategy) -> bool:
    resolver = strategy.cluster_resolver
    return not resolver or not resolver.task_type or resolver.task_id in (None, 0)


def _check_batches(run: RunConfig, num_devices: int) -> None:
    pieces = num_devices * run.gradient_accumulation_steps
    if run.do_train and run.train_batch_size % pieces:
        run.refuse(
            "train_batch_size",
            f"must be a multiple of devices times --gradient_accumulation_steps,"
            f" {num_devices} x {run.gradient_accumulation_steps}; got {run.train_batch_size}",
        )
    if run.eval_batch_size % num_devices:
        run.refuse(
            "eval_batch_size",
            f"must be a multiple of {num_devices} devices, got {run.eval_batch_size}",
        )


def describe(run: Run) -> str:
    """What is about to be done, in a few lines."""
    config, optimizer, model = run.config, run.optimizer_config, run.task.model_config
    devices = run.strategy.num_replicas_in_sync
    per_device = config.train_batch_size // devices // config.gradient_accumulation_steps
    peak = optimizer.peak_learning_rate(config.train_batch_size)
    lines = {
        "model": f"{run.model.count_params():,} parameters, {model.num_hidden_layers} layers,"
        f" E {model.embedding_size}, D {model.hidden_size}, sharing {model.share_parameters}",
        "strategy": f"{type(run.strategy).__name__} on {devices} device(s), {config.mixed_precision}",
        "dropout": f"hidden {model.hidden_dropout_prob}, attention {model.attention_probs_dropout_prob},"
        f" classifier {model.classifier_dropout_prob}",
        "folder": config.output_dir,
    }
    if run.task.train_data and config.do_train:
        examples = run.task.train_data.num_examples
        lines["batch"] = (
            f"{config.train_batch_size} = {devices} device(s) x {config.gradient_accumulation_steps}"
            f" accumulated x {per_device}; {examples:,} examples,"
            f" {optimizer.num_train_steps * config.train_batch_size / examples:.1f} epochs"
        )
        lines["schedule"] = (
            f"{optimizer.optimizer}, warm-up to {peak:g} over {optimizer.num_warmup_steps} steps,"
            f" decay to 0 at step {optimizer.num_train_steps}"
        )
    if run.first_step:
        lines["resumed"] = f"at step {run.first_step}"
    chance = {name: f"{value:.4f}" for name, value in run.chance.items()}
    lines["chance"] = ", ".join(f"{name} {value}" for name, value in chance.items())
    return "\n".join(f"{name:<10}{text}" for name, text in lines.items() if text)
