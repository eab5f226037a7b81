"""Tokens that transformers adds to a vocabulary: they are found in a text before it is cleaned and split into words.

A vocabulary contains them among or after its own tokens: in WordPiece as lines that end in a mark of their kind, in a
SentencePiece model as user-defined pieces whose score is the kind. A text must write a special token exactly so; a
plain one is found in either case if the vocabulary is lower-cased. [CLS] and the like are never found in a text.

Source: transformers, `AddedToken` and `AddedVocabulary`; the files `added_tokens.json`, `tokenizer_config.json` and
`tokenizer.json`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.text import wordpiece

HIDDEN, PLAIN, SPECIAL = 0, *wordpiece.ADDED_MARKS.values()  # SentencePiece's own pieces score 0
_MARKS = {HIDDEN: "", **{kind: mark for mark, kind in wordpiece.ADDED_MARKS.items()}}
# What a `tokenizer.json` says about the words of BERT's tokenizer.
_STEPS: Mapping[str, Mapping[str, Any]] = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"continuing_subword_prefix": wordpiece.CONTINUES_WORD},
}
_SPECIAL_TOKENS = ("[PAD]", "<pad>", "[UNK]", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def _token(token: str, kind: int) -> tuple[str, int]:
    return token, HIDDEN if token in _SPECIAL_TOKENS else kind


def _of_list(tokens: Iterable[tuple[Any, Mapping[str, Any]]]) -> dict[int, tuple[str, int]]:
    """Tokens and kinds by id."""
    return {
        int(id): _token(token["content"], PLAIN if token.get("normalized") else SPECIAL)
        for id, token in tokens
    }


def _of_json(values: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    return _of_list((token["id"], token) for token in values.get("added_tokens") or ())


def _named(values: Mapping[str, Any], ids: Mapping[str, int]) -> dict[int, tuple[str, int]]:
    """Special tokens that a file names without their ids, as far as they are known."""
    names = (values.get(f"{kind}_special_tokens") or () for kind in ("additional", "extra"))
    tokens = [t if isinstance(t, str) else t["content"] for several in names for t in several]
    return {ids[token]: _token(token, SPECIAL) for token in tokens if token in ids}


_FILES: Mapping[str, Callable[[Any, Mapping[str, int]], dict[int, tuple[str, int]]]] = {
    "added_tokens.json": lambda values, _: {id: _token(t, PLAIN) for t, id in values.items()},
    "special_tokens_map.json": _named,
    "tokenizer_config.json": lambda values, ids: (
        _named(values, ids) | _of_list(values.get("added_tokens_decoder", {}).items())
    ),
    "tokenizer.json": lambda values, _: _of_json(values),
}


def content_of_json(values: Mapping[str, Any], source: str) -> bytes:
    """The vocabulary of a `tokenizer.json` as the content of a `vocab.txt`; b"" if it has no WordPiece model.

    Added tokens, such as [MASK] of a trained tokenizer, may be missing among those of the model.

    Raises:
      UserError: it cleans or splits text in another way than BERT does, or its tokens have no ids 0, 1, 2 and so on.
    """
    model = values.get("model")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        return b""
    for part, expected in _STEPS.items():
        own = own if isinstance(own := values.get(part), dict) else {"type": own}
        found = {k: own[k] for k, usual in expected.items() if own.get(k, usual) != usual}
        if found:
            raise UserError(f"{source}: {part} has {shortened(found)}, expected BERT's {expected}")
    known = model.get("vocab")
    if not isinstance(known, dict) or not all(type(id) is int for id in known.values()):
        raise UserError(f"{source}: expected tokens with their ids as the model's vocab")
    of_file = _read_tokens(source, _of_json, values)
    tokens = {id: (token, HIDDEN) for token, id in known.items()}
    added = {id: own for id, own in of_file.items() if known.get(own[0], id) == id}
    lines = sorted((tokens | added).items())
    has_breaks = any("\n" in token for _, (token, _) in lines)
    if has_breaks or [id for id, _ in lines] != [*range(len(lines))]:
        raise UserError(f"{source}: expected tokens with the ids 0, 1, 2 and so on")
    return "".join(_line(token, kind) for _, (token, kind) in lines).encode()


def _read_tokens(path: str, read: Callable, *values: Any) -> dict[int, tuple[str, int]]:
    """The added tokens that a function reads from the values of a file, which may be of any type."""
    try:
        tokens = read(*values)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        tokens = None
    if tokens is None or not all(_is_token(id, token) for id, (token, _) in tokens.items()):
        raise UserError(f"{path}: added tokens are not tokens with their ids")
    return tokens


def _is_token(id: Any, token: Any) -> bool:
    is_id = type(id) is int and id >= 0
    return is_id and isinstance(token, str) and token != ""


def check_separates_chinese(values: Mapping[str, Any], source: str) -> None:
    """Checks that a `tokenizer.json` without the model's folder has the usual words of Chinese."""
    normalizer = values.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("handle_chinese_chars") is False:
        reason = "handle_chinese_chars is false, expected true, or the model's folder"
        raise UserError(f"{source}: {reason} (Tokenizer.from_pretrained)")


