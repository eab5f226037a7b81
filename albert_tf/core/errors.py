"""Exceptions for user errors and for signals; values and errors of libraries, shortened for messages."""

import re
import signal

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Exit status of a program that a signal ended; the number of the signal is added.
SIGNAL_STATUS = 128


class UserError(ValueError):
    """Wrong input: one line that says what was expected, what was given, and what to change.

    `flags.run` prints it and exits with status 1 or 2. Every other exception is a defect and keeps its traceback.
    """

    def __str__(self) -> str:
        """The message; characters that a terminal would not show, such as those of a damaged file, are escaped."""
        text = super().__str__()
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Interrupted(KeyboardInterrupt):
    """A signal, SIGTERM or SIGINT (Ctrl-C), ends the program."""

    def __init__(self, message: str = "interrupted", number: int = signal.SIGTERM):
        super().__init__(message)
        self.number = number


def first_line(error: Exception) -> str:
    """The first line of a library's error message, without TensorFlow's names of operations ({{...}}, [Op:...])."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*|\s*\[\[.*", "", line)


def shortened(value: object) -> str:
    """A value for a message: at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
