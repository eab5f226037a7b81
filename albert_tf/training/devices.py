"""Devices: the distribution strategy of a run, and functions that depend on the number of devices and workers."""

import functools
import os
from collections.abc import Callable, Sequence

import tensorflow as tf
from official.common import distribute_utils

from albert_tf.core.errors import first_line
from albert_tf.training.settings import RunConfig

# One strategy for the same devices, because two would use the same numbers for their collective operations.
_strategies: dict[tuple, tf.distribute.Strategy] = {}


def make_strategy(config: RunConfig) -> tf.distribute.Strategy:
    """The strategy of a run; all runs of a process on the same devices share one strategy."""
    kind = config.distribution_strategy
    if kind == "auto":
        num_gpus = len(tf.config.list_physical_devices("GPU"))
        if config.tpu_name:
            kind = "tpu"
        elif num_gpus > 1:
            kind = "mirrored"
        else:
            kind = "one_device"
    devices = (kind, config.tpu_name)
    if devices not in _strategies:
        _strategies[devices] = _new_strategy(config, kind)
    return _strategies[devices]


def _new_strategy(config: RunConfig, kind: str) -> tf.distribute.Strategy:
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if kind == "mirrored" and not num_gpus:
        # Logical devices, to try a step on several devices without GPUs.
        devices = tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if kind == "multi_worker_mirrored" and "TF_CONFIG" not in os.environ:
        config.refuse("distribution_strategy", f"={kind} needs TF_CONFIG in the environment")
    if kind == "tpu" and not tf.config.list_logical_devices("TPU") and config.tpu_name == "local":
        config.refuse("tpu_name", "is local, but this machine has no TPU")
    try:
        return distribute_utils.get_distribution_strategy(
            distribution_strategy=kind,
            num_gpus=min(num_gpus, 1) if kind == "one_device" else num_gpus,
            tpu_address=config.tpu_name or None,
        )
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        if kind == "tpu":
            config.refuse("tpu_name", f"{config.tpu_name!r} cannot be reached ({reason})")
        if kind == "multi_worker_mirrored":
            config.refuse("distribution_strategy", f"={kind}: TF_CONFIG cannot be used ({reason})")
        raise


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files of the run; if there are several workers, only the first one does."""
    resolver = strategy.cluster_resolver
    return not resolver or not resolver.task_type or resolver.task_id in (None, 0)


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """Number of processes that train together."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    return max(1, sum(map(len, resolver.cluster_spec().as_dict().values())))


def sum_over_workers(strategy: tf.distribute.Strategy, values: Sequence[float]) -> list[float]:
    """Sums numbers over the workers; every worker must call it at the same step, and gets the same result."""
    if num_workers(strategy) == 1:
        return list(values)
    devices = strategy.num_replicas_in_sync // num_workers(strategy)
    sums = _all_reduce(strategy)(tf.constant(values, tf.float32)).numpy()
    return [float(value) / devices for value in sums]


@functools.cache
def _all_reduce(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function(autograph=False)
    def all_reduce(vector: tf.Tensor) -> tf.Tensor:
        vectors = strategy.run(tf.identity, (vector,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, vectors, axis=None)

    return all_reduce


def check_batches(config: RunConfig, num_devices: int) -> None:
    """Checks that the batches can be split evenly over devices and micro-batches."""
    batch = config.train_batch_size
    steps = config.gradient_accumulation_steps
    if config.do_train and batch % (num_devices * steps):
        product = f"devices times --gradient_accumulation_steps, {num_devices} x {steps}"
        config.refuse("train_batch_size", f"must be a multiple of {product}; got {batch}")
    if config.eval_batch_size % num_devices:
        config.refuse("eval_batch_size", f"must be a multiple of {num_devices} devices")
