"""Dataclass fields <-> absl flags, and what a command line prints when something is wrong.

The only file of the library that knows absl.flags. A script hands `run` its settings classes and a function
of their instances; defaults, help texts and checks come from the fields (`config.py`).
"""

import dataclasses
import difflib
import functools
import glob
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings

# TensorFlow reads these when it is imported: no start-up notes about missing GPUs, and tf_keras as its Keras.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

FLAG_MISTAKE, INPUT_MISTAKE = 2, 1  # exit statuses


def run(
    main: Callable[..., None],
    *settings_classes: type[Settings],
    defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    positional: str = "",
) -> None:
    """Runs a script: flags -> settings -> `main(*settings)`; ends the process.

    A mistake of the user ends it with one line on standard error and status 2 (flags) or 1 (anything else);
    a defect of the program keeps its traceback.

    Args:
      main: called with one instance of each settings class, in order.
      settings_classes: dataclasses whose fields become flags; a field name may occur once only.
      defaults: gives, from the values of all flags, those of flags that were not given.
      positional: name of the flag that may be given without its name.
    """
    define_flags(settings_classes, flags.FLAGS)

    def parse_and_run(argv: Sequence[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # TensorFlow's notes are for its developers
        try:
            if defaults:
                _fill(defaults, flags.FLAGS)
            settings = [settings_from_flags(cls, flags.FLAGS) for cls in settings_classes]
            for one in settings:
                check_paths(one)
                one.check_with({type(other): other for other in settings})
        except UserError as error:
            _exit_with(error, FLAG_MISTAKE)
        try:
            main(*settings)
        except UserError as error:
            _exit_with(error, INPUT_MISTAKE)
        except KeyboardInterrupt:
            _exit_with("interrupted", 130)

    app.run(parse_and_run, flags_parser=functools.partial(_parse_or_exit, positional=positional))


def _fill(
    defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]], flag_values: flags.FlagValues
) -> None:
    """Gives flags that are not on the command line other values than their defaults."""
    values = {name: flag_values[name].value for name in flag_values}
    for name, value in defaults(values).items():
        if not flag_values[name].present:
            flag_values[name].value = value


def define_flags(settings_classes: Sequence[type[Settings]], flag_values: flags.FlagValues) -> None:
    """Defines one flag for every field of the classes."""
    module = sys.argv[0]  # or --help would not list flags that this file defines
    for cls in settings_classes:
        for field in dataclasses.fields(cls):
            help_text = field.metadata["help"] + (
                " Required." if field.metadata["required"] else ""
            )
            common = {"flag_values": flag_values, "module_name": module}
            if field.metadata["choices"]:
                flags.DEFINE_enum(
                    field.name, field.default, list(field.metadata["choices"]), help_text, **common
                )
            else:
                define = {
                    bool: flags.DEFINE_bool,
                    int: flags.DEFINE_integer,
                    float: flags.DEFINE_float,
                    str: flags.DEFINE_string,
                }[field.type]
                define(field.name, field.default, help_text, **common)


def settings_from_flags(cls: type[Settings], flag_values: flags.FlagValues) -> Settings:
    """The settings that the parsed flags give.

    Raises:
      UserError: a required flag is missing or a value is wrong; names the flag.
    """
    values = {field.name: flag_values[field.name].value for field in dataclasses.fields(cls)}
    for field in dataclasses.fields(cls):
        if field.metadata["required"] and not values[field.name]:
            raise UserError(f"--{field.name} is required: {field.metadata['help']}")
    return cls(**values)


def check_paths(settings: Settings) -> None:
    """Checks that the files which the settings name exist; remote ones (with ://, or hf:) are left to their readers.

    Raises:
      UserError: a path or pattern matches no file; names the flag.
    """
    for field in dataclasses.fields(settings):
        if not field.metadata["input_path"]:
            continue
        value = getattr(settings, field.name)
        for path in filter(None, [value] if os.path.exists(value) else value.split(",")):
            # The prefix of a TensorFlow checkpoint is no file, but <prefix>.index is.
            found = os.path.exists(path) or glob.glob(path) or os.path.exists(path + ".index")
            is_remote = "://" in path or path.startswith(files.HUB_PREFIX)
            if not is_remote and not found:
                raise UserError(f"--{field.name}={path}: no such file")


def _parse_or_exit(argv: Sequence[str], positional: str = "") -> list[str]:
    try:
        rest = flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        close = difflib.get_close_matches(error.flagname, list(flags.FLAGS), n=1)
        hint = f"; did you mean --{close[0]}?" if close else "; --help lists the flags"
        _exit_with(f"--{error.flagname} is not a flag of this program{hint}", FLAG_MISTAKE)
    except flags.Error as error:
        _exit_with(_explain(error), FLAG_MISTAKE)
    if positional and len(rest) == 2 and not flags.FLAGS[positional].present:
        flags.FLAGS[positional].value = rest.pop()
    if len(rest) > 1:
        _exit_with(f"{rest[1]!r} is not a flag; write --name=value", FLAG_MISTAKE)
    return rest


def _explain(error: flags.Error) -> str:
    """absl's message; for a value that a flag cannot take, what it can take instead."""
    message = str(error).removeprefix("ERROR:: ")
    match = re.match(r"flag --(?P<name>\w+)=(?P<value>.*?): ", message, re.DOTALL)
    if not match or match["name"] not in flags.FLAGS:
        return message
    flag = flags.FLAGS[match["name"]]
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    expected = kinds.get(flag.flag_type())
    if choices := getattr(flag.parser, "enum_values", None):
        expected = f"one of {', '.join(filter(None, choices))}"
    return f"--{flag.name} must be {expected}; got {match['value']!r}" if expected else message


def _exit_with(message: object, status: int) -> None:
    line = " ".join(str(message).splitlines())
    print(f"{os.path.basename(sys.argv[0])}: {line}", file=sys.stderr)
    sys.exit(status)
