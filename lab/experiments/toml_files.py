"""Converts TOML files to dataclasses and settings; checks every name and value, and says where an error is.

This module does not import TensorFlow.
"""

import dataclasses
import functools
import itertools
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings


def read_toml(path: str) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
      UserError: it cannot be read, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # includes wrong UTF-8
        raise UserError(f"{path}: is not TOML ({error})") from None


def make(kind: Any, value: Any, where: str) -> Any:
    """Converts a value in TOML to an annotated type: tables to dataclasses or mappings, lists to tuples.

    Args:
      kind: str, int (also allowed for float), float, Any, a union of these, a Literal, a dataclass, Mapping[str, kind]
        or tuple[kind, ...].
      value: as tomllib returns it.
      where: the file, and the place in it.

    Raises:
      UserError: the value has the wrong type, a table has a key that is not a field, or lacks a field without a
        default.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        check_known([value], inner, where)
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _make_dataclass(kind, value, where)
    if origin is Mapping and isinstance(value, dict):
        return {name: make(inner[1], entry, f"{where}.{name}") for name, entry in value.items()}
    if origin is tuple and isinstance(value, list):
        places = [
            f"{where}, entry {entry.get('name', n) if isinstance(entry, dict) else n!r}"
            for n, entry in enumerate(value, 1)
        ]
        return tuple(map(functools.partial(make, inner[0]), value, places))
    kinds = inner if origin is types.UnionType else (kind,)
    if Any in kinds or type(value) in kinds or (type(value) is int and float in kinds):
        return value
    raise UserError(f"{where} must be {_in_words(kind)}, got {value!r}")


def _make_dataclass(cls: type, values: Mapping[str, Any], where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if unknown := set(values) - set(fields):
        raise UserError(
            f"{where}: {', '.join(sorted(unknown))}: unknown here; known are {', '.join(fields)}"
        )
    for name, field in fields.items():
        if name not in values and dataclasses.MISSING is field.default is field.default_factory:
            raise UserError(f"{where}: {name} is missing")
    made = {name: make(fields[name].type, values[name], f"{where}: {name}") for name in values}
    return cls(**made)


_WORDS = {
    str: ("text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    Literal: ("text", "texts"),
    Mapping: ("a table", "tables"),
    tuple: ("a list", "lists"),
}


def _in_words(kind: Any, *, plural: bool = False) -> str:
    """A type in TOML's terms: Mapping[str, int] is "a table of whole numbers"."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return " or ".join(map(_in_words, inner))
    word = _WORDS.get(origin or kind, _WORDS[Mapping])[plural]
    entry = {Mapping: inner[-1:], tuple: inner[:1]}.get(origin, ())
    if not entry or entry == (Any,):
        return word
    return f"{word} of {_in_words(*entry, plural=True)}"


def check_known(names: Iterable[Any], known: Collection[str], where: str) -> None:
    """Raises an error for the first name that is not among the known ones.

    Raises:
      UserError: the error lists all known names.
    """
    for name in names:
        if name not in known:
            raise UserError(
                f"{where} must be one of {', '.join(filter(None, known)) or 'none'}; got {name!r}"
            )


def check_settings(
    values: Mapping[str, Any],
    classes: Sequence[type[Settings]],
    where: str,
    not_among: Collection[str] = (),
) -> None:
    """Checks the names and values of settings, each separately.

    Args:
      values: values by the settings' names.
      classes: the classes whose fields the settings are.
      where: the file, and the place in it.
      not_among: fields that must not be set here.

    Raises:
      UserError: a name is not a field, or a value has the wrong type or is out of bounds.
    """
    all_fields = itertools.chain(*map(dataclasses.fields, classes))
    known = {field.name: field for field in all_fields if field.name not in not_among}
    check_known(values, known, f"{where}: a setting")
    # A class with only these fields checks each of them, but not whether they fit other settings.
    fields = [
        (name, field.type, dataclasses.field(default=field.default, metadata=field.metadata))
        for name, field in known.items()
        if name in values
    ]
    namespace = {"name_prefix": f"{where}: "}
    given = dataclasses.make_dataclass(
        "Given", fields, bases=(Settings,), namespace=namespace, frozen=True, kw_only=True
    )
    given(**values)
