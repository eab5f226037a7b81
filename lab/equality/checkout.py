"""The programs of a checkout, and a folder for what they write."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Any

# Sums of floats depend on the number of threads.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}
SERVER = pathlib.Path(__file__).with_name("program_server.py")


class ProgramFailed(Exception):
    """A program that should have succeeded."""


class Checkout:
    """Runs the programs of a checkout."""

    def __init__(self, folder: str, work: str):
        self.folder = pathlib.Path(folder).resolve()
        self.work = pathlib.Path(work).resolve()
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(self.folder)}
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(SERVER)],
            cwd=self.work,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._trained: set[str] = set()

    def close(self) -> None:
        """Ends the process that runs programs."""
        self._server.communicate()

    def status(self, command: str, text: str = "") -> tuple[int, str, str]:
        """Runs a program of `albert-tf` to its end; returns its status, standard output and standard error."""
        assert self._server.stdin and self._server.stdout
        paths = {name: self.work / f"program.{name}" for name in ("input", "output", "errors")}
        paths["input"].write_text(text, encoding="utf-8")
        request: dict[str, Any] = {name: str(path) for name, path in paths.items()}
        request["words"] = shlex.split(command)
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise ProgramFailed("the process that runs programs has ended")
        output = paths["output"].read_text(encoding="utf-8")
        errors = paths["errors"].read_text(encoding="utf-8")
        return int(answer), output, errors

    def run(self, command: str, text: str = "") -> str:
        """Runs a program that must succeed; returns its standard output."""
        status, output, errors = self.status(command, text)
        if status != 0:
            reason = (errors or output).strip()[-300:]
            raise ProgramFailed(self.without_paths(f"{command.split()[0]}: {reason}"))
        return output

    def answers(self, model: str | pathlib.Path, lines: list[str]) -> list[dict]:
        """The answers of `predict` to lines of standard input."""
        text = "".join(f"{line}\n" for line in lines)
        output = self.run(f"predict {model}", text)
        return [json.loads(line) for line in output.splitlines()]

    def without_paths(self, text: str) -> str:
        """A text in which the folders of this machine have general names."""
        return text.replace(str(self.work), "WORK").replace(str(self.folder), "CHECKOUT")
