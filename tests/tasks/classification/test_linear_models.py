"""Linear models of vectors: the probabilities and scores of scikit-learn with the same C."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression, Ridge

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification import linear_models

NUM_EXAMPLES = 60
WIDTH = 7


def vectors_of(seed: int, number: int = NUM_EXAMPLES) -> np.ndarray:
    """Vectors of length 1 with a common direction, float32."""
    vectors = np.random.default_rng(seed).normal(0.3, 1.0, (number, WIDTH))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


VECTORS = vectors_of(1)
NEW_VECTORS = vectors_of(2, 9)
DIRECTIONS = np.random.default_rng(3).normal(0, 3, (WIDTH, 4))
NOISE = np.random.default_rng(4).normal(0, 1, (NUM_EXAMPLES, 4))


def scores_of(model: linear_models.LinearModel, vectors: np.ndarray) -> np.ndarray:
    return vectors @ model.weights.T + model.bias


def regression(strength: float, **options) -> LogisticRegression:
    return LogisticRegression(C=strength, tol=1e-10, max_iter=10_000, **options)


@pytest.mark.parametrize("strength", [0.03, 1.0, 50.0])
@pytest.mark.parametrize("num_labels", [2, 3, 4])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_labels_get_the_probabilities_of_scikit_learn(num_labels, strength, is_weighted):
    labels = np.argmax((VECTORS @ DIRECTIONS + NOISE)[:, :num_labels], axis=1)
    assert len({*labels}) == num_labels
    counts = np.bincount(labels)
    weights = len(labels) / (num_labels * counts) if is_weighted else None
    found = linear_models.fit_labels(VECTORS, labels, num_labels, strength, weights)
    expected = regression(strength, class_weight="balanced" if is_weighted else None)
    expected.fit(VECTORS.astype(np.float64), labels)
    probabilities = softmax(scores_of(found, NEW_VECTORS), axis=1)
    np.testing.assert_allclose(probabilities, expected.predict_proba(NEW_VECTORS), atol=1e-5)


def test_the_unit_of_regularization_is_that_of_vectors_of_length_1():
    labels = np.argmax(VECTORS @ DIRECTIONS + NOISE, axis=1)
    plain = linear_models.fit_labels(VECTORS, labels, 4, 2.0)
    long = linear_models.fit_labels(17 * VECTORS, labels, 4, 2.0)
    np.testing.assert_allclose(
        scores_of(long, 17 * NEW_VECTORS), scores_of(plain, NEW_VECTORS), atol=1e-5
    )


@pytest.mark.parametrize("strength", [0.1, 3.0])
def test_each_of_several_labels_is_a_logistic_regression(strength):
    label_sets = (VECTORS @ DIRECTIONS + NOISE > 0.4).astype(np.int32)
    weights = np.array([0.5, 1.0, 4.0, 2.0])
    found = linear_models.fit_label_sets(VECTORS, label_sets, strength, weights)
    probabilities = expit(scores_of(found, NEW_VECTORS))
    for label, weight in enumerate(weights):
        expected = regression(strength, class_weight={0: 1.0, 1: weight})
        expected.fit(VECTORS.astype(np.float64), label_sets[:, label])
        of_label = expected.predict_proba(NEW_VECTORS)[:, 1]
        np.testing.assert_allclose(probabilities[:, label], of_label, atol=1e-5)


@pytest.mark.parametrize("strength", [0.1, 3.0])
def test_scores_are_those_of_ridge(strength):
    scores = (VECTORS @ DIRECTIONS + NOISE)[:, 0] + 20
    found = linear_models.fit_scores(VECTORS, scores, strength)
    expected = Ridge(alpha=1 / strength).fit(VECTORS.astype(np.float64), scores)
    found_scores = scores_of(found, NEW_VECTORS)[:, 0]
    np.testing.assert_allclose(found_scores, expected.predict(NEW_VECTORS), atol=1e-4)
    errors = scores_of(found, VECTORS)[:, 0] - scores
    assert found.loss == pytest.approx(np.mean(errors**2), rel=1e-6)


def test_a_label_that_no_example_has_is_never_the_most_probable():
    labels = np.where(VECTORS[:, 0] > 0.2, 2, 0)
    for num_labels in (3, 5):
        found = linear_models.fit_labels(VECTORS, labels, num_labels, 1.0)
        probabilities = softmax(scores_of(found, NEW_VECTORS), axis=1)
        others = [label for label in range(num_labels) if label not in (0, 2)]
        assert probabilities[:, others].max() < 1e-3


def test_one_label_alone_is_certain():
    found = linear_models.fit_labels(VECTORS, np.ones(NUM_EXAMPLES, int), 2, 1.0)
    assert softmax(scores_of(found, NEW_VECTORS), axis=1)[:, 1].min() > 0.99


def test_equal_calls_have_equal_bits():
    labels = np.argmax(VECTORS @ DIRECTIONS + NOISE, axis=1)
    first = linear_models.fit_labels(VECTORS, labels, 4, 1.0)
    second = linear_models.fit_labels(VECTORS, labels, 4, 1.0)
    np.testing.assert_array_equal(first.weights, second.weights)


def test_vectors_without_a_direction_give_the_frequencies():
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    found = linear_models.fit_labels(np.zeros_like(VECTORS), labels, 3, 1.0)
    probabilities = softmax(scores_of(found, NEW_VECTORS), axis=1)
    np.testing.assert_allclose(probabilities, np.tile([1 / 2, 1 / 3, 1 / 6], (9, 1)), atol=1e-5)


def test_values_that_are_not_finite_are_an_error():
    broken = np.full_like(VECTORS, np.nan)
    with pytest.raises(UserError, match="--inverse_regularization=1: the head has no stable"):
        linear_models.fit_labels(broken, np.arange(NUM_EXAMPLES) % 3, 3, 1.0)
