"""Progress: a bar that fits into the terminal, lines of a log that are neither too many nor too few."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from albert_tf.core import progress as module
from albert_tf.core.progress import Progress
from tests.helpers import ROOT

BAR = """
import time
from albert_tf.core.progress import Progress

values = {"loss": "8.2031", "masked_lm_loss": "7.5100", "sentence_order_loss": "0.6931", "examples/s": "301.2"}
with Progress("training", 1_250) as progress:
    for done in (1, 2, 4):
        time.sleep(0.12)
        progress.update(done, values)
"""


def frames(columns) -> list[str]:
    """What a terminal of some columns shows, one state after the other."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BAR]
    done = subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0, text
    return [frame for frame in re.split("[\r\n]+", text) if frame.strip()]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, "loss 8.2031]"),
        (100, "loss 8.2031  masked_lm_loss 7.5100]"),
        (150, "loss 8.2031  masked_lm_loss 7.5100  sentence_order_loss 0.6931  examples/s 301.2]"),
    ],
)
def test_a_bar_fits_into_the_terminal_with_whole_values_and_shows_the_first_steps(columns, shown):
    bars = frames(columns)
    assert max(map(len, bars)) <= columns
    assert [re.search(r" (\d+)/1250 ", bar)[1] for bar in bars][:4] == ["0", "1", "2", "4"]
    assert bars[-1].endswith(shown), bars[-1]
    assert len(bars[-1]) > columns - 2  # the bar itself takes the rest


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def set_to(seconds):
        now[0] = seconds

    return set_to


def test_a_log_gets_a_line_after_some_time_and_for_news(clock, capsys):
    progress = Progress("training", 100, seconds_between_lines=60)
    for seconds, done, is_news in [(30, 1, True), (40, 2, False), (50, 5, True), (111, 9, False)]:
        clock(seconds)
        progress.update(done, {"loss": str(done)}, is_news=is_news)
    assert capsys.readouterr().out.splitlines() == [
        # The first 30 seconds, with the compilation, say nothing about the rest.
        *("training 1/100 steps  loss 1  ? left", "training 5/100 steps  loss 5  07:55 left"),
        "training 9/100 steps  loss 9  15:21 left",
    ]


def test_a_total_that_turns_out_smaller_shortens_the_time_left(clock, capsys):
    progress = Progress("sample", 1000, unit="bytes")
    for seconds, done, total in [(1, 100, None), (2, 200, 300)]:
        clock(seconds)
        progress.update(done, total=total)
    assert capsys.readouterr().out.splitlines()[-1] == "sample 200/300 bytes  00:01 left"
