"""Exact search among vectors, and the metrics of sentence embeddings: correlations, triplets, retrieval."""

from collections.abc import Collection, Sequence

import numpy as np

from albert_tf.tasks import metrics

_QUERIES_AT_A_TIME = 256
_ROUNDING = 1e-6  # of a cosine of float32 vectors
CUTOFFS = (1, 10, 100)
RETRIEVAL_METRICS = ("ndcg_at_10", "mrr_at_10", *(f"recall_at_{k}" for k in CUTOFFS))


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Vectors [..., D] divided by their lengths; a vector of zeros stays one, where 0 / 0 would be NaN."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cosine of each pair of vectors [..., D], float [...]; 0 if one of them is zero."""
    return (unit_length(a) * unit_length(b)).sum(axis=-1)


def prepared(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Vectors as `similarities` takes them: of length 1 for the cosine, which is then their product."""
    return unit_length(vectors) if similarity == "cosine" else vectors


def similarities(a: np.ndarray, b: np.ndarray, similarity: str) -> np.ndarray:
    """How alike each of some `prepared` vectors [a, D] is to each of others [b, D], float32 [a, b]; larger is more.

    Distances are negative, as in sentence-transformers.
    """
    if similarity in ("cosine", "dot"):
        return a @ b.T
    order = {"euclidean": 2, "manhattan": 1}[similarity]
    distances = np.empty([len(a), len(b)], np.float32)
    for row, vector in enumerate(a):
        differences = b.astype(np.float64) - vector
        distances[row] = np.linalg.norm(differences, ord=order, axis=1)
    return -distances


def nearest(
    queries: np.ndarray, corpus: np.ndarray, number: int, similarity: str = "dot"
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a corpus [n, D] that are most alike to each query [q, D], the best first; vectors are `prepared`.

    Returns indices int64 [q, number] and scores float32 [q, number]; of equal scores, the first row is first.
    """
    number = min(number, len(corpus))
    indices = []
    best_scores = []
    for start in range(0, len(queries), _QUERIES_AT_A_TIME):
        # [256, D] and [5000, D] -> [256, 5000]
        batch = queries[start : start + _QUERIES_AT_A_TIME]
        scores = similarities(batch, corpus, similarity)
        # [256]: the smallest of the largest; all rows above it are chosen, and the first ones equal to it.
        least = np.partition(scores, -number, axis=1)[:, -number]
        for row, bound in zip(scores, least, strict=True):
            (candidates,) = np.nonzero(row >= bound)
            best = candidates[np.argsort(-row[candidates], kind="stable")][:number]
            indices.append(best)
            best_scores.append(row[best])
    shape = (-1, number)
    return np.reshape(indices, shape).astype(np.int64), np.reshape(best_scores, shape)


def correlations(vectors: np.ndarray, scores: np.ndarray) -> dict[str, float | None]:
    """Spearman's and Pearson's correlation of cosines with scores, None if undefined; vectors are [pairs, 2, D]."""
    predicted = cosines(vectors[:, 0], vectors[:, 1])
    if len(predicted) and np.ptp(predicted) < _ROUNDING:  # as of pairs of equal texts
        predicted = np.full_like(predicted, predicted[0])
    pairs = {"spearman": metrics.spearman, "pearson": metrics.pearson}
    return {name: correlation(predicted, scores) for name, correlation in pairs.items()}


def triplet_accuracy(vectors: np.ndarray) -> float | None:
    """Share of triplets [n, 3, D] whose anchor is closer to the positive than to the negative.

    None if a vector is not finite.
    """
    if not np.all(np.isfinite(vectors)):
        return None
    anchors, positives, negatives = np.moveaxis(vectors, 1, 0)
    return float(np.mean(cosines(anchors, positives) > cosines(anchors, negatives)))


def retrieval(results: Sequence, relevant: Sequence[Collection[int]]) -> dict[str, float]:
    """Recall, mean reciprocal rank and nDCG of search results, averaged over the queries.

    For each query, `results` are the rows that were found, the best first, int [at least 10 if there are as many],
    and `relevant` those that should be found.
    """
    gains = 1 / np.log2(2 + np.arange(10))
    sums = dict.fromkeys(RETRIEVAL_METRICS, 0.0)
    for rows, relevant_rows in zip(results, relevant, strict=True):
        # The rows [7, 2, 5, ...], of which 2 and 9 should be found -> [0, 1, 0, ...], so the rank [1] from 0.
        hits = np.isin(rows, list(relevant_rows))
        ranks = np.flatnonzero(hits[:10])
        for k in CUTOFFS:
            sums[f"recall_at_{k}"] += hits[:k].sum() / len(relevant_rows)
        if len(ranks):
            sums["mrr_at_10"] += 1 / (1 + ranks[0])
        sums["ndcg_at_10"] += gains[ranks].sum() / gains[: len(relevant_rows)].sum()
    return {name: float(total / len(relevant)) for name, total in sums.items()}
