"""Which tokens of SentencePiece start a word."""

MARKER = "▁"  # U+2581: SentencePiece writes it for the space before a word
WORD_START_RULES = ("original", "marker")
_ENGLISH_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')  # as in the original: without ' < = >


def is_word_start(token: str) -> bool:
    """Whether a token starts a word by the original's rule, made for English.

    A token continues a word only if it has no marker and consists of English letters and punctuation other
    than "'", "<", "=" and ">". So every unmarked digit starts a word, and so does a single punctuation mark.

    Source: create_pretraining_data.py:393-407 (`_is_start_piece_sp`). The original also lists "€" and "£" as bytes,
    which equal no token in Python 3; here they start a word because they are not English letters.
    """
    continues_word = all(char.lower() in _ENGLISH_LETTERS | _PUNCTUATION for char in token)
    return token.startswith((MARKER, "<")) or token in _PUNCTUATION or not continues_word
