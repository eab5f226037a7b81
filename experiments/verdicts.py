"""Whether what the paper says comes out: agrees, disagrees, or too small to say.

A comparison is decided by the spread over seeds, which is taken to be the same for all rows of a table: so that two or
three seeds a row are enough, what they differ within rows is pooled over the rows. A difference is decided if it is
outside the 95 % interval of Student's t, so of rows that do not differ at all one comparison in twenty is decided
nevertheless. Nothing is decided where no row has two seeds.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
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


# What a claim says of the interval of a difference, by the field of `Claim` that says with what a row is compared:
# whether it agrees, whether it disagrees, and how the distance that it allows is called.
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
    others: Sequence[float] | Level,
    spread: Spread,
    digits: int = 1,
    rule: str = "lower",
    within: float = 0.0,
) -> Verdict:
    """Whether a row is to another one or to a number as a claim says.

    Args:
      values: of each seed of the row that the claim speaks of.
      others: of each seed of the other row, or a number.
      spread: of all rows.
      digits: of the reason.
      rule: one of `RULES`: above the other, near it, or not above it.
      within: the distance that the last two allow.
    """
    difference = _difference(values, others, spread, digits)
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
