"""Tokens that were added to a vocabulary: they are found in a text before it is cleaned and split into words.

They stand beside the vocabulary, whose file does not change: a `Tokenizer` is made of both. A text must write a special
token exactly so; a plain one is found in either case if the vocabulary is lower-cased. [CLS] and the like are never
found in a text.

    AddedToken       a token, its id, and how it is found
    Vocabulary       the content of a vocabulary's file, and the tokens that were added to it
    pattern_of       finds tokens in a text
    in_folder        reads those that the files beside a vocabulary list; `in_tokenizer_json`, those of one file
    description_of   one of them as `formats/tokenizer_files.py` writes it: `added_tokens_decoder` of
                     `tokenizer_config.json`, and `added_tokens` of `tokenizer.json`

Source: transformers, `AddedToken` and `AddedVocabulary`; the files `added_tokens.json`, `special_tokens_map.json`,
`tokenizer_config.json` and `tokenizer.json`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.core import files
from albert_tf.core.errors import UserError

# How an added token is found in texts.
HIDDEN = 0  # not at all
PLAIN = 1  # in either case if the vocabulary is lower-cased
SPECIAL = 2  # as it is written

_SPECIAL_TOKENS = ("[PAD]", "<pad>", "[UNK]", "<unk>", "[CLS]", "[SEP]", "[MASK]")


class AddedToken(NamedTuple):
    """A token that was added to a vocabulary: one of its own tokens that is found in texts, or a new one after them."""

    text: str
    id: int
    kind: int  # HIDDEN, PLAIN or SPECIAL

    @property
    def is_found(self) -> bool:
        """Whether it is found in texts."""
        return self.kind != HIDDEN


class Vocabulary(NamedTuple):
    """The content of a vocabulary's file, and the tokens that were added to it."""

    content: bytes
    added_tokens: tuple[AddedToken, ...] = ()


def name_in_file(token: AddedToken) -> str:
    """What stands for a token in a list of words, such as a vocab.txt: one with white space is no word."""
    return token.text if token.text.split() == [token.text] else f"[added_token_{token.id}]"


def by_id(tokens: Iterable[AddedToken]) -> tuple[AddedToken, ...]:
    """The tokens in the order of their ids; of those with the same id, the last."""
    last_of_ids = {token.id: token for token in tokens}
    return tuple(last_of_ids[id] for id in sorted(last_of_ids))


def texts_of_all(vocabulary: Sequence[str], tokens: Iterable[AddedToken], source: str) -> list[str]:
    """The texts of all tokens by id: those of a vocabulary's file, and those of the added tokens.

    Raises:
      UserError: the new tokens have other ids than those that follow, or texts of the vocabulary.
    """
    texts = list(vocabulary)
    ids = {text: id for id, text in enumerate(vocabulary)}
    new_tokens = []
    for token in by_id(tokens):
        if token.id < len(vocabulary):
            texts[token.id] = token.text
        else:
            new_tokens.append(token)

    new_ids = [token.id for token in new_tokens]
    if new_ids != list(range(len(vocabulary), len(vocabulary) + len(new_ids))):
        expected = f"expected {len(vocabulary):,} first"
        raise UserError(f"{source}: added tokens have the ids {new_ids}, {expected}")
    for token in new_tokens:
        if token.text in ids:
            raise _wrong_id(source, token, ids[token.text])
    return texts + [token.text for token in new_tokens]


def _wrong_id(source: str, token: AddedToken, expected_id: int) -> UserError:
    expected = f"expected {expected_id}"
    return UserError(f"{source}: added token {token.text!r} has the id {token.id}, {expected}")


# --- Added tokens in a text ---


def pattern_of(tokens: Iterable[AddedToken], do_lower_case: bool) -> re.Pattern | None:
    """Finds the tokens in a text, the longest first, as its one group; None if there are none."""
    parts = []
    for token in sorted(tokens, key=lambda token: len(token.text), reverse=True):
        parts.append("".join(f"[{re.escape(forms)}]" for forms in forms_of(token, do_lower_case)))
    return re.compile(f"({'|'.join(parts)})") if parts else None


def forms_of(token: AddedToken, do_lower_case: bool) -> list[str]:
    """For each character of a token the characters that a text may have in its place: "Ab" -> "Aa", "Bb"."""
    if token.kind != PLAIN or not do_lower_case:
        return list(token.text)
    return [_same_in_lower_case(char) for char in token.text]


def in_lower_case(text: str) -> str:
    """A text in lower case, each character for itself: all texts in which a token is found have the same one."""
    return "".join(char.lower() for char in text)


def _same_in_lower_case(char: str) -> str:
    """The characters that are the same in lower case as one."""
    # Two capital letters may have one small letter: "K", and the sign of Kelvin.
    others = {char, char.lower(), char.upper(), char.title(), "\u212a", "\u212b", "\u2126"}
    return "".join(
        sorted(
            other
            for other in others
            if len(other) == 1 and (other == char or other.lower() == char.lower())
        )
    )


# --- The files beside a vocabulary -> its added tokens ---


