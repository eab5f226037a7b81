"""Settings and logs: what was written is read."""

import dataclasses
import json
import math
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf import UserError
from albert_tf.core.settings import LARGEST_INT32, Settings, setting, value_type
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from albert_tf.training.run_folder import METRICS_FILE, RunFolder
from albert_tf.training.settings import OptimizerConfig, RunConfig
from tests.properties.strategies import JSON, TEXTS


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(Settings):
    """A setting of each type."""

    text: str = setting("", "A text.")
    number: int = setting(1, "A number.", minimum=-3)
    rate: float | None = setting(None, "A rate.", maximum=0.5)
    truth: bool = setting(True, "A truth.")


@given(values=st.fixed_dictionaries({}, optional=dict.fromkeys(Example.names(), JSON)))
def test_any_values_are_settings_or_rejected_in_one_line(values):
    try:
        settings = Example(**values)
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 2000
        return
    assert settings.rate is None or math.isfinite(settings.rate) and settings.rate <= 0.5
    assert -3 <= settings.number <= LARGEST_INT32


METRICS = st.dictionaries(TEXTS, st.floats(), max_size=3)


@given(lines=st.lists(st.tuples(st.integers(0, LARGEST_INT32), METRICS), min_size=1, max_size=4))
def test_a_log_has_one_readable_line_for_each_append(lines, tmp_path_factory):
    folder = object.__new__(RunFolder)  # of a run, only the path is used
    folder.path, folder.is_chief = str(tmp_path_factory.mktemp("run")), True
    for step, values in lines:
        folder.append_metrics(METRICS_FILE, {**values, "step": step})
    content = pathlib.Path(folder.file(METRICS_FILE)).read_bytes()
    assert content.endswith(b"\n")
    found = [json.loads(line) for line in content.splitlines()]
    assert repr(found) == repr([{**values, "step": step} for step, values in lines])
