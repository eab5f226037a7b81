"""Vectors of texts without training: what they look like, and what centering and whitening recover."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer

from albert_tf.tasks.embedding.metrics import cosines, nearest, retrieval, unit_length

Pairs = tuple[list[str], list[str], np.ndarray]  # two texts and a score for each pair
_BATCH = 64


def spearman(embed: Callable[[Sequence[str]], np.ndarray], pairs: Pairs) -> float:
    """Spearman's correlation of the cosines of pairs with their scores."""
    a, b, scores = pairs
    return float(scipy.stats.spearmanr(cosines(embed(a), embed(b)), scores).statistic)


def poolings(model, tokenizer, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """The vectors of texts by kind: of [CLS], the mean of the last layer, the mean of all layers."""
    found: dict[str, list] = {"[CLS]": [], "mean of the last layer": [], "mean of all layers": []}
    for start in range(0, len(texts), _BATCH):
        batch = tokenizer(list(texts[start : start + _BATCH]), max_length=64)
        features = {name: np.array(values) for name, values in batch.items()}
        outputs = model.encoder(features)
        mask = features["input_mask"][:, :, None].astype(np.float32)
        layers = [layer.numpy() for layer in outputs["all_layers"]]
        means = [(layer * mask).sum(axis=1) / mask.sum(axis=1) for layer in layers]
        found["[CLS]"].append(layers[-1][:, 0])
        found["mean of the last layer"].append(means[-1])
        found["mean of all layers"].append(np.mean(means, axis=0))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def described(vectors: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Mean cosine of random pairs, and the shares of the first singular values in the sum of squares."""
    rng = np.random.default_rng(seed)
    first, second = rng.permutation(len(vectors)), rng.permutation(len(vectors))
    spectra = {
        name: np.linalg.svd(matrix, compute_uv=False) ** 2
        for name, matrix in (("raw", vectors), ("centered", vectors - vectors.mean(axis=0)))
    }
    return {
        "mean_cosine": float(cosines(vectors[first], vectors[second]).mean()),
        "share_of_first": float(spectra["raw"][0] / spectra["raw"].sum()),
        "share_of_ten_centered": float(spectra["centered"][:10].sum() / spectra["centered"].sum()),
    }


def transforms(fitted_on: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Raw vectors, minus the mean, and whitened (arXiv 2103.15316), also to the 64 first directions."""
    mean = fitted_on.mean(axis=0)
    _, values, directions = np.linalg.svd(fitted_on - mean, full_matrices=False)
    kept = values > 1e-4 * values[0]
    whitening = (directions[kept] / values[kept, None]).T
    return {
        "raw": lambda vectors: vectors,
        "minus the mean": lambda vectors: vectors - mean,
        "whitened": lambda vectors: (vectors - mean) @ whitening,
        "whitened, 64 values": lambda vectors: (vectors - mean) @ whitening[:, :64],
    }


# --- Baselines


def tfidf(texts: Sequence[str], **options) -> Callable[[Sequence[str]], np.ndarray]:
    """A function that makes TF-IDF vectors, fitted on texts."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, **options).fit(texts)
    return lambda others: vectorizer.transform(others).toarray().astype(np.float32)


WORDS = {"TF-IDF of words": {}}
TFIDF = {**WORDS, "TF-IDF of characters": {"analyzer": "char_wb", "ngram_range": (2, 4)}}


def bm25(corpus: Sequence[str], queries: Sequence[str], k1: float = 1.5, b: float = 0.75):
    """The rows of a corpus with the highest BM25 for each query, int [queries, 100] (Lucene's form of the formula)."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer().fit(corpus)
    counts = counter.transform(corpus).astype(np.float32).tocsr()
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log(1 + (len(corpus) - documents + 0.5) / (documents + 0.5)).astype(np.float32)
    rows = np.repeat(np.arange(len(corpus)), np.diff(counts.indptr))
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    counts.data = idf[counts.indices] * counts.data * (k1 + 1) / (counts.data + norm[rows])
    scores = (counter.transform(queries).astype(np.float32) @ counts.T).toarray()
    return np.argsort(-scores, axis=1, kind="stable")[:, :100]


def searched(embed, queries: Sequence[str], corpus: Sequence[str], relevant) -> dict[str, float]:
    """The metrics of retrieval with some vectors."""
    rows, _ = nearest(unit_length(embed(queries)), unit_length(embed(corpus)), 100)
    return retrieval(rows, relevant)
