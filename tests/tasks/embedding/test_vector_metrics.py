"""Metrics of sentence embeddings beside scipy, scikit-learn and plain restatements."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from albert_tf.tasks.embedding import vector_metrics


def vectors(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_correlations_of_pairs_of_equal_vectors_are_undefined():
    pairs = np.repeat(vectors(6, 1, 5), 2, axis=1)
    found = vector_metrics.correlations(pairs, np.arange(6.0))
    assert found == {"spearman": None, "pearson": None}


def test_correlations_are_scipys():
    pairs = vectors(37, 2, 5)
    scores = vectors(37)
    products = sklearn.metrics.pairwise.cosine_similarity(pairs[:, 0], pairs[:, 1]).diagonal()
    found = vector_metrics.correlations(pairs, scores)
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(products, scores).statistic)
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(products, scores).statistic)


def test_triplets_count_strictly_closer_positives():
    anchor = [1.0, 0.0]
    triplets = [[anchor, [1, 1], [0, 1]], [anchor, [0, 1], [1, 1]], [anchor, [2, 2], [3, 3]]]
    assert vector_metrics.triplet_accuracy(np.array(triplets)) == pytest.approx(1 / 3)


@pytest.mark.parametrize("number", [1, 4, 11, 99])
def test_nearest_is_a_stable_sort_of_all_products(number, monkeypatch):
    monkeypatch.setattr(vector_metrics, "_QUERIES_AT_A_TIME", 3)
    queries = vectors(7, 3).round()  # many equal products
    corpus = vectors(11, 3, seed=1).round()
    products = queries @ corpus.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :number]
    found, scores = vector_metrics.nearest(queries, corpus, number)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(products, expected, axis=1))


def test_retrieval_equals_scikit_learn_and_a_restatement():
    scores = vectors(23, 140)
    rng = np.random.default_rng(1)
    relevant = [set(rng.choice(140, rng.integers(1, 15), replace=False).tolist()) for _ in scores]
    order = np.argsort(-scores, axis=1)
    found = vector_metrics.retrieval(order[:, :100], relevant)
    truth = np.array([[column in right for column in range(140)] for right in relevant])
    assert found["ndcg_at_10"] == pytest.approx(sklearn.metrics.ndcg_score(truth, scores, k=10))
    for k in (1, 10, 100):
        shares = [
            len(right & set(row[:k])) / len(right)
            for row, right in zip(order, relevant, strict=True)
        ]
        assert found[f"recall_at_{k}"] == pytest.approx(np.mean(shares))
    ranks = [
        min(rank for rank, column in enumerate(row, start=1) if column in right)
        for row, right in zip(order, relevant, strict=True)
    ]
    assert found["mrr_at_10"] == pytest.approx(
        np.mean([1 / rank if rank <= 10 else 0 for rank in ranks])
    )
