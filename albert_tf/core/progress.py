"""Progress of a long job: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

import tqdm

# Its thread, which draws bars that have not moved for ten seconds, would keep workers from starting as copies.
tqdm.tqdm.monitor_interval = 0

NOTHING: Mapping[str, str] = MappingProxyType({})
SCALED_FROM = 1_000_000  # a bar shows 20,000,000 bytes as 20.0M


class Progress:
    """Shows how far a job is; use as a context manager.

    Args:
      description: what is being done.
      total: how much the whole job is, in `unit`.
      first: how much an earlier process has done.
      unit: what is counted.
      seconds_between_lines: least time from one line of a log to the next; 0 prints one at every update.
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
        self._description = description
        self._total = total
        self._first = first
        self._unit = unit
        self._seconds_between_lines = seconds_between_lines
        self._file = file
        self._started = self._last_line = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm.tqdm(
                total=total,
                initial=first,
                desc=description,
                unit=f" {unit}",
                unit_scale=total >= SCALED_FROM,
                dynamic_ncols=True,
            )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_error) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, values: Mapping[str, str] = NOTHING) -> None:
        """Shows that `done` of the total is done, with some values beside."""
        now = time.monotonic()
        if self._bar is None and now - self._last_line < self._seconds_between_lines:
            return
        text = "".join(f"  {name} {value}" for name, value in values.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text.strip(), refresh=False)
            self._bar.update(done - self._bar.n)
            return
        self._last_line = now
        left = (now - self._started) / max(1, done - self._first) * (self._total - done)
        line = f"{self._description} {done:,}/{self._total:,} {self._unit}{text}"
        self.say(f"{line}  {tqdm.tqdm.format_interval(max(0, left))} left")

    def say(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        if self._bar is not None:
            self._bar.write(line)
        else:
            print(line, file=self._file, flush=True)
