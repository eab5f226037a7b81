"""Keyword arguments of Python -> settings of a program, as `flags.py` makes them of a command line."""

import contextlib
import dataclasses
import difflib
import os
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.core.missing_packages import line_about
from albert_tf.core.original_flags import advice_about
from albert_tf.core.program import Program, make_settings
from albert_tf.core.settings import Settings, broken_rule, value_type


def with_names(
    program: Program,
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    names: Collection[str] = (),
) -> dict[str, Any]:
    """All arguments of a call by their names.

    Args:
      names: further names that the call knows, besides those of the settings.

    Raises:
      UserError: an argument is unknown or given twice, or there are too many without names.
    """
    if len(positional) > len(program.positional):
        allowed = (
            f"at most {len(program.positional)} without a name" if program.positional else "names"
        )
        raise UserError(
            f"expected arguments with {allowed}, such as output_dir=...; got {len(positional)}"
        )
    values = dict(zip(program.positional, positional, strict=False))
    for name, value in keywords.items():
        if name in values:
            raise UserError(f"{name} is given twice")
        values[name] = value
    all_names = [*names, *program.fields()]
    for name in values:
        if name not in all_names:
            raise UserError(f"{name}: is no setting here{_hint(name, all_names)}")
    return values


def _hint(name: str, all_names: Collection[str]) -> str:
    """What is probably meant by an unknown name: a flag of others, or the nearest name."""
    advice = advice_about(name, all_names)
    if not advice:
        nearest = difflib.get_close_matches(name, all_names, n=1)
        listed = ", ".join(sorted(all_names))
        advice = f"{nearest[0]} is meant" if nearest else f"known are {listed}"
    return f"; {without_dashes(advice, all_names)}"


def settings_of(program: Program, values: Mapping[str, Any]) -> list[Settings]:
    """The settings of a program whose values are given by name; the others have their defaults.

    A path may be a `pathlib.Path`, a number one of NumPy, and the text of a list between commas a list.

    Raises:
      UserError: a value is missing or wrong, or values contradict each other.
    """
    fields = program.fields()
    plain = {}
    for name, value in values.items():
        plain[name] = _plain(fields[name], value)
        _check(fields[name], plain[name])
    all_values = {name: field.default for name, field in fields.items()} | plain
    return make_settings(program.settings_classes, all_values, plain.keys(), program.defaults)


def _check(field: dataclasses.Field, value: Any) -> None:
    """Checks a value before the other defaults are made of it."""
    kind = value_type(field)
    if value is None and kind is not field.type:
        return
    checked = float(value) if kind is float and type(value) is int else value
    if rule := broken_rule(field, checked, kind):
        raise UserError(f"--{field.name} must be {rule}, got {reprlib.repr(value)}")


def _plain(field: dataclasses.Field, value: Any) -> Any:
    """A value as the field of settings has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    takes_text = field.type in (str, str | None)
    if takes_text and isinstance(value, list | tuple):
        words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in value]
        if with_comma := [word for word in words if "," in word]:
            raise UserError(
                f"--{field.name}: a comma in {with_comma[0]!r} would separate two names"
            )
        return ",".join(words)
    return value


@contextlib.contextmanager
def errors_of_python(program: Program) -> Iterator[None]:
    """Lets messages name arguments as Python does, without dashes; a package that is missing is a `UserError`, too."""
    try:
        yield
    except UserError as error:
        raise UserError(without_dashes(str(error), program.fields())) from error.__cause__
    except ModuleNotFoundError as error:
        line = line_about(error)
        if not line:
            raise
        raise UserError(line) from error


def without_dashes(message: str, names: Collection[str]) -> str:
    """A message with the names of settings as arguments: "--seed must be ..." -> "seed must be ..."."""

    def shown(match: re.Match) -> str:
        return match[1] if match[1] in names else match[0]

    return re.sub(r"(?<![\w-])--([a-z]\w*)", shown, message)
