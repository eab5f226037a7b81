"""Settings and logs: what was written is read."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf import UserError
from albert_tf.core.settings import LARGEST_INT32, Settings, value_type
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig
from tests.properties.strategies import TEXTS


def values_of(field: dataclasses.Field) -> st.SearchStrategy:
    """Values that a field's declaration allows."""
    declared, kind = field.metadata, value_type(field)
    minimum, maximum = declared["minimum"], declared["maximum"]
    if declared["choices"]:
        values = st.sampled_from(declared["choices"])
    elif kind is bool:
        values = st.booleans()
    elif kind is str:
        values = TEXTS.map(lambda text: "x" + text.replace("\0", ""))
    elif kind is int:
        values = st.integers(minimum, LARGEST_INT32 if maximum is None else maximum)
    else:
        values = st.floats(minimum, maximum, allow_nan=False, allow_infinity=False)
    return values if kind is field.type else values | st.none()


def settings_of(cls: type[Settings]) -> st.SearchStrategy:
    """Values by name, about those that the class accepts."""
    return st.fixed_dictionaries(
        {}, optional={field.name: values_of(field) for field in dataclasses.fields(cls)}
    )


CLASSES = [RunConfig, OptimizerConfig, FineTuningRunConfig, FineTuningOptimizerConfig]


@pytest.mark.parametrize("cls", CLASSES)
@given(data=st.data())
def test_recorded_settings_make_equal_settings(cls, data):
    try:
        settings = cls(**data.draw(settings_of(cls)))
    except UserError as error:  # two of the values contradict each other
        assert "\n" not in str(error).encode("unicode_escape").decode()
        return
    recorded = json.loads(json.dumps(settings.to_dict()))
    assert cls(**recorded) == settings
    assert recorded == settings.to_dict()
