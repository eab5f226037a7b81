"""Worker processes: results in the order of the items, and few items in memory at a time."""

import collections
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting

Item = TypeVar("Item")


def num_workers_setting() -> Any:
    """The flag --num_workers of every program that has workers."""
    return setting(0, "Worker processes; 0 is one for every core. Changes no result.", minimum=0)


class Workers:
    """Processes that call functions; a single worker is this process. Use as a context manager.

    Args:
      num_workers: number of processes; 0 is one for every core.
      shared: first argument of every call, given to each process once.
    """

    def __init__(self, num_workers: int, shared: Any):
        self._num_workers = num_workers or num_cores()
        self._shared = shared
        self._pool: ProcessPoolExecutor | None = None  # none before it is needed

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_error: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, Item], Any], items: Iterable[Item]) -> Iterator[Any]:
        """Yields `function(shared, item)` for every item, in order.

        Args:
          function: a function of a module, or of a class in one.
          items: consumed as results are, a few ahead.

        Raises:
          UserError: a call has raised it, or a worker was killed by the system.
        """
        items = iter(items)
        first_items = list(itertools.islice(items, 2))
        items = itertools.chain(first_items, items)
        if self._num_workers == 1 or len(first_items) < 2:
            for item in items:
                yield function(self._shared, item)
            return
        if self._pool is None:
            context = multiprocessing.get_context(start_method())
            self._pool = ProcessPoolExecutor(
                self._num_workers, context, _start_worker, (self._shared,)
            )
        pending = collections.deque()
        try:
            for item in items:
                pending.append(self._pool.submit(_call, function, item))
                if len(pending) >= 3 * self._num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process was killed (out of memory?); try again with fewer --num_workers"
            ) from None


def num_cores() -> int:
    """The cores that this process may use: a container or a scheduler may give it fewer than there are."""
    # macOS cannot tell.
    can_tell = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if can_tell else os.cpu_count()


def in_chunks(
    items: Iterable[Item], size_of: Callable[[Item], int], chunk_size: int
) -> Iterator[list[Item]]:
    """Joins small items to lists that are worth sending to a worker.

    Example:
      (["aa", "b", "cccc", "d"], len, 3) -> ["aa", "b"], ["cccc"], ["d"]

    Args:
      items: in order.
      size_of: gives the size of one.
      chunk_size: a list ends with the item that makes it so large.
    """
    chunk, size = [], 0
    for item in items:
        chunk.append(item)
        size += size_of(item)
        if size >= chunk_size:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def start_method() -> str:
    """How processes start from here: "fork", as copies of this one, which takes no time, where that is safe.

    A copy has all locks as they are, but a single thread, so that it waits for ever for a lock that another one held.
    Python's threads are counted, TensorFlow's are known, and OpenBLAS ends its own before a fork; a further library
    with threads must be added here. On macOS the system's own libraries forbid it.
    """
    is_alone = threading.active_count() == 1 and "tensorflow" not in sys.modules
    return "fork" if sys.platform == "linux" and is_alone else "spawn"


_shared: Any  # of every worker process


def _start_worker(shared: Any) -> None:
    global _shared
    _shared = shared
    # The main process answers Ctrl-C. If it is killed, it can tell nobody.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Of copies, each holds the pipes of those before it open, so that the last one learns of the end, then the others.
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(function: Callable[[Any, Item], Any], item: Item) -> Any:
    return function(_shared, item)
