"""The state of a run for training and evaluation; it is created here, or restored from the newest checkpoint."""

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

import orbit
import tensorflow as tf
import tf_keras

from albert_tf.core.settings import LARGEST_INT32
from albert_tf.data.datasets import Data
from albert_tf.training import optimizers
from albert_tf.training.checkpoints import Checkpoints
from albert_tf.training.devices import check_batches, is_chief
from albert_tf.training.interruption import Interruption
from albert_tf.training.optimizers import Clock
from albert_tf.training.run_folder import MODEL, RunFolder
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.training.task import Metrics, Task

GRADIENT_NORM = "gradient_norm"  # before clipping, the mean over steps
STEP_METRICS = (GRADIENT_NORM,)  # that training logs besides the task's losses and metrics


class Accumulators(tf.Module):
    """Sums of (sum, count) pairs over steps, in variables that checkpoints contain."""

    def __init__(self, names: Iterable[str]):
        super().__init__()
        settings = {"trainable": False, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
        self.pairs = {name: tf.Variable(tf.zeros([2]), name=name, **settings) for name in names}

    def add(self, strategy: tf.distribute.Strategy, pairs: Mapping[str, Any]) -> None:
        """Adds the (sum, count) pairs of all devices; each is float32 [2]."""
        for name, pair in pairs.items():
            total = strategy.reduce(tf.distribute.ReduceOp.SUM, pair, axis=None)
            self.pairs[name].assign_add(total)

    def reset(self) -> None:
        """Sets all sums to zero."""
        for variable in self.pairs.values():
            variable.assign(tf.zeros([2]))

    def results(self) -> dict[str, float | None]:
        """Each sum divided by its count; if the count is 0, a loss is 0 and a metric None.

        The first entry is `loss`, the sum of the losses; if a task has a single loss, `loss` is its only entry for
        losses. It is left out if no loss was added.
        """
        losses: dict[str, float] = {}
        metrics: dict[str, float | None] = {}
        counts = {}
        for name, variable in self.pairs.items():
            total, count = variable.numpy()
            counts[name] = count
            mean = float(total / count) if count else None
            if name.endswith("_loss"):
                losses[name] = mean or 0.0
            else:
                metrics[name] = mean
        if not any(counts[name] for name in losses):
            return metrics
        total_loss = {"loss": sum(losses.values())}
        if len(losses) == 1:
            return total_loss | metrics
        return total_loss | losses | metrics


def ratio_names(task: Task, model, data: Data, *, training: bool) -> list[str]:
    """Names of the task's losses and metrics; traces the model without computing anything."""

    def ratios(features):
        outputs = model(features, training=False)
        losses = task.losses(outputs, features, training=training)
        return {**losses, **task.metrics(outputs, features)}

    traced = tf.function(ratios, autograph=False).get_concrete_function(dict(data.spec(1)))
    return list(traced.structured_outputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunState:
    """All objects of a run."""

    task: Task
    run_config: RunConfig  # without None where the task determines the value
    optimizer_config: OptimizerConfig  # without None
    strategy: tf.distribute.Strategy
    folder: RunFolder
    model: Any
    global_step: tf.Variable  # int64 scalar, the number of training steps that the model has seen
    accumulators: Accumulators  # since the last line of the log; empty without steps of training
    optimizer: Any = None  # ours, or a LossScaleOptimizer around it; None without steps of training
    clock: Clock | None = None  # the time used of --train_minutes; None if steps decide
    checkpoints: Checkpoints  # of model, global_step, accumulators, optimizer and clock
    majority: Metrics  # each metric if the most frequent answer is always given
    first_step: int  # the global step at the start of this process
    started: float  # time.monotonic() at the start
    interruption: Interruption = dataclasses.field(default_factory=Interruption)

    @property
    def step(self) -> int:
        """The global step."""
        return int(self.global_step.numpy())

    @property
    def last_step(self) -> int:
        """The global step at which training ends; with a budget of time, it is known when the time is used."""
        if self.clock:
            if self.clock.is_over():
                return self.step
            return self.run_config.stop_after_steps or LARGEST_INT32
        last = self.optimizer_config.num_train_steps
        return min(last, self.run_config.stop_after_steps or last)

    def learning_rate(self, step: int) -> float:
        """The learning rate of the update that follows a step."""
        return float(self.schedule(step))

    @property
    def schedule(self) -> optimizers.WarmupPolynomialDecay:
        """The learning rates of training."""
        return getattr(self.optimizer, "inner_optimizer", self.optimizer).schedule


def start_run(task: Task, run_config: RunConfig, optimizer_config: OptimizerConfig) -> RunState:
    """Creates the state of a run under the current strategy; restores it if --output_dir contains the run."""
    # Settings and folder, of which all is checked before anything is written.
    started = time.monotonic()
    strategy = tf.distribute.get_strategy()
    run_config, optimizer_config = task.resolve(run_config, optimizer_config)
    if run_config.early_stopping_patience and run_config.do_train and not task.eval_data:
        reason = "needs evaluations: data to evaluate on (such as --eval_file), and --do_eval"
        run_config.refuse("early_stopping_patience", reason)
    check_batches(run_config, strategy.num_replicas_in_sync)
    settings = {"run": run_config, "optimizer": optimizer_config, **task.settings()}
    folder = RunFolder(run_config, settings, is_chief(strategy), task.data_files())

    # The objects of the run; without training, model and step alone.
    model = task.build_model(
        dtype=run_config.mixed_precision,
        recompute_activations=run_config.recompute_activations,
        seed=run_config.seed,
    )
    # The checks above may refuse the command, so nothing is written or deleted before this line. Creating the next
    # variable synchronizes the workers: they wait until the chief has deleted the checkpoints of an old run.
    folder.open()
    global_step = orbit.utils.create_global_step()
    accumulators = Accumulators(())
    optimizer = None
    clock = None
    if run_config.do_train and task.train_data and not task.is_fitted:
        names = ratio_names(task, model, task.train_data, training=True)
        accumulators = Accumulators([*names, *STEP_METRICS])
        if run_config.train_minutes:
            clock = Clock(run_config.train_minutes)
        optimizer = _optimizer_of(run_config, optimizer_config, model, clock)

    checkpoints = Checkpoints(
        folder,
        _saved_parts(model, global_step, accumulators, optimizer, clock),
        run_config.keep_checkpoint_max,
    )

    _restore(checkpoints, folder, task, run_config)
    return RunState(
        task=task,
        run_config=run_config,
        optimizer_config=optimizer_config,
        strategy=strategy,
        folder=folder,
        model=model,
        global_step=global_step,
        accumulators=accumulators,
        optimizer=optimizer,
        clock=clock,
        checkpoints=checkpoints,
        majority=task.majority_levels(),
        first_step=int(global_step.numpy()),
        started=started,
    )


def _restore(
    checkpoints: Checkpoints, folder: RunFolder, task: Task, run_config: RunConfig
) -> None:
    """Gives the objects of a run their values, if its folder has a checkpoint; a new training writes its vocabulary."""
    if run_config.do_train:
        checkpoints.remove_leftovers()
    if run_config.do_train and folder.is_chief and not checkpoints.latest:
        vocabulary = task.vocabulary_files()
        folder.write_files({f"{MODEL}/{name}": vocabulary[name] for name in vocabulary})
    newest = checkpoints.latest
    if not run_config.do_train and task.keeps == "best":
        newest = checkpoints.best_path or newest
    if newest:
        checkpoints.restore(newest)


def _optimizer_of(
    run_config: RunConfig, optimizer_config: OptimizerConfig, model: Any, clock: Clock | None
) -> Any:
    """The optimizer of a model's variables, with loss scaling if they need it."""
    optimizer = optimizers.create_optimizer(
        optimizer_config, run_config.train_batch_size, model.named_variables(), clock
    )
    if run_config.mixed_precision == "mixed_float16":
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def _saved_parts(
    model: Any,
    global_step: tf.Variable,
    accumulators: Accumulators,
    optimizer: Any,
    clock: Clock | None,
) -> dict[str, Any]:
    """What checkpoints contain, by the names in their files; a run without training reads model and step alone."""
    parts: dict[str, Any] = {"model": model, "global_step": global_step}
    if optimizer is not None:
        parts["accumulators"] = accumulators
        parts["optimizer"] = optimizer
    if clock is not None:
        parts["clock"] = clock
    return parts
