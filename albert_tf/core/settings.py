"""Frozen dataclasses whose fields carry default, unit, help text and check; `flags.py` turns them into flags."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from albert_tf.core.errors import UserError


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    required: bool = False,
    input_path: bool = False,
) -> Any:
    """A dataclass field that carries its help text and its check.

    Args:
      default: the value when nothing is given; its type is the field's type.
      help: one sentence, with the unit where there is one.
      choices: the values allowed; empty allows all.
      minimum: the least value allowed.
      maximum: the greatest value allowed.
      required: whether a command line must give it.
      input_path: whether it names files that must exist (a path, a glob, or several separated by commas).
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "required": required,
        "input_path": input_path,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: checks every field against its own declaration.

    Raises:
      UserError: a value is of another type, not among the choices, or out of bounds; names the field.
    """

    name_prefix: ClassVar[str] = "--"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, field.name, value)
            self._check_field(field, value)

    def _check_field(self, field: dataclasses.Field, value: Any) -> None:
        limits = field.metadata
        if isinstance(field.type, type) and type(value) is not field.type:
            self.refuse(field.name, f"must be of type {field.type.__name__}, got {value!r}")
        if limits.get("choices") and value not in limits["choices"]:
            self.refuse(field.name, f"must be one of {', '.join(limits['choices'])}; got {value!r}")
        if limits.get("minimum") is not None and not value >= limits["minimum"]:
            self.refuse(field.name, f"must be at least {limits['minimum']}, got {value}")
        if limits.get("maximum") is not None and not value <= limits["maximum"]:
            self.refuse(field.name, f"must be at most {limits['maximum']}, got {value}")

    def check_with(self, others: Mapping[type["Settings"], "Settings"]) -> None:
        """Checks what must hold between these settings and others of the same command line.

        Args:
          others: all of its settings, by class.

        Raises:
          UserError: something does not hold; names the field.
        """

    def refuse(self, field_name: str, reason: str) -> None:
        """Raises the `UserError` that names a field; a reason may begin with its value, "=value ..."."""
        space = "" if reason.startswith("=") else " "
        raise UserError(f"{self.name_prefix}{field_name}{space}{reason}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain dictionary."""
        return dataclasses.asdict(self)


def changed(cls: type[Settings], name: str, default: Any, **metadata: Any) -> Any:
    """A field of a subclass that repeats its base class's, with another default, and other bounds or help if given."""
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    return dataclasses.field(default=default, metadata={**field.metadata, **metadata})
