"""Command lines: settings classes -> absl flags (imported here alone) -> settings, and one line for a user error."""

import dataclasses
import functools
import glob
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NoReturn

from absl import flags, logging

from albert_tf.core import files, original_flags
from albert_tf.core.errors import SIGNAL_STATUS, Interrupted, UserError
from albert_tf.core.missing_packages import line_about
from albert_tf.core.removed_settings import REMOVED
from albert_tf.core.settings import Settings, value_type

# TensorFlow reads this when it is imported, and then uses tf_keras as its Keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# Exit statuses.
FLAG_ERROR = 2
INPUT_ERROR = 1

_HELP = {"--help", "-help", "-h", "-?", "--helpshort", "--helpfull"}
_KINDS = {bool: "bool", int: "integer", float: "float", str: "string"}
_WIDTH = 100
Defaults = Callable[[Mapping[str, Any], Set[str]], Mapping[str, Any]]


def run(
    main: Callable[..., object],
    *settings_classes: type[Settings],
    description: str = "",
    defaults: Defaults | None = None,
    positional: Sequence[str] = (),
) -> None:
    """Runs a program: flags -> settings -> `main(*settings)`; ends the process after an error.

    A user error prints one line on standard error and exits with status 2 (flags) or 1 (anything else); Ctrl-C exits
    with 130, SIGTERM with 143. Any other exception keeps its traceback.

    Args:
      settings_classes: dataclasses whose fields become flags; a field name may occur once only.
      description: for --help: the docstring of the program's module.
      defaults: a function of the values of all flags and the names of the flags on the command line. It returns other
        defaults for flags that are not on the command line.
      positional: names of the flags whose values may be given, in this order, without their names.
    """
    try:
        _run(main, settings_classes, description, defaults, positional)
    except ModuleNotFoundError as error:
        exit_without_package(error)


def _run(
    main: Callable[..., object],
    settings_classes: Sequence[type[Settings]],
    description: str,
    defaults: Defaults | None,
    positional: Sequence[str],
) -> None:
    """See `run`; an import of a package that is not installed raises its error."""
    try:
        if _HELP.intersection(sys.argv):
            print(help_text(description, settings_classes), flush=True)
            return
        settings = parse(settings_classes, sys.argv, defaults, positional, flags.FLAGS)
    except UserError as error:
        _exit_with(error, FLAG_ERROR)
    except BrokenPipeError:
        _discard_output()
        return
    logging.use_absl_handler()
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # hides messages for TensorFlow's developers
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        main(*settings)
        sys.stdout.flush()
    except UserError as error:
        _exit_with(error, INPUT_ERROR)
    except BrokenPipeError:
        _discard_output()
        _exit_with("standard output was closed", INPUT_ERROR)
    except KeyboardInterrupt as error:
        _print_error(str(error) or "interrupted")
        sys.stdout.flush()
        # Exit at once: TensorFlow can take 20 seconds to free the memory of an interrupted training.
        os._exit(SIGNAL_STATUS + getattr(error, "number", signal.SIGINT))


def program(
    main: Callable[..., object], *settings_classes: type[Settings], **options: Any
) -> Callable[[], None]:
    """The function that runs a program; for the arguments see `run`."""
    return lambda: run(main, *settings_classes, **options)


def parse(
    settings_classes: Sequence[type[Settings]],
    argv: Sequence[str],
    defaults: Defaults | None = None,
    positional: Sequence[str] = (),
    flag_values: flags.FlagValues | None = None,
) -> list[Settings]:
    """The settings of a command line, of which the first word is the program (`run`); a wrong flag is a UserError."""
    values = flags.FlagValues() if flag_values is None else flag_values
    fields = [field for cls in settings_classes for field in flag_fields(cls)]
    for field in fields:
        _define(field, values)
    _read(argv, positional, values)
    on_command_line = {field.name for field in fields if values[field.name].present}
    if defaults:
        for name, value in defaults(values.flag_values_dict(), on_command_line).items():
            if name not in on_command_line:
                values[name].value = value
    for field in fields:
        if field.metadata["required"] and not values[field.name].value:
            raise UserError(f"--{field.name} is required: {field.metadata['help']}")
    settings = {
        cls: cls(**{field.name: values[field.name].value for field in flag_fields(cls)})
        for cls in settings_classes
    }
    for group in settings.values():
        check_paths(group)
        group.check_with(settings)
    return list(settings.values())


def _read(argv: Sequence[str], positional: Sequence[str], values: flags.FlagValues) -> None:
    """Gives the flags their values of a command line; a wrong word is a UserError."""
    try:
        words = values(argv)[1:]
        missing = [name for name in positional if not values[name].present]
        if len(words) > len(missing):
            raise UserError(f"{words[len(missing)]!r} is not a flag; write --name=value")
        for name, word in zip(missing, words, strict=False):
            values[name].parse(word)
    except flags.UnrecognizedFlagError:
        raise UserError(_about_unknown_flags(argv, values)) from None
    except (flags.Error, ValueError) as error:  # absl's ValueError is about a value of --noNAME
        raise UserError(str(error).removeprefix("ERROR:: ")) from None


