"""Command lines: settings classes -> absl flags -> settings, and one line on standard error for a user error.

This is the only file of the library that imports absl.flags. A program calls `run` with its settings classes and a
function that takes their instances; defaults, help texts and checks come from the fields (`settings.py`).
"""

import contextlib
import dataclasses
import difflib
import functools
import glob
import itertools
import os
import re
import reprlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NoReturn, TextIO

from absl import app, flags, logging

from albert_tf.core import files, original_flags
from albert_tf.core.errors import SIGNAL_STATUS, Interrupted, UserError
from albert_tf.core.help_text import help_text
from albert_tf.core.settings import Settings, value_type

# TensorFlow reads this when it is imported, and then uses tf_keras as its Keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

FLAG_ERROR, INPUT_ERROR = 2, 1  # exit statuses
_HELP_ALL = {"--help=all", "--helpfull"}
_HELP = {"--help", "-help", "-h", "-?", "--helpshort", *_HELP_ALL}


def run(
    main: Callable[..., None],
    *settings_classes: type[Settings],
    description: str = "",
    defaults: Callable[[Mapping[str, Any], Set[str]], Mapping[str, Any]] | None = None,
    positional: Sequence[str] = (),
    most_used: Sequence[str] = (),
) -> None:
    """Runs a program: flags -> settings -> `main(*settings)`; ends the process.

    A user error prints one line on standard error and exits with status 2 (flags) or 1 (anything else); Ctrl-C exits
    with 130, SIGTERM with 143. Any other exception keeps its traceback.

    Args:
      settings_classes: dataclasses whose fields become flags; a field name may occur once only.
      description: for --help: the docstring of the program's module.
      defaults: a function of the values of all flags and the names of the flags on the command line. It returns other
        defaults for flags that are not on the command line.
      positional: names of the flags whose values may be given, in this order, without their names.
      most_used: names of the flags that --help explains, of which the program may lack some; by default all.
    """
    define_flags(settings_classes, flags.FLAGS)

    def parse(argv: Sequence[str]) -> list[str]:
        if asked := _HELP.intersection(itertools.takewhile("--".__ne__, argv)):
            names = () if asked & _HELP_ALL else most_used
            print_help(help_text(description, settings_classes, names))
            sys.exit(0)
        return _parse_or_exit(argv, positional)

    def run_main(_argv: Sequence[str]) -> None:
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # hides messages for TensorFlow's developers
        settings = _settings_or_exit(settings_classes, defaults)
        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, _interrupt)
        try:
            main(*settings)
        except KeyboardInterrupt as error:
            _print_error(str(error) or "interrupted")
            sys.stdout.flush()
            # Exit at once: TensorFlow can take 20 seconds to free the memory of an interrupted training.
            os._exit(SIGNAL_STATUS + getattr(error, "number", signal.SIGINT))

    try:
        with _checked_output():
            app.run(run_main, flags_parser=parse)
    except UserError as error:
        _exit_with(error, INPUT_ERROR)


