"""Locks on folders: one holder, released by a kill."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from tests.helpers import ROOT

HOLDER = """
import sys, time
from albert_tf.core.locks import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_rejected_until_a_kill_releases_the_lock(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        line = f"--output_dir={tmp_path} is in use by another process"
        with pytest.raises(UserError, match=line), locked(str(tmp_path)):
            pass
        holder.send_signal(signal.SIGKILL)
    with locked(str(tmp_path)):
        pass


def take(folder) -> None:
    with locked(str(folder)):
        pass


def test_another_thread_is_rejected_and_a_folder_without_files_is_removed(tmp_path):
    folder = tmp_path / "new"
    with locked(str(folder)), ThreadPoolExecutor() as other:
        with pytest.raises(UserError, match="is in use"):
            other.submit(take, folder).result()
        take(folder)  # the same thread may
    assert not folder.exists()
    with locked(str(folder)):
        (folder / "file").touch()
    assert os.listdir(folder) == ["file"]


def test_a_remote_folder_is_not_locked():
    with locked("gs://bucket/run"), locked("gs://bucket/run"):
        pass
