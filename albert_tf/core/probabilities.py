"""Probabilities of logits, in NumPy: predictors need no more of SciPy, which takes most of a second to load."""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, [..., C], in the type of the logits; -inf has the probability 0."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of `softmax`, [..., C], exact where a probability is too small for its type."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def sigmoid(logits: np.ndarray | float) -> np.ndarray:
    """1 / (1 + exp(-x)) of each logit, without overflow on either side."""
    # exp is only taken of numbers of at most 0: sigmoid(x) = exp(x) / (1 + exp(x)) for x < 0.
    exponential = np.exp(-np.abs(logits))
    return np.where(np.asarray(logits) >= 0, 1.0, exponential) / (1.0 + exponential)
