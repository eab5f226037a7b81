"""The engine on a Dask cluster: its workers call a function for every item.

If a worker ends, Dask gives its items to other workers. A worker that cannot read or write a file (its disk is full, or
a folder is not mounted) or has another version of this package gets no further items, and others do those that it did
not. At the end, one line names all such workers. The run fails if an item fails on `MOST_TRIES` workers.
"""

import collections
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import dask
import distributed

import albert_tf
from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.core.workers import num_cores
from albert_tf.data_prep import corpus
from albert_tf.data_prep.engines.settings import DaskSettings

PROGRAM = "dask"
MOST_TRIES = 3  # workers on which an item may fail
ITEMS_PER_THREAD = 4  # given to the cluster ahead of the results
SECONDS_BETWEEN_CHECKS = 10  # of a result that is awaited

# By default, Dask samples the stacks of its workers, and lets them give freed memory back at once. Each takes about a
# seventh of the processor time of a run of 25 MB.
_OF_LOCAL_WORKERS = {
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
}


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
        self._workers_seen: set[str] = set()
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> "DaskEngine":
        # The engine itself says what concerns the user.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with contextlib.ExitStack() as opened:
            self._client = opened.enter_context(_client(self._settings))
            self._client.subscribe_topic("all", self._note_event)
            if not self._client.nthreads():
                corpus.print_note(PROGRAM, "no worker has joined the cluster yet: waiting")
                self._client.wait_for_workers(1)
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
            count = f"{len(failed)} of {len(self._workers_seen)} workers failed"
            corpus.print_note(PROGRAM, f"{count}, others did their work: {names}")
        self._opened.__exit__(*error)

    def map(self, function: Callable[[Any, Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yields `function(shared, item)` for every item, in order; items are read some ahead of the results."""
        pending: collections.deque[Call] = collections.deque()
        try:
            for item in items:
                call = Call(function, item)
                self._submit(call)
                pending.append(call)
                if len(pending) >= ITEMS_PER_THREAD * self._num_threads:
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            self._client.cancel([call.future for call in pending], force=True)

    def _submit(self, call: Call) -> None:
        """Gives a call to the cluster, to workers that have not failed."""
        threads = self._client.nthreads()
        self._workers_seen.update(threads)
        self._num_threads = max(1, sum(threads.values()))
        call.workers = None
        if self._failures:
            call.workers = [address for address in threads if address not in self._failures]
            if threads and not call.workers:
                raise UserError(f"every worker has failed; the last: {self._last_failure()}")
        call.future = self._client.submit(
            call_in_worker,
            call.function,
            self._shared.name,
            call.item,
            workers=call.workers or None,
            pure=False,
        )

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


@contextlib.contextmanager
def _client(settings: DaskSettings) -> Iterator[distributed.Client]:
    """Connects to a scheduler, or starts one with workers on this machine."""
    if not settings.dask_scheduler:
        with (
            dask.config.set(_OF_LOCAL_WORKERS),
            distributed.LocalCluster(
                n_workers=settings.num_workers or num_cores(),
                threads_per_worker=1,
                memory_limit=0,  # a worker needs about 200 MB
                dashboard_address=":0",  # not 8787, which may be in use
                silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    given = settings.dask_scheduler
    try:
        if "://" not in given and os.path.exists(given):
            client = distributed.Client(scheduler_file=given)
        else:
            client = distributed.Client(given)
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise UserError(f"--dask_scheduler={given}: cannot be reached ({reason})") from None
    with client:
        yield client


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
        elif self._prepare:
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
