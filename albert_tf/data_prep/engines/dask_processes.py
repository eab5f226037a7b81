"""A Dask cluster of this machine: its scheduler is a thread of the program, its workers are processes.

`distributed.LocalCluster` starts each worker as a new Python, which imports Dask, numba and this package again: two
workers took five processor seconds. Here they are forked where it is possible, as those of the local engine are.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import dask
import distributed

from albert_tf.core.errors import UserError
from albert_tf.core.workers import end_with_parent, start_method

SECONDS_TO_END = 60  # for a worker that still computes; a shard takes a few seconds

_CONFIG = {
    # Samples of the workers' stacks take about a seventh of their processor time.
    "distributed.worker.profile.enabled": False,
    # How often each process measures whether its event loop is late: by default, every 20 ms, for 3 % of a core.
    "distributed.admin.tick.interval": "1s",
}


@contextlib.contextmanager
def cluster_of_this_machine(
    num_workers: int,
) -> Iterator[tuple[distributed.Client, Sequence[BaseProcess]]]:
    """Yields a client of a new cluster, which its workers may not have joined yet, and their processes."""
    context = multiprocessing.get_context(start_method())
    with dask.config.set(_CONFIG), contextlib.ExitStack() as opened:
        # The workers are forked before Dask starts its threads, so before the scheduler has an address.
        processes = []
        senders = []
        for _ in range(num_workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(  # type: ignore[attr-defined]
                target=_run_worker, args=(receiver,), daemon=True
            )
            process.start()
            processes.append(process)
            senders.append(sender)
        opened.callback(_end, processes)
        try:
            scheduler = distributed.LocalCluster(
                n_workers=0,
                dashboard_address=":0",  # not 8787, which may be in use
                silence_logs=logging.CRITICAL,
            )
        except BaseException:
            # The workers wait for an address.
            for process in processes:
                process.terminate()
            raise
        cluster = opened.enter_context(scheduler)
        for sender in senders:
            sender.send(cluster.scheduler_address)
        client = opened.enter_context(distributed.Client(cluster))
        yield client, processes


def check_alive(processes: Sequence[BaseProcess]) -> None:
    """Raises a `UserError` if all worker processes have ended; there may be none."""
    if processes and not any(process.is_alive() for process in processes):
        advice = "(out of memory?); try again with fewer --num_workers"
        raise UserError(f"every worker process ended {advice}")


def _end(processes: Sequence[BaseProcess]) -> None:
    """Waits for workers, which end with their scheduler."""
    for process in processes:
        process.join(SECONDS_TO_END)
        process.terminate()
        process.join()


# --- In a worker.


def _run_worker(receiver: Connection) -> None:
    """A worker process: ends with its scheduler, or with the program."""
    # The program handles Ctrl-C and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    # A process that was not forked has neither from the program.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set(_CONFIG)
    asyncio.run(_work(receiver.recv()))


async def _work(scheduler_address: str) -> None:
    """Computes what the scheduler asks for."""
    async with distributed.Worker(
        scheduler_address,
        nthreads=1,
        memory_limit=0,  # a worker needs about 200 MB
        silence_logs=logging.CRITICAL,
    ) as worker:
        await worker.finished()
