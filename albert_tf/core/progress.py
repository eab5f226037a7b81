"""Progress of a long job: a bar on a terminal, plain lines in a log file."""

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import tqdm

# Without the monitor thread: worker processes are forked only from a process with a single thread.
tqdm.tqdm.monitor_interval = 0


class Progress(contextlib.AbstractContextManager):
    """Shows how much of a job is done; use as a context manager.

    Args:
      total: size of the whole job, in `unit`.
      first: how much of it an earlier process has done.
      seconds_between_lines: minimum time between two lines of a log; 0 prints a line at every update.
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
        self._description, self._unit, self._total = description, unit, total
        self._seconds_between_lines, self._file = seconds_between_lines, file
        self._last_line = time.monotonic()
        # The first update and its time. The time before it may include compilation, which does not happen again.
        self._first_update: tuple[int, float] | None = None
        self._bar: Any = None
        if sys.stderr.isatty():
            scale = total >= 1_000_000  # 20,000,000 bytes are shown as 20.0M
            settings = {"unit": unit, "unit_scale": scale, "dynamic_ncols": True, "miniters": 1}
            self._bar = tqdm.tqdm(desc=description, total=total, initial=first, **settings)

    def __exit__(self, *_error) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(
        self,
        done: int,
        values: Mapping[str, str] | None = None,
        *,
        total: int | None = None,
        is_news: bool = False,
    ) -> None:
        """Shows that `done` of the total is done, including what an earlier process has done.

        Args:
          values: shown after `done`, the most important first; a bar omits those that do not fit into the terminal.
          is_news: whether a log gets a line even if the last one was printed a short time ago.
        """
        now = time.monotonic()
        self._total = total or self._total
        first, first_time = self._first_update = self._first_update or (done, now)
        texts = [f"{name} {value}" for name, value in (values or {}).items()]
        if self._bar is not None:
            self._bar.total = self._total
            self._bar.set_postfix_str(self._fitting(texts), refresh=False)
            self._bar.update(done - self._bar.n)
            return
        if not is_news and now - self._last_line < self._seconds_between_lines:
            return
        self._last_line = now
        left = "?"
        if done > first:
            seconds = (now - first_time) / (done - first) * (self._total - done)
            left = tqdm.tqdm.format_interval(max(0, seconds))
        texts.append(f"{left} left")
        line = f"{self._description} {done:,}/{self._total:,} {self._unit}"
        self.say("  ".join([line, *texts]))

    def _fitting(self, texts: Sequence[str]) -> str:
        """The first texts, as many as fit into the terminal next to a bar of ten characters."""
        shown = self._bar.format_dict
        columns = shown["ncols"] or 80
        for number in range(len(texts), 0, -1):
            text = "  ".join(texts[:number])
            bar = self._bar.format_meter(**{**shown, "ncols": None, "postfix": text})
            if len(bar) <= columns:
                return text
        return ""

    def say(self, line: str) -> None:
        """Prints a line without damaging the bar."""
        if self._bar is not None:
            self._bar.write(line)
        else:
            print(line, file=self._file, flush=True)