def _define(field: dataclasses.Field, values: flags.FlagValues) -> None:
    """Defines the flag of a field."""
    define = getattr(flags, f"DEFINE_{_KINDS[value_type(field)]}")
    if choices := field.metadata["choices"]:
        define = functools.partial(flags.DEFINE_enum, enum_values=list(choices))
    define(field.name, field.default, help=field.metadata["help"], flag_values=values)


def flag_fields(cls: type[Settings]) -> list[dataclasses.Field]:
    """The fields of a class that are flags."""
    return [field for field in dataclasses.fields(cls) if field.name not in cls.without_flags]


def check_paths(settings: Settings) -> None:
    """Checks that the input files exist; remote ones (with ://, or hf:) are checked when they are read."""
    for field in dataclasses.fields(settings):
        if not (declared := field.metadata["input_path"]):
            continue
        paths = getattr(settings, field.name)
        for path in [paths] if os.path.exists(paths) else files.split_list(paths):
            matches = glob.iglob(path, recursive=True)
            is_there = os.path.exists(path) or any(matches) or os.path.exists(path + ".index")
            if not (is_there or "://" in path or path.startswith(files.HUB_PREFIX)):
                hint = declared(path) if callable(declared) else ""
                reason = "no such file or folder" + (f"; {hint}" if hint else "")
                settings.refuse(field.name, f"={path}: {reason}")


def help_text(description: str, settings_classes: Sequence[type[Settings]]) -> str:
    """The text of --help: the flags in groups, one for each class; the program's own group, the last, comes first."""
    paragraphs = description.strip().split("\n\n")
    shown = (text if text[:1] == " " else textwrap.fill(text, _WIDTH) for text in paragraphs)
    lines = ["\n\n".join(shown)]
    for cls in reversed(settings_classes):
        lines += ["", (cls.__doc__ or "").split("\n\n")[0], ""]
        for field in flag_fields(cls):
            lines += _help_of(field)
    return "\n".join(lines)


def _help_of(field: dataclasses.Field) -> list[str]:
    """The lines about a flag: its name, values and default, and its explanation."""
    kind = value_type(field)
    declared = field.metadata
    default = field.default
    choices = [*filter(None, declared["choices"])]
    values = "|".join(choices) or {str: "TEXT"}.get(kind, "NUMBER")
    name = f"--[no]{field.name}" if kind is bool else f"--{field.name}={values}"
    shown = str(default).lower() if kind is bool else default
    note = "required" if declared["required"] else f"default: {shown}"
    if default is None or (default == "" and not declared["required"]):
        note = ""
    wrap = functools.partial(
        textwrap.wrap, width=_WIDTH, subsequent_indent=" " * 6, break_on_hyphens=False
    )
    return [
        *wrap(f"{name} ({note})" if note else name, initial_indent="  "),
        *wrap(declared["help"], initial_indent=" " * 6),
    ]


def _about_unknown_flags(argv: Sequence[str], values: flags.FlagValues) -> str:
    """The message about a command line with flags that the program does not have; it names all of them."""
    explanations = []
    for word in values(argv, known_only=True)[1:]:
        if not word.startswith("-"):
            continue
        try:
            values([argv[0], word])
        except flags.UnrecognizedFlagError as error:
            explanations.append(_explained(error, values))
        except (flags.Error, ValueError):
            continue  # a flag of the program, which absl does not read after a word that is no flag
    return "; and ".join(dict.fromkeys(explanations))


def _explained(error: flags.UnrecognizedFlagError, values: flags.FlagValues) -> str:
    """The message about one unknown flag; for a flag of the original, of others or of the past, what replaces it."""
    name = error.flagname
    key = name.replace("-", "_").removeprefix("no")
    meant = key if key in values else original_flags.MEANT.get(key, "")
    if meant.partition("=")[0] in values:
        advice = f"--{meant} is meant"
    elif key in REMOVED:
        advice = REMOVED[key].advice
    else:
        advice = next(filter(None, map(original_flags.REPLACEMENTS.get, (name, key))), "")
    return f"--{name} is no flag of this program; {advice}" if advice else str(error)


def _interrupt(number: int, _frame: object) -> None:
    raise Interrupted(number=number)


def _discard_output() -> None:
    """Discards buffered text for a reader that has ended, about which Python would print an error when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_without_package(error: ModuleNotFoundError) -> NoReturn:
    """Ends the process with one line about a package that is not installed; other errors of imports are raised."""
    line = line_about(error)
    if not line:
        raise error
    _exit_with(line, INPUT_ERROR)


def _exit_with(message: object, status: int) -> NoReturn:
    _print_error(message)
    sys.exit(status)


def _print_error(message: object) -> None:
    line = " ".join(str(message).splitlines())
    print(f"{os.path.basename(sys.argv[0])}: {line}", file=sys.stderr, flush=True)
