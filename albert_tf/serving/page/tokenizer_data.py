"""What `tokenizer.js` needs to know of a vocabulary, and of Unicode as Python knows it, for JSON."""

import base64
import functools
import itertools
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import TrainerSpec

from albert_tf.core.errors import UserError
from albert_tf.tasks.tagging.windows import is_word_punctuation
from albert_tf.text import added_tokens, visible, wordpiece
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

Form = Literal["NFD", "NFKD"]  # of decomposition

# --- Characters ---


def _is_cased(char: str) -> bool:
    """Whether a capital sigma after this character, and before no other, ends a word."""
    return f"{char}Σ".lower().endswith("ς")


def _is_case_ignorable(char: str) -> bool:
    """Whether a capital sigma ends a word if a letter stands before this character."""
    return f"A{char}Σ".lower().endswith("ς") and not _is_cased(char)


# Name in `tokenizer.js` -> which characters belong to the set.
SETS: Mapping[str, Callable[[str], Any]] = {
    "space": str.isspace,
    "removed": wordpiece.is_removed,
    "blank": wordpiece.is_space,
    "ideograph": wordpiece.is_chinese,
    "punctuation": wordpiece.is_punctuation,
    "accent": wordpiece.is_accent,
    "cased": _is_cased,
    "caseIgnorable": _is_case_ignorable,
    "invisible": visible.is_invisible,
    "selector": visible.is_selector,
    "mark": visible.is_mark,
    "twoCases": lambda char: char.lower() != char.upper(),
    "wordPunctuation": is_word_punctuation,
    "digit": str.isdigit,
}


# The planes of Unicode with characters of some set: 0 to 3, and 14.
_CODES = (*range(0x40000), *range(0xE0000, 0xE1000))


@functools.cache
def _gaps(name: str) -> list[int]:
    """A set as the numbers of characters outside and inside, one after the other; the first ones are outside."""
    belongs = SETS[name]
    numbers: list[int] = []
    end_before = 0
    # Characters of a run have the same difference between code and place: 5, 6, 9 -> (5, 6), (9).
    inside = enumerate(code for code in _CODES if belongs(chr(code)))
    for _, group in itertools.groupby(inside, lambda entry: entry[1] - entry[0]):
        run = [code for _, code in group]
        numbers += [run[0] - end_before, len(run)]
        end_before = run[-1] + 1
    return numbers


@functools.cache
def _characters(form: Form) -> dict[str, Any]:
    """The tables of characters; `form` is that of the decompositions, which are without Korean syllables."""
    lower = {}
    decompositions = {}
    combining = []
    for code in _CODES:
        char = chr(code)
        if char.lower() != char:
            lower[char] = char.lower()
        decomposed = unicodedata.normalize(form, char)
        if decomposed != char and not _is_syllable(code):
            decompositions[char] = decomposed
        if rank := unicodedata.combining(char):
            combining.append([code, rank])
    return {
        "sets": [_gaps(name) for name in SETS],
        "lower": lower,
        "decompositions": decompositions,
        "combining": combining,
    }


def _is_syllable(code: int) -> bool:
    """Whether a character is a Korean syllable, which is decomposed by a rule."""
    return 0xAC00 <= code <= 0xD7A3


# --- Vocabularies ---


def tokenizer_data(tokenizer: Tokenizer, source: str) -> dict[str, Any]:
    """The argument of `makeTokenizer` in `tokenizer.js`.

    Raises:
      UserError: `tokenizer.js` does not have this kind of vocabulary; the message names `source`.
    """
    if type(tokenizer) not in _DATA:
        expected = " or ".join(kind.file_name for kind in _DATA)
        kind = type(tokenizer).__name__
        raise UserError(
            f"{source}: the vocabulary is that of a {kind}, expected {expected}; export another --format"
        )
    tokens = tokenizer.found_tokens()
    longest_first = sorted(tokens, key=lambda token: len(token.text), reverse=True)
    names = ("pad", "unk", "cls", "sep", "mask")
    data = {
        "cleaning": tokenizer.cleaning,
        "rules": vars(tokenizer.rules),
        "ids": {name: getattr(tokenizer, f"{name}_id") for name in names},
        "space_id": tokenizer.space_id,
        "added": [added_tokens.forms_of(token, tokenizer.do_lower_case) for token in longest_first],
        "added_ids": tokenizer.added_ids,
        "ids_after_space": sorted(tokenizer.ids_after_space),
        "tokens": tokenizer.vocabulary(),
    }
    return {**data, **_DATA[type(tokenizer)](tokenizer, source)}


def _wordpiece(tokenizer: WordPieceTokenizer, source: str) -> dict[str, Any]:
    del tokenizer, source  # the tokens are all that its class needs
    return {"kind": "wordpiece", "characters": _characters("NFD")}


def _sentencepiece(tokenizer: SentencePieceTokenizer, source: str) -> dict[str, Any]:
    model = tokenizer.model()
    kind = model.trainer_spec.model_type
    if kind != TrainerSpec.UNIGRAM:
        name = TrainerSpec.ModelType.Name(kind).lower()
        raise UserError(
            f"{source}: the vocabulary is a SentencePiece model of the kind {name}, expected unigram"
        )
    spec = model.normalizer_spec
    return {
        "kind": "sentencepiece",
        "characters": _characters("NFKD"),
        "types": [piece.type for piece in model.pieces],
        # The shortest text that float32 reads as the same number.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "byte_fallback": model.trainer_spec.byte_fallback,
        "normalizer": {
            "charsmap": base64.b64encode(spec.precompiled_charsmap).decode(),
            "add_dummy_prefix": spec.add_dummy_prefix,
            "remove_extra_whitespaces": spec.remove_extra_whitespaces,
            "escape_whitespaces": spec.escape_whitespaces,
            "whitespace_as_suffix": model.trainer_spec.treat_whitespace_as_suffix,
        },
    }


# A kind of vocabulary -> what its class in `tokenizer.js` needs in addition.
_DATA: Mapping[type[Tokenizer], Callable[[Any, str], dict[str, Any]]] = {
    SentencePieceTokenizer: _sentencepiece,
    WordPieceTokenizer: _wordpiece,
}
