"""Several labels per text: thresholds of probabilities, metrics, a report of errors, and weights of labels.

C is the number of labels. An example gets a label if the label's probability is at least its threshold. Here,
probabilities are float [examples, C], predictions bool [examples, C], and truths 1 or 0, int [examples, C].
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.formats.description import THRESHOLDS
from albert_tf.tasks.classification.tsv import label_name
from albert_tf.tasks.metrics import sklearn_metrics

DEFAULT_THRESHOLD = 0.5
FEWEST_EXAMPLES = 10  # needed with a label, and without it, to choose its threshold
_WORST = 20


def best_thresholds(probabilities: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """The threshold of each label that gives the best F1, float32 [C].

    It is halfway between the two probabilities that it separates; of equally good thresholds, the one nearest to 0.5 is
    taken. A label that fewer than `FEWEST_EXAMPLES` examples have, or do not have, keeps 0.5: a threshold chosen from
    so few examples does not fit other texts.
    """
    thresholds = np.full(truths.shape[1], DEFAULT_THRESHOLD, np.float32)
    for label, count in enumerate(truths.sum(axis=0)):
        if FEWEST_EXAMPLES <= count <= len(truths) - FEWEST_EXAMPLES:
            thresholds[label] = _best_threshold(probabilities[:, label], truths[:, label])
    return thresholds


def _best_threshold(probabilities: np.ndarray, truths: np.ndarray) -> np.float32:
    precision, recall, values = sklearn_metrics().precision_recall_curve(truths, probabilities)
    scores = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
    lower = np.append(0.0, values[:-1])
    middles = ((values.astype(np.float64) + lower) / 2).astype(np.float32)
    # If two probabilities are neighboring float numbers, their middle may be rounded to the lower one.
    middles = np.where(middles > lower, middles, values)
    (best,) = np.nonzero(scores[:-1] > scores[:-1].max() - 1e-9)
    return middles[best[np.argmin(np.abs(middles[best] - DEFAULT_THRESHOLD))]]


def thresholds_of(task: Mapping[str, Any], labels: Sequence[str]) -> np.ndarray | None:
    """The thresholds saved with a finished model, float32 [C]; None if it has none."""
    values = task.get(THRESHOLDS)
    return None if values is None else np.array([values[label] for label in labels], np.float32)


def usable_thresholds(task: Mapping[str, Any], labels: Sequence[str]) -> np.ndarray:
    """The thresholds of a finished model, float32 [C]; 0.5 if it has none."""
    own = thresholds_of(task, labels)
    return np.full(len(labels), DEFAULT_THRESHOLD, np.float32) if own is None else own


def label_scores(predictions: np.ndarray, truths: np.ndarray) -> dict[str, np.ndarray]:
    """`precision`, `recall` and `f1` of each label, float [C]; NaN where the formula is 0 / 0."""
    values = sklearn_metrics().precision_recall_fscore_support(
        truths, predictions, zero_division=np.nan
    )
    return dict(zip(("precision", "recall", "f1"), values[:3], strict=True))


def f1_scores(predictions: np.ndarray, truths: np.ndarray) -> dict[str, float]:
    """`micro_f1` over all decisions; `macro_f1`, the mean over labels that occur as prediction or truth (0 if none)."""
    f1 = functools.partial(sklearn_metrics().f1_score, truths, predictions, zero_division=np.nan)
    names = ("micro", "macro")
    return {f"{name}_f1": float(np.nan_to_num(f1(average=name))) for name in names}


def average_precisions(probabilities: np.ndarray, truths: np.ndarray) -> dict[str, float]:
    """`micro_average_precision` of all decisions, `macro_average_precision` of the labels that at least one example
    has; 0 if none has any.

    The average precision of a label is a mean over the examples that have it: each contributes the precision among the
    examples with at least its probability. Equal probabilities count as one step.
    """
    score = sklearn_metrics().average_precision_score
    given = truths.any(axis=0)
    macro = score(truths[:, given], probabilities[:, given]) if given.any() else 0.0
    micro = score(truths.ravel(), probabilities.ravel()) if given.any() else 0.0
    return {"micro_average_precision": float(micro), "macro_average_precision": float(macro)}


def scores(
    probabilities: np.ndarray, truths: np.ndarray, thresholds: np.ndarray
) -> dict[str, float]:
    """Average precisions, `micro_f1` and `macro_f1` at 0.5, and both as `..._thresholds` with the thresholds."""
    chosen = f1_scores(probabilities >= thresholds, truths)
    return {
        **average_precisions(probabilities, truths),
        **f1_scores(probabilities >= DEFAULT_THRESHOLD, truths),
        **{f"{name}_thresholds": value for name, value in chosen.items()},
    }


# --- Weights of labels ---


def balanced_weights(truths: np.ndarray, num_labels: int, *, is_multi_label: bool) -> np.ndarray:
    """Weights that compensate for the frequencies of the labels, float32 [C]; 1 for a label that no example has.

    For n examples, n_c of which have the label: n / (C n_c), or for several labels (n - n_c) / n_c, at least 1 / n_c,
    so that examples with the label have the same total weight as those without it. With one label per example, truths
    are indices of labels, int [examples, 1].
    """
    counts = (
        truths.sum(axis=0) if is_multi_label else np.bincount(truths[:, 0], minlength=num_labels)
    )
    shares = np.maximum(len(truths) - counts, 1) if is_multi_label else len(truths) / num_labels
    return np.where(counts, shares / np.maximum(counts, 1), 1.0).astype(np.float32)


def given_weights(weights: Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    """Weights by label as float32 [C]; 1 for labels without one."""
    weights = {
        label if label in labels else label_name(label): weight for label, weight in weights.items()
    }
    for label in weights:
        if label not in labels:
            shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
            raise UserError(f"--class_weights: expected labels ({shown}), got {label!r}")
    return np.array([weights.get(label, 1.0) for label in labels], np.float32)
