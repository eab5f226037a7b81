"""Whether what the paper says comes out: agrees, disagrees, or too small to say.

A comparison is decided by the spread over seeds, which is taken to be the same for all rows of a table: so that two or
three seeds a row are enough, what they differ within rows is pooled over the rows. A difference is decided if it is
outside the 95 % interval of Student's t, so of rows that do not differ at all one comparison in twenty is decided
nevertheless. Nothing is decided where no row has two seeds.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scipy import stats

AGREES, DISAGREES, TOO_SMALL, NOT_RUN = "agrees", "disagrees", "too small to say", "not run"
CONFIDENCE = 0.95


class Verdict(NamedTuple):
    """A word, and the numbers behind it."""

    word: str
    reason: str


class Spread(NamedTuple):
    """How much a number differs from seed to seed.

    Fields:
      deviation: standard deviation within rows.
      freedom: degrees of freedom of its estimate; 0 if nothing is known.
    """

    deviation: float
    freedom: int


class Level(NamedTuple):
    """A number that rows are compared with.

    Fields:
      value: the number.
      error: standard error that a row's distance from it has besides the spread over seeds, as all seeds answer the
        same questions.
    """

    value: float
    error: float = 0.0


def pooled(rows: Iterable[Sequence[float]]) -> Spread:
    """The spread within rows.

    Args:
      rows: numbers of each row's seeds. Rows whose seeds all have the same number, such as those of a head that gives
        one answer to all, say nothing of the spread of others and do not count.
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


def compare(
    values: Sequence[float], others: Sequence[float] | Level, spread: Spread, digits: int = 1
) -> Verdict:
    """Whether a row is above another one or a number.

    Args:
      values: of each seed of the row that the paper says has more.
      others: of each seed of the other row, or a number.
      spread: of all rows.
      digits: of the reason.
    """
    return _judged(
        _difference(values, others, spread, digits),
        agrees=lambda low, high: low > 0,
        disagrees=lambda low, high: high < 0,
    )


def compare_near(
    values: Sequence[float],
    others: Sequence[float] | Level,
    within: float,
    spread: Spread,
    digits: int = 1,
) -> Verdict:
    """Whether a row is within a distance of another one or of a number; see `compare`."""
    return _judged(
        _difference(values, others, spread, digits),
        agrees=lambda low, high: -within <= low and high <= within,
        disagrees=lambda low, high: low > within or high < -within,
        rule=f"near is {within:g}",
    )


def compare_at_most(
    values: Sequence[float],
    others: Sequence[float] | Level,
    within: float,
    spread: Spread,
    digits: int = 1,
) -> Verdict:
    """Whether a row is not above another one or a number by more than a distance; see `compare`."""
    return _judged(
        _difference(values, others, spread, digits),
        agrees=lambda low, high: high <= within,
        disagrees=lambda low, high: low > within,
        rule=f"no better is at most {within:g}",
    )


def _difference(
    values: Sequence[float], others: Sequence[float] | Level, spread: Spread, digits: int
) -> _Difference | None:
    """How far the mean is above the other; None if either was not run."""
    if not values or not others:
        return None
    if isinstance(others, Level):
        other, variance, error = others.value, 1 / len(values), others.error
        numbers = f"{len(values)}"
    else:
        other, variance = statistics.fmean(others), 1 / len(values) + 1 / len(others)
        error, numbers = 0.0, f"{len(values)} and {len(others)}"
    value = statistics.fmean(values) - other
    if not spread.freedom:
        return _Difference(value, math.inf, f"{value:+.{digits}f}, one seed")
    tail = (1 + CONFIDENCE) / 2
    of_seeds = stats.t.ppf(tail, spread.freedom) * spread.deviation * math.sqrt(variance)
    margin = math.hypot(of_seeds, stats.norm.ppf(tail) * error)
    words = f"{value:+.{digits}f} ± {margin:.{digits}f} (n = {numbers})"
    return _Difference(value, margin, words)


def _judged(difference: _Difference | None, agrees, disagrees, rule: str = "") -> Verdict:
    """The verdict, by what two functions say of both ends of the interval."""
    if difference is None:
        return Verdict(NOT_RUN, "")
    ends = difference.value - difference.margin, difference.value + difference.margin
    word = AGREES if agrees(*ends) else DISAGREES if disagrees(*ends) else TOO_SMALL
    return Verdict(word, ", ".join(filter(None, (difference.words, rule))))
