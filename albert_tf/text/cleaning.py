"""Cleans texts as google-research/albert does, before SentencePiece encodes them."""

import functools
import re
import unicodedata

from albert_tf.text import wordpiece

_PARTS = re.compile(r"\s+|\S")  # \s is what str.split() splits at
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
# Half a character: JSON can contain it, UTF-8 cannot encode it.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str, *, do_lower_case: bool, keep_accents: bool = False) -> str:
    """Collapses white space, decomposes compatibility forms, removes accents and optionally lower-cases the text.

    White space comes first, so spaces that the decomposition makes ("´" becomes a space and an accent) stay. With
    `keep_accents`, accents and compatibility forms stay. Half a surrogate pair counts as U+FFFD. A TypeError if the
    text is not a str. Example: " Ｃａｆé \\t ﬁn" -> "cafe fin"

    Source: tokenization.py:33-50 (`preprocess_text`); `keep_accents` exists in XLNet and transformers.
    """
    check_text(text)
    text = " ".join(text.split())
    if not text.isascii():
        text = _LONE_SURROGATE.sub("\ufffd", text)
        text = text if keep_accents else _base_form(text)
    return text.lower() if do_lower_case else text


def check_text(text: str) -> None:
    """Raises a TypeError for a value that is not a str."""
    if not isinstance(text, str):
        hint = "; decode bytes as UTF-8 first" if isinstance(text, bytes) else ""
        raise TypeError(f"text must be str, got {type(text).__name__}{hint}")


def clean_with_origins(
    text: str, *, do_lower_case: bool, keep_accents: bool = False
) -> tuple[str, list[tuple[int, int]]]:
    """`clean_text`, with the (start, end) in `text` that each character of the result comes from."""
    cleaned = clean_text(text, do_lower_case=do_lower_case, keep_accents=keep_accents)
    first = len(text) - len(text.lstrip())
    parts = []
    for match in _PARTS.finditer(text.strip()):
        is_space = match[0].isspace()
        length = 1 if is_space else _cleaned_length(match[0], do_lower_case, keep_accents)
        parts.append((first + match.start(), first + match.end(), length))
    origins = wordpiece.origins_of(parts)
    assert len(cleaned) == len(origins)
    return cleaned, origins


def _base_form(text: str) -> str:
    """The compatibility form without accents; of a text, it is that of its characters one after the other."""
    decomposed = unicodedata.normalize("NFKD", text)
    combining = unicodedata.combining
    return _NOT_ASCII.sub(
        lambda match: "".join([char for char in match[0] if not combining(char)]), decomposed
    )


@functools.cache
def _cleaned_length(char: str, do_lower_case: bool, keep_accents: bool) -> int:
    char = char if keep_accents else _base_form(char)
    return len(char.lower() if do_lower_case else char)  # "İ" in lower case is two characters
