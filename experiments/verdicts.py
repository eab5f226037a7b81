"""Verdicts on the paper's claims: agrees, disagrees, or too small to say.

The spread over seeds is assumed to be equal for all rows of a table and is pooled over them, so that two or three seeds
for each row are enough. A difference is decided by its 95 % interval of Student's t, so that one of twenty comparisons
of equal rows is decided wrongly. Nothing is decided if no row has two seeds.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scipy import stats

AGREES, DISAGREES, TOO_SMALL, NOT_RUN = "agrees", "disagrees", "too small to say", "not run"
CONFIDENCE = 0.95


class Verdict(NamedTuple):
    """A word, and the numbers that explain it."""

    word: str
    reason: str


class Spread(NamedTuple):
    """The spread of a number over seeds.

    Fields:
      deviation: standard deviation within rows.
      freedom: degrees of freedom of its estimate; 0 if it is unknown.
    """

    deviation: float
    freedom: int


class Level(NamedTuple):
    """A number that rows are compared with.

    Fields:
      value: the number.
      error: standard error of a row's distance from it, besides the spread over seeds; it is common to all seeds, as
        they are evaluated on the same examples.
    """

    value: float
    error: float = 0.0


def pooled(rows: Iterable[Sequence[float]]) -> Spread:
    """The spread within rows.

    Args:
      rows: numbers of each row's seeds. A row whose seeds are all equal is ignored: it belongs to a head that gives the
        same answer to all examples.
    """
    rows = [values for values in rows if len(values) > 1 and len(set(values)) > 1]
    freedom = sum(len(values) - 1 for values in rows)
    if not freedom:
        return Spread(0.0, 0)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in rows)
    return Spread(math.sqrt(squares / freedom), freedom)


class _Difference(NamedTuple):
    """A difference of means, and half of its interval."""

    value: float
    margin: float
    words: str


# By the field of `Claim` that a row is compared with: whether the interval of a difference agrees with the claim,
# whether it disagrees, and how the allowed distance is described.
RULES: dict[str, tuple[Callable, Callable, str]] = {
    "lower": (lambda low, high, within: low > 0, lambda low, high, within: high < 0, ""),
    "near": (
        lambda low, high, within: -within <= low and high <= within,
        lambda low, high, within: low > within or high < -within,
        "near is {:g}",
    ),
    "at_most": (
        lambda low, high, within: high <= within,
        lambda low, high, within: low > within,
        "no better is at most {:g}",
    ),
}


def compare(
    values: Sequence[float],
    reference: Sequence[float] | Level,
    spread: Spread,
    digits: int = 1,
    rule: str = "lower",
    within: float = 0.0,
) -> Verdict:
    """The verdict on a comparison of a row with another row or with a number.

    Args:
      values: of the seeds of the row that the claim is about.
      reference: values of the seeds of the other row, or a number.
      spread: of all rows.
      digits: number of decimals in the reason.
      rule: one of `RULES`: above the reference, near it, or not above it.
      within: the distance that the last two rules allow.
    """
    difference = _difference(values, reference, spread, digits)
    if difference is None:
        return Verdict(NOT_RUN, "")
    agrees, disagrees, allowed = RULES[rule]
    ends = difference.value - difference.margin, difference.value + difference.margin
    word = TOO_SMALL
    if agrees(*ends, within):
        word = AGREES
    elif disagrees(*ends, within):
        word = DISAGREES
    return Verdict(word, ", ".join(filter(None, (difference.words, allowed.format(within)))))


def _difference(
    values: Sequence[float], reference: Sequence[float] | Level, spread: Spread, digits: int
) -> _Difference | None:
    """The mean minus the reference; None if one of them was not run."""
    if not values or not reference:
        return None
    if isinstance(reference, Level):
        subtracted, variance, error = reference.value, 1 / len(values), reference.error
        numbers = f"{len(values)}"
    else:
        subtracted, variance = statistics.fmean(reference), 1 / len(values) + 1 / len(reference)
        error, numbers = 0.0, f"{len(values)} and {len(reference)}"
    value = statistics.fmean(values) - subtracted
    if not spread.freedom:
        return _Difference(value, math.inf, f"{value:+.{digits}f}, one seed")
    tail = (1 + CONFIDENCE) / 2
    of_seeds = stats.t.ppf(tail, spread.freedom) * spread.deviation * math.sqrt(variance)
    margin = math.hypot(of_seeds, stats.norm.ppf(tail) * error)
    words = f"{value:+.{digits}f} ± {margin:.{digits}f} (n = {numbers})"
    return _Difference(value, margin, words)
