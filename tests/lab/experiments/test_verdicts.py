"""Verdicts on differences of hand-made numbers."""

import math

import numpy as np
import pytest
from scipy import stats

from lab.experiments import verdicts
from lab.experiments.verdicts import AGREES, DISAGREES, TOO_SMALL, Level, compare


def by_seed(*values: float, first: int = 1) -> dict[int, float]:
    return dict(enumerate(values, first))


def test_rows_with_equal_seeds_are_compared_by_pairs():
    # Differences 1, 2 and 3 with standard deviation 1: 4.303 / 3 ** 0.5 = 2.5; of four pairs, 3.182 / 2 = 1.6.
    zero = by_seed(10.0, 20.0, 30.0)
    open_ = compare(by_seed(11.0, 22.0, 33.0), zero)
    assert open_[:4] == (TOO_SMALL, "+2.0 ± 2.5 (n = 3 pairs)", "4", 2.0)
    assert math.isclose(open_.half, 4.303 / 3**0.5, rel_tol=1e-4)
    found = compare(by_seed(12.0, 23.0, 34.0), zero)
    assert found[:4] == (AGREES, "+3.0 ± 2.5 (n = 3 pairs)", "", 3.0)
    assert compare(by_seed(8.0, 17.0, 26.0), zero).word == DISAGREES
    found = compare(by_seed(11.0, 22.0, 33.0), dict(reversed(zero.items())))
    assert found.reason == "+2.0 ± 2.5 (n = 3 pairs)"  # the order of the seeds is of no account


def test_rows_with_other_seeds_are_compared_by_welchs_interval():
    one = [1.0, 2.0, 6.0]
    other = [8.0, 8.5]
    for n, samples in (((3, 2), (one, other)), ((2, 3), (other, one))):
        expected = stats.ttest_ind(*samples, equal_var=False).confidence_interval()
        half = (expected.high - expected.low) / 2
        np.testing.assert_allclose(verdicts.margin([np.var(s, ddof=1) for s in samples], n), half)
        found = compare(by_seed(*samples[0]), by_seed(*samples[1], first=3))
        assert f" ± {half:.1f} (n = {n[0]} and {n[1]})" in found.reason
    expected = stats.ttest_1samp(one, 0.0).confidence_interval()
    np.testing.assert_allclose(verdicts.margin([7.0], [3]), (expected.high - expected.low) / 2)


# Three seeds with standard deviation 1: the interval is 2.48 on either side.
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("lower", {3.0: AGREES, 2.0: TOO_SMALL, -3.0: DISAGREES}),
        ("near", {0.5: AGREES, 1.0: TOO_SMALL, 6.0: DISAGREES}),
        ("at_most", {0.5: AGREES, -9.0: AGREES, 6.0: DISAGREES}),
    ],
)
def test_verdicts_against_a_number(rule, words):
    for difference, word in words.items():
        values = by_seed(*(50.0 + difference + each for each in (-1.0, 0.0, 1.0)))
        within = 0.0 if rule == "lower" else 3.0
        assert compare(values, Level(50.0), rule=rule, within=within).word == word, difference


def test_distance_from_a_level_has_the_error_of_the_examples():
    values = by_seed(52.0, 53.0, 54.0)
    # (2.48 ** 2 + 1.96 ** 2) ** 0.5; no number of seeds decides what the number of examples leaves open.
    few = compare(values, Level(50.0, 1.0))
    assert few[:3] == (TOO_SMALL, "+3.0 ± 3.2 (n = 3)", "4")
    assert compare(values, Level(50.0, 0.1)).word == AGREES
    assert compare(values, Level(50.0, 2.0)).seeds == "more examples"
