"""How the tags of a file are written: B-PER, or PER-B, b-per, B_PER and so on.

A tag is O, or a letter of a scheme (`entities`) and a type. The form of a file is the first of `_FORMS` that fits all
its tags, so that a type may contain "-" or "_", and may itself be such a letter. Behind this module, every tag is
written as in CoNLL's files, letter first.
"""

import dataclasses
import re
from collections.abc import Iterable

from albert_tf.tasks.tagging.entities import OUTSIDE

_LETTERS = "BIESLUMW"
_SINGLE = {"W": "S"}  # of BMEWO


@dataclasses.dataclass(frozen=True)
class TagForm:
    """A way to write tags."""

    separator: str = "-"
    is_suffix: bool = False  # whether the letter comes last
    is_small: bool = False  # whether the letter is a small one; O may be, too

    @property
    def name(self) -> str:
        """A tag of the type TYPE in this form, from which `named` makes the form again."""
        return self.written("B-TYPE")

    def matches(self, tag: str) -> bool:
        """Whether a tag is written in this form."""
        return self._is_outside(tag) or self._parts(tag) is not None

    def read(self, tag: str) -> str:
        """A tag of this form as in CoNLL's files."""
        if self._is_outside(tag):
            return OUTSIDE
        parts = self._parts(tag)
        assert parts
        letter, type = parts
        return f"{_SINGLE.get(letter, letter)}-{type}"

    def written(self, tag: str) -> str:
        """A tag of CoNLL's files in this form."""
        letter, separator, type = tag.partition("-")
        letter = letter.lower() if self.is_small else letter
        if not separator:
            return letter
        if self.is_suffix:
            return f"{type}{self.separator}{letter}"
        return f"{letter}{self.separator}{type}"

    def _is_outside(self, tag: str) -> bool:
        return tag == OUTSIDE or (self.is_small and tag == OUTSIDE.lower())

    def _parts(self, tag: str) -> tuple[str, str] | None:
        """The letter, a capital, and the type."""
        letters = _LETTERS.lower() if self.is_small else _LETTERS
        letter_first = rf"(?P<letter>[{letters}]){self.separator}(?P<type>.+)"
        letter_last = rf"(?P<type>.+){self.separator}(?P<letter>[{letters}])"
        match = re.fullmatch(letter_last if self.is_suffix else letter_first, tag)
        if not match:
            return None
        return match["letter"].upper(), match["type"]


USUAL = TagForm()
_FORMS = tuple(
    TagForm(separator, is_suffix, is_small)
    for is_suffix in (False, True)
    for is_small in (False, True)
    for separator in "-_"
)


def form_of(tags: Iterable[str]) -> TagForm | None:
    """The form in which all tags of a file are written; None if there is no such form."""
    different = set(tags)
    return next((form for form in _FORMS if all(map(form.matches, different))), None)


def named(name: str) -> TagForm:
    """The form with a name."""
    return next(form for form in _FORMS if form.name == name)


def is_tag(word: str) -> bool:
    """Whether a word is a tag in some form."""
    return any(form.matches(word) for form in _FORMS)
