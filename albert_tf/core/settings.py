"""Settings: frozen dataclasses whose fields carry a help text and a check; `flags.py` turns the fields into flags."""

import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn

from albert_tf.core.errors import UserError, shortened

LARGEST_INT32 = 2**31 - 1
LARGEST_INT64 = 2**63 - 1
LARGEST_SEED = 2**64 - 1  # for the random streams that are not TensorFlow's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """The declaration of a field, besides its type and default; kept in the field's metadata."""

    help: str  # one sentence, with the unit if there is one
    choices: tuple[str, ...] = ()  # the allowed values; empty allows all
    minimum: float | None = None
    maximum: float | None = None  # of a whole number, None is `LARGEST_INT32`
    above: float | None = None  # a bound that is no value itself
    below: float | None = None  # the same on the other side
    required: bool = False  # on a command line
    # Whether it names files that must exist (a path, a glob, or several separated by commas); or a function of a path
    # that does not exist, which says how to get such a file.
    input_path: bool | Callable[[str], str] = False
    # False if neither training steps nor records depend on it, so that a run can be resumed with another value; also of
    # paths of input files, which may move, as their contents are checked.
    changes_results: bool = True
    # "fixed" if a model's features or labels were made with it, "default" if another use may choose another value.
    # Programs that do not train take the model's value if the flag is not given.
    of_model: str = ""


def setting(default: Any, help: str, **declared: Any) -> Any:
    """A dataclass field with its help text and its check."""
    metadata = dataclasses.asdict(Declaration(help=help, **declared))
    return dataclasses.field(default=default, metadata=metadata)


def changed(cls: type["Settings"], name: str, default: Any, **declared: Any) -> Any:
    """A field of a subclass that repeats a field of its base class with another default."""
    return setting(default, **{**cls.__dataclass_fields__[name].metadata, **declared})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: checks type, choices and bounds of every field; a wrong value is a UserError."""

    name_prefix: ClassVar[str] = "--"
    # Fields of a base class that are no flags of the programs of this class: they have their defaults.
    without_flags: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = value_type(field)
            if kind is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, field.name, value)
            if value is not None or kind is field.type:
                self._check(field, value, kind)

    def _check(self, field: dataclasses.Field, value: Any, kind: Any) -> None:
        rule = broken_rule(field, value, kind)
        if rule:
            self.refuse(field.name, f"must be {rule}, got {reprlib.repr(value)}")

    def check_with(self, others: Mapping[type["Settings"], "Settings"]) -> None:
        """Checks these settings against the others of the same command line; a contradiction is a `UserError`."""

    def refuse(self, field_name: str, reason: str) -> NoReturn:
        """Raises a `UserError` that names a field; the reason may begin with the value, as "=value ..."."""
        space = "" if reason.startswith("=") else " "
        raise UserError(f"{self.name_prefix}{field_name}{space}{reason}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def names(cls, **declared: Any) -> tuple[str, ...]:
        """Names of the fields with the given declarations, such as `changes_results=False`."""
        fields = dataclasses.fields(cls)
        return tuple(field.name for field in fields if declared.items() <= field.metadata.items())

    @classmethod
    def check_recorded(cls, recorded: Mapping[str, Any], source: str) -> None:
        """Checks the values in a model's file that belong to it (`Declaration.of_model`); `source` names the file."""
        for field in dataclasses.fields(cls):
            if field.metadata.get("of_model") and recorded.get(field.name) is not None:
                value = recorded[field.name]
                rule = broken_rule(field, value, value_type(field))
                if rule:
                    reason = f"{field.name} must be {rule}, got {shortened(value)}"
                    raise UserError(f"{source}: {reason}")

    @classmethod
    def of_model(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """The recorded values that belong to a trained model (`Declaration.of_model`), with the fields' types."""
        return {
            field.name: recorded[field.name]
            for field in dataclasses.fields(cls)
            if field.metadata["of_model"] and type(recorded.get(field.name)) is value_type(field)
        }


def value_type(field: dataclasses.Field) -> Any:
    """The type of a field's values; for `int | None` it is int."""
    is_optional = types.NoneType in typing.get_args(field.type)
    return typing.get_args(field.type)[0] if is_optional else field.type


def broken_rule(field: dataclasses.Field, value: Any, kind: Any) -> str:
    """What a value of a field must be, if it is not that; fields that are not made by `setting` have no bounds."""
    choices = field.metadata.get("choices")
    if isinstance(kind, type) and type(value) is not kind:
        return f"of type {kind.__name__}"
    if choices and value not in choices:
        return f"one of {', '.join(filter(None, choices))}"
    if kind is float and not math.isfinite(value):
        return "a finite number"
    if kind not in (int, float):
        return ""
    return _broken_bound(field.metadata, value, LARGEST_INT32 if kind is int else math.inf)


def _broken_bound(metadata: Mapping[str, Any], value: float, largest: float) -> str:
    """The bound of a declaration that a number breaks, for messages; "" if it is within all of them."""
    minimum = metadata.get("minimum")
    maximum = metadata.get("maximum")
    above = metadata.get("above")
    below = metadata.get("below")
    if maximum is None:
        maximum = largest
    if minimum is not None and value < minimum:
        return f"at least {minimum}"
    if value > maximum:
        return f"at most {maximum}"
    if above is not None and value <= above:
        return f"above {above}"
    if below is not None and value >= below:
        return f"below {below}"
    return ""
