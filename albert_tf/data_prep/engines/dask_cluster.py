"""The engine on a Dask cluster: its workers call a function for every item.

If a worker ends, Dask gives its items to other workers. A worker that cannot read or write a file (its disk is full, or
a folder is not mounted) or has another version of this package gets no further items, and others do those that it did
not. At the end, one line names all such workers. The run fails if an item fails on `MOST_TRIES` workers.
"""

import collections
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import distributed

import albert_tf
from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.workers import num_cores
from albert_tf.data_prep import corpus
from albert_tf.data_prep.engines.dask_processes import check_alive, cluster_of_this_machine
from albert_tf.data_prep.engines.settings import DaskSettings

PROGRAM = "dask"
MOST_TRIES = 3  # workers on which an item may fail
ITEMS_PER_THREAD = 4  # given to the cluster ahead of the results
SECONDS_BETWEEN_CHECKS = 10  # of a result that is awaited
SECONDS_BETWEEN_LOOKS = 1  # for workers that have joined or left


class Failure(NamedTuple):
    """What a call returns if its worker cannot do the work, although another one may."""

    worker: str  # its address
    reason: str


class Call:
    """An item that the cluster has been given."""

    def __init__(self, function: Callable[[Any, Any], Any], item: Any):
        self.function = function
        self.item = item
        self.num_failures = 0
        self.future: distributed.Future
        self.workers: list[str] | None = None  # that may take it; None: all


