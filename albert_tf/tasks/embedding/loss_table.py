"""The losses of embeddings by name (`LOSSES`): what each needs of the data, and the function of `losses.py`.

A new loss is a row here and its function there. The table loads without TensorFlow, since flags are made from it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.tasks.definition import imported

MOST_TEXTS = 9  # in a row of the training data


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingLoss:
    """A loss of the vectors of a batch."""

    help: str  # what it does; follows its name in the help text of --loss
    compute: Callable[..., Any]  # (losses.Batch) -> Ratio
    evaluation: str  # the kind of evaluation that belongs to it: retrieval, scores or triplets
    num_texts: tuple[int, int]  # least and most texts in a row of the training data
    needs_scores: bool = False  # whether a row has a score of its two texts
    limits_scores: bool = False  # whether scores may not be above --max_score
    compares_examples: bool = False  # see `Task.compares_examples`


def _function(name: str) -> Callable[..., Any]:
    return imported("albert_tf.tasks.embedding.losses", name)


LOSSES: Mapping[str, EmbeddingLoss] = {
    "infonce": EmbeddingLoss(
        help="selects the positive among all positives and negatives of the batch",
        compute=_function("infonce"),
        evaluation="retrieval",
        num_texts=(2, MOST_TEXTS),
        compares_examples=True,
    ),
    "cosine": EmbeddingLoss(
        help="fits the cosine to the score",
        compute=_function("cosine"),
        evaluation="scores",
        num_texts=(2, 2),
        needs_scores=True,
        limits_scores=True,
    ),
    "cosent": EmbeddingLoss(
        help="ranks the pairs of a batch by their scores",
        compute=_function("cosent"),
        evaluation="scores",
        num_texts=(2, 2),
        needs_scores=True,
        compares_examples=True,
    ),
    "triplet": EmbeddingLoss(
        help="wants a margin between positive and negative",
        compute=_function("triplet"),
        evaluation="triplets",
        num_texts=(3, 3),
    ),
}
