"""Token ids of one text or two -> the sequences that a model reads; also windows over long texts.

[CLS] first text [SEP]                       segment_ids  0 0 0 0
[CLS] first text [SEP] second text [SEP]     segment_ids  0 0 0 0 | 1 1 1
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.data.feature_table import FeatureTable
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PairSettings:
    """Settings of the features of one text or two."""

    tokenizer: Tokenizer
    max_seq_length: int


def check_segments(table: FeatureTable, type_vocab_size: int) -> None:
    """Checks that the model has an embedding for the segment of every token."""
    if np.max(table.sequences.get("segment_ids", 0), initial=0) >= type_vocab_size:
        expected = f"expected one text: the model's type_vocab_size is {type_vocab_size}"
        raise UserError(f"two texts in a sequence cannot be read; {expected}")


def pack_pairs(
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[np.ndarray, np.ndarray | None] | None],
    columns: Mapping[str, Sequence],
    choices: int = 1,
    uncut_lengths: Mapping[str, Sequence[int]] | None = None,
) -> FeatureTable:
    """A table of sequences `input_ids` and `segment_ids` of two texts, int32 [tokens] each; the second may be None.

    If an example has fewer than `choices` sequences, None in place of a pair is a sequence of [CLS] alone.
    """
    cls = np.array([tokenizer.cls_id], np.int32)
    sep = np.array([tokenizer.sep_id], np.int32)
    segments = np.array([0, int(tokenizer.rules.numbers_segments)], np.int32)
    input_ids = []
    segment_ids = []
    for pair in pairs:
        if pair is None:
            input_ids.append(cls)
            segment_ids.append(segments[:1])
            continue
        # [7, 8] and [9] -> [CLS 7 8 SEP 9 SEP] of the segments [0 0 0 0 1 1]
        first, second = pair
        row = [cls, first, sep]
        num_second = 0
        if second is not None:
            row += [second, sep]
            num_second = len(second) + 1
        input_ids.append(np.concatenate(row))
        segment_ids.append(np.repeat(segments, [len(first) + 2, num_second]))
    sequences: dict[str, Any] = {"input_ids": input_ids, "segment_ids": segment_ids}
    return FeatureTable.from_rows(sequences, columns, choices, uncut_lengths)


def windows_over(num_tokens: int, room: int, stride: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """The windows over a text, from left to right; at least one, even over a text without tokens.

    Returns:
      For each window its first token, its number of tokens (at most `room`), and bool [tokens]: true if the token has
      more context in this window than in the other windows.

    Source: squad_utils.py (`convert_examples_to_features`).
    """
    stride = min(room, stride)
    # 9 tokens, a room of 5 and a stride of 3 -> starts [0, 3, 6] and lengths [5, 5, 3]
    starts = np.arange(0, max(0, num_tokens - room) + stride, stride)
    lengths = np.minimum(room, num_tokens - starts)  # all windows but the last are full
    yield from zip(starts, lengths, max_context(starts, lengths), strict=True)


def max_context(starts: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """For each window of a question, bool [tokens]: true where the token has more context than in the other windows.

    Context is the smaller of the numbers of tokens before and after the token in the window, plus a little for the
    window's length; of equal windows, the first counts. Example: windows at 0 and 3 of 5 and 4 tokens -> 1 1 1 1 0 |
    0 1 1 1. Source: squad_utils.py (`_check_is_max_context`).
    """
    num_tokens = starts[-1] + lengths[-1]
    # One value per token, not per window and token: a text of n tokens needs memory for n, not for n * n values.
    best_scores = np.full(num_tokens, -np.inf)
    best_windows = np.zeros(num_tokens, np.int64)
    for window, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        here = slice(start, start + length)
        before = np.arange(length)
        scores = np.minimum(before, length - 1 - before) + 0.01 * length
        is_better = scores > best_scores[here]
        best_scores[here][is_better] = scores[is_better]
        best_windows[here][is_better] = window
    return [
        best_windows[start : start + length] == window
        for window, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]
