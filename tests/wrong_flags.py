"""Tries a wrong value for every flag of a program, in this process and without TensorFlow; prints what came of each.

    python -m tests.wrong_flags run_pretraining.py --model=albert-base-v2 ...

The arguments are a program and flags that it accepts. Each printed line is JSON: the wrong flag, the exit status, the
lines on standard error.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import runpy
import sys
from collections.abc import Iterator
from typing import Any

from absl import app
from absl import flags as absl_flags

from albert_tf.core import flags
from albert_tf.core.settings import value_type

HUGE = "99999999999999999999999"
WRONG_NUMBERS = {
    int: ("some", "1.5", "", "-7", HUGE, f"-{HUGE}", "9" * 5000),
    float: ("some", "", "-7", "inf", "-inf", "nan", "1e999"),
}


def wrong_values(field: dataclasses.Field) -> Iterator[str]:
    """Values that no program may accept for a flag."""
    kind, declared = value_type(field), field.metadata
    if kind is bool:
        yield from ("maybe", "2", "")
    yield from WRONG_NUMBERS.get(kind, ())
    if declared["choices"]:
        yield "nonsense"
    if declared["required"]:
        yield ""
    if declared["input_path"]:
        yield from ("nowhere/at/all", "x" * 300)  # longer than file systems allow
    if kind is str:
        yield "caf\udce9"  # how Python shows a byte of a command line that is not UTF-8


def run_of(program: str) -> dict[str, Any]:
    """The arguments that a program calls `flags.run` with."""
    captured = {}

    def capture(main, *classes, **options):
        captured.update(main=main, classes=classes, **options)

    real, flags.run = flags.run, capture
    try:
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            module, _, command = program.partition(" ")
            sys.argv = [module, *filter(None, [command])]
            runpy.run_module(module, run_name="__main__")
    finally:
        flags.run = real
    return captured


def outcome(captured: dict[str, Any], values: absl_flags.FlagValues) -> tuple[Any, list[str]]:
    """Exit status and lines on standard error of the program with the flags in `sys.argv`."""
    for name in values:
        values[name].unparse()
    classes, options = captured["classes"], {**captured}
    del options["classes"], options["main"]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            flags.run(lambda *_: sys.exit("accepted"), *classes, **options)
        except SystemExit as end:
            return end.code, errors.getvalue().splitlines()
    return None, []


def main(program: str, accepted: list[str]) -> None:
    """Tries the accepted flags, then each wrong one in addition."""
    captured = run_of(program)
    values = absl_flags.FLAGS
    flags.define_flags(captured["classes"], values)
    flags.define_flags = lambda *_: None  # once is enough
    app.run = lambda run, flags_parser: run(flags_parser(sys.argv))
    fields = itertools.chain(*map(dataclasses.fields, captured["classes"]))
    wrong = [f"--{field.name}={value}" for field in fields for value in wrong_values(field)]
    for argument in [
        "",
        *wrong,
        "--verbosity=some",
        "--flagfile=nowhere",
        "--no_such_flag",
        "stray",
    ]:
        sys.argv = [program, *accepted, *filter(None, [argument])]
        print(json.dumps([argument[:60], *outcome(captured, values)]))
    assert "tensorflow" not in sys.modules


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
