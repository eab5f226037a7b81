"""The laboratory of embeddings: vectors, whitening, BM25 and tables beside plain restatements."""

import math

import numpy as np
import pytest

from albert_tf import load_predictor
from lab.embeddings import __main__ as lab
from lab.embeddings import untrained

CORPUS = ["red house red river", "a dog saw the house", "green river", "dog dog dog cat bird"]


def test_the_mean_of_the_last_layer_is_the_predictors(tiny_pretrained):
    predictor = load_predictor(tiny_pretrained)
    found = untrained.poolings(predictor.model, predictor.tokenizer, CORPUS)
    np.testing.assert_allclose(
        found["mean of the last layer"], predictor.embed(CORPUS), rtol=0, atol=1e-5
    )
    assert {vectors.shape for vectors in found.values()} == {(4, 20)}


def test_whitened_vectors_have_no_correlation():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 5)) + 3
    changes = untrained.transforms(vectors)
    whitened = changes["whitened"](vectors)
    np.testing.assert_allclose(whitened.T @ whitened, np.eye(5), atol=1e-9)
    assert untrained.described(vectors)["cosine_of_random_pairs"] > 0.5
    assert (
        abs(untrained.described(changes["minus_the_mean"](vectors))["cosine_of_random_pairs"]) < 0.2
    )


def test_bm25_is_its_formula():
    queries = ["house", "dog river", "red"]
    words = [text.split() for text in CORPUS]
    # One letter is no word for scikit-learn.
    words = [[word for word in text if len(word) > 1] for text in words]
    mean = np.mean([len(text) for text in words])
    for query, order in zip(queries, untrained.bm25(CORPUS, queries), strict=True):
        scores = []
        for text in words:
            score = 0.0
            for word in query.split():
                number, own = sum(word in other for other in words), text.count(word)
                idf = math.log(1 + (len(words) - number + 0.5) / (number + 0.5))
                score += idf * own * 2.5 / (own + 1.5 * (0.25 + 0.75 * len(text) / mean))
            scores.append(score)
        assert order.tolist() == np.argsort(-np.array(scores), kind="stable").tolist()


def test_a_table_has_a_row_for_each_method_and_model():
    results = {"small": {"stsb": {"seed 1": {"spearman": 0.51234, "seconds": 12.6}}, "made_by": {}}}
    lines = lab.tables("stsb", results)
    assert lines[0] == "| stsb | spearman | seconds |" and lines[2] == "| seed 1 | 0.512 | 13 |"
    results["other"] = {"stsb": {"seed 1": {"step_3": 0.5}}}
    assert lab.tables("stsb", results)[3] == "| `other`: seed 1 |  |  | 0.500 |"
    assert set(lab.PARTS) == {"untrained", "stsb", "retrieval", "library"}


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_tfidf_finds_the_text_itself(kind):
    embed = untrained.tfidf(CORPUS)[f"TF-IDF of {kind}"]
    assert untrained.best_rows(embed(CORPUS), embed(CORPUS))[:, 0].tolist() == [0, 1, 2, 3]
