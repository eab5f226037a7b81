"""Linear models of vectors: logistic regression of one label or several, and ridge regression of scores.

The objectives are those of scikit-learn, whose numbers the tests repeat: the inverse regularization (its "C") times the
sum of the losses of the examples (of scores, half the squared error), plus half the sum of the squared weights;
intercepts are free. The inverse regularization is in the unit of vectors whose mean length is 1.

Shapes: N examples, D values of a vector, C labels, K outputs that are fitted (1 for two labels, or a score), and
P = D + 1 parameters of an output.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import expit, log_softmax, softmax

from albert_tf.core.errors import UserError

_MOST_ITERATIONS = 10_000
_GRADIENT_TOLERANCE = 1e-8  # of the objective, divided by C and by the number of examples
_LARGEST_GRADIENT = 1e-4  # of a usable result; rounding can end the search above the tolerance
_NO_CHANGE = 64 * np.finfo(np.float64).eps  # relative, of the objective

# Logits [N, K] -> the sum of the losses, and its gradient [N, K].
LossOfLogits = Callable[[np.ndarray], tuple[float, np.ndarray]]


class LinearModel(NamedTuple):
    """Scores of vectors: vectors @ weights.T + bias."""

    weights: np.ndarray  # float64 [C, D]
    bias: np.ndarray  # float64 [C]
    loss: float  # of the training examples, without the penalty; the mean


def fit_labels(
    vectors: np.ndarray,
    labels: np.ndarray,
    num_labels: int,
    inverse_regularization: float,
    label_weights: np.ndarray | None = None,
) -> LinearModel:
    """The logistic regression of one label for each vector; the softmax of the scores are the probabilities.

    Of two labels, there is one vector of weights, as in scikit-learn; each label's scores have half of it.

    Args:
      vectors: float [N, D].
      labels: int [N].
      label_weights: the weight of the examples of each label, float [C]; None: all count alike.
    """
    example_weights_N = np.ones(len(labels)) if label_weights is None else label_weights[labels]

    if num_labels == 2:
        is_second_N1 = (labels == 1).astype(np.float64)[:, None]
        loss = _binary_loss(is_second_N1, example_weights_N[:, None])
        fitted = _fit(vectors, 1, loss, inverse_regularization)
        halves = np.array([-0.5, 0.5])
        return fitted._replace(weights=halves[:, None] * fitted.weights, bias=halves * fitted.bias)

    def multinomial(logits_NC: np.ndarray) -> tuple[float, np.ndarray]:
        rows = np.arange(len(labels))
        total = -(example_weights_N @ log_softmax(logits_NC, axis=1)[rows, labels])
        gradient_NC = softmax(logits_NC, axis=1)
        gradient_NC[rows, labels] -= 1.0
        return float(total), gradient_NC * example_weights_N[:, None]

    return _fit(vectors, num_labels, multinomial, inverse_regularization)


def fit_label_sets(
    vectors: np.ndarray,
    label_sets: np.ndarray,
    inverse_regularization: float,
    label_weights: np.ndarray | None = None,
) -> LinearModel:
    """A logistic regression of each label, which an example has or not; sigmoids of the scores are the probabilities.

    Args:
      vectors: float [N, D].
      label_sets: 1 for a label that an example has, else 0, int [N, C].
      label_weights: the weight of the examples that have a label, float [C]; others count once.
    """
    truths_NC = label_sets.astype(np.float64)
    weights_NC = np.ones(label_sets.shape)
    if label_weights is not None:
        weights_NC = np.where(label_sets == 1, label_weights[None], 1.0)
    loss = _binary_loss(truths_NC, weights_NC)
    return _fit(vectors, label_sets.shape[1], loss, inverse_regularization)


def fit_scores(
    vectors: np.ndarray, scores: np.ndarray, inverse_regularization: float
) -> LinearModel:
    """The ridge regression of scores float [N]; `alpha` of scikit-learn is the inverse of C."""
    scores_N1 = scores.astype(np.float64)[:, None]

    def half_squared_error(logits_N1: np.ndarray) -> tuple[float, np.ndarray]:
        errors_N1 = logits_N1 - scores_N1
        return 0.5 * float(np.sum(errors_N1**2)), errors_N1

    fitted = _fit(vectors, 1, half_squared_error, inverse_regularization)
    return fitted._replace(loss=2 * fitted.loss)


def _binary_loss(truths_NK: np.ndarray, weights_NK: np.ndarray) -> LossOfLogits:
    """The cross entropy of decisions, which are 1 or 0, with a weight for each."""

    def loss(logits_NK: np.ndarray) -> tuple[float, np.ndarray]:
        losses_NK = np.logaddexp(0.0, logits_NK) - truths_NK * logits_NK
        gradient_NK = weights_NK * (expit(logits_NK) - truths_NK)
        return float(np.sum(weights_NK * losses_NK)), gradient_NK

    return loss


def _fit(
    vectors: np.ndarray, num_outputs: int, loss: LossOfLogits, inverse_regularization: float
) -> LinearModel:
    """Minimizes a convex loss of logits [N, K] with L-BFGS, from weights of 0."""
    vectors_ND = vectors.astype(np.float64)
    num_examples, width = vectors_ND.shape
    scale = float(np.mean(np.linalg.norm(vectors_ND, axis=1))) or 1.0
    # Without their mean, the search is faster; the free intercepts make the optimum the same.
    center_D = vectors_ND.mean(axis=0)
    inputs_ND = (vectors_ND - center_D) / scale
    penalty = 1.0 / (inverse_regularization * num_examples)

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        # [K * (D + 1)] -> [K, D + 1]: the weights, and the intercept last
        parameters_KP = parameters.reshape(num_outputs, width + 1)
        weights_KD = parameters_KP[:, :-1]
        total, gradient_NK = loss(inputs_ND @ weights_KD.T + parameters_KP[:, -1])

        value = total / num_examples + 0.5 * penalty * float(np.sum(weights_KD**2))
        gradient_KP = np.empty_like(parameters_KP)
        gradient_KP[:, :-1] = gradient_NK.T @ inputs_ND / num_examples + penalty * weights_KD
        gradient_KP[:, -1] = gradient_NK.sum(axis=0) / num_examples
        return value, gradient_KP.ravel()

    result = scipy.optimize.minimize(
        objective,
        np.zeros(num_outputs * (width + 1)),
        method="L-BFGS-B",
        jac=True,
        options={
            "maxiter": _MOST_ITERATIONS,
            "maxfun": 2 * _MOST_ITERATIONS,
            "gtol": _GRADIENT_TOLERANCE,
            "ftol": _NO_CHANGE,
        },
    )
    if not np.max(np.abs(result.jac)) <= _LARGEST_GRADIENT:
        raise UserError(
            "--inverse_regularization"
            f"={inverse_regularization:g}: the head has no stable values after {result.nit:,} iterations;"
            " give a smaller one"
        )

    # Of the vectors themselves: weights of (v - center) / scale -> weights of v.
    parameters_KP = result.x.reshape(num_outputs, width + 1)
    weights_KD = parameters_KP[:, :-1] / scale
    bias_K = parameters_KP[:, -1] - weights_KD @ center_D
    total, _ = loss(vectors_ND @ weights_KD.T + bias_K)
    return LinearModel(weights_KD, bias_K, total / num_examples)
