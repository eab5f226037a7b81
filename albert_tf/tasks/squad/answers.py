"""SQuAD: turns a model's outputs into answers, and answers into scores; uses only Python and NumPy.

    candidate_spans     the best starts and ends of every window -> spans of the context
    best_answers        spans -> each question's best answers
    Answers             the contents of the files of predictions
    score_v1, ScoresV2  the rules of the official evaluation scripts

Null odds say how likely it is that a question has no answer: they are the logit that the model was trained to give for
`is_impossible`, the minimum over the question's windows. If they are greater than a threshold, the prediction is that
the question has no answer. The natural threshold is therefore 0.
"""

import collections
import dataclasses
import functools
import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.squad.questions import SquadQuestion
from albert_tf.text.visible import visible_parts

_WINDOWS_AT_A_TIME = 1024  # limits the memory for pairs of starts and ends
# Outputs of a model that `candidate_spans` reads.
V1_OUTPUTS = ("start_logits", "end_logits")
V2_OUTPUTS = (
    "start_top_log_probs",
    "start_top_index",
    "end_top_log_probs",
    "end_top_index",
    "cls_logits",
)
_NO_LOG_PROB = -1e6  # for the empty answer to a question without candidates


@dataclasses.dataclass(frozen=True)
class Spans:
    """Candidate answers, question by question, each question's best first."""

    question: np.ndarray  # int32 [spans], index of the question
    start_chars: np.ndarray  # int32 [spans], range of characters in the context, end exclusive
    end_chars: np.ndarray
    start_log_probs: np.ndarray  # float64 [spans], the model's scores of start and end
    end_log_probs: np.ndarray
    null_odds: np.ndarray  # float64 [questions] for SQuAD 2.0, otherwise [0]

    @property
    def scores(self) -> np.ndarray:
        """float64 [spans]."""
        return self.start_log_probs + self.end_log_probs

    def take(self, indices: np.ndarray) -> "Spans":
        """The spans at the given indices, or those for which a mask is true."""
        arrays = {name: array[indices] for name, array in vars(self).items() if name != "null_odds"}
        return Spans(**arrays, null_odds=self.null_odds)


def candidate_spans(
    windows: FeatureTable,
    outputs: Mapping[str, np.ndarray],
    *,
    n_best_size: int,
    max_answer_length: int,
) -> Spans:
    """The candidate answers of a model and, for SQuAD 2.0, its null odds.

    A span begins in the window in which its first token has the most context, ends in the context, and has at most
    `max_answer_length` tokens. For SQuAD 1.1, it combines one of the window's best starts with one of its best ends. As
    in the original, these are chosen among all tokens of a window, including the question's, and windows are compared
    by their logits. In contrast to the original, padding is left out. For SQuAD 2.0, the model has already searched for
    starts and ends.

    Args:
      outputs: outputs of the model for each window. SQuAD 1.1, with L at least the longest window's length:
          start_logits, end_logits: float32 [windows, L].
        SQuAD 2.0:
          start_top_log_probs: log probabilities of the K best starts, float32 [windows, K].
          start_top_index: their tokens, int [windows, K].
          end_top_log_probs: log probabilities of the M best ends for each of these starts, float32 [windows, K * M];
            those of start k begin at k * M.
          end_top_index: their tokens, int [windows, K * M].
          cls_logits: the logit for having no answer, float32 [windows].
      n_best_size: number of starts, and of ends, that are considered in a window of SQuAD 1.1.

    Source: squad_utils.py (`accumulate_predictions_v1`, `accumulate_predictions_v2`).
    """
    if "cls_logits" in outputs:
        # 7 windows of 3 questions: starts [7, 5], and their ends [7, 25] -> [7, 5, 5].
        start_scores = outputs["start_top_log_probs"]
        starts = outputs["start_top_index"]
        shape = (*starts.shape, -1)
        end_scores = outputs["end_top_log_probs"].reshape(shape)
        ends = outputs["end_top_index"].reshape(shape)

        # [7] -> [3]: the least logit of a question's windows.
        question = windows.columns["question_index"][:, 0]
        null_odds = np.full(question.max() + 1, np.inf)
        np.minimum.at(null_odds, question, outputs["cls_logits"])
    else:
        # Starts [7, 20], and ends [7, 1, 20], which are the same for each start.
        starts, start_scores = _best_tokens(windows, outputs["start_logits"], n_best_size)
        ends, end_scores = _best_tokens(windows, outputs["end_logits"], n_best_size)
        ends = ends[:, None]
        end_scores = end_scores[:, None]
        null_odds = np.zeros(0)

    # For each chunk of windows, five arrays [spans] -> those of all windows.
    arrays = _valid_spans(windows, starts, start_scores, ends, end_scores, max_answer_length)
    spans = Spans(*map(np.concatenate, zip(*arrays, strict=True)), null_odds)  # type: ignore[call-arg]
    spans = spans.take(spans.end_chars > spans.start_chars)
    return spans.take(np.lexsort((-spans.scores, spans.question)))  # ties keep their order


