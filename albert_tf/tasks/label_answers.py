"""What tasks that choose one of several labels write about their answers."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks import metrics
from albert_tf.tasks.predictor import best_label


def error_report(
    probabilities: np.ndarray,
    truths: np.ndarray,
    labels: Sequence[str],
    describe: Callable[[int, int, float], str],
) -> str:
    """A confusion table, and the errors of which the model was most sure.

    Args:
      probabilities: float [examples, C]; the largest is the answer.
      truths: indices of the true labels, int [examples].
      describe: the lines about an error, of the index of the example, the answer and its probability.
    """
    answers = np.argmax(probabilities, axis=1)
    sureness = probabilities.max(axis=1)

    def describe_error(index: int) -> str:
        return describe(index, answers[index], sureness[index])

    table = metrics.format_confusion(answers, truths, labels)
    return metrics.error_report(table, sureness, answers != truths, describe_error)


def label_rows(
    key: str, probabilities: np.ndarray, labels_of_items: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    """For each item its most probable label, under a key, and the probabilities of its labels; prints how many.

    Args:
      probabilities: float [items, C].
      labels_of_items: the labels that each item can have, the first ones of all.
    """
    rows = []
    counts: collections.Counter[str] = collections.Counter()
    for labels, row in zip(labels_of_items, probabilities, strict=True):
        answer = int(np.argmax(row))
        counts[labels[answer]] += 1
        rows.append(best_label(key, labels, row[: len(labels)], answer))
    shown = ", ".join(f"{label}: {count:,}" for label, count in counts.most_common(10))
    print(f"predicted {shown}", flush=True)
    return rows