def _line(token: str, kind: int) -> str:
    return f"{token}{_MARKS[kind]}\n"


def with_added_tokens(content: bytes, folder: str, vocabulary: Sequence[str]) -> bytes:
    """The content of a vocabulary, given also as its tokens, with those that the files in its folder add to it.

    Raises:
      UserError: the ids of the added tokens are neither those of the vocabulary nor follow them.
    """
    tokens: dict[int, tuple[str, int]] = {}
    ids, first = {token: id for id, token in enumerate(vocabulary)}, len(vocabulary)
    for name, read in _FILES.items():
        path = os.path.join(folder, name)
        values = files.read_json(path) if files.exists(path) else None
        if isinstance(values, dict):
            own = _read_tokens(path, read, values, ids)
            tokens |= own
            for id, (token, kind) in own.items():
                if kind and ids.setdefault(token, max(id, first)) != id:
                    expected = f"expected {ids[token]}"
                    raise UserError(f"{path}: added token {token!r} has the id {id}, {expected}")
    added = dict(sorted((id, token) for id, token in tokens.items() if id >= first))
    if list(added) != [*range(first, first + len(added))]:
        raise UserError(f"{folder}: added tokens have the ids {[*added]}, expected {first:,} first")
    if wordpiece.is_wordpiece(content) and any("\n" in token for token, _ in added.values()):
        raise UserError(f"{folder}: an added token has a line break, which a vocab.txt cannot have")
    known = {token: kind for id, (token, kind) in tokens.items() if kind and id < first}
    return _marked(content, known, list(added.values())) if known or added else content


def _marked(content: bytes, known: Mapping[str, int], added: list[tuple[str, int]]) -> bytes:
    """The content with the kinds of some of its tokens, and with further tokens."""
    if wordpiece.is_wordpiece(content):
        lines = content.decode("utf-8-sig").removesuffix("\n").split("\n")
        named = ((wordpiece.token_of_line(line), line) for line in lines)
        own = (_line(t, known[t]) if t in known else f"{line}\n" for t, line in named)
        return "".join([*own, *(_line(token, kind) for token, kind in added)]).encode()
    proto = ModelProto.FromString(content)
    for piece in proto.pieces:  # SentencePiece finds user-defined pieces itself
        if piece.piece in known and piece.type in (piece.NORMAL, piece.CONTROL):
            piece.type, piece.score = piece.USER_DEFINED, known[piece.piece]
    for token, kind in added:
        type = ModelProto.SentencePiece.USER_DEFINED if kind else ModelProto.SentencePiece.CONTROL
        proto.pieces.add(piece=token, score=kind, type=type)
    return proto.SerializeToString()


def added_tokens(content: bytes) -> dict[str, int]:
    """The added tokens in the content of a vocabulary that are found in texts, with their kinds."""
    if wordpiece.is_wordpiece(content):
        lines = content.decode("utf-8", "replace").split("\n") if b"\tadded" in content else []
        ends = ((line, mark) for line in lines for mark in _MARKS.values() if mark)
        return {
            line.removesuffix(mark): wordpiece.ADDED_MARKS[mark]
            for line, mark in ends
            if line.endswith(mark)
        }
    pieces = ModelProto.FromString(content).pieces
    kinds = ((piece.piece, piece) for piece in pieces if piece.type == piece.USER_DEFINED)
    return {token: int(piece.score) for token, piece in kinds if piece.score in (PLAIN, SPECIAL)}


def pattern_of(tokens: Mapping[str, int], do_lower_case: bool) -> re.Pattern | None:
    """Finds the tokens in a text, the longest first, as its one group; None if there are none."""
    parts = [
        f"(?i:{re.escape(name)})" if do_lower_case and tokens[name] == PLAIN else re.escape(name)
        for name in sorted(tokens, key=len, reverse=True)
    ]
    return re.compile(f"({'|'.join(parts)})") if parts else None
