"""Texts -> the sequences that a model reads, inside a graph, for models that take strings.

The features are those of `tasks/classification/text_pairs.py` and `tasks/race/passages.py`, computed by TensorFlow
operations. Batches have any size, and are as long as their longest sequence.
"""

import tensorflow as tf

from albert_tf.serving.in_graph.tokenizer import graph_tokenizer
from albert_tf.tasks.race.passages import NUM_SPECIAL
from albert_tf.text.masked_text import MASK, ids_within_word
from albert_tf.text.tokenizer import Tokenizer

# The characters that Python's \s matches; RE2's own \s matches fewer.
_BEGINS_WITH_SPACE = r"(?s)[\s\p{Z}\x0b\x1c-\x1f\x{85}].*"


class GraphText(tf.Module):
    """A tokenizer, with the rules for cutting and joining texts."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__(name="graph_text")
        self.max_seq_length = max_seq_length
        self._tokenizer = graph_tokenizer(tokenizer)
        self._pad_id, self._cls_id = tokenizer.pad_id, tokenizer.cls_id
        self._sep_id, self._mask_id = tokenizer.sep_id, tokenizer.mask_id
        self._ids_within_word = ids_within_word(tokenizer)

    def pairs(self, text_a: tf.Tensor, text_b: tf.Tensor) -> dict[str, tf.Tensor]:
        """`make_pair_features` for strings [B], the second may be empty: ids, mask, segments, int32 [B, L]."""
        first, second = self._tokenizer.encode(text_a), self._tokenizer.encode(text_b)
        lengths = first.row_lengths(), second.row_lengths()
        keep_a, keep_b = kept_lengths(*lengths, self.max_seq_length)
        return self._packed(_first(first, keep_a), _first(second, keep_b), keep_b > 0)

    def choices(
        self, context: tf.Tensor, question: tf.Tensor, options: tf.Tensor, *, max_qa_length: int
    ) -> dict[str, tf.Tensor]:
        """`make_race_features` for strings [B] and options [B, C]: ids, mask and segments, int32 [B, C, L]."""
        clean, encode = self._tokenizer.clean, self._tokenizer.encode
        num_choices = tf.shape(options)[1]
        flat_options = clean(tf.reshape(options, [-1]))
        questions = tf.repeat(clean(question), num_choices)
        endings = encode(join_questions_and_options(questions, flat_options))
        room = self.max_seq_length - NUM_SPECIAL
        length = tf.minimum(endings.row_lengths(), min(max_qa_length, room))
        row_of = tf.repeat(tf.range(tf.shape(context)[0]), num_choices)
        contexts = tf.gather(encode(context), row_of)
        features = self._packed(
            _first(contexts, tf.minimum(contexts.row_lengths(), room - length)),
            _last(endings, length),
            tf.ones_like(length, tf.bool),
        )
        shape = [tf.shape(options)[0], num_choices, tf.shape(features["input_ids"])[1]]
        return {name: tf.reshape(tensor, shape) for name, tensor in features.items()}

    def masked(self, texts: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.RaggedTensor]:
        """`encode_masked` for strings [B]: ids, mask and segments, int32 [B, L]; positions of masks, int64 [B,
        (masks)].
        """
        parts = tf.strings.split(texts, MASK)
        ids = self._tokenizer.encode(parts.flat_values)
        follows_mask = tf.ragged.range(parts.row_lengths()).flat_values > 0
        has_space = tf.strings.regex_full_match(parts.flat_values, _BEGINS_WITH_SPACE)
        is_glued = follows_mask & ~has_space
        is_first = tf.ragged.range(ids.row_lengths()).flat_values == 0
        is_within_word = is_first & tf.gather(is_glued, ids.value_rowids())
        ids_within_word = tf.gather(self._ids_within_word, ids.flat_values)
        ids = ids.with_flat_values(tf.where(is_within_word, ids_within_word, ids.flat_values))
        ids = tf.ragged.boolean_mask(ids, ids >= 0)
        masks = self._optional(self._mask_id, follows_mask)
        tokens = parts.with_flat_values(tf.concat([masks, ids], axis=1)).merge_dims(1, 2)
        tokens = _first(tokens, tf.minimum(tokens.row_lengths(), self.max_seq_length - 2))
        nothing = tf.zeros_like(tokens.row_lengths())
        features = self._packed(tokens, _first(tokens, nothing), nothing > 0)
        positions = 1 + tf.ragged.range(tokens.row_lengths())
        return features, tf.ragged.boolean_mask(positions, tokens == self._mask_id)

    def _packed(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor, has_second: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Features [B, L] of [CLS] first [SEP] second [SEP]; the last [SEP] only if there is a second text."""
        every = tf.ones_like(has_second)
        before = [self._optional(self._cls_id, every), first, self._optional(self._sep_id, every)]
        ids = tf.concat([*before, second, self._optional(self._sep_id, has_second)], axis=1)
        input_ids = ids.to_tensor(self._pad_id)
        length = tf.shape(input_ids)[1]
        mask = tf.sequence_mask(ids.row_lengths(), length, tf.int32)
        first_segment = tf.sequence_mask(first.row_lengths() + 2, length, tf.int32)
        return {"input_ids": input_ids, "input_mask": mask, "segment_ids": mask - first_segment}

    def _optional(self, id: int, is_there: tf.Tensor) -> tf.RaggedTensor:
        """A token in each row where `is_there` is true, [B, (0 or 1)]."""
        lengths = tf.cast(is_there, tf.int64)
        return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(lengths)], id), lengths)


def kept_lengths(
    num_a: tf.Tensor, num_b: tf.Tensor, max_seq_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """`text_pairs.kept_lengths` for many pairs, int64 [B]."""
    room = max_seq_length - 3
    keep_a = tf.minimum(num_a, tf.maximum(room - num_b, (room + 1) // 2))
    keep_a = tf.where(num_b > 0, keep_a, tf.minimum(num_a, max_seq_length - 2))
    return keep_a, tf.where(num_b > 0, tf.minimum(num_b, room - keep_a), 0)


def join_questions_and_options(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """`passages.join_question_and_option` for many, strings [B]."""
    parts = tf.strings.split(tf.strings.regex_replace(questions, "_+", "_"), "_")
    is_last = tf.ragged.range(parts.row_lengths())[:, ::-1].flat_values == 0
    behind = tf.where(is_last, "", tf.gather(options, parts.value_rowids()))
    filled = tf.strings.reduce_join(parts.with_flat_values(parts.flat_values + behind), axis=-1)
    return tf.where(parts.row_lengths() > 1, filled, questions + " " + options)


def _first(ragged: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """The first `counts` values of each row; `counts` is int64 [B]."""
    starts = ragged.row_starts()
    return tf.gather(ragged.flat_values, tf.ragged.range(starts, starts + counts))


def _last(ragged: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """The last `counts` values of each row; `counts` is int64 [B]."""
    limits = ragged.row_limits()
    return tf.gather(ragged.flat_values, tf.ragged.range(limits - counts, limits))
