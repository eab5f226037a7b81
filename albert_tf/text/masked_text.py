"""Text that contains "[MASK]" as a mask -> token ids. All other functions treat "[MASK]" as ordinary text."""

import re

from albert_tf.text.tokenizer import Tokenizer

MASK = "[MASK]"
_BEGINS_WITH_SPACE = re.compile(r"\s")


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text, with the mask's id in place of each "[MASK]"; "a [MASK]." -> "▁a" [MASK] ".".

    The parts between masks are tokenized separately. If no white space separates a part from the mask before it, the
    part continues a word: its first token is replaced by the same token without marker, if the vocabulary has it.
    WordPiece tokens are kept, because WordPiece marks the tokens within words instead.
    """
    first, *parts_after_masks = text.split(MASK)
    ids = tokenizer.encode(first)
    for part in parts_after_masks:
        encoded = tokenizer.encode(part)
        if encoded and not _BEGINS_WITH_SPACE.match(part):
            first_id, *other_ids = encoded
            within_word = tokenizer.id_within_word(first_id)
            has_text = within_word >= 0  # a marker alone has none
            encoded = [within_word, *other_ids] if has_text else other_ids
        ids += [tokenizer.mask_id, *encoded]
    return ids
