"""Whether what the paper says comes out: agrees, disagrees, or too small to say.

A comparison is decided by the spread over seeds. Two rows differ if every seed of the one is above every seed of the
other, and the difference of their means is more than twice its standard error. With one seed nothing is decided: there
is no spread.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

AGREES, DISAGREES, TOO_SMALL, NOT_RUN = "agrees", "disagrees", "too small to say", "not run"


class Verdict(NamedTuple):
    """A word, and the numbers behind it."""

    word: str
    reason: str


def compare(higher: Sequence[float], lower: Sequence[float] | float, digits: int = 1) -> Verdict:
    """Whether the first is above the second.

    Args:
      higher: a number of each seed of the row that the paper says has more.
      lower: the same of the other row, or a number that is known without error.
      digits: of the reason.
    """
    if not (found := _difference(higher, lower)):
        return Verdict(NOT_RUN, "")
    others, difference, error = found
    is_number = isinstance(lower, float | int)
    reason = f"difference {difference:+.{digits}f}"
    if _is_one_seed(higher, others, lower):
        return Verdict(TOO_SMALL, f"{reason}, one seed")
    numbers = f"{len(higher)}" if is_number else f"{len(higher)} and {len(others)}"
    reason += f" ± {error:.{digits + 1}f} (n = {numbers})"
    apart = min(higher) > max(others) or max(higher) < min(others)
    if not apart or abs(difference) <= 2 * error:
        return Verdict(TOO_SMALL, reason)
    return Verdict(AGREES if difference > 0 else DISAGREES, reason)


def compare_near(
    values: Sequence[float], near: Sequence[float] | float, within: float, digits: int = 1
) -> Verdict:
    """Whether a row's mean is within a distance of another row's or of a number.

    Args:
      values: of each seed.
      near: of each seed of the other row, or a number.
      within: the distance.
      digits: of the reason.
    """
    if not (found := _difference(values, near)):
        return Verdict(NOT_RUN, "")
    others, difference, error = found
    reason = f"difference {difference:+.{digits}f}, near is {within:g}"
    if _is_one_seed(values, others, near):
        return Verdict(TOO_SMALL, f"{reason}, one seed")
    if abs(difference) + 2 * error <= within:
        return Verdict(AGREES, reason)
    return Verdict(DISAGREES if abs(difference) - 2 * error > within else TOO_SMALL, reason)


def _difference(values: Sequence[float], other: Sequence[float] | float) -> tuple | None:
    """The other's numbers, how far the mean is above theirs, its standard error; None if either was not run."""
    others = [other] if isinstance(other, float | int) else other
    if not values or not others:
        return None
    difference = statistics.fmean(values) - statistics.fmean(others)
    return others, difference, math.hypot(_standard_error(values), _standard_error(others))


def _is_one_seed(
    values: Sequence[float], others: Sequence[float], other: Sequence[float] | float
) -> bool:
    """Whether one of the two has no spread; a number that is known needs none."""
    return len(values) < 2 or (len(others) < 2 and not isinstance(other, float | int))


def _standard_error(values: Sequence[float]) -> float:
    """Of the mean; none of a single number."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
