"""Texts -> the inputs of a model: [CLS] text [SEP], or [CLS] text [SEP] second text [SEP], cut and padded."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened

Texts = str | Sequence[str]
SHORTEST_SEQUENCE = 4  # in tokens, with [CLS] and [SEP]: the least maximum length of a model's use


def model_inputs(
    tokenizer: Any,
    texts: Texts,
    pairs: Texts | None,
    max_length: int | None,
    padding: bool | str,
    truncation: bool | str,
) -> dict[str, Any]:
    """See `Tokenizer.__call__`, which is the only caller."""
    _check_choice("padding", padding, (True, False, "longest", "max_length"))
    _check_choice("truncation", truncation, (True, False, "longest_first"))
    is_length = isinstance(max_length, int) and max_length >= SHORTEST_SEQUENCE
    if max_length is not None and not is_length:
        raise UserError(
            f"max_length must be an integer of at least {SHORTEST_SEQUENCE}, got {max_length!r}"
        )
    if padding == "max_length" and not max_length:
        raise UserError("padding='max_length' needs max_length")
    texts_a = _several("texts", texts)
    texts_b = _several("pairs", [] if pairs is None else pairs)
    if pairs is not None and len(texts_a) != len(texts_b):
        counts = f"{len(texts_a)} and {len(texts_b)}"
        raise UserError(f"texts and pairs must be equally many, got {counts}")

    # The ids of all texts, then of the second ones, each list as long as its text.
    ids = [array.tolist() for array in tokenizer.encode_batch([*texts_a, *texts_b])]
    ids_of_pairs = ids[len(texts_a) :] or [[]] * len(texts_a)
    rest_to_longer = tokenizer.rules.gives_rest_to_longer
    rows: list[list[int]] = []
    segments: list[list[int]] = []
    for ids_a, ids_b in zip(ids, ids_of_pairs, strict=False):
        limit = max_length or len(ids_a) + len(ids_b) + 3
        length_a, length_b = kept_lengths(
            len(ids_a), len(ids_b), limit, rest_to_longer=rest_to_longer
        )
        if not truncation and (length_a, length_b) != (len(ids_a), len(ids_b)):
            reason = f"does not fit into max_length={max_length}; with truncation=True, it is cut"
            raise UserError(f"text {len(rows)} {reason}")
        row = [tokenizer.cls_id, *tokenizer.cut(ids_a, length_a), tokenizer.sep_id]
        num_first = len(row)
        if length_b:
            row += [*tokenizer.cut(ids_b, length_b), tokenizer.sep_id]
        rows.append(row)
        segment_b = int(tokenizer.rules.numbers_segments)
        segments.append([0] * num_first + [segment_b] * (len(row) - num_first))

    masks = [[1] * len(row) for row in rows]
    inputs = {"input_ids": rows, "input_mask": masks, "segment_ids": segments}
    if not padding:
        return inputs
    length = max(map(len, rows), default=0)
    if padding == "max_length" and max_length:
        length = max_length
    fills = {"input_ids": tokenizer.pad_id}
    return {name: _padded(lists, length, fills.get(name, 0)) for name, lists in inputs.items()}


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def _several(name: str, texts: Texts) -> list[str]:
    """The texts as a list; one text is a list of one."""
    several = [texts] if isinstance(texts, str) else list(texts)
    for text in several:
        if not isinstance(text, str):
            raise UserError(f"{name} must be a text or several texts, got {shortened(text)}")
    return several


def _padded(rows: Sequence[Sequence[int]], length: int, fill: int) -> np.ndarray:
    padded = np.full([len(rows), length], fill, np.int32)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return padded


def kept_lengths(
    num_a: int, num_b: int, max_seq_length: int, *, rest_to_longer: bool = False
) -> tuple[int, int]:
    """Numbers of tokens of two texts to keep, so that they fit into a sequence with [CLS] and [SEP].

    The longer text loses tokens first; if both are equally long, the second one does. A missing second text saves a
    [SEP]. Example: (9, 3, 10) -> (4, 3); (9, 8, 10) -> (4, 3); (9, 0, 10) -> (8, 0)

    Args:
      rest_to_longer: of an odd number of places, the first text gets one more than the second only if it is the longer
        one: (8, 9, 10) -> (3, 4), and not (4, 3).

    Source: classifier_utils.py:751 (`_truncate_seq_pair`), which drops one token at a time; with `rest_to_longer`, the
    library tokenizers, `truncation.rs` (`LongestFirst`).
    """
    if not num_b:
        return min(num_a, max_seq_length - 2), 0
    room = max_seq_length - 3
    half_a = room // 2 if rest_to_longer and num_a <= num_b else (room + 1) // 2
    keep_a = min(num_a, max(room - num_b, half_a))
    return keep_a, min(num_b, room - keep_a)
