"""Command lines: settings classes -> absl flags (imported here alone) -> settings, and one line for a user error."""

import dataclasses
import functools
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from absl import flags, logging

from albert_tf.core.errors import SIGNAL_STATUS, Interrupted, UserError
from albert_tf.core.missing_packages import line_about
from albert_tf.core.original_flags import advice_about, without_harmless
from albert_tf.core.program import Defaults, Program, flag_fields, make_settings
from albert_tf.core.settings import Settings, value_type

# TensorFlow reads this when it is imported, and then uses tf_keras as its Keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# Exit statuses.
FLAG_ERROR = 2
INPUT_ERROR = 1

_HELP = {"--help", "-help", "-h", "-?", "--helpshort", "--helpfull"}
_KINDS = {bool: "bool", int: "integer", float: "float", str: "string"}
_WIDTH = 100


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

    For the arguments see `Program`.
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


def in_shell(program: Program) -> Callable[[], None]:
    """The function that runs a program with the flags of the command line; see `run`."""
    return lambda: run(
        program.main,
        *program.settings_classes,
        description=program.description,
        defaults=program.defaults,
        positional=program.positional,
    )


def parse(
    settings_classes: Sequence[type[Settings]],
    argv: Sequence[str],
    defaults: Defaults | None = None,
    positional: Sequence[str] = (),
    flag_values: flags.FlagValues | None = None,
) -> list[Settings]:
    """The settings of a command line, of which the first word is the program (`run`); a wrong flag is a UserError."""
    if flag_values is None:
        flag_values = flags.FlagValues()
    fields = [field for cls in settings_classes for field in flag_fields(cls)]
    for field in fields:
        _define(field, flag_values)
    _read(argv, positional, flag_values)
    on_command_line = {field.name for field in fields if flag_values[field.name].present}
    values = flag_values.flag_values_dict()
    return make_settings(settings_classes, values, on_command_line, defaults)


def _read(argv: Sequence[str], positional: Sequence[str], values: flags.FlagValues) -> None:
    """Gives the flags their values of a command line; a wrong word is a UserError."""
    argv, notes = without_harmless(argv, values)
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
    for note in notes:
        print(note, file=sys.stderr, flush=True)


def _define(field: dataclasses.Field, values: flags.FlagValues) -> None:
    """Defines the flag of a field."""
    define = getattr(flags, f"DEFINE_{_KINDS[value_type(field)]}")
    if choices := field.metadata["choices"]:
        define = functools.partial(flags.DEFINE_enum, enum_values=list(choices))
    define(field.name, field.default, help=field.metadata["help"], flag_values=values)


def help_text(
    description: str, settings_classes: Sequence[type[Settings]], without: Collection[str] = ()
) -> str:
    """The text of --help: the flags in groups, one for each class; the program's own group, the last, comes first.

    Args:
      without: names of flags that are left out; a group without flags is left out, too.
    """
    paragraphs = []
    for text in description.strip().split("\n\n"):
        is_example = text.startswith(" ")  # lines of a shell, which stay as they are
        paragraphs.append(text if is_example else textwrap.fill(text, _WIDTH))
    lines = ["\n\n".join(paragraphs)]
    for cls in reversed(settings_classes):
        fields = [field for field in flag_fields(cls) if field.name not in without]
        if fields:
            lines += ["", (cls.__doc__ or "").split("\n\n")[0], ""]
        for field in fields:
            lines += help_of_flag(field)
    return "\n".join(lines)


def help_of_flag(field: dataclasses.Field) -> list[str]:
    """The lines about a flag: its name, values and default, and its explanation."""
    kind = value_type(field)
    declared = field.metadata
    default = field.default
    choices = [*filter(None, declared["choices"])]
    shown_values = "|".join(choices)
    if not shown_values:
        shown_values = "TEXT" if kind is str else "NUMBER"
    name = f"--[no]{field.name}" if kind is bool else f"--{field.name}={shown_values}"
    shown_default = str(default).lower() if kind is bool else default
    note = "required" if declared["required"] else f"default: {shown_default}"
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
    advice = advice_about(error.flagname, values)
    return f"--{error.flagname} is no flag of this program; {advice}" if advice else str(error)


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
