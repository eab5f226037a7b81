"""Sentences of all languages, by Unicode's properties: where they end, and what makes a text prose.

`sentencex` splits. What is added: text within quotation marks, which it treats as one sentence of any length, marks
that it knows only if it is told the language, and Thai and Lao, whose sentences have no mark at their end. Removed are
its ends before small letters, where sentences begin with capitals, and after initials, ordinals and titles.
"""

import unicodedata
from collections.abc import Iterator

import regex
import sentencex

from albert_tf.data_prep.corpus import in_pieces

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
    "bs",
    "cs",
    "da",
    "de",
    "et",
    "fi",
    "fo",
    "hr",
    "hu",
    "is",
    "lb",
    "lv",
    "nb",
    "nn",
    "no",
    "sk",
    "sl",
    "sr",
    "tr",
)
# Languages in which a Roman ordinal is before its noun, also before a name: "II. Rákóczi Ferenc", not "Karel IV.".
_WITH_ROMAN_ORDINALS = ("eu", "hu", "tr")
# Languages that `sentencex` does not know -> one of nearly the same abbreviations.
_RELATED = {"fo": "da", "lb": "de", "nb": "da", "nn": "da", "no": "da"}
# Titles and other abbreviations before names, at which `sentencex` ends a sentence.
_SOUTH_SLAVIC = "sv Sv ul Ul св Св ул Ул"
_NORWEGIAN = "bl.a Bl.a dvs Dvs f.eks F.eks t.d T.d"
_DEVANAGARI = "डॉ श्री पं प्रो कु मो स्व"
_BEFORE_NAMES = {
    "bg": "Св св",
    "bn": "ডা ড মো",
    "bs": _SOUTH_SLAVIC,
    "da": "bl.a Bl.a",
    "el": "Αγ αγ",
    "en": "Fig",
    "es": "Av Avda",
    "fi": "tri Tri",
    "fr": "M MM Mme Mmes Mlle Mlles Mgr Dr Pr St Ste av apr cf",
    "hi": _DEVANAGARI,
    "hr": _SOUTH_SLAVIC,
    "hu": "szt Szt özv Özv",
    "id": "Ir Jl Tgl tgl",
    "lt": "mėn Akad akad Doc doc Gen gen Gyd gyd Inž inž Pr pr Šv šv",
    "lv": "sv Sv",
    "mk": f"{_SOUTH_SLAVIC} Инж инж Проф проф",
    "mr": _DEVANAGARI,
    "nb": _NORWEGIAN,
    "ne": _DEVANAGARI,
    "nl": "mevr Mevr",
    "nn": _NORWEGIAN,
    "no": _NORWEGIAN,
    "pl": "św Św ks Ks al Al abp bp Gen gen Inż inż Kpt kpt Mjr mjr Płk płk",
    "pt": "Av",
    "ro": "Dl dl Sf sf Str str",
    "ru": "Св св",
    "sl": _SOUTH_SLAVIC,
    "sr": f"{_SOUTH_SLAVIC} Инж инж Проф проф Inž inž",
    "sv": "kl Kl t.ex T.ex bl.a Bl.a St",
    "tr": "Alb Av Cad Doç Hz Org Öğr Sn Sok Uzm Yrd Yzb",
    "vi": "BS Bs GS Gs KS Ks LS Ls PGS Pgs TP Tp TS Ts TT Tt TX Tx ThS Ths",
}
_TITLES = {language: frozenset(words.split()) for language, words in _BEFORE_NAMES.items()}
_LAST_WORD = _compiled(r"(?r)(?<![\p{L}\p{M}\p{N}.])(?:[\p{L}\p{M}]+\.)*[\p{L}\p{M}]+(?=\.\Z)")
_INITIAL = _compiled(r"(?r)(?<![\p{L}\p{M}\p{N}.])\p{Lu}\p{M}*\.\Z")
_CONTEXT = 40  # characters around the end of a sentence that rules look at
# Marks of scripts with small letters, and what may stand between such a mark and the first letter after it.
_MARKS_BEFORE_CAPITALS = frozenset(".!?…‥;\u037e։:")
_LETTER_AFTER_MARK = _compiled(r"[\p{Ps}\p{Pi}\p{QMark}¿¡]*\p{L}")
# "iPhone" is written so at the beginning of a sentence, too, and "'s Avonds" begins with a capital.
_SMALL_BEFORE_CAPITAL = _compiled(r"[^\p{L}\p{N}]*(?:\p{Ll}+\p{Lu}|(?<=['’‘])\p{Ll}\s+\p{Lu})")
_ORDINAL = _compiled(r"(?r)(?<![\p{L}\p{N}.,:-])\d{1,2}\.\Z")
_ROMAN_ORDINAL = _compiled(r"(?r)(?<![\p{L}\p{N}.])[IVXLC]+\.\Z")
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
    """Whether the first letter is small in a script whose sentences begin with capitals (not in Georgian).

    Names such as "iPhone" do not count, nor the Dutch "'s" of "'s Avonds".
    """
    first = next(filter(str.isalnum, text), "")
    is_small = first.islower() and first.title() != first
    return is_small and not _SMALL_BEFORE_CAPITAL.match(text)


