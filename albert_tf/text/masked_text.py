"""Text with "[MASK]" typed in it -> pieces. In any other text "[MASK]" is text."""

import re

import numpy as np

from albert_tf.text.tokenizer import MARKER, Tokenizer

MASK = "[MASK]"
_BEGINS_WITH_SPACE = re.compile(r"\s")


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text, with the mask's id wherever "[MASK]" stands.

    The parts beside a mask are tokenised each for itself. A part that follows it without white space goes on within
    the word: its first piece loses the marker if the vocabulary has it without.

    Example:
      "a [MASK]." -> "▁a" [MASK] "."
    """
    first, *others = text.split(MASK)
    ids = tokenizer.encode(first)
    for part in others:
        encoded = tokenizer.encode(part)
        if encoded and not _BEGINS_WITH_SPACE.match(part):
            within_word = _id_within_word(tokenizer, encoded[0])
            encoded[:1] = [within_word] if within_word >= 0 else []
        ids += [tokenizer.mask_id, *encoded]
    return ids


def ids_within_word(tokenizer: Tokenizer) -> np.ndarray:
    """For every piece the one that it is within a word, int32 [V]; -1 for the marker alone."""
    ids = range(tokenizer.vocab_size)
    return np.array([_id_within_word(tokenizer, id) for id in ids], np.int32)


def _id_within_word(tokenizer: Tokenizer, id: int) -> int:
    piece = tokenizer.id_to_piece(id)
    if piece == MARKER:
        return -1
    found = tokenizer.piece_to_id(piece.removeprefix(MARKER))
    return id if found == tokenizer.unk_id else found
