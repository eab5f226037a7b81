"""Sentences of all languages, by Unicode's properties: where they end, and what makes a text prose.

`sentencex` splits. What is added: text within quotation marks, which it treats as one sentence of any length, marks
that it knows only if it is told the language, and Thai and Lao, whose sentences have no mark at their end.
"""

import unicodedata
from collections.abc import Iterator

import regex
import sentencex

# Scripts whose words are written without blanks: lines are broken between any two letters, or by a dictionary.
_UNSPACED = r"[[\p{LB=SA}\p{LB=ID}\p{LB=CJ}\p{Tibetan}]&&\p{L}]"
# Scripts without final punctuation; a blank separates sentences, and clauses.
_UNMARKED = r"[\p{Thai}\p{Lao}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Viet}]"
# What follows the end of a sentence: quotation marks, brackets, emphasis, emoji, marks of direction, notes like [1].
_CLOSERS = r"(?:[\p{Pe}\p{Pi}\p{Pf}\p{QMark}\p{So}\p{Sk}\p{Cf}\p{M}*_~～\s]|\[\w{1,3}\])*"
# Marks that are always final, unlike a full stop. Unicode does not count Tibetan shads among them, and keyboards have
# other characters for some: the Greek question mark is a semicolon, the Armenian full stop a colon, the Ethiopic one
# two of them, or two marks between words.
_FINAL = (
    r"(?:[\p{STerm}--[.!?．]]|[།༎]"
    r"|(?<=\p{Greek}[\p{Pe}\p{Pf}]?)[;\u037e]|(?<=\p{Armenian}[\p{Pe}\p{Pf}]?):|፡፡|(?<=\p{Ethiopic})::)"
)
# An ellipsis can end a sentence, and a dash before a quotation mark does: there, somebody is interrupted.
_ANY_END = rf"(?:[\p{{STerm}}…‥⋯]|{_FINAL}|[-–—―](?=\p{{QMark}}))"


def _compiled(pattern: str) -> regex.Pattern:
    return regex.compile(pattern, regex.V1)  # in which [a--b] and [a&&b] are sets


_AT_END = _compiled(rf"(?r){_ANY_END}{_CLOSERS}\Z")
_AFTER_FINAL = _compiled(rf"{_FINAL}[\p{{STerm}}…]*\p{{Pe}}*\s*(?=\S)")
_UNMARKED_END = _compiled(rf"(?r){_UNMARKED}{_CLOSERS}\Z")
_IS_UNMARKED = _compiled(_UNMARKED)
_CLAUSE = _compiled(rf".{{20,}}?(?<={_UNMARKED}) +(?={_UNMARKED})|.+")
_QUOTE = _compiled(r"[\p{QMark}--['’]]")  # without apostrophes
_UNSPACED_LETTER = _compiled(_UNSPACED)
_UNSPACED_START = _compiled(rf"[\p{{Ps}}\p{{Pi}}]*{_UNSPACED}")
_LETTERS = _compiled(r"[\p{L}\p{M}]+")
_EDGES = _compiled(r"^[\p{P}\s]+|(?r)[\p{P}\s]+$")
_IGNORED = _compiled(r"[\s\p{Cf}]+")
_IN_CAPITALS = _compiled(r"[IVXLCDM]+\.|(?:[\p{Lu}\p{N}\p{P}--\p{QMark}]+ ?){2,}\.")
# Languages that write ordinals as "19.", and such a number of a day, month or century.
_WITH_ORDINALS = (
    *("bs", "cs", "da", "de", "et", "fi", "hr", "hu", "is", "lv", "no", "sk", "sl", "tr"),
)
_ORDINAL = _compiled(r"(?r)(?<![\p{L}\p{N}.,:-])\d{1,2}\.\Z")
_ARABIC_LETTER = _compiled(r"(?r)(?<![\p{L}\p{M}])\p{Arabic}\.\Z")
_PARTICLE = _compiled(r"[\p{Hiragana}\p{Hangul}]")
_LONE_SURROGATE = _compiled("[\ud800-\udfff]")  # half a character, not in UTF-8
_MIN_UNMARKED_LETTERS = 6  # fewer in a line of a script without final punctuation are a heading


def ends_as_sentence(text: str) -> bool:
    """Whether a text ends as sentences of its script do, perhaps with quotation marks and brackets after it."""
    return bool(_AT_END.search(text) or _UNMARKED_END.search(text))


