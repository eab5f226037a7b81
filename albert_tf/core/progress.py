"""Progress of a long job: tqdm's bar on a terminal, plain lines in a log file."""

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import TextIO

import tqdm

tqdm.tqdm.monitor_interval = 0  # no thread: processes with several are not forked
_LINE = "{desc}{n_fmt}/{total_fmt} {unit}{postfix}  {remaining} left"


class Progress(contextlib.AbstractContextManager):
    """Shows how much of a job is done; use as a context manager.

    Args:
      total: size of the whole job, in `unit`; an earlier process has done `first` of it.
      seconds_between_lines: minimum time between two lines of a log; 0 prints a line at every update.
      file: where lines of a log go; standard output by default.
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
        self._bar = tqdm.tqdm(
            desc=description,
            total=total,
            initial=first,
            unit=unit,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )
        self._line = {"total": total, "unit": unit, "prefix": f"{description} "}
        self._seconds_between_lines = seconds_between_lines
        self._file = file
        self._last_line = time.monotonic()
        # The first update and its time; the time before it may include compilation.
        self._started: tuple[int, float] | None = None

    def __exit__(self, *_error) -> None:
        self._bar.close()

    def update(
        self, done: int, values: Mapping[str, str] | None = None, *, is_news: bool = False
    ) -> None:
        """Shows `values`, and that `done` of the total is done; a log always gets a line if that `is_news`."""
        now = time.monotonic()
        first, started = self._started = self._started or (done, now)
        text = "  ".join(f"{name} {value}" for name, value in (values or {}).items())
        if not self._bar.disable:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif is_news or now - self._last_line >= self._seconds_between_lines:
            self._last_line = now
            shown = {"n": done, "initial": first, "elapsed": now - started, "postfix": text}
            self.say(tqdm.tqdm.format_meter(**shown, **self._line, bar_format=_LINE))

    def say(self, line: str) -> None:
        """Prints a line without damaging the bar."""
        if self._bar.disable:
            print(line, file=self._file, flush=True)
        else:
            self._bar.write(line)
