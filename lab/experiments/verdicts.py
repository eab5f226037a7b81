"""Verdicts on the paper's claims: agrees, disagrees, or too small to say.

The spread over seeds is assumed to be equal for all rows of a table and is pooled over them, so that two or three seeds
for each row are enough. A difference is decided by its 95 % interval of Student's t, so that one of twenty comparisons
of equal rows is decided wrongly. Nothing is decided if no row has two seeds.
"""

import bisect
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scipy import stats

AGREES, DISAGREES, TOO_SMALL, NOT_RUN = "agrees", "disagrees", "too small to say", "not run"
CONFIDENCE = 0.95
MOST_SEEDS = 100  # more are not asked for


class Verdict(NamedTuple):
    """A word, and the numbers that explain it.

    Fields:
      word: one of the four.
      reason: the difference with its interval.
      seeds: how many seeds of every row of the table give an even chance to decide a comparison that is too small, if
        the measured difference and spread are right; empty if it is decided, or the spread is unknown.
    """

    word: str
    reason: str
    seeds: str = ""


class Spread(NamedTuple):
    """The spread of a number over seeds.

    Fields:
      deviation: standard deviation within rows.
      freedom: degrees of freedom of its estimate; 0 if it is unknown.
      rows: number of rows that it was estimated from.
    """

    deviation: float
    freedom: int
    rows: int = 0

    def margin(self, variance: float, error: float = 0.0, freedom: int = 0) -> float:
        """Half the width of the interval of a difference.

        Args:
          variance: of the difference, in units of the variance within rows.
          error: standard error of the difference besides the spread over seeds.
          freedom: degrees of freedom; 0 takes those of this estimate.
        """
        tail = (1 + CONFIDENCE) / 2
        of_seeds = stats.t.ppf(tail, freedom or self.freedom) * self.deviation * math.sqrt(variance)
        return math.hypot(of_seeds, stats.norm.ppf(tail) * error)


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
    return Spread(math.sqrt(squares / freedom), freedom, len(rows))


def _agreeing(rule: str, within: float) -> tuple[float, float, str]:
    """The least and the greatest difference that agree with a claim, and the allowed distance in words."""
    return {
        "lower": (0.0, math.inf, ""),
        "near": (-within, within, f", near is {within:g}"),
        "at_most": (-math.inf, within, f", no better is at most {within:g}" if within else ""),
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
    level = isinstance(reference, Level)
    others = () if level else reference
    error = reference.error if level else 0.0
    value = statistics.fmean(values) - (reference.value if level else statistics.fmean(others))
    least, greatest, allowed = _agreeing(rule, within)

    def word(margin: float) -> str:
        if least <= value - margin and value + margin <= greatest:
            return AGREES
        if value + margin < least or greatest < value - margin:
            return DISAGREES
        return TOO_SMALL

    if not spread.freedom:
        unknown = "one seed" if len(values) == 1 else "spread unknown"
        return Verdict(TOO_SMALL, f"{value:+.{digits}f}, {unknown}{allowed}")
    groups = [len(numbers) for numbers in (values, others) if numbers]
    margin = spread.margin(sum(1 / number for number in groups), error)
    reason = (
        f"{value:+.{digits}f} ± {margin:.{digits}f} (n = {' and '.join(map(str, groups))}){allowed}"
    )
    if (found := word(margin)) != TOO_SMALL:
        return Verdict(found, reason)

    if error and word(spread.margin(0, error)) == TOO_SMALL:
        return Verdict(found, reason, "more examples")

    def is_decided(seeds: int) -> bool:
        freedom = spread.rows * (seeds - 1)
        return word(spread.margin(len(groups) / seeds, error, freedom)) != TOO_SMALL

    # A larger number of seeds decides whatever a smaller one does.
    seeds = bisect.bisect_left(range(MOST_SEEDS + 1), True, lo=min(groups) + 1, key=is_decided)
    return Verdict(found, reason, str(seeds) if seeds <= MOST_SEEDS else f"more than {MOST_SEEDS}")
