"""Data preparation on a real cluster of this machine: a Dask scheduler and workers, Beam's job service, and faults.

`make test-cluster` runs it, in an environment with both packages. Every engine must give the bytes of the local one.
"""

import collections
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import psutil
import pytest

from tests.data_prep.test_create_pretraining_data import contents
from tests.helpers import ROOT, made_up_text, run_script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("distributed") or not importlib.util.find_spec("apache_beam"),
        reason="Dask or Apache Beam is not installed: make test-cluster",
    ),
]
PROGRAM = "-m data_prep.create_pretraining_data"
MEGABYTES = 25
MOST_SECONDS = 600  # of a program; on a quiet machine, each takes less than 30
NUM_WORKERS = 3
WORKER_MODULE = pathlib.Path(__file__).with_name("cluster_worker.py")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, spm_model_file) -> dict[str, str]:
    """Flags of the program: 25 MB of text, a small vocabulary, ten passes."""
    folder = tmp_path_factory.mktemp("cluster")
    text = made_up_text(6000, seed=3, num_sentences=(6, 18)) + "\n\n"
    text_file = folder / "text.txt"
    text_file.write_text(text * round(1e6 * MEGABYTES / len(text)))
    return {
        "input_file": str(text_file),
        "spm_model_file": spm_model_file,
        "max_seq_length": "128",
        "max_predictions_per_seq": "20",
        "dupe_factor": "10",
        "num_workers": "2",
    }


def flags_of(inputs: dict[str, str], folder: pathlib.Path, **more: str) -> list[str]:
    values = {**inputs, "output_dir": str(folder), **more}
    return [f"--{name}={value}" for name, value in values.items()]


@pytest.fixture(scope="module")
def expected(inputs, tmp_path_factory) -> dict[str, bytes]:
    """The files of the local engine."""
    folder = tmp_path_factory.mktemp("local") / "records"
    result = run_script(PROGRAM, *flags_of(inputs, folder), timeout=MOST_SECONDS)
    assert result.returncode == 0, result.stderr
    return contents(folder)


def prepare(inputs, folder: pathlib.Path, **more: str) -> str:
    """Runs the program to its end; returns what it prints to standard error."""
    result = run_script(PROGRAM, *flags_of(inputs, folder, **more), timeout=MOST_SECONDS)
    assert result.returncode == 0, result.stderr
    return result.stderr


# --- Processes.


