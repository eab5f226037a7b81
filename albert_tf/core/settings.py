"""Settings: frozen dataclasses whose fields carry a help text and a check; `flags.py` turns the fields into flags."""

import dataclasses
import itertools
import math
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, NoReturn

from albert_tf.core.errors import UserError

LARGEST_INT32, LARGEST_INT64 = 2**31 - 1, 2**63 - 1
LARGEST_SEED = 2**64 - 1  # for the random streams that are not TensorFlow's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """The declaration of a field, besides its type and default; kept in the field's metadata.

    Attributes:
      help: one sentence, with the unit if there is one.
      choices: the allowed values; empty allows all.
      minimum: the least allowed value.
      maximum: the greatest allowed value; of a whole number, `LARGEST_INT32` if it is None.
      none_value: a number that means None. The type of the field is then `int | None` or `float | None`. Flags and TOML
        files may contain this number.
      required: whether a command line must give it.
      input_path: whether it names files that must exist (a path, a glob, or several separated by commas).
      changes_results: false if the value changes neither the training steps nor the records, so that a run can be
        resumed with another value. Paths of input files are such settings: files may move, and their contents are
        checked.
      if_missing: a function that takes a path of `input_path` that does not exist, and says how to get such a file; ""
        if it does not know.
      of_model: whether the value belongs to a trained model: "fixed" if the model's features or labels were made with
        it, "default" if another use of the model may choose another value, "" if it does not belong to the model.
        Programs that do not train take the model's value if the flag is not given.
      about_devices: whether it selects devices or compilation, not the work itself; experiments pass such settings from
        pretraining to fine-tuning.
      less_memory: how to change it so that less memory is needed: "lower", "raise" or "set"; "" if it does not matter.
    """

    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    none_value: float | None = None
    required: bool = False
    input_path: bool = False
    if_missing: Callable[[str], str] | None = None
    of_model: str = ""
    changes_results: bool = True
    about_devices: bool = False
    less_memory: str = ""


def setting(default: Any, help: str, **declared: Any) -> Any:
    """A dataclass field with its help text and its check."""
    metadata = dataclasses.asdict(Declaration(help=help, **declared))
    return dataclasses.field(default=default, metadata=metadata)


def changed(cls: type["Settings"], name: str, default: Any, **declared: Any) -> Any:
    """A field of a subclass that repeats a field of its base class with another default."""
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    return setting(default, **{**field.metadata, **declared})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: checks every field against its declaration.

    Raises:
      UserError: a value has the wrong type, is not among the choices, is out of bounds, infinite or not a number, or is
        text that UTF-8 cannot encode; the error names the field.
    """

    name_prefix: ClassVar[str] = "--"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = _normalized(field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            if value is not None or not is_optional(field):
                self._check_field(field, value)

    def _check_field(self, field: dataclasses.Field, value: Any) -> None:
        declared, kind = field.metadata, value_type(field)
        if isinstance(kind, type) and type(value) is not kind:
            self.refuse(field.name, f"must be of type {kind.__name__}, got {reprlib.repr(value)}")
        if (choices := declared.get("choices")) and value not in choices:
            self.refuse(field.name, f"must be one of {', '.join(choices)}; got {value!r}")
        if kind is str and not _is_utf8(value):
            self.refuse(field.name, f"must be text in UTF-8, got {value!r}")
        if kind is float and not math.isfinite(value):
            self.refuse(field.name, f"must be a finite number, got {value}")
        if kind in (int, float):
            self._check_bounds(field, value)

    def _check_bounds(self, field: dataclasses.Field, value: float) -> None:
        none_value, minimum, maximum = map(field.metadata.get, ("none_value", "minimum", "maximum"))
        if maximum is None and type(value) is int:
            maximum = LARGEST_INT32
        is_low = minimum is not None and value < minimum
        is_high = maximum is not None and value > maximum
        if is_low or is_high:
            rule = f"at least {minimum}" if is_low else f"at most {maximum}"
            none_or = "" if is_high or none_value in (None, minimum) else f"{none_value} or "
            rule = f"{minimum}" if minimum == maximum else none_or + rule
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
    def of_model(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """The recorded values that belong to a trained model (`Declaration.of_model`), with the fields' types."""
        fields = (field for field in dataclasses.fields(cls) if field.metadata["of_model"])
        return {
            field.name: recorded[field.name]
            for field in fields
            if type(recorded.get(field.name)) is value_type(field)
        }


def memory_advice(*classes: type[Settings], leave_out: Collection[str] = ()) -> str:
    """What to change if there is too little memory, such as "lower --batch_size or --max_seq_length"."""
    names: dict[str, list[str]] = {}
    for field in itertools.chain(*map(dataclasses.fields, classes)):
        if (verb := field.metadata.get("less_memory")) and field.name not in leave_out:
            names.setdefault(verb, []).append(f"--{field.name}")
    return ", or ".join(f"{verb} {' or '.join(flags)}" for verb, flags in names.items())


def value_type(field: dataclasses.Field) -> Any:
    """The type of a field's values; for `int | None` it is int."""
    return typing.get_args(field.type)[0] if is_optional(field) else field.type


def is_optional(field: dataclasses.Field) -> bool:
    """Whether the value of a field may be None."""
    return isinstance(field.type, types.UnionType) and types.NoneType in typing.get_args(field.type)


def _normalized(field: dataclasses.Field, value: Any) -> Any:
    """The value as in the settings: None for the number that means None, a float where a float is expected."""
    is_number = type(value) in (int, float)
    if is_number and value == field.metadata.get("none_value"):
        return None
    if not is_number or value_type(field) is not float:
        return value
    try:
        return float(value)
    except OverflowError:  # a whole number above 10^308, which JSON can contain
        return math.copysign(math.inf, value)


def _is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode a text. It cannot encode half surrogate pairs, as in a command line with wrong bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
