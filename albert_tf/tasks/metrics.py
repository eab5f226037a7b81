"""Metrics of classification and regression, and reports of a model's errors.

Each metric is a function of (predictions, labels), two arrays of the same length. It returns None where it is
undefined:

    accuracy, macro_f1   without examples
    f1                   if label 1 is neither true nor predicted of any example
    matthews             if all labels are equal; for equal predictions it is 0, as in scikit-learn
    auc                  if all labels are equal
    pearson, spearman    for fewer than two examples, or if all predictions or all scores are equal
    any                  if a probability or a score is not finite

The leaderboard of GLUE computes f1 and matthews with scikit-learn, where undefined values are 0 (`official`).
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType

import numpy as np

from albert_tf.core.aligned_columns import aligned

Metric = Callable[[np.ndarray, np.ndarray], float | None]
_WORST = 20  # errors in a report


def sklearn_metrics() -> ModuleType:
    """scikit-learn's metrics; their import takes a second, and predictors load this module without using them."""
    import sklearn.metrics

    return sklearn.metrics


def _or_none(formula: Callable[[np.ndarray, np.ndarray], float]) -> Metric:
    """A metric that returns None where its formula gives NaN, and for examples that do not exist or are not finite."""

    @functools.wraps(formula)
    def metric(predictions: np.ndarray, labels: np.ndarray) -> float | None:
        predictions = np.asarray(predictions)
        labels = np.asarray(labels)
        if not len(labels) or not np.all(np.isfinite(predictions)):
            return None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # scikit-learn and scipy warn if the formula has no value, which is common early in a training.
            warnings.simplefilter("ignore")
            value = formula(predictions, labels)
        return float(value) if np.isfinite(value) else None

    return metric


@_or_none
def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of the predicted labels that are right; both arguments are int [examples]."""
    return sklearn_metrics().accuracy_score(labels, predictions)


@_or_none
def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation for two or more labels (R_K); both arguments are int [examples]."""
    if np.all(labels == labels[0]):
        return np.nan
    return sklearn_metrics().matthews_corrcoef(labels, predictions)


@_or_none
def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """F1 of label 1 against all others; both arguments are int [examples]."""
    return sklearn_metrics().f1_score(labels == 1, predictions == 1, zero_division=np.nan)


@_or_none
def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Mean of the F1 of every label that occurs as prediction or truth; both arguments are int [examples]."""
    return sklearn_metrics().f1_score(labels, predictions, average="macro", zero_division=0)


@_or_none
def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation of scores; both arguments are float [examples]."""
    return _correlation("pearsonr", predictions, labels)


@_or_none
def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Spearman correlation of scores; both arguments are float [examples]."""
    return _correlation("spearmanr", predictions, labels)


def _correlation(name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    import scipy.stats  # takes a second, too

    if len(labels) < 2:
        return np.nan
    function = getattr(scipy.stats, name)
    return function(predictions.astype(np.float64), labels.astype(np.float64)).statistic


@_or_none
def auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve; float [examples, C] and int [examples].

    Of more than two labels, it is the mean over those that some examples have and others have not.
    """
    chosen = range(probabilities.shape[1]) if probabilities.shape[1] > 2 else (1,)
    mixed = [label for label in chosen if 0 < np.sum(labels == label) < len(labels)]
    area = sklearn_metrics().roc_auc_score
    areas = [area(labels == label, probabilities[:, label]) for label in mixed]
    return sum(areas) / len(areas) if areas else np.nan


# The metrics of classification by name (`--metrics`): of labels, of probabilities, of scores.
_OF_LABELS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "f1": f1,
}
_OF_PROBABILITIES: Mapping[str, Metric] = {"auc": auc}
_OF_SCORES: Mapping[str, Metric] = {"pearson": pearson, "spearman": spearman}
METRICS: Mapping[str, Metric] = MappingProxyType({**_OF_LABELS, **_OF_PROBABILITIES, **_OF_SCORES})


def names_for(*, is_regression: bool) -> tuple[str, ...]:
    """Names of the metrics that labels or scores can have; the first two are the defaults of one's own tables."""
    return tuple(_OF_SCORES if is_regression else {**_OF_LABELS, **_OF_PROBABILITIES})


def measured(
    name: str, answers: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None
) -> float | None:
    """The value of a metric, for labels or scores [examples] and, of labels, their probabilities [examples, C]."""
    predictions = probabilities if name in _OF_PROBABILITIES else answers
    return METRICS[name](np.asarray(predictions), labels)


def official(name: str, value: float | None) -> float | None:
    """A metric of GLUE as scikit-learn gives it: where f1 and matthews are undefined, they are 0."""
    return 0.0 if value is None and name in ("f1", "matthews") else value


def majority_share(labels: np.ndarray) -> float:
    """Share of the most frequent label among labels int [examples], which is the accuracy without a model."""
    return float(np.bincount(labels).max() / len(labels))


def format_confusion(predictions: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> str:
    """A table, as lines, of how often each label was predicted for each true label, with recall and precision."""
    table = np.zeros([len(names)] * 2, np.int64)
    if len(labels):  # scikit-learn does not accept empty arrays
        table = sklearn_metrics().confusion_matrix(labels, predictions, labels=range(len(names)))
    right = np.diag(table)
    rows = [["true \\ predicted", *names, "recall"]]
    for name, counts, num_right in zip(names, table, right, strict=True):
        rows.append([name, *(f"{n:,}" for n in counts), _percent(num_right, counts.sum())])
    precisions = map(_percent, right, table.sum(axis=0))
    rows.append(["precision", *precisions, _percent(right.sum(), table.sum())])
    return aligned(rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def error_report(
    summary: str, sureness: np.ndarray, is_wrong: np.ndarray, describe: Callable[[int], str]
) -> str:
    """A summary, and the worst errors of a model.

    `sureness` says how sure it was, or how wrong, float [answers]; `is_wrong` bool [answers]; `describe` gives lines.
    """
    (wrong,) = np.nonzero(is_wrong)
    worst = wrong[np.argsort(-np.asarray(sureness)[wrong], kind="stable")][:_WORST]
    title = f"The {len(worst)} worst of {len(wrong):,} errors in {len(is_wrong):,} answers\n"
    return "\n".join([summary, title, *map(describe, worst)]) + "\n"
