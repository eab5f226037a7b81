"""Writes docs/cli.md, the programs with their flags, from their --help.

python -m lab.tools.cli_reference
"""

import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from albert_tf.command import DATA, DATA_PROGRAMS, PROGRAMS

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "cli.md"
COMMANDS = (*PROGRAMS, *(f"{DATA} {name}" for name in DATA_PROGRAMS))
_INTRODUCTION = """# Commands

`albert-tf PROGRAM --help` prints the text below.
`python -m lab.tools.cli_reference` writes this page.
"""


def page() -> str:
    """The text of docs/cli.md."""
    with ThreadPoolExecutor(2) as threads:
        texts = threads.map(help_of, COMMANDS)
    sections = (
        f"## albert-tf {command}\n\n```\n{text}\n```\n"
        for command, text in zip(COMMANDS, texts, strict=True)
    )
    return "\n".join((_INTRODUCTION, *sections))


def help_of(command: str) -> str:
    """What --help of a program prints."""
    words = [sys.executable, "-m", "albert_tf.command", *command.split(), "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    PAGE.write_text(page())
