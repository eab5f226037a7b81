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
    others = [lower] if isinstance(lower, float | int) else list(lower)
    if not higher or not others:
        return Verdict(NOT_RUN, "")
    difference = statistics.fmean(higher) - statistics.fmean(others)
    reason = f"difference {difference:+.{digits}f}"
    is_number = isinstance(lower, float | int)
    if len(higher) < 2 or (len(others) < 2 and not is_number):
        return Verdict(TOO_SMALL, f"{reason}, one seed")
    error = math.hypot(_standard_error(higher), 0.0 if is_number else _standard_error(others))
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
    others = [near] if isinstance(near, float | int) else list(near)
    if not values or not others:
        return Verdict(NOT_RUN, "")
    difference = statistics.fmean(values) - statistics.fmean(others)
    reason = f"difference {difference:+.{digits}f}, near is {within:g}"
    if len(values) < 2:
        return Verdict(TOO_SMALL, f"{reason}, one seed")
    error = (
        _standard_error(values)
        if len(others) == 1
        else math.hypot(_standard_error(values), _standard_error(others))
    )
    if abs(difference) + 2 * error <= within:
        return Verdict(AGREES, reason)
    return Verdict(DISAGREES if abs(difference) - 2 * error > within else TOO_SMALL, reason)


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))
