"""Texts of given lengths, made of a longer text."""

from collections.abc import Sequence

import numpy as np


def neighboring_words(
    words: Sequence[str], number: int, lengths: tuple[int, int], seed: int = 0
) -> list[str]:
    """A number of texts, each of them words that are neighbors: from the least to the most of `lengths`."""
    rng = np.random.default_rng(seed)
    least, most = lengths
    texts = []
    for _ in range(number):
        length = int(rng.integers(least, most + 1))
        start = int(rng.integers(len(words) - length))
        texts.append(" ".join(words[start : start + length]))
    return texts
