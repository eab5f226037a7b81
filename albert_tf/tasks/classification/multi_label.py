"""Several labels per text: metrics, and weights of labels.

C is the number of labels. An example gets a label if the label's probability is at least `THRESHOLD`. Here,
probabilities are float [examples, C], predictions bool [examples, C], and truths 1 or 0, int [examples, C].
"""

import functools
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.metrics import sklearn_metrics

THRESHOLD = 0.5  # the least probability of a label that is given


def f1_scores(predictions: np.ndarray, truths: np.ndarray) -> dict[str, float | None]:
    """`micro_f1` over all decisions; `macro_f1`, the mean over labels that occur as prediction or truth.

    Both are None if no label occurs.
    """
    if not (predictions.any() or truths.any()):
        return {"micro_f1": None, "macro_f1": None}
    f1 = functools.partial(sklearn_metrics().f1_score, truths, predictions, zero_division=np.nan)
    return {"micro_f1": float(f1(average="micro")), "macro_f1": float(f1(average="macro"))}


def average_precisions(probabilities: np.ndarray, truths: np.ndarray) -> dict[str, float | None]:
    """`micro_average_precision` of all decisions, `macro_average_precision` of the labels that at least one example
    has; None if none has any.

    The average precision of a label is a mean over the examples that have it: each contributes the precision among the
    examples with at least its probability. Equal probabilities count as one step.
    """
    occurs = truths.any(axis=0)  # of each label
    if not occurs.any():
        return {"micro_average_precision": None, "macro_average_precision": None}
    score = sklearn_metrics().average_precision_score
    macro = score(truths[:, occurs], probabilities[:, occurs])
    micro = score(truths.ravel(), probabilities.ravel())
    return {"micro_average_precision": float(micro), "macro_average_precision": float(macro)}


def scores(probabilities: np.ndarray, truths: np.ndarray) -> dict[str, float | None]:
    """Average precisions, `micro_f1` and `macro_f1`; all are None if a probability is not finite."""
    if not np.all(np.isfinite(probabilities)):
        names = ("micro_average_precision", "macro_average_precision", "micro_f1", "macro_f1")
        return dict.fromkeys(names)
    f1 = f1_scores(probabilities >= THRESHOLD, truths)
    return {**average_precisions(probabilities, truths), **f1}


def balanced_weights(truths: np.ndarray, num_labels: int, *, is_multi_label: bool) -> np.ndarray:
    """Weights that compensate for the frequencies of the labels, float32 [C]; 1 for a label that no example has.

    For n examples, n_c of which have the label: n / (C n_c), or for several labels (n - n_c) / n_c, at least 1 / n_c,
    so that examples with the label have the same total weight as those without it. With one label per example, truths
    are indices of labels, int [examples, 1].
    """
    wanted_counts: np.ndarray | float
    if is_multi_label:
        counts = truths.sum(0)
        wanted_counts = np.maximum(len(truths) - counts, 1)
    else:
        counts = np.bincount(truths[:, 0], minlength=num_labels)
        wanted_counts = len(truths) / num_labels
    return np.where(counts, wanted_counts / np.maximum(counts, 1), 1.0).astype(np.float32)


def weights_in_words(labels: Sequence[str], weights: np.ndarray) -> str:
    """A line about the weights of labels."""
    weights_by_label = zip(labels, weights, strict=True)
    return (
        f"class weights  {'  '.join(f'{name} {weight:.4g}' for name, weight in weights_by_label)}"
    )
