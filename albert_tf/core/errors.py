"""Exceptions for user errors and for signals, and the first line of other errors."""

import re
import signal

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Exit status of a program that a signal ended, without the number of the signal.
SIGNAL_STATUS = 128


class UserError(ValueError):
    """Wrong input. The message is one line that says what was expected, what was given, and what to change.

    The programs print the message and exit with status 1 or 2 (`flags.run`). Every other exception is a defect of the
    program and keeps its traceback.
    """


class Interrupted(KeyboardInterrupt):
    """A signal ends the program, SIGTERM or SIGINT (Ctrl-C).

    Args:
      message: one line.
      number: of the signal.
    """

    def __init__(self, message: str = "interrupted", number: int = signal.SIGTERM):
        super().__init__(message)
        self.number = number


def first_line(error: Exception) -> str:
    """The message of a library's error in one line, without TensorFlow's names of operations.

    Example:
      "{{function_node __wrapped__X}} corrupted record at 8 [Op:X] name:" -> "corrupted record at 8"
    """
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*|\s*\[\[.*", "", line)
