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

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Records signals during the block instead of ending the program; a second signal ends it at once.

        Python runs signal handlers only between two instructions, and a loop on the device is a single instruction.
        Therefore a thread reads the signal numbers from a pipe. Outside the main thread, nothing is recorded.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        thread = threading.Thread(target=self._watch, args=(reader,), daemon=True)
        thread.start()
        handled = [
            number for number in ENDING_SIGNALS if signal.getsignal(number) != signal.SIG_IGN
        ]
        handlers = {number: signal.signal(number, lambda *_: None) for number in handled}
        earlier_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(earlier_writer)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(writer)
            thread.join()
            os.close(reader)

    def _watch(self, reader: int) -> None:
        while numbers := os.read(reader, 1):
            now = time.monotonic()
            if numbers[0] in ENDING_SIGNALS and not self.number:
                self.number, first = numbers[0], now
            elif numbers[0] in ENDING_SIGNALS and now - first > _SAME_SIGNAL_SECONDS:
                os._exit(SIGNAL_STATUS + numbers[0])

    def check(self) -> None:
        """Raises `Interrupted` if a signal has arrived."""
        if self.number:
            raise Interrupted(number=self.number)
