"""Tokens that transformers adds to a vocabulary: they are found in a text before it is cleaned and split into words.

A vocabulary contains them among or after its own tokens: in WordPiece as lines that end in a mark of their kind, in a
SentencePiece model as user-defined pieces whose score is the kind. A text must write a special token exactly so; a
plain one is found in either case if the vocabulary is lower-cased. [CLS] and the like are never found in a text.

    kinds_in_...      the added tokens that a vocabulary contains
    pattern_of        finds them in a text
    in_folder         those that the files in a folder add to a vocabulary
    marked_...        a vocabulary with them
    content_of_json   the vocabulary in a `tokenizer.json`

Source: transformers, `AddedToken` and `AddedVocabulary`; the files `added_tokens.json`, `tokenizer_config.json` and
`tokenizer.json`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.text import wordpiece

# The kinds of added tokens. A SentencePiece model stores the kind as a score; its own user-defined pieces score 0.
HIDDEN = 0  # not found in texts
PLAIN = 1  # found in either case if the vocabulary is lower-cased
SPECIAL = 2  # found as it is written

_MARKS = {HIDDEN: "", PLAIN: wordpiece.PLAIN_MARK, SPECIAL: wordpiece.SPECIAL_MARK}
_SPECIAL_TOKENS = ("[PAD]", "<pad>", "[UNK]", "<unk>", "[CLS]", "[SEP]", "[MASK]")

# What a `tokenizer.json` says about the words of BERT's tokenizer.
_STEPS: Mapping[str, Mapping[str, Any]] = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"continuing_subword_prefix": wordpiece.CONTINUES_WORD},
}


class AddedToken(NamedTuple):
    """A token that was added to a vocabulary."""

    text: str
    id: int
    kind: int  # HIDDEN, PLAIN or SPECIAL


# --- A vocabulary -> its added tokens ---


def kinds_in_wordpiece(content: bytes) -> dict[str, int]:
    """The kinds of the added tokens in a vocab.txt that are found in texts, by the tokens."""
    if wordpiece.PLAIN_MARK.encode() not in content:  # with which the other mark begins
        return {}
    kinds = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        for kind in (PLAIN, SPECIAL):
            mark = _MARKS[kind]
            if line.endswith(mark):
                kinds[line.removesuffix(mark)] = kind
    return kinds


def kinds_in_sentencepiece(content: bytes) -> dict[str, int]:
    """The same of a SentencePiece model."""
    kinds = {}
    for piece in ModelProto.FromString(content).pieces:
        if piece.type == piece.USER_DEFINED and piece.score in (PLAIN, SPECIAL):
            kinds[piece.piece] = int(piece.score)
    return kinds


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


# --- A vocabulary and the files in its folder -> a vocabulary ---


def in_folder(folder: str, vocabulary: Sequence[str]) -> tuple[dict[str, int], list[AddedToken]]:
    """What the files in a folder add to a vocabulary: kinds of some of its tokens, and new tokens by their ids.

    Raises:
      UserError: the ids of the added tokens are neither those of the vocabulary nor follow them.
    """
    tokens = _tokens_in_folder(folder, vocabulary)
    first_new_id = len(vocabulary)

    kinds = {
        token.text: token.kind
        for token in tokens
        if token.id < first_new_id and token.kind != HIDDEN
    }
    new_tokens = [token for token in tokens if token.id >= first_new_id]
    new_tokens.sort(key=lambda token: token.id)

    new_ids = [token.id for token in new_tokens]
    if new_ids != list(range(first_new_id, first_new_id + len(new_ids))):
        expected = f"expected {first_new_id:,} first"
        raise UserError(f"{folder}: added tokens have the ids {new_ids}, {expected}")
    return kinds, new_tokens


def _tokens_in_folder(folder: str, vocabulary: Sequence[str]) -> list[AddedToken]:
    """The tokens, one for each id, that the files in a folder list as added; also those of the vocabulary itself."""
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
        for text, id, kind in tokens_of_file.values():
            if kind == HIDDEN:
                continue
            expected_id = ids.setdefault(text, max(id, len(vocabulary)))
            if id != expected_id:
                expected = f"expected {expected_id}"
                raise UserError(f"{path}: added token {text!r} has the id {id}, {expected}")
    return list(tokens.values())


def marked_wordpiece(
    content: bytes, kinds_of_old: Mapping[str, int], new_tokens: Sequence[AddedToken], source: str
) -> bytes:
    """A vocab.txt with the kinds of some of its tokens at the ends of their lines, and with further tokens."""
    if any("\n" in token.text for token in new_tokens):
        raise UserError(f"{source}: an added token has a line break, which a vocab.txt cannot have")
    lines = []
    for line in content.decode("utf-8-sig").removesuffix("\n").split("\n"):
        text = wordpiece.token_of_line(line)
        lines.append(_line(text, kinds_of_old[text]) if text in kinds_of_old else f"{line}\n")
    for token in new_tokens:
        lines.append(_line(token.text, token.kind))
    return "".join(lines).encode()


def _line(text: str, kind: int) -> str:
    return f"{text}{_MARKS[kind]}\n"


def marked_sentencepiece(
    content: bytes, kinds_of_old: Mapping[str, int], new_tokens: Sequence[AddedToken]
) -> bytes:
    """A SentencePiece model with the kinds of some of its pieces as their scores, and with further pieces."""
    model = ModelProto.FromString(content)

    # SentencePiece itself finds the pieces of a model that are user-defined: they stay as they are.
    for piece in model.pieces:
        if piece.piece in kinds_of_old and piece.type in (piece.NORMAL, piece.CONTROL):
            piece.type = piece.USER_DEFINED
            piece.score = kinds_of_old[piece.piece]

    types = ModelProto.SentencePiece
    for token in new_tokens:
        type = types.CONTROL if token.kind == HIDDEN else types.USER_DEFINED
        model.pieces.add(piece=token.text, score=token.kind, type=type)
    return model.SerializeToString()


# --- A file of transformers -> its added tokens ---


def _added_token(text: str, id: int, kind: int) -> AddedToken:
    """An added token; [CLS] and the like are hidden, whatever a file says."""
    return AddedToken(text, id, HIDDEN if text in _SPECIAL_TOKENS else kind)


def _described(id: Any, description: Mapping[str, Any]) -> AddedToken:
    """The token of `{"content": "[E1]", "normalized": false}`; an id may be a number or a text of digits."""
    kind = PLAIN if description.get("normalized") else SPECIAL
    return _added_token(description["content"], int(id), kind)


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
            text = name if isinstance(name, str) else name["content"]
            if text in ids:
                tokens.append(_added_token(text, ids[text], SPECIAL))
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
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        raise UserError(message) from None
    for id, token in tokens.items():
        is_id = type(id) is int and id >= 0
        is_text = isinstance(token.text, str) and token.text != ""
        if not is_id or not is_text:
            raise UserError(message)
    return tokens


# --- A `tokenizer.json` -> a vocabulary ---


def content_of_json(values: Mapping[str, Any], source: str) -> bytes:
    """The vocabulary of a `tokenizer.json` as the content of a `vocab.txt`; b"" if it has no WordPiece model.

    Added tokens, such as [MASK] of a trained tokenizer, may be missing among those of the model.

    Raises:
      UserError: it cleans or splits text in another way than BERT does, or its tokens have no ids 0, 1, 2 and so on.
    """
    model = values.get("model")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        return b""
    _check_steps(values, source)

    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(id) is int for id in vocabulary.values()):
        raise UserError(f"{source}: expected tokens with their ids as the model's vocab")

    texts = {id: text for text, id in vocabulary.items()}
    kinds = dict.fromkeys(texts, HIDDEN)
    for token in _checked(source, _in_tokenizer_json, values, vocabulary).values():
        id_in_model = vocabulary.get(token.text, token.id)
        if id_in_model == token.id:
            texts[token.id] = token.text
            kinds[token.id] = token.kind

    ids = sorted(texts)
    has_breaks = any("\n" in text for text in texts.values())
    if has_breaks or ids != list(range(len(ids))):
        raise UserError(f"{source}: expected tokens with the ids 0, 1, 2 and so on")
    return "".join(_line(texts[id], kinds[id]) for id in ids).encode()


def _check_steps(values: Mapping[str, Any], source: str) -> None:
    """Checks that a `tokenizer.json` cleans and splits text as BERT does; what it does not say is as usual."""
    for part, expected in _STEPS.items():
        step = values.get(part)
        settings = step if isinstance(step, dict) else {"type": step}
        unusual = {
            key: settings[key]
            for key, usual in expected.items()
            if settings.get(key, usual) != usual
        }
        if unusual:
            got = shortened(unusual)
            raise UserError(f"{source}: {part} has {got}, expected BERT's {expected}")


def check_separates_chinese(values: Mapping[str, Any], source: str) -> None:
    """Checks that a `tokenizer.json` without the model's folder has the usual words of Chinese."""
    normalizer = values.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("handle_chinese_chars") is False:
        reason = "handle_chinese_chars is false, expected true, or the model's folder"
        raise UserError(f"{source}: {reason} (Tokenizer.from_pretrained)")