def start(
    *command: str, stderr: int = subprocess.DEVNULL, environment: Mapping[str, str] | None = None
) -> subprocess.Popen:
    """Starts Python with the arguments."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
    )


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """Waits for a condition that holds while a process runs."""
    deadline = time.monotonic() + MOST_SECONDS
    while not condition() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    if not condition() or process.poll() is not None:
        process.kill()
        pytest.fail(f"the condition did not hold while the program ran: {process.communicate()[1]}")


@dataclasses.dataclass
class Cluster:
    """A Dask cluster of this machine."""

    scheduler: str  # its address
    workers: dict[str, subprocess.Popen]  # by their addresses
    log: pathlib.Path  # the number of each block that a worker began

    def computed(self) -> collections.Counter[str]:
        """How often each block was begun."""
        return collections.Counter(self.log.read_text().split())


@contextlib.contextmanager
def dask_cluster(folder: pathlib.Path, *, full_disk: bool = False) -> Iterator[Cluster]:
    """Starts a scheduler and workers; with `full_disk`, the first worker can write nothing."""
    log = folder / "computed.txt"
    log.touch()
    scheduler_address = f"tcp://127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as processes:
        scheduler = start(
            "-m",
            "distributed.cli.dask_scheduler",
            "--no-dashboard",
            f"--host={scheduler_address}",
        )
        processes.callback(end, scheduler)
        workers = {}
        for number in range(NUM_WORKERS):
            port = free_port()
            environment = {"COMPUTED_BLOCKS": str(log)}
            if full_disk and number == 0:
                environment["FULL_DISK"] = "yes"
            worker = start(
                "-m",
                "distributed.cli.dask_worker",
                scheduler_address,
                "--no-nanny",
                "--nthreads=1",
                "--no-dashboard",
                f"--preload={WORKER_MODULE}",
                f"--worker-port={port}",
                f"--local-directory={folder}",
                environment=environment,
            )
            processes.callback(end, worker)
            workers[f"tcp://127.0.0.1:{port}"] = worker
        yield Cluster(scheduler_address, workers, log)


@contextlib.contextmanager
def started(inputs, folder: pathlib.Path, **more: str) -> Iterator[subprocess.Popen]:
    """The program as a process."""
    flags = flags_of(inputs, folder, **more)
    program = start(*PROGRAM.split(), *flags, stderr=subprocess.PIPE)
    try:
        yield program
    finally:
        end(program)


def num_blocks(folder: pathlib.Path) -> int:
    """The number of blocks that are stored in the folder of an unfinished run."""
    return sum("." not in path.name for path in folder.glob(".unfinished/block-*"))


# --- Engines and faults.


def test_a_dask_cluster_makes_the_files_of_the_local_engine(inputs, expected, tmp_path):
    with dask_cluster(tmp_path) as cluster:
        messages = prepare(
            inputs, tmp_path / "records", runner="dask", dask_scheduler=cluster.scheduler
        )
        computed = cluster.computed()
    assert contents(tmp_path / "records") == expected
    assert set(computed.values()) == {1} and len(computed) >= MEGABYTES * 0.9
    assert "failed" not in messages


def test_two_killed_workers_lose_no_block(inputs, expected, tmp_path):
    folder = tmp_path / "records"
    with (
        dask_cluster(tmp_path) as cluster,
        started(inputs, folder, runner="dask", dask_scheduler=cluster.scheduler) as program,
    ):
        killed = list(cluster.workers)[:2]
        for number, address in enumerate(killed):
            wait_until(lambda least=4 + 4 * number: num_blocks(folder) >= least, program)
            cluster.workers[address].send_signal(signal.SIGKILL)
        messages = program.communicate(timeout=MOST_SECONDS)[1]
        assert program.returncode == 0, messages
        computed = cluster.computed()
    assert contents(folder) == expected
    assert computed.total() - len(computed) <= len(killed)
    assert "2 of 3 workers failed" in messages
    for address in killed:
        assert f"{address} ended unexpectedly" in messages


def test_a_worker_with_a_full_disk_is_named_and_gets_no_more_blocks(inputs, expected, tmp_path):
    with dask_cluster(tmp_path, full_disk=True) as cluster:
        messages = prepare(
            inputs, tmp_path / "records", runner="dask", dask_scheduler=cluster.scheduler
        )
        computed = cluster.computed()
    assert contents(tmp_path / "records") == expected
    assert "1 of 3 workers failed" in messages
    address = next(iter(cluster.workers))
    assert f"{address} {tmp_path}" in messages and "No space left on device" in messages
    assert computed.total() - len(computed) < 12  # those that it had been given


@pytest.mark.parametrize("runner", ["local", "portable", "dask"])
def test_another_runner_resumes_when_the_client_is_killed(inputs, expected, tmp_path, runner):
    folder = tmp_path / "records"
    with dask_cluster(tmp_path) as cluster:
        with started(inputs, folder, runner="dask", dask_scheduler=cluster.scheduler) as program:
            wait_until(lambda: num_blocks(folder) >= 8, program)
            program.send_signal(signal.SIGKILL)
            program.wait()
        before = num_blocks(folder)
        assert before < len(expected), "the run had ended before the signal"
        if runner == "portable":
            with job_service() as options:
                messages = prepare(inputs, folder, runner=runner, pipeline_options=options)
        elif runner == "dask":
            messages = prepare(inputs, folder, runner=runner, dask_scheduler=cluster.scheduler)
        else:
            messages = prepare(inputs, folder)
    assert "resuming the run" in messages
    assert contents(folder) == expected


@contextlib.contextmanager
def job_service() -> Iterator[str]:
    """Starts Beam's job service; yields the options that reach it."""
    port = free_port()
    service = start(
        "-m", "apache_beam.runners.portability.local_job_service_main", f"--port={port}"
    )
    try:
        yield f"--job_endpoint=127.0.0.1:{port} --environment_type=LOOPBACK"
    finally:
        end(service)


