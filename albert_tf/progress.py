"""Progress of a long job: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Mapping

import tqdm


class Progress:
    """Shows how far a job is; use as a context manager.

    Args:
      description: what is being done.
      total: number of steps of the whole job.
      first: steps done before, by an earlier process.
      unit: what a step is called.
    """

    def __init__(self, description: str, total: int, *, first: int = 0, unit: str = "steps"):
        self._description = description
        self._total = total
        self._first = first
        self._unit = unit
        self._started = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm.tqdm(
                total=total, initial=first, desc=description, unit=f" {unit}", dynamic_ncols=True
            )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_error) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, values: Mapping[str, str]) -> None:
        """Shows that `done` steps are done, with some values beside."""
        text = "  ".join(f"{name} {value}" for name, value in values.items())
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
            return
        seconds = time.monotonic() - self._started
        left = seconds / max(1, done - self._first) * (self._total - done)
        line = f"{self._description} {done}/{self._total} {self._unit}  {text}"
        print(f"{line}  {tqdm.tqdm.format_interval(left)} left", flush=True)

    def say(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        if self._bar is not None:
            self._bar.write(line)
        else:
            print(line, flush=True)
