"""Devices: the type that a step runs on, functions compiled for it, and the memory of graphs."""

import contextlib
import functools
import gc
import os
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.python.framework import config, ops

_targets: list[str] = []  # device types of the enclosing blocks of `compiled_for`


@contextlib.contextmanager
def compiled_for(device_type: str) -> Iterator[None]:
    """Traces the steps in the block for devices of a type that this machine need not have."""
    _targets.append(device_type)
    try:
        yield
    finally:
        _targets.pop()


def target_device() -> str:
    """The type of the devices that the step runs on. Every choice that depends on the device calls this function."""
    if _targets:
        return _targets[-1]
    if tf.distribute.has_strategy():
        device = tf.distribute.get_strategy().extended.worker_devices[0]
        return tf.DeviceSpec.from_string(device).device_type
    types = {device.device_type for device in tf.config.list_logical_devices()}
    return next((kind for kind in ("TPU", "GPU") if kind in types), "CPU")


def compiled(function: Callable) -> Callable:
    """The function as one kernel compiled by XLA."""
    kernel = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function, assigned=())
    def call(*args):
        if target_device() != "TPU":  # TensorFlow for TPUs cannot compile for their host
            _discard_start_up_log()
        return kernel(*args)

    return call


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discards what C++ libraries write to standard error at every log level."""
    original = os.dup(2)
    try:
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)


@functools.cache
def _discard_start_up_log() -> None:
    """Compiles a dummy kernel, because XLA prints a start-up log with the first kernel of a process."""
    with silent(), tf.init_scope(), tf.device("CPU:0"):
        tf.function(tf.identity, jit_compile=True)(tf.zeros([]))


@contextlib.contextmanager
def op_determinism() -> Iterator[None]:
    """Within the block, every operation is deterministic; afterwards as before, for another run of the process."""
    was_enabled = config.is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()
    try:
        yield
    finally:
        if not was_enabled:
            config.disable_op_determinism()


@contextlib.contextmanager
def graphs_freed() -> Iterator[None]:
    """After the block, the memory that its graphs and their variables use can be freed.

    TensorFlow registers each use of `tf.custom_gradient` in a graph under a new name, permanently, and so keeps the
    graph. After the block, its graphs can no longer be differentiated.
    """
    gc.collect()  # frees graphs of an earlier block, which refer to themselves
    registry = ops.gradient_registry._registry
    names_before = set(registry)
    try:
        yield
    finally:
        for name in set(registry) - names_before:
            if name.startswith("CustomGradient-"):
                del registry[name]