class DaskEngine(contextlib.AbstractContextManager):
    """Maps as `Workers` does, on the cluster that the settings name or on one that it starts on this machine."""

    def __init__(
        self,
        settings: DaskSettings,
        shared: Any,
        *,
        prepare: Callable[[Any], object] | None = None,
        common_file: str = "",
    ):
        self._settings = settings
        self._shared = SharedValue(shared, prepare, common_file)
        self._failures: dict[str, str] = {}  # address of a worker that gets no items -> reason
        self._ended: dict[str, str] = {}  # address of a worker that ended before its work -> reason
        self._threads: Mapping[str, int] = {}  # address of a worker -> its number of threads
        self._time_of_look = -math.inf
        self._workers_seen: set[str] = set()
        self._processes: Sequence[BaseProcess] = []  # the workers of a cluster of this machine
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> "DaskEngine":
        # The engine itself says what concerns the user.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with contextlib.ExitStack() as opened:
            self._open_client(opened)
            self._client.subscribe_topic("all", self._note_event)
            self._wait_for_a_worker()
            try:
                self._client.register_plugin(self._shared)
            except ModuleNotFoundError as error:
                raise _without_package(error) from None
            opened.callback(self._client.unregister_worker_plugin, self._shared.name)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.unsubscribe_topic("all")
        failed = self._ended | self._failures
        if failed:
            names = "; ".join(f"{address} {reason}" for address, reason in failed.items())
            num_workers = len(self._workers_seen | failed.keys())
            count = f"{len(failed)} of {num_workers} workers failed"
            corpus.print_note(PROGRAM, f"{count}, others did their work: {names}")
        self._opened.__exit__(*error)

    def _open_client(self, opened: contextlib.ExitStack) -> None:
        """Connects to the cluster that the settings name, or starts one on this machine."""
        if self._settings.dask_scheduler:
            self._client = opened.enter_context(_connected(self._settings.dask_scheduler))
            return
        self._shared.compile()  # worker processes are forked, and need not do it again
        num_workers = self._settings.num_workers or num_cores()
        cluster = cluster_of_this_machine(num_workers)
        self._client, self._processes = opened.enter_context(cluster)

    def _wait_for_a_worker(self) -> None:
        if self._settings.dask_scheduler and not self._client.nthreads():
            corpus.print_note(PROGRAM, "no worker has joined the cluster yet: waiting")
        while not self._client.nthreads():
            with contextlib.suppress(TimeoutError):
                self._client.wait_for_workers(1, timeout=SECONDS_BETWEEN_CHECKS)
            check_alive(self._processes)

    def map(self, function: Callable[[Any, Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yields `function(shared, item)` for every item, in order; items are read some ahead of the results."""
        pending: collections.deque[Call] = collections.deque()
        try:
            for item in items:
                call = Call(function, item)
                self._submit(call)
                pending.append(call)
                num_threads = max(1, sum(self._threads.values()))
                if len(pending) >= ITEMS_PER_THREAD * num_threads:
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            self._client.cancel([call.future for call in pending], force=True)

    def _submit(self, call: Call) -> None:
        """Gives a call to the cluster, to workers that have not failed."""
        self._look_at_workers()
        call.workers = None
        if self._failures:
            call.workers = [address for address in self._threads if address not in self._failures]
            if self._threads and not call.workers:
                raise UserError(f"every worker has failed; the last: {self._last_failure()}")
        call.future = self._client.submit(
            call_in_worker,
            call.function,
            self._shared.name,
            call.item,
            workers=call.workers or None,
            pure=False,
        )

    def _look_at_workers(self) -> None:
        """Asks the scheduler which workers there are; not for every item, because each answer is waited for."""
        age = time.monotonic() - self._time_of_look
        if age < SECONDS_BETWEEN_LOOKS and not self._failures:
            return
        self._threads = self._client.nthreads()
        self._time_of_look = time.monotonic()
        self._workers_seen.update(self._threads)

    def _result(self, call: Call) -> Any:
        """Waits for the result of a call, which is given to other workers if one fails."""
        while True:
            result = self._wait(call)
            if not isinstance(result, Failure):
                return result
            self._failures[result.worker] = result.reason
            call.num_failures += 1
            if call.num_failures == MOST_TRIES:
                raise UserError(f"failed on {MOST_TRIES} workers; the last: {self._last_failure()}")
            self._submit(call)

    def _wait(self, call: Call) -> Any:
        while True:
            try:
                return call.future.result(timeout=SECONDS_BETWEEN_CHECKS)
            except TimeoutError:
                check_alive(self._processes)
                self._submit_again_if_all_left(call)
            except distributed.KilledWorker as error:
                advice = "(out of memory?): give workers more memory, or one thread each"
                raise UserError(
                    f"an item ended several workers {advice}; {first_line(error)}"
                ) from None
            except ModuleNotFoundError as error:
                raise _without_package(error) from None
            except CancelledError:
                raise UserError("Dask's scheduler ended; the same command continues") from None

    def _submit_again_if_all_left(self, call: Call) -> None:
        """Gives a call to other workers if those that may take it have all left the cluster."""
        if call.workers and not set(call.workers) & set(self._client.nthreads()):
            call.future.cancel()
            self._submit(call)

    def _last_failure(self) -> str:
        address, reason = list(self._failures.items())[-1]
        return f"{address} {reason}"

    def _note_event(self, event: tuple[float, Any]) -> None:
        """Takes an event of the scheduler; called by a thread of Dask."""
        _, message = event
        if not isinstance(message, dict) or message.get("action") != "remove-worker":
            return
        if not message.get("expected"):
            self._ended[message["worker"]] = "ended unexpectedly"


def _connected(scheduler: str) -> distributed.Client:
    """A client of the scheduler at an address, or with a scheduler file."""
    try:
        if "://" not in scheduler and os.path.exists(scheduler):
            return distributed.Client(scheduler_file=scheduler)
        return distributed.Client(scheduler)
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise UserError(f"--dask_scheduler={scheduler}: cannot be reached ({reason})") from None


def _without_package(error: ModuleNotFoundError) -> UserError:
    return UserError(
        f"a worker of the cluster lacks the package {error.name}: install the same version of albert-tf in its"
        " environment"
    )


# --- In the workers.


class SharedValue(distributed.WorkerPlugin):
    """The first argument of every call, in each worker, also in those that join later."""

    def __init__(self, value: Any, prepare: Callable[[Any], object] | None, common_file: str):
        self.name = f"albert-tf-{os.urandom(8).hex()}"
        self.value = value
        self.error = ""  # why this worker cannot be used
        self._prepare = prepare
        self._common_file = common_file
        self._version = albert_tf.__version__

    def setup(self, worker: distributed.Worker) -> None:
        """Checks a worker and prepares it."""
        if albert_tf.__version__ != self._version:
            self.error = f"has albert-tf {albert_tf.__version__}, the program {self._version}"
        elif self._common_file and not files.exists(self._common_file):
            advice = "give absolute paths of folders that all machines share"
            self.error = f"does not see {self._common_file}: {advice}"
        else:
            self.compile()

    def compile(self) -> None:
        """Makes what a process needs before its first item."""
        if self._prepare:
            self._prepare(self.value)


def call_in_worker(function: Callable[[Any, Any], Any], shared_name: str, item: Any) -> Any:
    """Calls a function in a worker; returns a `Failure` if this worker's disk or file system fails."""
    worker = distributed.get_worker()
    shared = worker.plugins[shared_name]
    if shared.error:
        return Failure(worker.address, shared.error)
    try:
        return function(shared.value, item)
    except UserError as error:
        if isinstance(error.__cause__, OSError):
            return Failure(worker.address, str(error))
        raise
