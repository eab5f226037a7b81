"""The comparison of the values of two checkouts."""

import copy
import math

import pytest

from lab.equality import comparison, parts
from lab.equality.data import ROOT
from lab.equality.parts import summary

BEFORE = {
    "pretraining": {"log": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}], "ids": [1, 2]},
    "errors": {"flag": {"status": 2, "line": "no such flag"}},
}


def changed(part, *keys, value):
    after = copy.deepcopy(BEFORE)
    place = after[part]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return after


def test_equal_values_do_not_differ():
    assert comparison.differences(BEFORE, copy.deepcopy(BEFORE)) == []
    assert comparison.difference(math.nan, math.nan) == 0


@pytest.mark.parametrize(
    ("keys", "value", "line"),
    [
        (("pretraining", "log", 1, "loss"), 2.5, "pretraining.log.1.loss: by 0.25: 2.25 -> 2.5"),
        (("pretraining", "ids"), [1, 2, 3], "pretraining.ids.2: (missing) -> 3"),
        (("pretraining", "ids"), [], "pretraining.ids: (missing) -> []"),
        (("pretraining", "log", 0, "loss"), math.nan, "pretraining.log.0.loss: 2.5 -> NaN"),
        (("errors", "flag", "status"), True, "errors.flag.status: 2 -> true"),
        (("errors", "flag"), {"status": 2}, "errors.flag.line: no such flag -> (missing)"),
    ],
)
def test_every_change_is_found(keys, value, line):
    assert line in comparison.differences(BEFORE, changed(*keys, value=value))


def test_the_largest_difference_comes_first_and_the_tolerance_hides_small_ones():
    after = changed("pretraining", "log", 0, "loss", value=2.75)
    after["pretraining"]["log"][1]["loss"] = 2.25 + 1e-7
    lines = comparison.differences(BEFORE, after)
    assert [line.split(":")[0] for line in lines] == [
        "pretraining.log.0.loss",
        "pretraining.log.1.loss",
    ]
    assert len(comparison.differences(BEFORE, after, tolerance=1e-6)) == 1


def test_parts_that_were_not_measured_again_are_not_compared():
    assert comparison.differences(BEFORE, {"errors": BEFORE["errors"]}) == []


def test_a_summary_changes_with_values_and_with_their_order():
    array = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
    turned = [[7.0, 5.0, 4.0], [3.0, 2.0, 1.0]]
    assert summary(array) != summary([[1.0, 2.0, 3.5], [4.0, 5.0, 7.0]])
    assert summary(array) != summary(turned)


def test_the_recorded_values_have_every_part_and_no_folder_of_a_machine():
    path = ROOT / "docs" / "results" / "data" / "equality_before.json"
    values = comparison.read(str(path))
    assert list(values) == list(parts.PARTS)
    assert all("failed" not in part for part in values.values())
    assert "/tmp" not in path.read_text() and str(ROOT) not in path.read_text()
