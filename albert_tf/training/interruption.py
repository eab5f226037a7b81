"""Records Ctrl-C and SIGTERM during training, so that training ends after a complete step and with a checkpoint."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

from albert_tf.core.errors import ENDING_SIGNALS, SIGNAL_STATUS, Interrupted

_SAME_SIGNAL_SECONDS = 0.5  # a scheduler may send a signal to a process and to its group


class Interruption:
    """The number of the first signal that arrived while the process was watched; 0 for none."""

    def __init__(self):
        self.number = 0
        self._at = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Records signals during the block, in the main thread; a second signal ends the program at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heeded = [number for number in ENDING_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        handlers = {number: signal.signal(number, self._record) for number in heeded}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _record(self, number: int, _frame: object) -> None:
        if not self.number:
            self.number = number
            self._at = time.monotonic()
            line = b"interrupted: ends after this step, with a checkpoint; a second time, at once\n"
            os.write(2, line)  # print may be in use
        elif time.monotonic() - self._at > _SAME_SIGNAL_SECONDS:
            os._exit(SIGNAL_STATUS + number)

    def check(self) -> None:
        """Raises `Interrupted` if a signal has arrived."""
        if self.number:
            raise Interrupted(number=self.number)
