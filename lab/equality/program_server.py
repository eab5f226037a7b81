"""Runs programs of `albert-tf` in forked processes, so that TensorFlow is imported once for all of them.

A line of standard input is a JSON object with the `words` of a command and the paths of three files, `input`, `output`
and `errors`; the answer is a line with the status of the program. The package `albert_tf` is that of PYTHONPATH.
"""

import json
import os
import sys

import tensorflow  # noqa: F401  (loaded before the forks)
import tf_keras  # noqa: F401


def run(words: list[str], paths: dict[str, str]) -> None:
    """Runs a program in this process, which ends with it."""
    os.dup2(os.open(paths["input"], os.O_RDONLY), 0)
    os.dup2(os.open(paths["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(os.open(paths["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["albert-tf", *words]
    from albert_tf import command

    command.main()


def main() -> None:
    """Answers requests until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run(request["words"], request)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
