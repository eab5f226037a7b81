"""The text of --help: the flags of a program in groups, one for each class of settings."""

import dataclasses
import textwrap
from collections.abc import Sequence

from albert_tf.core.settings import Settings, value_type

_WIDTH = 100
# An example in a docstring begins with one of these, also after a formatter has moved it to the left.
_COMMANDS = ("albert-tf ", "python ")
_VALUES = {int: "NUMBER", float: "NUMBER", str: "TEXT"}


def help_text(program: str, settings_classes: Sequence[type[Settings]]) -> str:
    """The help of a program; the program's own flags, the last class, come first."""
    groups: dict[type[Settings], list[dataclasses.Field]] = {}
    for settings_class in reversed(settings_classes):
        for field in dataclasses.fields(settings_class):
            groups.setdefault(_declared_by(settings_class, field), []).append(field)
    # Subclasses first: dataclasses list a base class's fields first, but a subclass's are the program's own.
    ordered = sorted(groups, key=lambda cls: -len(cls.__mro__))
    sections = [f"{_title(cls)}\n\n" + "\n".join(map(_flag, groups[cls])) for cls in ordered]
    return "\n\n".join([*map(_paragraph, program.strip().split("\n\n")), *sections])


def _paragraph(text: str) -> str:
    """A paragraph with lines as wide as the help; examples and other indented lines stay as they are."""
    if text.startswith(_COMMANDS):
        return textwrap.indent(text, "    ")
    return text if text.startswith(" ") else textwrap.fill(" ".join(text.split()), _WIDTH)


def _declared_by(cls: type[Settings], field: dataclasses.Field) -> type[Settings]:
    """The base class that introduced a field."""
    owners = [base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", {})]
    return owners[-1]


def _title(cls: type[Settings]) -> str:
    """The first sentence of a class's docstring, underlined."""
    title = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    return f"{title}\n{'-' * len(title)}"


def _flag(field: dataclasses.Field) -> str:
    """The flag of a field, its default and its explanation."""
    declared = field.metadata
    choices, help = list(filter(None, declared["choices"])), declared["help"]
    if value_type(field) is bool:
        name = f"--[no]{field.name}"
    elif len(value := "|".join(choices)) > _WIDTH // 2:
        name, help = f"--{field.name}=TEXT", f"{help} One of {', '.join(choices)}."
    else:
        name = f"--{field.name}={value or _VALUES[value_type(field)]}"
    default = str(field.default).lower() if value_type(field) is bool else field.default
    note = "required" if declared["required"] else f"default: {default}"
    hide = default is None or (default == "" and not declared["required"])
    lines = textwrap.wrap(
        name + ("" if hide else f" ({note})"),
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines += textwrap.wrap(
        help,
        _WIDTH,
        initial_indent="      ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )
    return "\n".join(lines)