def print_help(text: str) -> None:
    """Prints a help text; ends without a message if the reader of a pipe has ended, as in `--help | head`."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(text, flush=True)


def _settings_or_exit(
    settings_classes: Sequence[type[Settings]], defaults: Callable | None
) -> list[Settings]:
    """The settings of the command line, checked; a wrong one ends the process with `FLAG_ERROR`."""
    try:
        if defaults:
            _fill(defaults, flags.FLAGS)
        settings = {cls: settings_from_flags(cls, flags.FLAGS) for cls in settings_classes}
        for group in settings.values():
            check_paths(group)
            group.check_with(settings)
    except UserError as error:
        _exit_with(error, FLAG_ERROR)
    return list(settings.values())


def _interrupt(number: int, _frame: object) -> None:
    raise Interrupted(number=number)


def _fill(defaults: Callable, flag_values: flags.FlagValues) -> None:
    """Sets flags that are not on the command line to other values than their defaults."""
    values = {name: flag_values[name].value for name in flag_values}
    given = {name for name in flag_values if flag_values[name].present}
    for name, value in defaults(values, given).items():
        if name not in given:
            flag_values[name].value = value


def define_flags(settings_classes: Sequence[type[Settings]], flag_values: flags.FlagValues) -> None:
    """Defines one flag for every field of the classes."""
    kinds = {bool: "bool", int: "integer", float: "float", str: "string"}
    for field in itertools.chain(*map(dataclasses.fields, settings_classes)):
        define = getattr(flags, f"DEFINE_{kinds[value_type(field)]}")
        choices = field.metadata["choices"]
        if choices:
            define = functools.partial(flags.DEFINE_enum, enum_values=list(choices))
        define(
            field.name,
            field.default,
            help=field.metadata["help"],
            flag_values=flag_values,
        )


def settings_from_flags(cls: type[Settings], flag_values: flags.FlagValues) -> Settings:
    """The settings with the values of the parsed flags."""
    values = {field.name: flag_values[field.name].value for field in dataclasses.fields(cls)}
    for field in dataclasses.fields(cls):
        if field.metadata["required"] and not values[field.name]:
            raise UserError(f"--{field.name} is required: {field.metadata['help']}")
    return cls(**values)


def check_paths(settings: Settings) -> None:
    """Checks that the input files exist; remote ones (with ://, or hf:) are checked when they are read."""
    for name in settings.names(input_path=True):
        value = getattr(settings, name)
        for path in filter(None, [value] if os.path.exists(value) else value.split(",")):
            if path.startswith(files.ADDRESSES):
                raise UserError(f"--{name}={path}: {files.NOT_DOWNLOADED}")
            # The prefix of a TensorFlow checkpoint is no file, but <prefix>.index is.
            exists = os.path.exists(path) or glob.glob(path) or os.path.exists(path + ".index")
            is_remote = "://" in path or path.startswith(files.HUB_PREFIX)
            if not is_remote and not exists:
                if_missing = settings.__dataclass_fields__[name].metadata["if_missing"]
                hint = if_missing(path) if if_missing else ""
                raise UserError(f"--{name}={path}: no such file or folder" + (hint and f"; {hint}"))


def _parse_or_exit(argv: Sequence[str], positional: Sequence[str]) -> list[str]:
    rest = _parsed(argv)
    if unknown := _explain_unknown(rest[1:]):
        _exit_with(" | ".join(unknown), FLAG_ERROR)
    missing = [name for name in positional if not flags.FLAGS[name].present]
    program, *values = rest
    if len(values) > len(missing):
        _exit_with(f"{values[len(missing)]!r} is not a flag; write --name=value", FLAG_ERROR)
    named = (f"--{name}={value}" for name, value in zip(missing, values, strict=False))
    return _parsed([program, *named])


def _parsed(argv: Sequence[str]) -> list[str]:
    """Sets flags; returns the program and the arguments that are no known flag."""
    try:
        return flags.FLAGS(argv, known_only=True)
    except flags.Error as error:
        # absl stops at the first wrong value. A value, such as -7, may begin with one hyphen.
        named = [argument for argument in argv[1:] if argument.startswith("--")]
        _exit_with(" | ".join([_explain(error), *_explain_unknown(named)]), FLAG_ERROR)


def _explain_unknown(arguments: Sequence[str]) -> list[str]:
    """Messages about arguments that are not flags, each with advice; arguments with the same advice share a message."""
    names: dict[str, list[str]] = {}
    for argument in itertools.takewhile(lambda argument: argument != "--", arguments):
        name = argument.lstrip("-").partition("=")[0]
        if argument.startswith("-") and not _is_known(name):
            close = difflib.get_close_matches(name, list(flags.FLAGS), n=1)
            guess = f"did you mean --{close[0]}?" if close else "--help=all lists the flags"
            advice = original_flags.replacement(argument, flags.FLAGS) or guess
            names.setdefault(advice, []).append(f"--{name}")
    return [
        f"{', '.join(same)} {'is not a flag' if len(same) == 1 else 'are not flags'} of this program; {advice}"
        for advice, same in names.items()
    ]


def _is_known(name: str) -> bool:
    """Whether a name is that of a flag; a boolean flag also has its name with "no"."""
    positive = name.removeprefix("no")
    is_bool = positive in flags.FLAGS and flags.FLAGS[positive].flag_type() == "bool"
    return name in flags.FLAGS or is_bool


def _explain(error: flags.Error) -> str:
    """absl's message; where a flag cannot take a value, the values that it can take."""
    message = str(error).removeprefix("ERROR:: ")
    match = re.match(r"flag --(?P<name>\w+)=(?P<value>.*?): ", message, re.DOTALL)
    if not match or match["name"] not in flags.FLAGS:
        return message
    flag = flags.FLAGS[match["name"]]
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    expected = kinds.get(flag.flag_type())
    if choices := getattr(flag.parser, "enum_values", None):
        expected = f"one of {', '.join(filter(None, choices))}"
    given = reprlib.repr(match["value"])
    return f"--{flag.name} must be {expected}; got {given}" if expected else message


class _StandardOutput:
    """Standard output whose errors are user errors: the disk is full, or the reader of a pipe has ended."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._checked():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._checked():
            self._stream.flush()

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Discards buffered text, about which Python would print an error when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            raise UserError(f"standard output cannot be written ({error.strerror})") from None


@contextlib.contextmanager
def _checked_output() -> Iterator[None]:
    """Within the block, errors of standard output are user errors, also those of its last bytes."""
    # It is None if it was closed when the program started.
    output = _StandardOutput(sys.stdout or open(os.devnull, "w"))  # noqa: SIM115 - until the end
    with contextlib.redirect_stdout(output):
        try:
            yield
        except SystemExit as end:
            with contextlib.suppress(UserError) if end.code else contextlib.nullcontext():
                output.flush()
            raise


def _exit_with(message: object, status: int) -> NoReturn:
    _print_error(message)
    sys.exit(status)


def _print_error(message: object) -> None:
    line = " ".join(str(message).splitlines())
    print(f"{os.path.basename(sys.argv[0])}: {line}", file=sys.stderr, flush=True)
