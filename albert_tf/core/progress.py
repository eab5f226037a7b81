"""Progress of a long job: a bar on a terminal, plain lines in a log file."""

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import TextIO

import tqdm

# No monitor thread: worker processes are forked only from a process with a single thread.
tqdm.tqdm.monitor_interval = 0


class Progress(contextlib.AbstractContextManager):
    """Shows how much of a job is done; use as a context manager.

    Args:
      description: of the job.
      total: size of the whole job, in `unit`.
      first: how much of it an earlier process has done.
      unit: what is counted.
      seconds_between_lines: least time between two lines of a log; 0 prints a line at every update.
      file: where the lines of a log go; None is standard output.
    """

    def __init__(
        self,
        description: str,
        total: int,
        *,
        first: int = 0,
        unit: str = "steps",
        seconds_between_lines: float = 0,
        file: TextIO | None = None,
    ):
        self._description, self._unit = description, unit
        self._first, self._total = first, total
        self._seconds_between_lines, self._file = seconds_between_lines, file
        self._started = self._last_line = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            scale = total >= 1_000_000  # 20,000,000 bytes are shown as 20.0M
            settings = {"unit": f" {unit}", "unit_scale": scale, "dynamic_ncols": True}
            self._bar = tqdm.tqdm(desc=description, total=total, initial=first, **settings)

    def __exit__(self, *_error) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, values: Mapping[str, str] | None = None) -> None:
        """Shows that `done` of the total is done, followed by some values."""
        now = time.monotonic()
        if self._bar is None and now - self._last_line < self._seconds_between_lines:
            return
        text = "".join(f"  {name} {value}" for name, value in (values or {}).items())
        if self._bar is not None:
            self._bar.set_postfix_str(text.strip(), refresh=False)
            self._bar.update(done - self._bar.n)
            return
        self._last_line = now
        seconds = (now - self._started) / max(1, done - self._first) * (self._total - done)
        line = f"{self._description} {done:,}/{self._total:,} {self._unit}{text}"
        self.say(f"{line}  {tqdm.tqdm.format_interval(max(0, seconds))} left")

    def say(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        if self._bar is not None:
            self._bar.write(line)
        else:
            print(line, file=self._file, flush=True)
