"""Devices: the distribution strategy of a run, and functions that depend on the number of devices and workers."""

import functools
import json
import os
import socket
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
from official.common import distribute_utils

from albert_tf.core.errors import UserError, first_line
from albert_tf.training.settings import RunConfig

_SECONDS_BETWEEN_CALLS = 0.2  # of workers that have not started

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
        if kind == "multi_worker_mirrored":
            _wait_for_workers(config)
        return distribute_utils.get_distribution_strategy(
            distribution_strategy=kind,
            num_gpus=min(num_gpus, 1) if kind == "one_device" else num_gpus,
            tpu_address=config.tpu_name or None,
        )
    except UserError:
        raise
    except (tf.errors.OpError, OSError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        if kind == "tpu":
            config.refuse("tpu_name", f"{config.tpu_name!r} cannot be reached ({reason})")
        if kind == "multi_worker_mirrored":
            config.refuse("distribution_strategy", f"={kind}: TF_CONFIG cannot be used ({reason})")
        raise


def _wait_for_workers(config: RunConfig) -> None:
    """Waits until all workers of TF_CONFIG have started; a `UserError` that names those that do not in time.

    TensorFlow waits, too, but in a call that holds Python's lock and ends neither at a signal nor after the time of its
    own setting (`cluster_register_timeout_in_ms`; 2.20). A worker listens at its address here, and soon afterwards
    TensorFlow's server does; so another worker that is still waiting reaches one or the other.
    """
    tf_config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf_config.get("cluster", {})
    task = tf_config.get("task", {})
    addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
    own_addresses = cluster.get(task.get("type"), [])[task.get("index", 0) :][:1]
    missing = [address for address in addresses if address not in own_addresses]
    if not own_addresses or not missing:
        return  # a single worker, or a TF_CONFIG that TensorFlow rejects
    deadline = time.monotonic() + config.worker_timeout_seconds
    port = int(own_addresses[0].rpartition(":")[2])
    has_both = socket.has_dualstack_ipv6()  # addresses of IPv4 and IPv6
    family = socket.AF_INET6 if has_both else socket.AF_INET
    with socket.create_server(("", port), family=family, dualstack_ipv6=has_both):
        while missing := [address for address in missing if not _answers(address)]:
            if time.monotonic() > deadline:
                config.refuse(
                    "worker_timeout_seconds",
                    f"={config.worker_timeout_seconds}: {', '.join(missing)} of TF_CONFIG did not answer in this time;"
                    " give every worker the same command again, or wait longer",
                )
            time.sleep(_SECONDS_BETWEEN_CALLS)


def _answers(address: str) -> bool:
    """Whether a program listens at an address, host:port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=5):
            return True
    except OSError:
        return False


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