def in_folder(folder: str, vocabulary: Sequence[str]) -> list[AddedToken]:
    """The tokens that the files in a folder add to a vocabulary: its own ones that are found in texts, and new ones.

    Raises:
      UserError: a file lists a token under another id than the vocabulary.
    """
    tokens: dict[int, AddedToken] = {}
    ids = {text: id for id, text in enumerate(vocabulary)}
    for name, tokens_in in _FILES.items():
        path = os.path.join(folder, name)
        values = files.read_json(path) if files.exists(path) else None
        if not isinstance(values, dict):
            continue

        tokens_of_file = _checked(path, tokens_in, values, ids)
        tokens |= tokens_of_file

        # A later file may name these tokens without their ids.
        for token in tokens_of_file.values():
            if not token.is_found:
                continue
            # A vocab.txt has a name in place of a token with white space.
            is_in_vocabulary = token.id < len(vocabulary)
            if is_in_vocabulary and vocabulary[token.id] == name_in_file(token):
                ids[token.text] = token.id
            expected_id = ids.setdefault(token.text, max(token.id, len(vocabulary)))
            if token.id != expected_id:
                raise _wrong_id(path, token, expected_id)

    return [token for token in tokens.values() if token.is_found or token.id >= len(vocabulary)]


def in_tokenizer_json(values: Mapping[str, Any], source: str) -> list[AddedToken]:
    """The tokens that the values of a `tokenizer.json` list as added; a UserError names `source`."""
    return list(_checked(source, _in_tokenizer_json, values, {}).values())


def _added_token(text: str, id: int, kind: int) -> AddedToken:
    """An added token; [CLS] and the like are hidden, whatever a file says."""
    return AddedToken(text, id, HIDDEN if text in _SPECIAL_TOKENS else kind)


def _described(id: Any, description: Mapping[str, Any]) -> AddedToken:
    """The token of `{"content": "[E1]", "normalized": false}`; an id may be a number or a text of digits.

    Raises:
      UserError: transformers would find it as a word alone.
    """
    kind = PLAIN if description.get("normalized") else SPECIAL
    token = _added_token(description["content"], int(id), kind)
    _check_is_found_within_words(token, description)
    return token


def _check_is_found_within_words(token: AddedToken, description: Mapping[str, Any]) -> None:
    if token.is_found and description.get("single_word"):
        reason = "single_word is true, expected false: here it is found within words, too"
        raise UserError(f"added token {token.text!r}: {reason}")


def _in_tokenizer_json(values: Mapping[str, Any], ids: Mapping[str, int]) -> list[AddedToken]:
    descriptions = values.get("added_tokens") or ()
    return [_described(description["id"], description) for description in descriptions]


def _in_added_tokens_json(values: Mapping[str, Any], ids: Mapping[str, int]) -> list[AddedToken]:
    return [_added_token(text, id, PLAIN) for text, id in values.items()]


def _in_special_tokens_map(values: Mapping[str, Any], ids: Mapping[str, int]) -> list[AddedToken]:
    """Special tokens that a file names without their ids; those without a known id are skipped."""
    tokens = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        for name in values.get(key) or ():
            description = {"content": name} if isinstance(name, str) else name
            text = description["content"]
            if text in ids:
                token = _added_token(text, ids[text], SPECIAL)
                _check_is_found_within_words(token, description)
                tokens.append(token)
    return tokens


def _in_tokenizer_config(values: Mapping[str, Any], ids: Mapping[str, int]) -> list[AddedToken]:
    descriptions = values.get("added_tokens_decoder", {})
    described = [_described(id, description) for id, description in descriptions.items()]
    return _in_special_tokens_map(values, ids) + described


_TokensOfFile = Callable[[Mapping[str, Any], Mapping[str, int]], list[AddedToken]]

# Later files take precedence. Each function gets the values of the file, and the ids of the tokens known so far.
_FILES: Mapping[str, _TokensOfFile] = {
    "added_tokens.json": _in_added_tokens_json,
    "special_tokens_map.json": _in_special_tokens_map,
    "tokenizer_config.json": _in_tokenizer_config,
    "tokenizer.json": _in_tokenizer_json,
}


def _checked(
    path: str, tokens_in: _TokensOfFile, values: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[int, AddedToken]:
    """The added tokens by id that a function finds in the values of a file, which may be of any type.

    Raises:
      UserError: a value is not a token with its id.
    """
    message = f"{path}: added tokens are not tokens with their ids"
    try:
        tokens = {token.id: token for token in tokens_in(values, ids)}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        raise UserError(message) from None
    for id, token in tokens.items():
        is_id = type(id) is int and id >= 0
        is_text = isinstance(token.text, str) and token.text != ""
        if not is_id or not is_text:
            raise UserError(message)
    return tokens


# --- An added token -> its description in a file ---


def description_of(token: AddedToken) -> dict[str, Any]:
    """A token, without its id, as transformers and `in_folder` read it."""
    return {
        "content": token.text,
        "single_word": False,
        "lstrip": token.text == "[MASK]",  # the space before a masked word is part of the word
        "rstrip": False,
        "normalized": token.kind == PLAIN,
        "special": token.kind != PLAIN,
    }
