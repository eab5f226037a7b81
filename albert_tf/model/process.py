"""An error instead of an endless wait: TensorFlow does not work in a process that was forked after its first use."""

import os

from albert_tf.core.errors import UserError

_first_user: int | None = None  # the process in which the first model was made or used


def check_process() -> None:
    """Raises a UserError in a process that was forked after a model had been made; every use of a model calls it.

    TensorFlow's threads, which compute, do not exist in such a process: it would wait for them for ever, also for a
    model that is loaded there.
    """
    global _first_user
    if _first_user is None:
        _first_user = os.getpid()
    if os.getpid() != _first_user:
        advice = 'fork first and load then, use multiprocessing\'s "spawn", or an ONNX export'
        reason = "was forked after TensorFlow had been used, which would wait for ever here"
        raise UserError(
            f"this process {reason}: {advice} (docs/guides/containers.md#several-processes)"
        )