def test_a_job_service_makes_the_files_of_the_local_engine(inputs, expected, tmp_path):
    with job_service() as options:
        prepare(inputs, tmp_path / "records", runner="portable", pipeline_options=options)
    assert contents(tmp_path / "records") == expected


def test_dask_starts_a_cluster_of_its_own(inputs, expected, tmp_path):
    prepare(inputs, tmp_path / "records", runner="dask")
    assert contents(tmp_path / "records") == expected


@contextlib.contextmanager
def started_with_workers(
    inputs, folder: pathlib.Path
) -> Iterator[tuple[subprocess.Popen, list[psutil.Process]]]:
    """The program with a cluster of its own that has stored some blocks, and its workers."""
    with started(inputs, folder, runner="dask") as program:
        wait_until(lambda: num_blocks(folder) >= 4, program)
        workers = psutil.Process(program.pid).children()
        assert len(workers) == int(inputs["num_workers"])
        yield program, workers


def test_a_killed_worker_of_this_machine_loses_no_block(inputs, expected, tmp_path):
    folder = tmp_path / "records"
    with started_with_workers(inputs, folder) as (program, workers):
        workers[0].kill()
        messages = program.communicate(timeout=MOST_SECONDS)[1]
        assert program.returncode == 0, messages
    assert contents(folder) == expected
    assert "1 of 2 workers failed" in messages and "ended unexpectedly" in messages


def test_when_all_workers_of_this_machine_are_killed_the_program_ends(inputs, expected, tmp_path):
    folder = tmp_path / "records"
    with started_with_workers(inputs, folder) as (program, workers):
        for worker in workers:
            worker.kill()
        messages = program.communicate(timeout=MOST_SECONDS)[1]
        assert program.returncode == 1, messages
    last_line = messages.splitlines()[-1]
    assert "every worker process ended (out of memory?)" in last_line
    assert "Traceback" not in messages
    messages = prepare(inputs, folder)
    assert "resuming the run" in messages
    assert contents(folder) == expected


def test_the_workers_of_this_machine_end_with_a_program_that_is_killed(inputs, tmp_path):
    with started_with_workers(inputs, tmp_path / "records") as (program, workers):
        program.kill()
        program.wait()
        _, left = psutil.wait_procs(workers, timeout=60)
    for worker in left:
        worker.kill()
    assert not left


def test_a_scheduler_that_does_not_answer_is_one_line(inputs, tmp_path):
    address = f"tcp://127.0.0.1:{free_port()}"
    flags = flags_of(inputs, tmp_path / "records", runner="dask", dask_scheduler=address)
    result = run_script(PROGRAM, *flags, DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT="2s")
    assert result.returncode == 1
    assert result.stderr.startswith("create_pretraining_data.py: --dask_scheduler=tcp://127.0.0.1:")
    assert "cannot be reached" in result.stderr
    assert result.stderr.count("\n") == 1


def test_sentences_split_on_a_cluster_are_those_of_this_machine(tmp_path):
    text = "\n\n".join(made_up_text(40, seed) for seed in range(60))
    (tmp_path / "text.txt").write_text(text)
    flags = [f"--input_file={tmp_path / 'text.txt'}", "--document_separator=blank_line"]
    flags += ["--eval_fraction=0.1", "--min_sentences=1"]

    def split(name: str, *more: str) -> list[bytes]:
        outputs = [tmp_path / f"{name}.txt", tmp_path / f"{name}_eval.txt"]
        named = [f"--output_file={outputs[0]}", f"--eval_output_file={outputs[1]}"]
        command = "-m data_prep.split_sentences"
        result = run_script(command, *flags, *named, *more, timeout=MOST_SECONDS)
        assert result.returncode == 0, result.stderr
        return [path.read_bytes() for path in outputs]

    with dask_cluster(tmp_path) as cluster:
        scheduler = f"--dask_scheduler={cluster.scheduler}"
        assert split("dask", "--runner=dask", scheduler) == split("local")
