"""Verdicts on claims: agrees, disagrees, or too small to judge.

A difference is decided by its 95 % interval of Student's t. Two rows with the same seeds are compared by pairs of equal
seeds, because these see the same examples in the same order; other rows by Welch's interval, which assumes nothing
about the spread of either row. Nothing is decided where a row has one seed.
"""

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

AGREES = "agrees"
DISAGREES = "disagrees"
TOO_SMALL = "too small to judge"
NOT_RUN = "not run"
TAIL = 0.975  # of a two-sided interval of 95 %
MAX_SEEDS = 100  # more are not asked for


class Verdict(NamedTuple):
    """One of the four words, and the difference with its interval; `half` is half the interval's width, if it is known.

    `seeds` says how many seeds of each row give an even chance to decide a comparison that is too small, if the
    measured difference and spread are right. It is empty if the comparison is decided, or the spread is unknown.
    """

    word: str
    reason: str
    seeds: str = ""
    difference: float | None = None
    half: float | None = None


class Level(NamedTuple):
    """A number that a row is compared with, and its standard error.

    The error is common to all seeds, as they are evaluated on the same examples.
    """

    value: float
    error: float = 0.0


def margin(variances: Sequence[float], counts: Sequence[int], error: float = 0.0) -> float:
    """Half the width of the interval of a mean, or of the difference of two means with Welch's degrees of freedom.

    `scipy.stats` has this for samples; here it is also needed for numbers of seeds that were not run. One of the
    variances of one or two samples is above 0; `error` is a standard error besides the spread over seeds.
    """
    parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
    squares = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    seeds = stats.t.ppf(TAIL, sum(parts) ** 2 / squares) * math.sqrt(sum(parts))
    return math.hypot(seeds, stats.norm.ppf(TAIL) * error)


def _word(difference: float, half: float, least: float, greatest: float) -> str:
    """The verdict on an interval, where differences from `least` to `greatest` agree with the claim."""
    low = difference - half
    high = difference + half
    if least <= low and high <= greatest:
        return AGREES
    return DISAGREES if high < least or greatest < low else TOO_SMALL


def _samples(
    values: Mapping[int, float], reference: Mapping[int, float] | Level
) -> tuple[list[list[float]], str]:
    """One sample of differences, or two samples; and the unit of their sizes."""
    if isinstance(reference, Level):
        return [[value - reference.value for value in values.values()]], ""
    if values.keys() == reference.keys():
        return [[value - reference[seed] for seed, value in values.items()]], " pairs"
    return [list(values.values()), list(reference.values())], ""


def compare(
    values: Mapping[int, float],
    reference: Mapping[int, float] | Level | None,
    digits: int = 1,
    rule: str = "lower",
    within: float = 0.0,
) -> Verdict:
    """The verdict on a comparison of a row, by seed, with another row or with a number.

    `rule` is the field of `Claim` that has the reference: the row is above it ("lower"), or "near" or "at_most" it,
    which allow a distance `within`. The reason has so many `digits`.
    """
    if not values or not reference:
        return Verdict(NOT_RUN, "")
    samples, unit = _samples(values, reference)
    error = reference.error if isinstance(reference, Level) else 0.0
    first, *others = map(statistics.fmean, samples)
    difference = first - sum(others)
    # The differences that agree with the claim, and how the reason says so.
    no_better = f", no better is at most {within:g}" if within > 0 else ""
    least, greatest, allowed = {
        "lower": (0.0, math.inf, ""),
        "near": (-within, within, f", near is {within:g}"),
        "at_most": (-math.inf, within, no_better),
    }[rule]

    counts = [len(sample) for sample in samples]
    variances = [statistics.variance(sample) for sample in samples if len(sample) > 1]
    if len(variances) < len(samples) or not any(variances):
        unknown = "one seed" if min(counts) == 1 else "spread unknown"
        reason = f"{difference:+.{digits}f}, {unknown}{allowed}"
        return Verdict(TOO_SMALL, reason, difference=difference)

    half = margin(variances, counts, error)
    number = " and ".join(map(str, counts)) + unit
    reason = f"{difference:+.{digits}f} ± {half:.{digits}f} (n = {number}){allowed}"
    word = _word(difference, half, least, greatest)
    if word != TOO_SMALL:
        return Verdict(word, reason, "", difference, half)
    half_of_error = stats.norm.ppf(TAIL) * error
    if error and _word(difference, half_of_error, least, greatest) == TOO_SMALL:
        return Verdict(word, reason, "more examples", difference, half)

    def is_decided(seeds: int) -> bool:
        half = margin(variances, [seeds] * len(samples), error)
        return _word(difference, half, least, greatest) != TOO_SMALL

    # A larger number of seeds decides whatever a smaller one does.
    seeds = bisect.bisect_left(range(MAX_SEEDS + 1), True, lo=min(counts) + 1, key=is_decided)
    needed = str(seeds) if seeds <= MAX_SEEDS else f"more than {MAX_SEEDS}"
    return Verdict(word, reason, needed, difference, half)
