"""Settings: checks, optional values, and the flags that are made of them.

Covers: errors.py, flags.py.
"""

import dataclasses

import pytest
from absl import flags as absl_flags

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, changed, setting
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig
from albert_tf.training.settings import OptimizerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(Settings):
    """One setting of each type."""

    name: str = setting("", "A name.", changes_results=False)
    count: int | None = setting(None, "A number; 0 is none.", minimum=1, none_value=0)
    rate: float | None = setting(
        0.5, "A rate; -1 is none.", minimum=0, maximum=0.9, none_value=-1, about_devices=True
    )
    width: int = setting(7, "A width.", minimum=0)


def parsed(cls, *arguments):
    values = absl_flags.FlagValues()
    flags.define_flags([cls], values)
    values(["program", *arguments])
    return flags.settings_from_flags(cls, values)


def test_a_number_that_stands_for_none_becomes_none():
    assert (Example(count=0).count, Example(rate=-1).rate, Example(rate=-1.0).rate) == (None,) * 3
    assert (Example().count, Example(rate=None).rate) == (None, None)
    assert Example(width=0).width == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": -1}, "--count must be 0 or at least 1, got -1"),
        ({"count": 2.5}, "--count must be of type int, got 2.5"),
        ({"count": "2"}, "--count must be of type int, got '2'"),
        ({"count": False}, "--count must be of type int, got False"),
        ({"rate": -0.5}, "--rate must be -1 or at least 0, got -0.5"),
        ({"rate": 1}, "--rate must be at most 0.9, got 1.0"),
        ({"width": -1}, "--width must be at least 0, got -1"),
        ({"width": None}, "--width must be of type int, got None"),
        ({"name": None}, "--name must be of type str, got None"),
    ],
)
def test_other_values_of_an_optional_setting_are_checked(values, message):
    with pytest.raises(UserError) as caught:
        Example(**values)
    assert str(caught.value) == message


def test_an_unknown_declaration_is_rejected():
    with pytest.raises(TypeError, match="minimun"):
        setting(1, "A number.", minimun=1)
    with pytest.raises(TypeError, match="minimun"):
        changed(Example, "width", 3, minimun=1)


def test_a_changed_setting_keeps_the_other_declarations():
    field = changed(Example, "rate", 0.25, maximum=0.75)
    assert field.default == 0.25
    expected = {**Example.__dataclass_fields__["rate"].metadata, "maximum": 0.75}
    assert dict(field.metadata) == expected


def test_names_are_found_by_their_declarations():
    assert Example.names(changes_results=False) == ("name",)
    assert Example.names(changes_results=True, about_devices=False) == ("count", "width")


def test_flags_of_optional_settings():
    assert parsed(Example) == Example()
    assert parsed(Example, "--count=3", "--rate=0.25") == Example(count=3, rate=0.25)
    assert parsed(Example, "--count=0", "--rate=-1") == Example(rate=None)


def test_numbers_that_are_natural_stay_numbers():
    optimizer = OptimizerConfig(learning_rate=0, num_warmup_steps=0, max_gradient_norm=0)
    assert optimizer.learning_rate == optimizer.num_warmup_steps == optimizer.max_gradient_norm == 0
    assert FineTuningOptimizerConfig(num_warmup_steps=0).num_warmup_steps == 0
    assert ClassifierConfig(task_name="MRPC", restart_collapsed=0).restart_collapsed == 0
