"""Vectors of texts without training: what they look like, what centering and whitening recover, and baselines."""

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from albert_tf.tasks.embedding.metrics import cosines

_BATCH = 64


def poolings(model, tokenizer, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """The vectors of texts by kind: of [CLS], the mean of the last layer, the mean of all layers."""
    found: dict[str, list] = {"[CLS]": [], "mean of the last layer": [], "mean of all layers": []}
    for start in range(0, len(texts), _BATCH):
        ids = [each[:62].tolist() for each in tokenizer.encode_batch(texts[start : start + _BATCH])]
        longest = 2 + max(map(len, ids))
        ids = [[tokenizer.cls_id, *each, tokenizer.sep_id] for each in ids]
        mask = np.array([[1] * len(each) + [0] * (longest - len(each)) for each in ids])
        padded = np.array([each + [0] * (longest - len(each)) for each in ids])
        layers = model.encoder({"input_ids": padded, "input_mask": mask})["all_layers"]
        weights = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)
        means = [np.einsum("BLD,BL->BD", layer, weights) for layer in layers]
        for parts, vectors in zip(
            found.values(), (layers[-1][:, 0], means[-1], np.mean(means, axis=0)), strict=True
        ):
            parts.append(vectors)
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def described(vectors: np.ndarray) -> dict[str, float]:
    """The mean cosine of random pairs, and shares of singular values in the sum of squares."""
    rng = np.random.default_rng(0)
    first, second = rng.permutation(len(vectors)), rng.permutation(len(vectors))
    raw, centered = (
        np.linalg.svd(matrix, compute_uv=False) ** 2
        for matrix in (vectors, vectors - vectors.mean(axis=0))
    )
    return {
        "cosine_of_random_pairs": float(cosines(vectors[first], vectors[second]).mean()),
        "share_of_the_first_direction": float(raw[0] / raw.sum()),
        "share_of_ten_after_centering": float(centered[:10].sum() / centered.sum()),
    }


def transforms(fitted_on: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Raw vectors, minus the mean, and whitened (arXiv 2103.15316), also to the 64 first directions."""
    mean = fitted_on.mean(axis=0)
    _, values, directions = np.linalg.svd(fitted_on - mean, full_matrices=False)
    kept = values > 1e-4 * values[0]
    whitening = (directions[kept] / values[kept, None]).T
    return {
        "raw": lambda vectors: vectors,
        "minus_the_mean": lambda vectors: vectors - mean,
        "whitened": lambda vectors: (vectors - mean) @ whitening,
        "whitened_to_64": lambda vectors: (vectors - mean) @ whitening[:, :64],
    }


def tfidf(texts: Sequence[str]) -> dict[str, Callable]:
    """Functions that make TF-IDF vectors of length 1, of words and of characters, fitted on texts; sparse."""
    kinds: dict[str, dict] = {
        "words": {},
        "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)},
    }
    return {
        f"TF-IDF of {kind}": TfidfVectorizer(sublinear_tf=True, **options).fit(texts).transform
        for kind, options in kinds.items()
    }


def bm25(corpus: Sequence[str], queries: Sequence[str], k1: float = 1.5, b: float = 0.75):
    """The rows of a corpus with the highest BM25 for each query, int [queries, 100]; Lucene's form of the formula."""
    counter = CountVectorizer().fit(corpus)
    counts = counter.transform(corpus).astype(np.float32).tocsr()
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log(1 + (len(corpus) - documents + 0.5) / (documents + 0.5)).astype(np.float32)
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    rows = np.repeat(np.arange(len(corpus)), np.diff(counts.indptr))
    counts.data = idf[counts.indices] * counts.data * (k1 + 1) / (counts.data + norm[rows])
    return best_rows(counter.transform(queries).astype(np.float32), counts)


def best_rows(queries, corpus) -> np.ndarray:
    """The rows of a sparse matrix with the largest products with each row of another, int [queries, 100]."""
    scores = (queries @ corpus.T).toarray()
    return np.argsort(-scores, axis=1, kind="stable")[:, :100]
