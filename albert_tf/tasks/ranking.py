"""Texts in the order of their scores: what predictors of vectors and of pairs share to rank."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.tasks.predictor import Answer


def checked_texts(texts: Any) -> list[str]:
    """Texts in a list, from anything that can be iterated; anything else is an error."""
    is_several = isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Mapping)
    several = list(texts) if is_several else []
    if not is_several or not all(isinstance(text, str) for text in several):
        raise UserError(f"expected a list of texts; got {shortened(texts)}")
    return several


def ranked(scores: np.ndarray, texts: Sequence[str], top_k: int | None = None) -> list[Answer]:
    """The texts of `Predictor.rank`, of which the scores are given, float [texts]."""
    is_number = isinstance(top_k, int) and not isinstance(top_k, bool) and top_k > 0
    if top_k is not None and not is_number:
        raise UserError(f"top_k must be an integer of at least 1, or None; got {shortened(top_k)}")
    order = np.argsort(-scores, kind="stable").tolist()[:top_k]
    return [{"index": row, "score": float(scores[row]), "text": texts[row]} for row in order]
