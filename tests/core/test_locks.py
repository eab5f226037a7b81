"""Locks on folders: one holder, named in the error of the second, released by a kill."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from albert_tf.core.errors import UserError
from albert_tf.core.locks import LOCK_FILE, locked
from tests.helpers import ROOT, run_script

HOLDER = """
import sys, time
from albert_tf.core.locks import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def start(program, *arguments, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path."""
    process = start(HOLDER, tmp_path)
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_rejected_and_told_who_holds_the_lock(tmp_path, holder):
    with pytest.raises(UserError) as caught, locked(str(tmp_path), "records_dir"):
        pass
    assert f"--records_dir={tmp_path} is in use by -c (process {holder.pid} on " in str(
        caught.value
    )


def test_a_kill_releases_the_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(str(tmp_path)):
        assert (tmp_path / LOCK_FILE).exists()


def take(folder) -> None:
    with locked(str(folder)):
        pass


def test_nothing_is_left_after_use(tmp_path):
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        with (
            locked(str(folder)),
            ThreadPoolExecutor() as other,
            pytest.raises(UserError, match="is in use"),
        ):
            other.submit(take, folder).result()
        assert not folder.exists()
    with locked(str(folder)):
        (folder / "file").touch()
    assert os.listdir(folder) == ["file"]
    with locked(str(tmp_path)):
        pass
    assert tmp_path.exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for folder, reason in ((file, "is a file"), (file / "folder", "cannot be written")):
        message = f"--model_dir={folder} {reason}"
        with pytest.raises(UserError, match=message), locked(str(folder), "model_dir"):
            pass


@pytest.mark.parametrize("folder", ["/proc/no_folder", "/proc"])
def test_a_folder_in_which_nothing_can_be_created_is_one_line(folder):
    """The error of /proc is that of a folder which another process has just removed."""
    program = "import sys; from albert_tf.core.locks import locked; locked(sys.argv[1]).__enter__()"
    done = run_script("-c", program, folder)
    message = f"UserError: --output_dir={folder} cannot be written (No such file or directory)"
    assert message in done.stderr.splitlines()[-1]


def test_a_child_does_not_keep_the_lock_of_a_killed_process(tmp_path):
    program = (
        "import os, sys, time; from albert_tf.core.locks import locked\n"
        "with locked(sys.argv[1]):\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "    print('locked', flush=True); time.sleep(60)\n"
    )
    process = start(program, tmp_path, start_new_session=True)
    assert process.stdout.readline() == "locked\n"
    process.kill()
    process.wait()
    try:
        with locked(str(tmp_path), wait=True):  # the child may not have run yet
            pass
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_waiting_processes_take_turns(tmp_path):
    """Every increment of a counter in a file survives, so no two processes were inside at once."""
    program = (
        "import pathlib, sys; from albert_tf.core.locks import locked\n"
        "path = pathlib.Path(sys.argv[1], 'count')\n"
        "for _ in range(150):\n"
        "    with locked(sys.argv[1], wait=True):\n"
        "        path.write_text(str(int(path.read_text() or 0) + 1))\n"
    )
    (tmp_path / "count").write_text("0")
    processes = [start(program, tmp_path) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "450"


def test_a_remote_folder_is_not_locked():
    with locked("gs://bucket/run"), locked("gs://bucket/run"):
        pass


def test_a_function_that_holds_a_lock_may_call_one_that_takes_it(tmp_path):
    with locked(str(tmp_path)):
        with locked(str(tmp_path)):
            pass
        assert os.listdir(tmp_path) == [".lock"]
    assert os.listdir(tmp_path) == []
