"""The text of --help: the flags of a program in groups, one for each class of settings."""

import dataclasses
import textwrap
from collections.abc import Sequence

from albert_tf.core.settings import Settings, value_type

_WIDTH = 100
_MOST_USED = 12  # flags at most
# An example in a docstring begins with one of these, also after a formatter has moved it to the left.
_COMMANDS = ("albert-tf ", "python ")
_VALUES = {int: "NUMBER", float: "NUMBER", str: "TEXT"}


def help_text(
    program: str, settings_classes: Sequence[type[Settings]], most_used: Sequence[str] = ()
) -> str:
    """The help of a program, with the flags of these names only; without names, with all.

    If all flags are shown, they are grouped, and the program's own ones, of the last class, come first.
    """
    paragraphs = [*map(_paragraph, program.strip().split("\n\n"))]
    if most_used:
        fields = {
            field.name: field for cls in settings_classes for field in dataclasses.fields(cls)
        }
        shown = [_flag(fields[name]) for name in most_used if name in fields][:_MOST_USED]
        rest = f"--help=all explains all {len(fields)} flags."
        return "\n\n".join([*paragraphs, _underlined("Flags used most"), "\n".join(shown), rest])
    groups: dict[type[Settings], list[dataclasses.Field]] = {}
    for settings_class in reversed(settings_classes):
        for field in dataclasses.fields(settings_class):
            groups.setdefault(_declared_by(settings_class, field), []).append(field)
    # Subclasses first: dataclasses list a base class's fields first, but a subclass's are the program's own.
    ordered = sorted(groups, key=lambda cls: -len(cls.__mro__))
    sections = [f"{_title(cls)}\n\n" + "\n".join(map(_flag, groups[cls])) for cls in ordered]
    return "\n\n".join([*paragraphs, *sections])


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
    return _underlined(" ".join((cls.__doc__ or "").split("\n\n")[0].split()))


def _underlined(title: str) -> str:
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