def line_separator(before: str, after: str) -> str:
    """What replaces the line break between two lines of a paragraph: nothing where words have no blanks."""
    joins = _UNSPACED_START.match(after) and not before[-1].isascii()
    return "" if joins else " "


def without_lone_surrogates(text: str) -> str:
    """A text with U+FFFD in the place of half a surrogate pair, which JSON can contain and UTF-8 cannot encode."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def split_paragraph(paragraph: str, *, language: str = "en") -> list[str]:
    """Splits a paragraph: 'Mr. Bo left. "Who? Me?" she said.' -> ['Mr. Bo left.', '"Who?', 'Me?" she said.']."""
    text = without_lone_surrogates(" ".join(paragraph.split()))
    sentences: list[str] = []
    for piece in in_pieces(text):
        sentences += _split_piece(piece, language)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _split_piece(text: str, language: str) -> list[str]:
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
    return sentences


def _cuts(text: str, language: str) -> Iterator[int]:
    """Where sentences begin, found in the text without its quotation marks."""
    quotes = set(_QUOTE.findall(text))
    positions = [index for index, char in enumerate(text) if char not in quotes]
    unquoted = "".join([text[index] for index in positions])
    ends = _ends(unquoted, language)
    has_capitals = any(_first_letter(unquoted, start).isupper() for start in (0, *ends))
    for end in ends:
        last = end - 1
        while last and unquoted[last].isspace():
            last -= 1
        between = text[positions[last] + 1 : positions[end]]
        before = unquoted[last]
        after = unquoted[end]
        until_last = unquoted[max(0, last - _CONTEXT) : last + 1]
        from_end = unquoted[end : end + _CONTEXT]
        # A full stop within "Node.js" or "J.-C.", or a sentence that goes on, as with `he said` after a quotation.
        touches = last + 1 == end and not between
        if before == "." and touches and after.isascii() and (after.isalnum() or after == "-"):
            continue
        if not between.strip() and _is_abbreviation(until_last, after, language):
            continue
        is_closed = between and all(unicodedata.category(mark) in ("Pe", "Pf") for mark in between)
        closes = between == '"' and text.count(between, 0, positions[last]) % 2
        if (closes or is_closed) and _PARTICLE.match(after):  # 「…。」と, “….”라고
            continue
        has_mark = bool(between.strip()) or unicodedata.category(after) == "Pd"
        # A mark after a blank is where a page has lost a template: "It covers . has walls".
        touches_word = last and not unquoted[last - 1].isspace()
        is_before_letter = bool(_LETTER_AFTER_MARK.match(from_end))
        may_go_on = has_capitals and touches_word and before in _MARKS_BEFORE_CAPITALS
        if (has_mark or (may_go_on and is_before_letter)) and starts_in_lower_case(from_end):
            continue
        yield positions[last] + 1 + _first_opening(between, text, positions[last])


def _ends(text: str, language: str) -> list[int]:
    """Where sentences end by their marks, except for the last one."""
    ends = {match.end() for match in _AFTER_FINAL.finditer(text)}
    end = 0
    for part in sentencex.segment(_RELATED.get(language, language), text):
        end += len(part)
        # The apostrophe of "'t Is laat." is not a closing one.
        opens = text[end - 2 : end - 1].isspace() and text[end - 1] in "'’"
        ends.add(end - 1 if opens else end)
    return sorted(ends - {0, len(text)})


def _first_letter(text: str, start: int) -> str:
    """The letter with which a sentence begins, perhaps after an opening mark; "" if it begins otherwise."""
    match = _LETTER_AFTER_MARK.match(text, start)
    return match[0][-1] if match else ""


def _is_abbreviation(text: str, after: str, language: str) -> bool:
    """Whether a text ends in a full stop that ends no sentence if the next letter is `after`."""
    if _ARABIC_LETTER.search(text):
        return True
    if after.isalpha() and language in _WITH_ORDINALS and _ORDINAL.search(text):
        return True
    if after.isalpha() and language in _WITH_ROMAN_ORDINALS and _ROMAN_ORDINAL.search(text):
        return True
    # `sentencex` knows the words with which English sentences begin: "Vitamin C. It" is not "J. Smith".
    if after.isupper() and language != "en" and _INITIAL.search(text):
        return True
    word = _LAST_WORD.search(text)
    return word is not None and word[0] in _TITLES.get(language, ())


def _first_opening(between: str, text: str, end: int) -> int:
    """Where the next sentence begins in the blanks and quotation marks after the sentence that ends at `end`."""
    for index, mark in enumerate(between):
        touches_before = not any(map(str.isspace, between[:index]))
        touches_after = not any(map(str.isspace, between[index:]))
        if mark.isspace():
            continue
        if touches_before != touches_after:
            opens = touches_after
        elif unicodedata.category(mark) == "Po":  # the same mark opens and closes
            opens = text.count(mark, 0, end) % 2 == 0
        else:
            opens = unicodedata.category(mark) in ("Pi", "Ps")
        if opens:
            return index
    return len(between)