def letter_fraction(text: str) -> float:
    """Share of letters and their marks in a text, without the punctuation around it."""
    visible = _IGNORED.sub("", _EDGES.sub("", text))
    return sum(map(len, _LETTERS.findall(visible))) / max(1, len(visible))


def is_heading(paragraph: str) -> bool:
    """Whether a paragraph is in capitals ("CHAPTER I."), or a row or heading of a script without final marks."""
    if _IN_CAPITALS.fullmatch(paragraph):
        return True
    if _AT_END.search(paragraph) or not _UNMARKED_END.search(paragraph):
        return False
    num_letters = len(_UNSPACED_LETTER.findall(paragraph))
    return num_letters < _MIN_UNMARKED_LETTERS or "\t" in paragraph or "|" in paragraph


def starts_in_lower_case(text: str) -> bool:
    """Whether the first letter is small in a script whose sentences begin with capitals (not in Georgian)."""
    first = next(filter(str.isalnum, text), "")
    return first.islower() and first.title() != first


def line_separator(before: str, after: str) -> str:
    """What replaces the line break between two lines of a paragraph: nothing where words have no blanks."""
    joins = _UNSPACED_START.match(after) and not before[-1].isascii()
    return "" if joins else " "


def split_paragraph(paragraph: str, *, language: str = "en") -> list[str]:
    """Splits a paragraph: 'Mr. Bo left. "Who? Me?" she said.' -> ['Mr. Bo left.', '"Who?', 'Me?" she said.']."""
    text = _LONE_SURROGATE.sub("\ufffd", " ".join(paragraph.split()))
    sentences: list[str] = []
    start = 0
    for end in (*_cuts(text, language), len(text)):
        sentence = text[start:end]
        parts = _CLAUSE.findall(sentence) if _IS_UNMARKED.search(sentence) else [sentence]
        for part in parts:
            if sentences and not any(map(str.isalnum, part)):  # the second of "?!", or an emoji
                sentences[-1] += part
            else:
                sentences.append(part)
        start = end
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _cuts(text: str, language: str) -> Iterator[int]:
    """Where sentences begin, found in the text without its quotation marks."""
    quotes = set(_QUOTE.findall(text))
    positions = [index for index, char in enumerate(text) if char not in quotes]
    unquoted = "".join([text[index] for index in positions])
    ends, end = {match.end() for match in _AFTER_FINAL.finditer(unquoted)}, 0
    for part in sentencex.segment(language, unquoted):
        end += len(part)
        ends.add(end)
    for end in sorted(ends - {0, len(unquoted)}):
        last = end - 1
        while last and unquoted[last].isspace():
            last -= 1
        between = text[positions[last] + 1 : positions[end]]
        before, after = unquoted[last], unquoted[end]
        # A full stop within "Node.js" or "ast.Name", or a sentence that goes on, as with `he said` after a quotation.
        touches = last + 1 == end and not between
        if before == "." and touches and after.isascii() and after.isalnum():
            continue
        # Single letters are abbreviations in Arabic, and quotations go on with a particle: 「…。」と, “….”라고.
        if _ARABIC_LETTER.search(unquoted[max(0, last - 2) : last + 1]):
            continue
        is_ordinal = after.isalpha() and _ORDINAL.search(unquoted[max(0, last - 3) : last + 1])
        if is_ordinal and language in _WITH_ORDINALS:
            continue
        is_closed = between and all(unicodedata.category(mark) in ("Pe", "Pf") for mark in between)
        closes = between == '"' and text.count(between, 0, positions[last]) % 2
        if (closes or is_closed) and _PARTICLE.match(after):
            continue
        has_mark = bool(between.strip()) or unicodedata.category(after) == "Pd"
        if has_mark and starts_in_lower_case(unquoted[end : end + 40]):
            continue
        yield positions[last] + 1 + _first_opening(between, text[: positions[last]])


def _first_opening(between: str, before: str) -> int:
    """Where the next sentence begins in the blanks and quotation marks between two sentences."""
    for index, mark in enumerate(between):
        touches_before = not any(map(str.isspace, between[:index]))
        touches_after = not any(map(str.isspace, between[index:]))
        if mark.isspace():
            continue
        if touches_before != touches_after:
            opens = touches_after
        elif unicodedata.category(mark) == "Po":  # the same mark opens and closes
            opens = before.count(mark) % 2 == 0
        else:
            opens = unicodedata.category(mark) in ("Pi", "Ps")
        if opens:
            return index
    return len(between)
