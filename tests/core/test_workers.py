"""How worker processes start and end. Their results are tested with the programs that use them."""

import sys
import time

import psutil
import pytest

from albert_tf.core import workers
from tests.helpers import run_script, write_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone forks processes")

METHODS = """
import sys, threading
from albert_tf.core.workers import start_method
methods = [start_method()]
from albert_tf.core.progress import tqdm
with tqdm.tqdm(total=2, disable=False):
    methods.append(start_method())
sys.modules["tensorflow"] = None
methods.append(start_method())
del sys.modules["tensorflow"]
go_on = threading.Event()
threading.Thread(target=go_on.wait).start()
methods.append(start_method())
go_on.set()
print(*methods)
"""

PROGRAM = """
import os, signal, sys, time
from albert_tf.data_prep.corpus import show_progress
from albert_tf.core.workers import Workers

def pid_of_worker(shared, item):
    time.sleep(0.2)
    return os.getpid(), shared + item

with Workers(3, "shared ") as workers, show_progress("working", 9, "items") as progress:
    results = []
    for number, result in enumerate(workers.map(pid_of_worker, map(str, range(9)))):
        progress.update()
        results.append(result)
    assert [text for _, text in results] == [f"shared {item}" for item in range(9)]
    print(*sorted({pid for pid, _ in results}), flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_is_forked_only_without_tensorflow_and_other_threads():
    done = run_script("-c", METHODS)
    assert done.stdout.split() == ["fork", "fork", "spawn", "spawn"], done.stderr


@pytest.mark.parametrize("how", ["end", "kill"])
def test_workers_end_with_the_process_that_started_them(how):
    done = run_script("-c", PROGRAM, how)
    assert (done.returncode == 0) == (how == "end"), done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3, done.stderr
    for _ in range(100):
        pids = [pid for pid in pids if is_running(pid)]
        if not pids:
            break
        time.sleep(0.1)
    assert not pids


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),  # one and a half
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "1600000 100000"}, 8),  # more than the machine has
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu.max": "not a limit"}, 8),
        ({}, 8),
    ],
)
def test_the_limit_of_a_container_bounds_the_cores(limits, expected, tmp_path, monkeypatch):
    write_files(tmp_path, limits)
    monkeypatch.setattr(workers, "_GROUP", str(tmp_path))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    assert workers.num_cores() == expected


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
