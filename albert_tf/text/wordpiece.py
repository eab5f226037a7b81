"""WordPiece, the tokenization of BERT and of the released Chinese models: text -> words -> tokens.

    read_tokens          the tokens of a vocab.txt
    split_words          puts spaces between words, Chinese characters and punctuation marks
    split_with_origins   the same, with the origin of each character
    WordTokens           the longest tokens that together are a word

Source: tokenization.py of the original (`load_vocab`, `BasicTokenizer`, `WordpieceTokenizer`).
"""

import functools
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from albert_tf.core.errors import UserError

CONTINUES_WORD = "##"  # begins a token that continues a word
UNKNOWN = "[UNK]"
MOST_CHARACTERS = 200  # in a word; a longer word is unknown
_MOST_CACHED_WORDS = 1 << 18

# Blocks of ideographs in Unicode, first and last code point.
CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

_CONTROL_SPACES = frozenset("\t\n\r")
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_wordpiece(content: bytes) -> bool:
    """Whether a file is a WordPiece vocabulary: it has a line [UNK], which no SentencePiece model has."""
    return any(line.strip() == UNKNOWN.encode() for line in content.split(b"\n"))


def read_tokens(content: bytes, source: str) -> list[str]:
    r"""The tokens of a vocabulary by id: the first word of each line; if a token occurs twice, its first line counts.

    Lines end at "\n" alone: the released Chinese vocabulary has a token U+2028, a line separator.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"a WordPiece vocabulary must be UTF-8 ({error.reason})"
        raise UserError(f"{source}: {reason}") from None
    lines = text.removesuffix("\n").split("\n")
    return list(dict.fromkeys(map(token_of_line, lines)))


def token_of_line(line: str) -> str:
    """The token of a line of a vocabulary."""
    words = line.split()
    return words[0] if words else " "


# --- Text -> words ---


def is_removed(char: str) -> bool:
    """Whether a character is dropped: a control or format character, U+FFFD."""
    is_control = unicodedata.category(char) in ("Cc", "Cf") and char not in _CONTROL_SPACES
    return is_control or char == "\ufffd"


def is_space(char: str) -> bool:
    """Whether a character becomes a space."""
    return char in _CONTROL_SPACES or unicodedata.category(char) == "Zs"


def is_chinese(char: str) -> bool:
    """Whether a character is a word of its own: an ideograph, but not a character used only in Japanese or Korean."""
    code = ord(char)
    return code >= 0x3400 and any(first <= code <= last for first, last in CHINESE)


def is_accent(char: str) -> bool:
    """Whether a character is removed together with accents."""
    return unicodedata.category(char) == "Mn"


def is_punctuation(char: str) -> bool:
    """Whether a character is a punctuation mark, which is a word of its own; in ASCII: no letter, no digit."""
    return char in _ASCII_PUNCTUATION or unicodedata.category(char).startswith("P")


def is_separated(char: str) -> bool:
    """Whether a character is a word of its own."""
    return is_chinese(char) or is_punctuation(char)


class _Table(dict):
    """A table for `str.translate` that adds a character when it first occurs."""

    def __init__(self, replacement: Callable[[str], str]):
        super().__init__()
        self._replacement = replacement

    def __missing__(self, code: int) -> str:
        value = self[code] = self._replacement(chr(code))
        return value


def _cleaned(char: str) -> str:
    cleaned = _cleaned_with_chinese(char)
    return f" {char} " if cleaned == char and is_chinese(char) else cleaned


def _cleaned_with_chinese(char: str) -> str:
    """The same, with Chinese characters as parts of words."""
    if is_removed(char):
        return ""
    return " " if is_space(char) else char


def _separated(char: str) -> str:
    return f" {char} " if is_punctuation(char) else char


_CLEANED = _Table(_cleaned)
_SEPARATED = _Table(_separated)
_CLEANED_WITH_CHINESE = _Table(_cleaned_with_chinese)
_WITHOUT_ACCENTS = _Table(lambda char: "" if is_accent(char) else _separated(char))


def split_words(
    text: str,
    *,
    do_lower_case: bool,
    keep_accents: bool = False,
    strips_accents: bool = False,
    separates_chinese: bool = True,
) -> str:
    """Separates the words of a text by spaces, so that `split()` returns them; lower case removes accents by default.

    The last two arguments are those of `TokenizerRules`.

    Example:
      "It's 中文, Café" -> "it ' s  中  文  ,  cafe"
    """
    text = text.translate(_CLEANED if separates_chinese else _CLEANED_WITH_CHINESE)
    if do_lower_case:
        text = text.lower()
        strips_accents = not keep_accents
    if not strips_accents:
        return text.translate(_SEPARATED)
    return unicodedata.normalize("NFD", text).translate(_WITHOUT_ACCENTS)


def split_with_origins(text: str, **rules: bool) -> tuple[str, list[tuple[int, int]]]:
    """`split_words`, with the (start, end) in `text` that each character of the result comes from."""
    split = split_words(text, **rules)
    names = tuple(rules.items())
    origins = origins_of(
        (position, position + 1, _split_length(char, names)) for position, char in enumerate(text)
    )
    assert len(split) == len(origins)
    return split, origins


def origins_of(parts: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The (start, end) that each character of a result comes from.

    The parts of a text are given as (start, end, number of characters that the part becomes). A part that is removed,
    such as an accent, belongs to the part before it.
    """
    kept: list[list[int]] = []
    for start, end, number in parts:
        if number:
            kept.append([start, end, number])
        elif kept:
            kept[-1][1] = end
    return [(start, end) for start, end, number in kept for _ in range(number)]


@functools.cache
def _split_length(char: str, rules: tuple[tuple[str, bool], ...]) -> int:
    return len(split_words(char, **dict(rules)))


# --- Words -> tokens ---


class WordTokens(dict):
    """The ids of each word: the longest token that begins it, then the longest token that begins the rest, and so on.

    It is a table that adds a word when it first occurs.
    """

    def __init__(self, tokens: Sequence[str]):
        super().__init__()
        self._ids = {token: id for id, token in enumerate(tokens)}
        self._longest = max(map(len, tokens))

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._ids_of(word)
        if len(self) < _MOST_CACHED_WORDS:
            self[word] = ids
        return ids

    def _ids_of(self, word: str) -> tuple[int, ...]:
        unknown = (self._ids[UNKNOWN],)
        if len(word) > MOST_CHARACTERS:
            return unknown
        ids = []
        start = 0
        while start < len(word):
            prefix = CONTINUES_WORD if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                id = self._ids.get(prefix + word[start:end])
                if id is not None:
                    break
            else:
                return unknown
            ids.append(id)
            start = end
        return tuple(ids)
