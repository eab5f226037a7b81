"""Tagging inside a TensorFlow graph, for exported models: maps strings to entities.

Words, windows and entities are those of `tasks/tagging`, but as tensors: ragged rows are concatenated.

Shape legend: B texts; M words of all texts; K of these words that a token represents; W windows that the model reads at
once, L tokens of the longest of them; C labels; N entities of a text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.serving.in_graph.squad import WINDOWS_AT_A_TIME, best_window
from albert_tf.serving.in_graph.tokenizer import decode_in_graph, graph_tokenizer_with_offsets
from albert_tf.tasks.tagging import entities
from albert_tf.tasks.tagging.windows import (
    NUM_SPECIAL,
    WindowSettings,
    word_patterns,
)
from albert_tf.text.tokenizer import Tokenizer


class GraphTagger(tf.Module):
    """Finds the entities in texts as `TaggingPredictor` does; settings: max_seq_length, doc_stride, word_separator."""

    def __init__(self, tokenizer: Tokenizer, settings: Mapping[str, Any], labels: Sequence[str]):
        super().__init__(name="graph_tagger")
        names = ("max_seq_length", "doc_stride", "word_separator")
        cut = WindowSettings(tokenizer, *(settings[name] for name in names))
        self._room, self._separator = cut.max_seq_length - NUM_SPECIAL, cut.separator
        self._stride = min(self._room, cut.doc_stride)
        self._special_ids = tokenizer.cls_id, tokenizer.sep_id
        self.tokenizer = graph_tokenizer_with_offsets(tokenizer)
        self._outside = labels.index(entities.OUTSIDE) if entities.OUTSIDE in labels else 0
        self._continuations = entities.continuations(labels)
        self._letters, self._types = zip(*map(entities.letter_and_type, labels), strict=True)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, model: tf.Module, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The entities of each text, string [B], from left to right.

        Returns:
          count: int32 [B], the number of entities; the other tensors have N columns, of which the first `count` are
            used.
          label: type of each entity, string [B, N].
          start, end: its range of characters, end exclusive, int32 [B, N]; counted in Unicode characters, where invalid
            bytes count as U+FFFD.
          probability: mean over its words, float32 [B, N].
        """
        words, starts, ends = _split_words(texts)
        text = tf.strings.reduce_join(words, axis=-1, separator=self._separator)
        ids, *spans = self.tokenizer.encode_with_offsets(text)
        lengths = tf.strings.length(words.flat_values, unit="UTF8_CHAR") + len(self._separator)
        before = tf.cumsum(lengths, exclusive=True)
        row = words.value_rowids()
        begins = before - tf.gather(
            tf.concat([before, [0]], axis=0), tf.gather(words.row_starts(), row)
        )
        tokens, word = _words_of_tokens(words.with_flat_values(begins), *spans)
        logits_KC = self._logits(model, ids, tokens)
        label, probability = self._word_labels(words, word, logits_KC)
        return self._entities(words.with_flat_values(label), probability, starts, ends)

    def _logits(self, model: tf.Module, ids: tf.RaggedTensor, tokens: tf.Tensor) -> tf.Tensor:
        """Logits [K, C] of some tokens, in ascending order, each from the window in which it has the most context."""
        num_tokens = ids.row_lengths()
        num_windows = (
            1 + (tf.maximum(num_tokens - self._room, 0) + self._stride - 1) // self._stride
        )
        first_window = tf.cumsum(num_windows, exclusive=True)
        row = tf.repeat(tf.range(ids.nrows()), num_windows)
        shift = (tf.range(tf.size(row, tf.int64)) - tf.gather(first_window, row)) * self._stride
        sizes = tf.fill(tf.shape(num_tokens), tf.constant(self._room, tf.int64))
        strides = tf.fill(tf.shape(num_tokens), tf.constant(self._stride, tf.int64))
        number = tf.cast(best_window(ids, sizes, strides, num_windows), tf.int64)
        token_row = tf.gather(ids.value_rowids(), tokens)
        window = tf.gather(first_window, token_row) + tf.gather(number, tokens)
        position = tokens - tf.gather(ids.row_starts(), token_row) - tf.gather(shift, window) + 1

        def more(begin, _):
            return begin < tf.size(row, tf.int64)

        def add(begin, logits):
            end = tf.minimum(begin + WINDOWS_AT_A_TIME, tf.size(row, tf.int64))
            chunk = row[begin:end]
            features = self._features(ids, chunk, shift[begin:end])
            outputs_WLC = model(features, training=False)["logits"]
            # In a text, later tokens have their most context in later windows, so this keeps the order.
            is_here = (window >= begin) & (window < end)
            places = tf.stack([window - begin, position], axis=1)
            new = tf.gather_nd(outputs_WLC, tf.boolean_mask(places, is_here))
            return end, tf.concat([logits, new], axis=0)

        num_labels = len(self._letters)
        _, logits_KC = tf.while_loop(
            more,
            add,
            (tf.constant(0, tf.int64), tf.zeros([0, num_labels])),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, num_labels])),
            parallel_iterations=1,
        )
        return logits_KC

    def _features(
        self, ids: tf.RaggedTensor, row: tf.Tensor, shift: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Features [W, L] of windows: those of texts `row` that begin at token `shift`, both int64 [W]."""
        num_tokens = tf.gather(ids.row_lengths(), row)
        length = tf.minimum(num_tokens - shift, tf.constant(self._room, tf.int64))[:, None]
        first = (tf.gather(ids.row_starts(), row) + shift)[:, None]
        position = tf.range(tf.reduce_max(length) + NUM_SPECIAL)[None]
        is_token = (position > 0) & (position <= length)
        padded = tf.concat([ids.flat_values, [0]], axis=0)
        none = tf.size(ids.flat_values, tf.int64)
        input_ids = tf.gather(padded, tf.where(is_token, first + position - 1, none))
        for id, place in zip(self._special_ids, (0, length + 1), strict=True):
            input_ids = tf.where(position == place, id, input_ids)
        mask = tf.cast(position <= length + 1, tf.int32)
        return {
            "input_ids": input_ids * mask,
            "input_mask": mask,
            "segment_ids": tf.zeros_like(mask),
        }

    def _word_labels(
        self, words: tf.RaggedTensor, word: tf.Tensor, logits_KC: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Label and probability of each word, [M]; `word`, int64 [K], are the words that a token represents."""
        row, starts = words.value_rowids(), words.row_starts()
        num_words = tf.size(row, tf.int64)
        has_token = tf.scatter_nd(word[:, None], tf.ones_like(word), num_words[None])
        number = tf.cumsum(has_token)
        before = tf.concat([[0], number], axis=0)
        follows = number > tf.gather(before, tf.gather(starts, row))
        probabilities = tf.concat([tf.reduce_max(tf.nn.softmax(logits_KC), axis=-1), [0.0]], axis=0)
        best = tf.concat([tf.argmax(logits_KC, axis=-1), [0]], axis=0)
        last = tf.where(follows, number - 1, tf.size(word, tf.int64))
        label = tf.gather(best, last)
        continued = tf.gather(tf.constant(self._continuations, tf.int64), label)
        label = tf.where(has_token == 1, label, continued)
        return tf.where(follows, label, self._outside), tf.gather(probabilities, last)

    def _entities(
        self,
        labels: tf.RaggedTensor,
        probability: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """`entities.entities_of` for the words' labels, int64 [B, (words)]; `starts` and `ends` are the words' [M]."""
        label, row = labels.flat_values, labels.value_rowids()
        letter = tf.gather(tf.constant(self._letters), label)
        type = tf.gather(tf.constant(self._types), label)
        is_inside = letter != entities.OUTSIDE

        def previous(values: tf.Tensor, first: Any) -> tf.Tensor:
            """For each word, the value of the word before it in the same text; `first` for a text's first word."""
            shifted = tf.concat([[first], values], axis=0)[:-1]
            is_first = row != tf.concat([[-1], row], axis=0)[:-1]
            return tf.where(is_first, first, shifted)

        begins = (letter == "B") | (letter == "S")
        closed = (letter == "E") | (letter == "S") | ~is_inside
        is_start = is_inside & (begins | previous(closed, True) | (type != previous(type, "")))
        entity = tf.boolean_mask(tf.cumsum(tf.cast(is_start, tf.int64)) - 1, is_inside)

        def in_rows(values: tf.Tensor) -> tf.RaggedTensor:
            rows = tf.boolean_mask(row, is_start)
            return tf.RaggedTensor.from_value_rowids(values, rows, labels.nrows(), validate=False)

        last = tf.math.segment_max(tf.boolean_mask(ends, is_inside), entity)
        mean = tf.math.segment_mean(tf.boolean_mask(probability, is_inside), entity)
        found = {
            "label": in_rows(tf.boolean_mask(type, is_start)),
            "start": in_rows(tf.boolean_mask(starts, is_start)),
            "end": in_rows(last),
            "probability": in_rows(mean),
        }
        count = tf.cast(found["label"].row_lengths(), tf.int32)
        return {"count": count, **{name: values.to_tensor() for name, values in found.items()}}


def _split_words(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """`windows.split_words` for texts [B]: words, string [B, (words)], and their starts and ends, int32 [M]."""
    import tensorflow_text as tf_text

    word, space = word_patterns()
    texts = tf.strings.unicode_encode(decode_in_graph(texts), "UTF-8")
    words, *bounds = tf_text.regex_split_with_offsets(texts, f"{word}|{space}", word)
    _, char_bytes = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
    first_byte = tf.cumsum(tf.strings.length(texts), exclusive=True)
    first_byte = tf.cast(first_byte, tf.int64)
    char_bytes_flat = char_bytes.flat_values + tf.gather(first_byte, char_bytes.value_rowids())
    row = words.value_rowids()
    first_char = tf.gather(tf.cast(char_bytes.row_starts(), tf.int32), row)
    starts, ends = (
        tf.searchsorted(char_bytes_flat, values.flat_values + tf.gather(first_byte, row))
        - first_char
        for values in bounds
    )
    return words, starts, ends


def _words_of_tokens(
    begins: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`windows.word_numbers` for texts: the tokens that represent a word, and their words, both int64 [K]."""
    most = 1 + tf.reduce_max(tf.concat([starts.flat_values, begins.flat_values, [0]], axis=0))
    most = tf.cast(most, tf.int64)

    def keys(values: tf.RaggedTensor) -> tf.Tensor:
        return values.value_rowids() * most + tf.cast(values.flat_values, tf.int64)

    tokens = tf.where(ends.flat_values > starts.flat_values)[:, 0]
    word = tf.searchsorted(
        keys(begins), tf.gather(keys(starts), tokens), side="right", out_type=tf.int64
    )
    is_first = word != tf.concat([[0], word], axis=0)[:-1]
    return tf.boolean_mask(tokens, is_first), tf.boolean_mask(word, is_first) - 1
