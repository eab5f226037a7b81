"""QNLI and WNLI as a ranking: the best of the candidates for one question or sentence is the answer.

In the paper, the test submissions do this, following RoBERTa and XLNet (appendix; section 4.9). A question of QNLI is
in several rows, each with another sentence; a sentence of WNLI is in several rows, each with another reading of its
pronoun. Training compares each row with the answer to a row without it. A prediction compares all rows of a question.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf.data.feature_table import FeatureTable

# Task -> index of the label of the best candidate.
POSITIVE_LABELS = {"qnli": 0, "wnli": 1}


def pair_up(questions: Sequence[str], labels: np.ndarray, positive: int, seed: int) -> np.ndarray:
    """Pairs of a row that has the answer and a row that does not have it.

    All such pairs of the same question are made. A row without a counterpart is paired with a row of another question,
    so that no row is lost.

    Example:
      (["a", "a", "a", "b"], [1, 0, 0, 1], 1) -> [[0, 1], [0, 2], [3, 1 or 2]]

    Returns:
      int64 [pairs, 2]: indices of a row with the answer and a row without it; empty if all rows have the same label.
    """
    rows_of: dict[str, tuple[list[int], list[int]]] = {}
    for row, question in enumerate(questions):
        rows_of.setdefault(question, ([], []))[int(labels[row] != positive)].append(row)
    pairs = [
        (yes, no) for yes_rows, no_rows in rows_of.values() for yes in yes_rows for no in no_rows
    ]
    all_yes, all_no = np.flatnonzero(labels == positive), np.flatnonzero(labels != positive)
    if not len(all_yes) or not len(all_no):
        return np.zeros([0, 2], np.int64)
    rng = np.random.default_rng(seed)
    for yes_rows, no_rows in rows_of.values():
        if not no_rows:
            pairs += [(yes, rng.choice(all_no)) for yes in yes_rows]
        elif not yes_rows:
            pairs += [(rng.choice(all_yes), no) for no in no_rows]
    return np.array(pairs, np.int64)


def paired_table(table: FeatureTable, pairs: np.ndarray) -> FeatureTable:
    """A table of pairs, int [pairs, 2], of a table's rows: each example has two sequences, and both labels."""
    rows = table.select(pairs.ravel())
    columns = {"label_ids": rows.columns["label_ids"].reshape(-1, 2)}
    return dataclasses.replace(rows, columns=columns, choices=2)


def is_best(questions: Sequence[str], scores: np.ndarray) -> np.ndarray:
    """Whether each row is the best of its question, bool [rows]; the only row of a question is if its score is above 0.

    A score says how much more likely it is that the row has the answer, as a difference of logits.
    """
    rows_of: dict[str, list[int]] = {}
    for row, question in enumerate(questions):
        rows_of.setdefault(question, []).append(row)
    best = np.asarray(scores) > 0
    for rows in rows_of.values():
        if len(rows) > 1:
            best[rows] = False
            best[rows[int(np.argmax(np.asarray(scores)[rows]))]] = True
    return best
