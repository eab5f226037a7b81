"""Verdicts on the paper's claims: agrees, disagrees, or too small to say.

The spread over seeds is assumed to be equal for all rows of a table and is pooled over them, so that two or three seeds
for each row are enough. A difference is decided by its 95 % interval of Student's t, so that one of twenty comparisons
of equal rows is decided wrongly. Nothing is decided if no row has two seeds.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
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


def _agreeing(rule: str, within: float) -> tuple[float, float, str]:
    """The least and the greatest difference that agree with a claim, and the allowed distance in words."""
    return {
        "lower": (0.0, math.inf, ""),
        "near": (-within, within, f", near is {within:g}"),
        "at_most": (-math.inf, within, f", no better is at most {within:g}"),
    }[rule]


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
      rule: the field of `Claim` that holds the reference: the row is above it ("lower"), "near" it, or "at_most" it.
      within: the distance that the last two rules allow.
    """
    if not values or not reference:
        return Verdict(NOT_RUN, "")
    if isinstance(reference, Level):
        subtracted, variance, error = reference.value, 1 / len(values), reference.error
        numbers = f"{len(values)}"
    else:
        subtracted, variance = statistics.fmean(reference), 1 / len(values) + 1 / len(reference)
        error, numbers = 0.0, f"{len(values)} and {len(reference)}"
    value = statistics.fmean(values) - subtracted
    if spread.freedom:
        tail = (1 + CONFIDENCE) / 2
        of_seeds = stats.t.ppf(tail, spread.freedom) * spread.deviation * math.sqrt(variance)
        margin = math.hypot(of_seeds, stats.norm.ppf(tail) * error)
        reason = f"{value:+.{digits}f} ± {margin:.{digits}f} (n = {numbers})"
    else:
        margin, reason = math.inf, f"{value:+.{digits}f}, one seed"
    least, greatest, allowed = _agreeing(rule, within)
    word = TOO_SMALL
    if least <= value - margin and value + margin <= greatest:
        word = AGREES
    elif value + margin < least or greatest < value - margin:
        word = DISAGREES
    return Verdict(word, reason + allowed)
