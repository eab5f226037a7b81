"""Sets of characters in regular expressions, as Python's `re`, RE2 and the library of Hugging Face read them."""

import functools
import itertools
import sys
from collections.abc import Callable


@functools.cache
def inside_class(belongs: Callable[[str], object]) -> str:
    """The inside of [...] with every character for which `belongs` is true; it must be false for surrogates."""
    text = ""
    characters = map(chr, range(sys.maxunicode + 1))
    for is_run, run in itertools.groupby(characters, lambda char: bool(belongs(char))):
        if is_run:
            first, *rest = map(_escaped, run)
            text += f"{first}-{rest[-1]}" if rest else first
    return text


def _escaped(char: str) -> str:
    """A character inside [...]: an ASCII character by its number, so that it needs no other escape."""
    return f"\\x{ord(char):02x}" if char.isascii() else char
