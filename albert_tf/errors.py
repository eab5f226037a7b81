"""The one exception for mistakes that the user can mend."""


class UserError(ValueError):
    """Wrong input: its message is one line that says what was expected, what came, and what to change.

    The command-line scripts print the message and exit with status 1 (`cli.run`); every other exception
    is a defect of the program and keeps its traceback.
    """
