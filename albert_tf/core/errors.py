"""The one exception for mistakes that the user can mend, and what it says of other errors."""

import re


class UserError(ValueError):
    """Wrong input: its message is one line that says what was expected, what came, and what to change.

    The command-line scripts print the message and exit with status 1 (`cli.run`); every other exception
    is a defect of the program and keeps its traceback.
    """


def first_line(error: Exception) -> str:
    """What an error of a library says, in one line and without TensorFlow's names of operations.

    Example:
      "{{function_node __wrapped__X}} corrupted record at 8 [Op:X] name:" -> "corrupted record at 8"
    """
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*|\s*\[\[.*", "", line)
