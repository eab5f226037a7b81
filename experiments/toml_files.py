"""TOML files -> dataclasses and settings: every name and every value is checked, in one line that says where it stands.

Imports no TensorFlow.
"""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

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
    except ValueError as error:  # also where it is not UTF-8
        raise UserError(f"{path}: is not TOML ({error})") from None


def tables(values: Any, where: str) -> list[dict[str, Any]]:
    """What should be a list of tables.

    Raises:
      UserError: it is something else.
    """
    _check_type(values, Sequence[Mapping[str, Any]], where)
    return values


def make(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """An instance of a dataclass.

    Args:
      cls: the dataclass; types of its fields are str, int, float, unions of these, Mapping, Sequence and tuple.
      values: by field.
      where: file, and the place in it if there are several.

    Raises:
      UserError: a key is no field, a field without a default has no value, or a value is of another type.
    """
    known = {field.name: field for field in dataclasses.fields(cls)}
    if unknown := set(values) - set(known):
        raise UserError(
            f"{where}: {', '.join(sorted(unknown))}: unknown here; known are {', '.join(known)}"
        )
    for name, field in known.items():
        if name in values:
            _check_type(values[name], field.type, f"{where}: {name}")
        elif dataclasses.MISSING is field.default is field.default_factory:
            raise UserError(f"{where}: {name} is missing in {values.get('name') or cls.__name__}")
    return cls(**values)


def _check_type(value: Any, kind: Any, where: str) -> None:
    """Refuses a value that is not of an annotated type; a whole number is also a float, and a list a tuple."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    kinds = inner if isinstance(kind, types.UnionType) else (kind,)
    if origin is Mapping and isinstance(value, dict):
        for key, one in value.items():
            _check_type(one, inner[1], f"{where}.{key}")
    elif origin in (Sequence, tuple) and isinstance(value, list | tuple):
        for number, one in enumerate(value, 1):
            _check_type(one, inner[0], f"{where}, entry {number},")
    elif not (Any in kinds or type(value) in kinds or (type(value) is int and float in kinds)):
        raise UserError(f"{where} must be {_in_words(kind)}, got {value!r}")


_WORDS = {
    str: ("text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    Mapping: ("a table", "tables"),
    Sequence: ("a list", "lists"),
    tuple: ("a list", "lists"),
}


def _in_words(kind: Any, *, several: bool = False) -> str:
    """A type as a reader of TOML calls it: Mapping[str, int] is "a table of whole numbers"."""
    if isinstance(kind, types.UnionType):
        return " or ".join(_in_words(one) for one in typing.get_args(kind))
    word = _WORDS.get(typing.get_origin(kind) or kind, (kind.__name__,) * 2)[several]
    inner = {Mapping: 1, Sequence: 0, tuple: 0}.get(typing.get_origin(kind))
    if inner is None or typing.get_args(kind)[inner] is Any:
        return word
    return f"{word} of {_in_words(typing.get_args(kind)[inner], several=True)}"


def check_known(names: Iterable[Any], known: Collection[str], where: str) -> None:
    """Refuses the first name that is not known.

    Raises:
      UserError: there is one; names all that are known.
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
    """Checks names and values of some settings, each by itself, as others may come from elsewhere.

    Args:
      values: by the settings' names.
      classes: whose fields they are.
      where: file, and the place in it.
      not_among: fields that are not to be set here.

    Raises:
      UserError: a name is a field of no class, or a value is of another type or out of bounds.
    """
    known = {
        field.name: field
        for cls in classes
        for field in dataclasses.fields(cls)
        if field.name not in not_among
    }
    check_known(values, known, f"{where}: a setting")
    fields = [
        (
            name,
            known[name].type,
            dataclasses.field(default=known[name].default, metadata=known[name].metadata),
        )
        for name in values
    ]
    # A class of these fields alone checks each of them, and nothing that holds between them and others.
    namespace = {"name_prefix": f"{where}: "}
    given = dataclasses.make_dataclass(
        "Given", fields, bases=(Settings,), namespace=namespace, frozen=True, kw_only=True
    )
    given(**values)
