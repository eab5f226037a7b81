"""Texts -> the sequences that a model reads, inside a graph, with the features of `tasks/classification/text_pairs.py`.

Batches have any size, and are as long as their longest sequence.
"""

import tensorflow as tf

from albert_tf.serving.in_graph.graph_tokenizer import graph_tokenizer
from albert_tf.text.tokenizer import Tokenizer


class GraphText(tf.Module):
    """A tokenizer, with the rules for cutting and joining texts."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__(name="graph_text")
        self.max_seq_length = max_seq_length
        self._tokenizer = graph_tokenizer(tokenizer)
        self._pad_id = tokenizer.pad_id
        self._cls_id = tokenizer.cls_id
        self._sep_id = tokenizer.sep_id
        self._numbers_segments = tokenizer.rules.numbers_segments
        self._cuts_left = tokenizer.rules.truncation_side == "left"
        self._rest_to_longer = tokenizer.rules.gives_rest_to_longer

    def pairs(self, text_a: tf.Tensor, text_b: tf.Tensor) -> dict[str, tf.Tensor]:
        """`make_pair_features` for strings [B], the second may be empty: ids, mask, segments, int32 [B, L]."""
        first = self._tokenizer.encode(text_a)
        second = self._tokenizer.encode(text_b)
        keep_a, keep_b = kept_lengths(
            first.row_lengths(),
            second.row_lengths(),
            self.max_seq_length,
            rest_to_longer=self._rest_to_longer,
        )
        return self._packed(self._cut(first, keep_a), self._cut(second, keep_b), keep_b > 0)

    def _cut(self, ragged: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
        """`Tokenizer.cut` for each row; `counts` is int64 [B], at most the length of each row."""
        ends = ragged.row_limits() if self._cuts_left else ragged.row_starts() + counts
        return tf.gather(ragged.flat_values, tf.ragged.range(ends - counts, ends))

    def _packed(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor, has_second: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Features [B, L] of [CLS] first [SEP] second [SEP]; the last [SEP] only if there is a second text."""
        # 2 texts of 3 and 1 tokens, the second with a second text of 2 -> [2, (5, 6)].
        every = tf.ones_like(has_second)
        before = [self._optional(self._cls_id, every), first, self._optional(self._sep_id, every)]
        ids = tf.concat([*before, second, self._optional(self._sep_id, has_second)], axis=1)

        # [2, (5, 6)] -> [2, 6]: ids, whether there is a token, and whether it belongs to the second text.
        input_ids = ids.to_tensor(self._pad_id)
        length = tf.shape(input_ids)[1]
        mask = tf.sequence_mask(ids.row_lengths(), length, tf.int32)
        first_segment = tf.sequence_mask(first.row_lengths() + 2, length, tf.int32)
        segments = mask - first_segment if self._numbers_segments else tf.zeros_like(mask)
        return {"input_ids": input_ids, "input_mask": mask, "segment_ids": segments}

    def _optional(self, id: int, is_there: tf.Tensor) -> tf.RaggedTensor:
        """A token in each row where `is_there` is true, [B, (0 or 1)]."""
        lengths = tf.cast(is_there, tf.int64)
        return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(lengths)], id), lengths)


def kept_lengths(
    num_a: tf.Tensor, num_b: tf.Tensor, limit: int, *, rest_to_longer: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """`text.model_inputs.kept_lengths` for many pairs, int64 [B]."""
    room = limit - 3
    half_a = tf.fill(tf.shape(num_a), tf.constant((room + 1) // 2, tf.int64))
    if rest_to_longer:
        half_a = tf.where(num_a <= num_b, tf.constant(room // 2, tf.int64), half_a)
    keep_a = tf.minimum(num_a, tf.maximum(room - num_b, half_a))
    keep_a = tf.where(num_b > 0, keep_a, tf.minimum(num_a, limit - 2))
    return keep_a, tf.where(num_b > 0, tf.minimum(num_b, room - keep_a), 0)
