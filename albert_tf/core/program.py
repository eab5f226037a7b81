"""Programs: settings classes, and a function of them. `flags.py` runs a program in a shell, `keywords.py` in Python."""

import dataclasses
import glob
import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings

Defaults = Callable[[Mapping[str, Any], Set[str]], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A program.

    Attributes:
      main: what it does, a function of one object of each settings class; a `UserError` says what is wrong.
      settings_classes: dataclasses whose fields are its settings; a field name may occur once only.
      description: what it does in words: the docstring of its module.
      defaults: a function of the values of all settings and the names of those that are given. It returns other
        defaults for those that are not given.
      positional: names of the settings whose values may be given, in this order, without their names.
      answers: what a call in Python gets of a program that prints answers: a function of the settings and, if `lines`
        is given, of these. Its docstring begins with what it returns.
      lines: name of the argument that has the lines of standard input in Python.
    """

    main: Callable[..., Any]
    settings_classes: Sequence[type[Settings]]
    description: str = ""
    defaults: Defaults | None = None
    positional: Sequence[str] = ()
    answers: Callable[..., Any] | None = None
    lines: str = ""

    def fields(self) -> dict[str, dataclasses.Field]:
        """The fields of all settings classes, by name; the program's own, of the last class, come first."""
        return {
            field.name: field
            for cls in reversed(self.settings_classes)
            for field in flag_fields(cls)
        }


def flag_fields(cls: type[Settings]) -> list[dataclasses.Field]:
    """The fields of a class that are settings of a program."""
    return [field for field in dataclasses.fields(cls) if field.name not in cls.without_flags]


def make_settings(
    settings_classes: Sequence[type[Settings]],
    values: Mapping[str, Any],
    given_names: Set[str],
    defaults: Defaults | None = None,
) -> list[Settings]:
    """One object of each settings class, checked alone and against the others.

    Args:
      values: the values of all fields, given or not.
      given_names: the names of the fields that the user gave.
      defaults: see `Program`.

    Raises:
      UserError: a value is missing or wrong, an input file does not exist, or two values contradict each other.
    """
    values = dict(values)
    if defaults:
        for name, value in defaults(dict(values), given_names).items():
            if name not in given_names:
                values[name] = value

    for cls in settings_classes:
        for field in flag_fields(cls):
            if field.metadata["required"] and not values[field.name]:
                raise UserError(f"--{field.name} is required: {field.metadata['help']}")

    settings = {
        cls: cls(**{field.name: values[field.name] for field in flag_fields(cls)})
        for cls in settings_classes
    }
    for group in settings.values():
        check_paths(group)
        group.check_with(settings)
    return list(settings.values())


def check_paths(settings: Settings) -> None:
    """Checks that the input files exist; remote ones (with ://, or hf:) are checked when they are read."""
    for field in dataclasses.fields(settings):
        hint_of_path = field.metadata["input_path"]
        if not hint_of_path:
            continue
        value = getattr(settings, field.name)
        paths = [value] if os.path.exists(value) else files.split_list(value)
        for path in paths:
            matches = glob.iglob(path, recursive=True)
            is_here = os.path.exists(path) or any(matches) or os.path.exists(path + ".index")
            is_remote = "://" in path or path.startswith(files.HUB_PREFIX)
            if is_here or is_remote:
                continue
            reason = "no such file or folder"
            hint = hint_of_path(path) if callable(hint_of_path) else ""
            if hint:
                reason += f"; {hint}"
            settings.refuse(field.name, f"={path}: {reason}")