def _best_tokens(
    windows: FeatureTable, logits: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best tokens of each window and their logits, [windows, count]; padding comes last."""
    length = logits.shape[1]
    if windows.lengths.max() > length:
        raise ValueError(f"a window has {windows.lengths.max()} tokens, not {length}")
    is_padding = np.arange(length) >= windows.lengths[:, None]
    order = np.argsort(np.where(is_padding, np.inf, -logits), axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(logits, order, axis=1)


def _valid_spans(
    windows: FeatureTable,
    starts: np.ndarray,
    start_log_probs: np.ndarray,
    ends: np.ndarray,
    end_log_probs: np.ndarray,
    max_answer_length: int,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the first five arrays of `Spans`, by window, from starts [windows, S] and ends [windows, S or 1, E]."""
    # If a window has too few other tokens, the model may choose tokens of the padding.
    length = 1 + max(windows.lengths.max() - 1, starts.max(), ends.max())
    names = ["start_chars", "end_chars", "is_max_context", "question_index"]
    for first in range(0, len(windows), _WINDOWS_AT_A_TIME):
        # [7, 384]: 7 windows of at most 384 tokens.
        chunk = slice(first, first + _WINDOWS_AT_A_TIME)
        features = windows.batch(np.arange(len(windows))[chunk], length, names)
        is_token = features["input_mask"] == 1
        start_chars = features["start_chars"]
        end_chars = features["end_chars"]
        is_context = is_token & (start_chars >= 0)
        # A token without text ends where the last token with text before it ends: no answer ends in white space.
        has_text = is_token & (end_chars > start_chars)
        end_chars = np.maximum.accumulate(np.where(has_text, end_chars, -1), axis=1)

        # Starts [7, 20, 1] and ends [7, 1, 20], or [7, 5, 1] and [7, 5, 5] -> all pairs, [7, 20, 20] or [7, 5, 5].
        start = starts[chunk][:, :, None]
        end = ends[chunk]
        window = np.arange(len(start))[:, None, None]
        is_valid = (
            (features["is_max_context"][window, start] == 1)
            & is_context[window, end]
            & (end >= start)
            & (end < start + max_answer_length)
        )

        def valid(values: np.ndarray, is_valid: np.ndarray = is_valid) -> np.ndarray:
            return np.broadcast_to(values, is_valid.shape)[is_valid]

        # [7, 20, 20] -> [spans]
        yield (
            valid(features["question_index"][:, :, None]),
            valid(start_chars[window, start]),
            valid(end_chars[window, end]),
            valid(start_log_probs[chunk][:, :, None]).astype(np.float64),
            valid(end_log_probs[chunk]).astype(np.float64),
        )


class Answer(NamedTuple):
    """One of a question's best answers; `text` is empty without candidates."""

    text: str  # of the context's characters from `start_char` to before `end_char`
    start_log_prob: float  # the model's scores of start and end
    end_log_prob: float
    probability: float  # share of exp(score) among the answers listed with it
    start_char: int
    end_char: int


def has_no_answer(null_odds: Any, threshold: float) -> Any:
    """Whether the prediction is that a question has no answer (SQuAD 2.0), for null odds or an array of them."""
    return null_odds > threshold


def best_answers(
    questions: Sequence[SquadQuestion], spans: Spans, n_best_size: int
) -> list[list[Answer]]:
    """Each question's best answers with different texts, best first; the empty answer if there is no candidate.

    An answer neither begins nor ends with an invisible character, such as U+200B.

    (The original then answers "empty" for SQuAD 1.1.) Source: squad_utils.py (`write_predictions_v1` and `_v2`).
    """
    # The spans of 3 questions, [0 0 0 2 2], begin and end at [0, 3, 3, 5].
    splits = np.searchsorted(spans.question, np.arange(len(questions) + 1))
    answers: list[list[Answer]] = []
    for question, begin, end in zip(questions, splits[:-1], splits[1:], strict=True):
        start_chars = spans.start_chars[begin:end].tolist()
        end_chars = spans.end_chars[begin:end].tolist()
        candidates = zip(
            spans.start_log_probs[begin:end].tolist(),
            spans.end_log_probs[begin:end].tolist(),
            visible_parts(question.context, zip(start_chars, end_chars, strict=True)),
            strict=True,
        )
        # Text -> its first candidate.
        best: dict[str, Answer] = {}
        for start_log_prob, end_log_prob, (start, stop) in candidates:
            if start == stop:
                continue
            text = question.context[start:stop]
            best.setdefault(text, Answer(text, start_log_prob, end_log_prob, 0.0, start, stop))
            if len(best) == n_best_size:
                break
        listed = list(best.values()) or [Answer("", _NO_LOG_PROB, _NO_LOG_PROB, 0.0, 0, 0)]
        answers.append(_with_probabilities(listed))
    return answers


def _with_probabilities(answers: Sequence[Answer]) -> list[Answer]:
    """The answers to a question with their probabilities."""
    scores = [answer.start_log_prob + answer.end_log_prob for answer in answers]
    weights = [math.exp(score - max(scores)) for score in scores]
    total = sum(weights)
    return [
        answer._replace(probability=weight / total)
        for answer, weight in zip(answers, weights, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers to some questions, and their files; null odds are float [questions] for SQuAD 2.0."""

    questions: Sequence[SquadQuestion]
    best: Sequence[Sequence[Answer]]
    null_odds: np.ndarray | None = None

    def _by_id(self, values: Iterable[Any]) -> dict[str, Any]:
        ids = [question.id for question in self.questions]
        return dict(zip(ids, values, strict=True))

    def texts(self, threshold: float = math.inf) -> dict[str, str]:
        """Contents of predictions.json: for each question's id its best answer, empty for "no answer".

        Questions with null odds above the threshold get no answer. (In the original, those with equal null odds get
        none either, although its search for the best threshold counts them as answered.)
        """
        texts = [best[0].text for best in self.best]
        if self.null_odds is not None:
            is_null = has_no_answer(self.null_odds, threshold)
            texts = np.where(is_null, "", np.array(texts, object)).tolist()
        return self._by_id(texts)

    def nbest(self) -> dict[str, list[dict[str, str | float | int]]]:
        """Contents of nbest_predictions.json: each question's best answers by its id; null odds are ignored."""
        return self._by_id([answer._asdict() for answer in best] for best in self.best)

    def null_odds_by_id(self) -> dict[str, float]:
        """Contents of null_odds.json: each question's null odds."""
        return self._by_id([] if self.null_odds is None else self.null_odds.tolist())


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """The text in lower case, without ASCII punctuation, English articles and unnecessary white space.

    Example: "The U.S.  Army" -> "us army". Source: evaluate-v1.1.py and evaluate-v2.0.py (`normalize_answer`).
    """
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def f1_score(prediction: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of two bags of words; 0 if they have no word in common, also if both are empty (evaluate-v1.1.py)."""
    common = collections.Counter(prediction) & collections.Counter(reference)
    num_common = sum(common.values())
    if not num_common:
        return 0.0
    precision = num_common / len(prediction)
    recall = num_common / len(reference)
    return 2 * precision * recall / (precision + recall)


def score_v1(
    questions: Sequence[SquadQuestion], predictions: Mapping[str, str]
) -> dict[str, float]:
    """`exact_match` and `f1` in percent, and `total`, by evaluate-v1.1.py's rules; no prediction counts as wrong."""
    normalize = functools.cache(normalize_answer)
    exact = []
    f1 = []
    for question in questions:
        if question.id in predictions:
            predicted = normalize(predictions[question.id])
            references = {normalize(text) for text, _ in question.answers}
            exact.append(predicted in references)
            f1.append(max(f1_score(predicted.split(), text.split()) for text in references))
    total = len(questions)
    return {
        "exact_match": 100.0 * sum(exact) / total,
        "f1": 100.0 * sum(f1) / total,
        "total": total,
    }


class ScoresV2:
    """Exact match and F1 by the rules of SQuAD 2.0 (evaluate-v2.0.py), for any threshold of null odds.

    Predictions are answers by question id, empty for "no answer"; a missing question counts as wrong, with null odds 0.
    (The official script stops with an error then.)
    """

    def __init__(
        self,
        questions: Sequence[SquadQuestion],
        predictions: Mapping[str, str],
        null_odds: Mapping[str, float],
    ):
        normalize = functools.cache(normalize_answer)
        # [questions, 2]: exact match and F1 of each prediction's text
        scores = np.zeros((len(questions), 2))
        for row, question in enumerate(questions):
            if question.id in predictions:
                predicted = normalize(predictions[question.id])
                references = {normalize(text) for text, _ in question.answers} - {""} or {""}
                is_exact = predicted in references  # also true if both have no answer, with F1 0
                f1 = (f1_score(predicted.split(), text.split()) for text in references)
                scores[row] = is_exact, max(is_exact, *f1)

        # [questions] each
        ids = [question.id for question in questions]
        self._exact, self._f1 = scores.T
        self._has_answer = np.array([bool(question.answers) for question in questions])
        self._is_predicted = np.array([id in predictions for id in ids])
        self._is_text = np.array([bool(predictions.get(id)) for id in ids])
        self._null_odds = np.array([null_odds.get(id, 0.0) for id in ids], np.float64)
        # Rows of the questions with null odds; ties keep the order of the mapping, as in the official script.
        rows = {id: row for row, id in enumerate(ids)}
        ascending = [rows[id] for id in sorted(null_odds, key=null_odds.__getitem__) if id in rows]
        self._ascending = np.array(ascending, np.int64)

    def at(self, threshold: float) -> dict[str, float]:
        """The scores at a threshold.

        Args:
          threshold: a question with greater null odds counts as predicted to have no answer, whatever its prediction
            is. 1 is the default of the official script, which expects probabilities as null odds.

        Returns:
          The official script's names: `exact` and `f1` in percent, and `total`; the same with HasAns_ and NoAns_ for
          the questions with and without an answer, if there are any; and `best_exact`, `best_f1`, the best values that
          a threshold chosen on these questions themselves reaches, with `best_exact_thresh`, `best_f1_thresh`.
        """
        is_null = self._is_predicted & has_no_answer(self._null_odds, threshold)
        exact = np.where(is_null, ~self._has_answer, self._exact)
        f1 = np.where(is_null, ~self._has_answer, self._f1)
        everything = np.ones_like(is_null)
        groups = {"": everything, "HasAns_": self._has_answer, "NoAns_": ~self._has_answer}
        result = {}
        for prefix, group in groups.items():
            total = int(group.sum())
            if total:
                result[f"{prefix}exact"] = 100.0 * float(exact[group].sum()) / total
                result[f"{prefix}f1"] = 100.0 * float(f1[group].sum()) / total
                result[f"{prefix}total"] = total
        for name, scores in (("exact", self._exact), ("f1", self._f1)):
            best, best_threshold = self._best_threshold(scores)
            result |= {f"best_{name}": best, f"best_{name}_thresh": best_threshold}
        return result

    def results(self) -> dict[str, float]:
        """The scores at the best threshold, `best_threshold`; and, with `_threshold_0` in their names, those at 0.

        Only the latter are an estimate for new questions: the best threshold, which the paper and the original use
        (squad_utils.py:1715, `evaluate_v2`), is chosen on these questions themselves.
        """
        # 0 is the official script's threshold for no answers at all; null odds may all be below it.
        lowest = float(np.nextafter(self._null_odds.min(initial=0.0), -np.inf))
        _, official_best = self._best_threshold(self._f1)
        best = max(official_best, lowest, key=lambda threshold: self.at(threshold)["f1"])
        results = {**self.at(best), "best_threshold": best}

        at_0 = self.at(0.0)
        for name in ("exact", "f1", "HasAns_f1", "NoAns_f1"):
            if name in at_0:
                results[f"{name}_threshold_0"] = at_0[name]
        return results

    def _best_threshold(self, scores: np.ndarray) -> tuple[float, float]:
        """The best score in percent, and its threshold, 0 if it is best to answer nothing (`find_best_thresh`).

        If questions have equal null odds, the official script counts some as answered and some as not; so does this.
        """
        # [questions]: what answering a question adds to the score. In the order of their null odds, the gains
        # [1, -1, 1] after 2 questions that are right without an answer -> the sums [2, 3, 2, 3].
        gains = np.where(self._has_answer, scores, -self._is_text.astype(np.float64))
        none_answered = np.sum(self._is_predicted & ~self._has_answer)
        sums = np.cumsum([none_answered, *gains[self._ascending]])
        best = int(np.argmax(sums))
        threshold = float(self._null_odds[self._ascending[best - 1]]) if best else 0.0
        return 100.0 * float(sums[best]) / len(scores), threshold
