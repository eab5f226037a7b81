"""Worker processes: results come in the order of the items, and only a few items are in memory at a time."""

import collections
import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from albert_tf.core import memory_files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting

_GROUP = "/sys/fs/cgroup"  # in a container, the limits of its group are here

Item = TypeVar("Item")


def num_workers_setting() -> Any:
    """The setting of the flag --num_workers, for every program that has workers; its type is `int | None`."""
    help = "Worker processes; by default one for every core. Changes no result."
    return setting(None, help, minimum=1, maximum=1024, changes_results=False)


class Workers(contextlib.AbstractContextManager):
    """Processes that call functions; with a single worker, this process calls them. Use as a context manager.

    `num_workers` is None for one per core; `shared`, the first argument of every call, is sent to each process once.
    """

    def __init__(self, num_workers: int | None, shared: Any):
        self._num_workers = num_workers or num_cores()
        self._shared = shared
        self._pool: ProcessPoolExecutor | None = None  # created by the first map of several items

    def __exit__(self, *_error: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, Item], Any], items: Iterable[Item]) -> Iterator[Any]:
        """Yields `function(shared, item)` for every item, in order; items are read a few ahead of the results.

        The function belongs to a module or is a method of a class of a module. Its `UserError`s are raised here, and
        so is one for a worker that the system killed.
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
            shared = (self._shared, memory_files.all_held())
            self._pool = ProcessPoolExecutor(self._num_workers, context, _start_worker, shared)
        pending: collections.deque[Future] = collections.deque()
        try:
            for item in items:
                pending.append(self._pool.submit(_call, function, item))
                if len(pending) >= 3 * self._num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            hint = "(out of memory?); try again with fewer --num_workers"
            raise UserError(f"a worker process was killed {hint}") from None


def num_cores() -> int:
    """Number of cores that this process may use; a container or scheduler may allow fewer than the machine has."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        cores = len(os.sched_getaffinity(0))
    return min(cores, _limit_of_container() or cores)


def _limit_of_container() -> int:
    """The limit of processor time that a container has, in whole cores, rounded up; 0 if there is none.

    Linux stops all threads of a container for the rest of a period (0.1 seconds) once they have used its limit, so that
    more threads than that make answers late. Source: the kernel's Documentation/admin-guide/cgroup-v2.rst, "cpu.max",
    and Documentation/scheduler/sched-bwc.rst for version 1.
    """
    # Version 2: "200000 100000" is two cores, "max 100000" no limit. Version 1: two files, and -1 is no limit.
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            words = " ".join(_text_of(f"{_GROUP}/{name}") for name in names)
            quota, period = map(int, words.split())
        except (OSError, ValueError):
            continue
        if quota > 0 and period > 0:
            return math.ceil(quota / period)
    return 0


def _text_of(path: str) -> str:
    with open(path) as file:
        return file.read()


def in_chunks(
    items: Iterable[Item], size_of: Callable[[Item], int], chunk_size: int
) -> Iterator[list[Item]]:
    """Groups items by size for workers: (["aa", "b", "cccc", "d"], len, 3) -> ["aa", "b"], ["cccc"], ["d"]."""
    chunk = []
    size = 0
    for item in items:
        chunk.append(item)
        size += size_of(item)
        if size >= chunk_size:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def start_method() -> str:
    """How worker processes start: "fork", which is fast, where no thread can hold a lock; otherwise "spawn".

    TensorFlow and pyarrow start threads. macOS's system libraries do not allow fork.
    """
    starts_none = sys.modules.keys().isdisjoint({"tensorflow", "pyarrow"})
    has_one_thread = threading.active_count() == 1 and starts_none
    return "fork" if sys.platform == "linux" and has_one_thread else "spawn"


_shared: Any  # in a worker process: the first argument of every call


def _start_worker(shared: Any, files_in_memory: Mapping[str, bytes]) -> None:
    global _shared
    _shared = shared
    memory_files.hold_all(files_in_memory)
    # The main process handles Ctrl-C and ends its workers. If it is killed, the thread below ends the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Ends this worker process when the process that started it has ended; call it in a thread of its own."""
    # A forked worker holds open the pipes of the workers started before it, so workers end in reverse order.
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _call(function: Callable[[Any, Item], Any], item: Item) -> Any:
    return function(_shared, item)
