"""SQuAD inside a TensorFlow graph, for exported models: maps strings of questions and contexts to answers.

The windows are those of `tasks/squad/windows.py`, and the answers those of `tasks/squad/answers.py`, but everything is
a tensor: ragged rows are concatenated, and indices say where each row begins.

Shape legend: B questions; W windows that the model reads at once, L tokens of the longest of them; S starts and E ends
that are considered in a window; P tokens of all contexts; N candidates, which are spans of contexts.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.serving.in_graph.characters import decode_in_graph
from albert_tf.serving.in_graph.tokenizer import graph_tokenizer_with_offsets
from albert_tf.tasks.squad.windows import WindowSettings
from albert_tf.text.tokenizer import Tokenizer

WINDOWS_AT_A_TIME = 32  # limits the memory for any length of contexts


class GraphSquad(tf.Module):
    """Answers questions by parts of their contexts, as `SpanPredictor` does, with its settings (a Mapping)."""

    def __init__(self, tokenizer: Tokenizer, settings: Mapping[str, Any], has_null: bool):
        super().__init__(name="graph_squad")
        names = ("max_seq_length", "doc_stride", "max_query_length")
        self._cut = WindowSettings(tokenizer, *(settings[name] for name in names))
        self._max_answer_length = settings["max_answer_length"]
        self._n_best_size = settings["n_best_size"]
        self._has_null = has_null
        if has_null:
            self._null_threshold = float(settings["null_threshold"])
        self.tokenizer = graph_tokenizer_with_offsets(tokenizer)

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self, model: tf.Module, question: tf.Tensor, context: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The best answer to each question; question and context are string [B].

        Returns:
          text: the characters of the context from `start` up to, but not including, `end`, string [B]. start, end:
          int32 [B], positions in Unicode characters; invalid bytes count as U+FFFD. score: float32 [B], the
          `probability` of the first answer in nbest_predictions.json. If no span can be an answer,
            because the context is empty, the answer is the empty text from 0 to 0 with score 1.
          For SQuAD 2.0 also:
          null_odds: float32 [B]. If they are above the threshold, there is no answer: the text is empty, from 0 to 0.
          best_text, best_start, best_end: the best answer even then. The score always belongs to this answer.
        """
        tf.debugging.assert_equal(
            tf.shape(question), tf.shape(context), "question and context differ in number"
        )
        windows = self.windows(question, context)
        codes = decode_in_graph(context)
        spans, null_odds = self._find_spans(model, windows, codes)
        best = _first_spans(spans, codes)
        if not self._has_null:
            return best
        is_null = tf.cast(null_odds, tf.float64) > self._null_threshold
        null = {"text": "", "start": 0, "end": 0}
        answers = {name: tf.where(is_null, value, best[name]) for name, value in null.items()}
        best_answers = {f"best_{name}": best[name] for name in null}
        return {**answers, "score": best["score"], "null_odds": null_odds, **best_answers}

    def windows(self, question: tf.Tensor, context: tf.Tensor) -> "GraphWindows":
        """The windows of questions and contexts; both are string [B]."""
        queries = self.tokenizer.encode(question)[:, : self._cut.max_query_length]
        return GraphWindows.of(self._cut, queries, *self.tokenizer.encode_with_offsets(context))

    def _find_spans(
        self, model: tf.Module, windows: "GraphWindows", codes: tf.RaggedTensor
    ) -> tuple["_Spans", tf.Tensor]:
        """Each question's best candidates, and null odds, float32 [B]; processes a few windows at a time."""
        num_windows = tf.size(windows.question)
        least_length = max(model.num_starts, model.num_ends) if self._has_null else 1

        def more(begin, *_):
            return begin < num_windows

        def add(begin, spans, null_odds):
            end = tf.minimum(begin + WINDOWS_AT_A_TIME, num_windows)
            features = windows.features(begin, end, least_length)
            inputs = ("input_ids", "input_mask", "segment_ids", "p_mask")
            outputs = model({name: features[name] for name in inputs}, training=False)
            if self._has_null:
                odds = tf.math.unsorted_segment_min(
                    outputs["cls_logits"], features["question"], tf.size(null_odds)
                )
                null_odds = tf.minimum(null_odds, odds)
            # A span that is not among a question's best here cannot be among its best in the end.
            new = _best_spans(self._candidates(outputs, features), codes, self._n_best_size)
            joined = [tf.concat(pair, axis=0) for pair in zip(spans, new, strict=True)]
            return end, _Spans(*joined), null_odds

        types = (tf.int64, tf.int32, tf.int32, tf.float64)
        no_spans = _Spans(*(tf.zeros([0], dtype) for dtype in types))
        any_number = tf.TensorShape([None])
        _, spans, null_odds = tf.while_loop(
            more,
            add,
            (0, no_spans, tf.fill([codes.nrows()], float("inf"))),
            shape_invariants=(tf.TensorShape([]), _Spans(*[any_number] * 4), any_number),
            parallel_iterations=1,
        )
        return _best_spans(spans, codes, self._n_best_size), null_odds

    def _candidates(
        self, outputs: Mapping[str, tf.Tensor], features: Mapping[str, tf.Tensor]
    ) -> "_Spans":
        """`squad_answers.candidate_spans` for some windows, not yet sorted."""
        if self._has_null:
            starts, start_scores = outputs["start_top_index"], outputs["start_top_log_probs"]
            shape = [tf.shape(starts)[0], starts.shape[1], -1]
            ends = tf.reshape(outputs["end_top_index"], shape)
            end_scores = tf.reshape(outputs["end_top_log_probs"], shape)
        else:
            starts, start_scores = self._largest(outputs["start_logits"], features)
            ends, end_scores = self._largest(outputs["end_logits"], features)
            ends, end_scores = ends[:, None], end_scores[:, None]  # the same ends for every start

        def at(name: str, places: tf.Tensor) -> tf.Tensor:
            return tf.gather(features[name], places, batch_dims=1)

        lengths = ends - starts[:, :, None] + 1
        start_chars, end_chars = at("start_chars", starts)[:, :, None], at("text_ends", ends)
        is_valid = (
            (at("is_max_context", starts)[:, :, None] == 1)
            & (at("start_chars", ends) >= 0)
            & (lengths >= 1)
            & (lengths <= self._max_answer_length)
            & (end_chars > start_chars)
        )
        scores = tf.cast(start_scores, tf.float64)[:, :, None] + tf.cast(end_scores, tf.float64)
        columns = (features["question"][:, None, None], start_chars, end_chars, scores)
        shape = tf.shape(is_valid)
        return _Spans(
            *(tf.boolean_mask(tf.broadcast_to(column, shape), is_valid) for column in columns)
        )

    def _largest(
        self, logits: tf.Tensor, features: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Positions and values of the largest logits of each window, without padding; of ties the first."""
        logits = tf.where(features["input_mask"] == 1, logits, -float("inf"))
        best = tf.math.top_k(logits, tf.minimum(self._n_best_size, tf.shape(logits)[1]))
        return best.indices, best.values


# --- Windows ---


@dataclasses.dataclass(frozen=True)
class GraphWindows:
    """The windows of some questions, as from `make_windows`, in a graph; they are padded when they are read.

    Attributes:
      queries: tokens of the questions, int32 [B, (tokens)].
      contexts: name -> int32 [P + 1], values for the tokens of all contexts, concatenated, and a last value for "no
        token": input_ids, start_chars, end_chars, text_ends, best_window.
      question, number: the window's question, and its number among the question's windows; int64 [windows], like
        `first_token` and `context_length`.
      texts_before: number of tokens with text before each token of all contexts, int64 [P + 1].
    """

    tokenizer: Tokenizer
    queries: tf.RaggedTensor
    contexts: Mapping[str, tf.Tensor]
    question: tf.Tensor
    number: tf.Tensor
    first_token: tf.Tensor
    context_length: tf.Tensor
    texts_before: tf.Tensor

    @classmethod
    def of(
        cls,
        settings: WindowSettings,
        queries: tf.RaggedTensor,
        ids: tf.RaggedTensor,
        starts: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> "GraphWindows":
        """Cuts contexts with these tokens and spans, int32 [B, (tokens)] each, into windows."""
        room = settings.max_seq_length - queries.row_lengths() - 3
        # All windows except a question's last are full.
        stride = tf.minimum(room, settings.doc_stride)
        num_tokens = ids.row_lengths()
        num_windows = 1 + (tf.maximum(num_tokens - room, 0) + stride - 1) // stride

        question = tf.repeat(tf.range(tf.size(room, tf.int64)), num_windows)
        first_window = tf.cumsum(num_windows, exclusive=True)
        number = tf.range(tf.size(question, tf.int64)) - tf.gather(first_window, question)
        shift = number * tf.gather(stride, question)

        has_text = ends.values > starts.values
        texts_before = tf.concat([[0], tf.cumsum(tf.cast(has_text, tf.int64))], axis=0)
        # The end of the last token that has text, because no answer ends in white space.
        text_ends = tf.concat([[-1], tf.boolean_mask(ends.values, has_text)], axis=0)
        contexts = {
            "input_ids": ids.values,
            "start_chars": starts.values,
            "end_chars": ends.values,
            "text_ends": tf.gather(text_ends, texts_before[1:]),
            "best_window": best_window(ids, room, stride, num_windows),
        }
        return cls(
            settings.tokenizer,
            queries,
            {name: tf.concat([values, [-1]], axis=0) for name, values in contexts.items()},
            question,
            number,
            tf.gather(ids.row_starts(), question) + shift,
            tf.minimum(tf.gather(room, question), tf.gather(num_tokens, question) - shift),
            texts_before,
        )

    def features(
        self, begin: tf.Tensor, end: tf.Tensor, least_length: int = 1
    ) -> dict[str, tf.Tensor]:
        """Some windows, padded to the longest of them, at least to `least_length`.

        Returns:
          question, int64 [W], and, int32 [W, L], the features of `make_windows` with `input_mask`, and `text_ends`:
          where a token's text ends; for a token without text, where that of the last token before it in the window
          ends; -1 without.
        """
        question, first_token, context_length, number = (
            values[begin:end, None]
            for values in (self.question, self.first_token, self.context_length, self.number)
        )
        query_length = tf.gather(self.queries.row_lengths(), question)
        length = query_length + context_length + 3
        position = tf.range(tf.maximum(tf.reduce_max(length), least_length))[None]
        in_query = (position >= 1) & (position <= query_length)
        in_context = (position >= query_length + 2) & (position < length - 1)
        is_token = position < length

        none = tf.size(self.texts_before, tf.int64) - 1
        token = tf.where(in_context, first_token + position - query_length - 2, none)
        in_window = {name: tf.gather(values, token) for name, values in self.contexts.items()}
        place = tf.gather(self.queries.row_starts(), question) + position - 1
        query_ids = tf.concat([self.queries.values, [0]], axis=0)
        query_ids = tf.gather(query_ids, tf.where(in_query, place, 0))
        special = tf.where(position == 0, self.tokenizer.cls_id, self.tokenizer.sep_id)
        ids = tf.where(in_context, in_window["input_ids"], tf.where(in_query, query_ids, special))
        # The text may belong to a token before this window.
        places = (tf.minimum(place, none) for place in (token + 1, first_token))
        before_end, before_start = (tf.gather(self.texts_before, place) for place in places)
        has_text = in_context & (before_end > before_start)
        is_max_context = in_context & (tf.cast(in_window["best_window"], tf.int64) == number)
        return {
            "question": question[:, 0],
            "input_ids": tf.where(is_token, ids, 0),
            "input_mask": tf.cast(is_token, tf.int32),
            "segment_ids": tf.cast(is_token & (position >= query_length + 2), tf.int32),
            "p_mask": tf.cast(~in_context & (position > 0), tf.int32),
            "start_chars": in_window["start_chars"],
            "end_chars": in_window["end_chars"],
            "is_max_context": tf.cast(is_max_context, tf.int32),
            "text_ends": tf.where(has_text, in_window["text_ends"], -1),
        }


def best_window(
    ids: tf.RaggedTensor, room: tf.Tensor, stride: tf.Tensor, num_windows: tf.Tensor
) -> tf.Tensor:
    """For each token of the contexts, the number of the window in which it has the most context, int32 [P].

    As in `tasks/sequences.py`, context is the smaller of the numbers of tokens before and after, plus a little for the
    window's length; if two windows are equal, the token belongs to the first. `room`, `stride` and `num_windows` are
    int64 [B].
    """
    row = ids.value_rowids()
    token = tf.range(tf.size(row, tf.int64)) - tf.gather(ids.row_starts(), row)
    room, stride, last = (tf.gather(values, row) for values in (room, stride, num_windows - 1))

    def context(number: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        before = token - number * stride
        after = length - 1 - before
        least = tf.cast(tf.minimum(before, after), tf.float64)
        is_inside = (before >= 0) & (after >= 0)
        return tf.where(is_inside, least, -float("inf")) + 0.01 * tf.cast(length, tf.float64)

    # All windows but the last have equal lengths; among them, a token has the most context in one of the two around it.
    below = (2 * token - room + 1) // (2 * stride)
    below, above = (tf.maximum(tf.minimum(number, last - 1), 0) for number in (below, below + 1))
    best = tf.where(context(above, room) > context(below, room), above, below)
    last_length = tf.gather(ids.row_lengths(), row) - last * stride
    best = tf.where(context(last, last_length) > context(best, room), last, best)
    return tf.cast(best, tf.int32)


# --- Spans ---


class _Spans(NamedTuple):
    """Candidate answers [N]: question int64, characters int32 (end exclusive), sum of the scores float64."""

    question: tf.Tensor
    start_chars: tf.Tensor
    end_chars: tf.Tensor
    scores: tf.Tensor

    def take(self, places: tf.Tensor) -> "_Spans":
        return _Spans(*(tf.gather(column, places) for column in self))

    def texts(self, codes: tf.RaggedTensor) -> tf.Tensor:
        """Texts of the spans, string [N], in contexts of these code points, int32 [B, (characters)]."""
        first = tf.gather(codes.row_starts(), self.question)
        bounds = (self.start_chars, self.end_chars)
        places = tf.ragged.range(*(first + tf.cast(chars, tf.int64) for chars in bounds))
        chars = places.with_values(tf.gather(codes.values, places.values))
        return tf.strings.unicode_encode(chars, "UTF-8")


def _best_spans(spans: _Spans, codes: tf.RaggedTensor, n_best_size: int) -> _Spans:
    """Each question's best spans with different texts, question by question, best first; ties keep their order."""
    spans = spans.take(tf.argsort(spans.scores, direction="DESCENDING", stable=True))
    spans = spans.take(tf.argsort(spans.question, stable=True))
    keys = tf.strings.join([tf.strings.as_string(spans.question), spans.texts(codes)], ":")
    distinct, kind = tf.unique(keys)
    rank = tf.range(tf.size(keys))
    spans = spans.take(tf.math.unsorted_segment_min(rank, kind, tf.size(distinct)))
    first = tf.searchsorted(spans.question, spans.question, side="left")
    return spans.take(tf.where(tf.range(tf.size(first)) - first < n_best_size)[:, 0])


def _first_spans(spans: _Spans, codes: tf.RaggedTensor) -> dict[str, tf.Tensor]:
    """Text, start, end and score of each question's first span in `_best_spans`, [B] each."""
    questions = tf.range(codes.nrows())
    first = tf.searchsorted(spans.question, questions, side="left")
    is_found = tf.searchsorted(spans.question, questions, side="right") > first
    # For questions without candidates, a last span from 0 to 0 is added.
    padded = _Spans(*(tf.concat([column, [0]], axis=0) for column in spans))
    best = padded.take(tf.where(is_found, first, tf.size(spans.scores)))
    best = best._replace(question=questions)
    weights = tf.exp(spans.scores - tf.gather(best.scores, spans.question))
    totals = tf.math.unsorted_segment_sum(weights, spans.question, codes.nrows())
    return {
        "text": best.texts(codes),
        "start": best.start_chars,
        "end": best.end_chars,
        "score": tf.cast(tf.where(is_found, 1 / totals, 1.0), tf.float32),
    }
