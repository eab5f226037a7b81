"""Several labels per text: thresholds of probabilities, metrics, a report of errors, and weights of labels.

C is the number of labels. An example gets a label if the label's probability is at least its threshold. Here,
probabilities are float [examples, C], predictions bool [examples, C], and truths 1 or 0, int [examples, C].
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.core.tables import aligned
from albert_tf.formats.description import THRESHOLDS
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
    order = np.argsort(-probabilities, kind="stable")
    sorted_probabilities = probabilities[order].astype(np.float64)
    # Numbers of true positives if the first 1, 2, ... examples are given the label.
    hits = np.cumsum(truths[order])
    scores = 2 * hits / (np.arange(1, len(order) + 1) + hits[-1])
    following = np.append(sorted_probabilities[1:], 0.0)
    middles = ((sorted_probabilities + following) / 2).astype(np.float32)
    # If two probabilities are neighboring float numbers, their middle is rounded to one of them, possibly the lower
    # one.
    middles = np.where(middles > following, middles, sorted_probabilities).astype(np.float32)
    is_last_of_equals = np.append(np.diff(sorted_probabilities) < 0, True)
    scores = np.where(is_last_of_equals, scores, -1.0)
    best = np.flatnonzero(scores == scores.max())
    return middles[best[np.argmin(np.abs(middles[best] - DEFAULT_THRESHOLD))]]


def thresholds_of(task: Mapping[str, Any], labels: Sequence[str], source: str) -> np.ndarray | None:
    """The thresholds saved with a finished model, float32 [C]; None if it has none."""
    values = task.get(THRESHOLDS)
    if values is None:
        return None
    is_complete = isinstance(values, dict) and set(values) == set(labels)
    numbers = values.values() if is_complete else ()
    if not is_complete or not all(type(v) in (int, float) and 0 <= v <= 1 for v in numbers):
        raise UserError(
            f"{source}: {THRESHOLDS} must give a number from 0 to 1 to each label, got {shortened(values)}"
        )
    return np.array([values[label] for label in labels], np.float32)


def usable_thresholds(task: Mapping[str, Any], labels: Sequence[str]) -> np.ndarray:
    """The thresholds of a finished model, float32 [C]; 0.5 if it has none."""
    own = thresholds_of(task, labels, "the model")
    return np.full(len(labels), DEFAULT_THRESHOLD, np.float32) if own is None else own


def label_scores(predictions: np.ndarray, truths: np.ndarray) -> dict[str, np.ndarray]:
    """`precision`, `recall` and `f1` of each label, float [C]; NaN where the formula is 0 / 0."""
    hits = (predictions & (truths == 1)).sum(axis=0)
    predicted, true = predictions.sum(axis=0), truths.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "precision": hits / predicted,
            "recall": hits / true,
            "f1": 2 * hits / (predicted + true),
        }


def f1_scores(predictions: np.ndarray, truths: np.ndarray) -> dict[str, float]:
    """`micro_f1` over all decisions; `macro_f1`, the mean over labels that occur as prediction or truth (0 if none)."""
    of_all = label_scores(predictions.reshape(-1, 1), truths.reshape(-1, 1))["f1"]
    of_labels = label_scores(predictions, truths)["f1"]
    return {"micro_f1": _mean(of_all), "macro_f1": _mean(of_labels)}


def average_precisions(probabilities: np.ndarray, truths: np.ndarray) -> dict[str, float]:
    """`micro_average_precision` of all decisions, `macro_average_precision` of the labels that at least one example
    has.

    The average precision of a label is a mean over the examples that have it: each contributes the precision among the
    examples with at least its probability. Equal probabilities count as one step (scikit-learn's
    average_precision_score).
    """
    columns = np.flatnonzero(truths.sum(axis=0))
    of_labels = [
        sklearn_metrics().average_precision_score(truths[:, label], probabilities[:, label])
        for label in columns
    ]
    micro = 0.0
    if len(columns):
        micro = sklearn_metrics().average_precision_score(truths.ravel(), probabilities.ravel())
    return {
        "micro_average_precision": float(micro),
        "macro_average_precision": _mean(np.array(of_labels)),
    }


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


def _mean(values: np.ndarray) -> float:
    """The mean of the values that are numbers; 0 if none is."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else 0.0


# --- Reports ---


def label_table(
    labels: Sequence[str], predictions: np.ndarray, truths: np.ndarray, thresholds: np.ndarray
) -> str:
    """Number of examples, threshold, precision, recall and F1 of each label, as lines."""
    scores = label_scores(predictions, truths)
    rows = [["label", "examples", "predicted", "threshold", "precision", "recall", "f1"]]
    for index, label in enumerate(labels):
        counts = (truths[:, index].sum(), predictions[:, index].sum())
        values = [scores[name][index] for name in ("precision", "recall", "f1")]
        shown = ["-" if np.isnan(value) else f"{100 * value:.1f} %" for value in values]
        rows.append([label, *(f"{n:,}" for n in counts), f"{thresholds[index]:.3f}", *shown])
    return aligned(rows)


def surest_errors(
    probabilities: np.ndarray, predictions: np.ndarray, truths: np.ndarray, count: int = _WORST
) -> tuple[np.ndarray, int]:
    """The examples with the most certain wrong decisions, at most `count`; and the number of examples with any."""
    errors = np.where(predictions != (truths == 1), np.abs(probabilities - truths), 0.0).max(axis=1)
    wrong = np.flatnonzero(np.any(predictions != (truths == 1), axis=1))
    return wrong[np.argsort(-errors[wrong], kind="stable")[:count]], len(wrong)


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
    for label in weights:
        if label not in labels:
            shown = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
            raise UserError(f"--class_weights: expected labels ({shown}), got {label!r}")
    return np.array([weights.get(label, 1.0) for label in labels], np.float32)
