"""Which characters of a text can be seen: answers, entities and tokens begin and end at such a character.

White space, control characters and those that Unicode lets programs ignore (zero-width spaces and joiners, directions,
soft hyphens, fillers) cannot be seen. A combining mark belongs to the character before it. So does a variation selector
or a tag after an emoji, a digit or an ideograph; after a letter with upper and lower case, it has no meaning.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

# Default_Ignorable_Code_Point of Unicode 15 (DerivedCoreProperties.txt).
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROL = "\x00-\x1f\x7f-\x9f"
_INVISIBLE = re.compile(rf"[\s{_CONTROL}{_IGNORABLE}]")
# The ignorable characters that change how the character before them looks.
_SELECTOR = re.compile(
    "[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0020-\U000e007f\U000e0100-\U000e01ef]"
)
_ENCLOSING_OR_WITHOUT_WIDTH = ("Mn", "Me")
# Without a match, only the white space of a text cannot be seen.
_MAY_BE_INVISIBLE = re.compile(
    rf"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{_IGNORABLE}]|(?:\A|\s)[^\w\x00-\u02ff]"
)

Span = tuple[int, int]  # range of characters, end exclusive


def visible_parts(text: str, spans: Iterable[Span]) -> list[Span]:
    """Spans of a text without the invisible characters at their ends; without visible characters, empty ones."""
    visible = _visible_characters(text)
    return [_trimmed(visible, start, end) for start, end in spans]


def visible_token_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """Ascending spans of the tokens of a text without the invisible characters at their ends.

    The span of a token without a visible character stays. An empty span moves to where the next token begins.
    """
    moved = []
    next_start = len(text)
    for span, part in zip(reversed(spans), reversed(visible_parts(text, spans)), strict=True):
        is_visible = part[0] < part[1]
        start, end = part if is_visible else span
        if start == end:
            moved.append((next_start, next_start))
        else:
            moved.append((start, end))
            next_start = start
    return moved[::-1]


def is_invisible(text: str) -> bool:
    """Whether nothing of a text can be seen; a combining mark alone can."""
    return all(map(_INVISIBLE.match, text))


def is_selector(char: str) -> bool:
    """Whether an ignorable character changes how the character before it looks."""
    return _SELECTOR.match(char) is not None


def is_mark(char: str) -> bool:
    """Whether a character belongs to the one before it, as an accent does."""
    return unicodedata.category(char) in _ENCLOSING_OR_WITHOUT_WIDTH


def _trimmed(visible: Sequence[bool], start: int, end: int) -> Span:
    """The range from the first to the last visible character of another; empty if there is none."""
    while end > start and not visible[end - 1]:
        end -= 1
    while start < end and not visible[start]:
        start += 1
    return start, end


def _visible_characters(text: str) -> list[bool]:
    """For each character, whether it can be seen."""
    if not _MAY_BE_INVISIBLE.search(text):
        return [not char.isspace() for char in text]

    visible: list[bool] = []
    base = ""  # the last character that is not a mark or a selector of the one before it
    for char in text:
        is_after_visible = bool(visible) and visible[-1]
        if is_selector(char):
            has_case = base.lower() != base.upper()
            visible.append(is_after_visible and not has_case)
        elif _INVISIBLE.match(char):
            visible.append(False)
        elif is_mark(char):
            visible.append(is_after_visible)
        else:
            visible.append(True)
            base = char
    return visible
