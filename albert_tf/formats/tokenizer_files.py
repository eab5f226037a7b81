"""What the transformers library needs to tokenise as the original does: `tokenizer.json`, `tokenizer_config.json`.

Its own conversion of `spiece.model` is of another mind than the original in some things: it turns two backquotes or
apostrophes into a double quote, drops vowel signs of Indic scripts with the accents, and (version 5) keeps pieces such
as "▁1999,". So the steps are spelled out here: cleaning as `tokenization.clean_text`, SentencePiece's own
normalisation, its pieces and their scores.
"""

import base64
import json
import struct
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

from albert_tf.core.errors import UserError

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"

_MARKER = "▁"
_UNIGRAM = 1  # TrainerSpec.ModelType
_NORMAL, _USER_DEFINED = 1, 4  # SentencePiece.Type
_NEVER = -100.0  # added to the score of a piece that is not to be chosen
_SPECIAL = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


class _Vocabulary(NamedTuple):
    """What a SentencePiece model file says, as far as it is needed here.

    Attributes:
      pieces: text, score and type of each.
      is_unigram: whether the segmentation with the highest sum of scores is wanted, without bytes for unknown text.
      characters_map: SentencePiece's table of replaced characters.
      adds_marker: whether a marker is put before the text.
      collapses_spaces: whether spaces at the ends, and all but one of several, go.
    """

    pieces: list[tuple[str, float, int]]
    is_unigram: bool
    characters_map: bytes
    adds_marker: bool
    collapses_spaces: bool


def tokenizer_files(
    model_proto: bytes, *, do_lower_case: bool, max_length: int, source: str
) -> dict[str, bytes]:
    """The files that go beside a `spiece.model`.

    Args:
      model_proto: the bytes of the SentencePiece model file.
      do_lower_case: whether text is lower-cased.
      max_length: longest sequence that the model takes, in pieces.
      source: what errors call the SentencePiece model.

    Returns:
      Content by name; without `tokenizer.json` for a model that is no unigram model (the library then makes its own).

    Raises:
      UserError: the bytes are no SentencePiece model, or a special piece is missing.
    """
    try:
        vocabulary = _vocabulary(model_proto)
    except (ValueError, IndexError, KeyError):
        raise UserError(f"{source}: is no SentencePiece model") from None
    ids = {piece: id for id, (piece, _, _) in enumerate(vocabulary.pieces)}
    if missing := [piece for piece in _SPECIAL.values() if piece not in ids]:
        raise UserError(f"{source}: has no piece {missing[0]}")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast"
        if vocabulary.is_unigram
        else "AlbertTokenizer",
        "do_lower_case": do_lower_case,
        "keep_accents": False,
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **_SPECIAL,
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "mask_token": {"__type": "AddedToken", **_added_token("[MASK]")},
    }
    written = {SETTINGS: json.dumps(settings, indent=2).encode() + b"\n"}
    if vocabulary.is_unigram:
        content = _tokenizer(vocabulary, ids, do_lower_case)
        written[TOKENIZER] = json.dumps(content, ensure_ascii=False).encode() + b"\n"
    return written


# --- tokenizer.json ---


def _tokenizer(vocabulary: _Vocabulary, ids: dict[str, int], do_lower_case: bool) -> dict[str, Any]:
    words = {
        "type": "Metaspace",
        "replacement": _MARKER,
        "prepend_scheme": "always" if vocabulary.adds_marker else "never",
        "split": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": id, **_added_token(piece)}
            for id, piece in sorted((ids[piece], piece) for piece in _SPECIAL.values())
        ],
        "normalizer": {"type": "Sequence", "normalizers": _cleaning(vocabulary, do_lower_case)},
        "pre_tokenizer": words,
        "post_processor": _with_special_pieces(ids),
        "decoder": words,
        "model": {
            "type": "Unigram",
            "unk_id": ids["<unk>"],
            "vocab": _scores(vocabulary),
            "byte_fallback": False,
        },
    }


def _added_token(piece: str) -> dict[str, Any]:
    # The space before a masked word is a part of the word.
    settings = {"single_word": False, "lstrip": piece == "[MASK]", "rstrip": False}
    return {"content": piece, **settings, "normalized": False, "special": True}


def _cleaning(vocabulary: _Vocabulary, do_lower_case: bool) -> list[dict[str, Any]]:
    """The steps of `tokenization.clean_text`, then those inside SentencePiece."""
    steps = [
        _replace(f"[{_character_class(str.isspace)}]+", " "),
        {"type": "NFKD"},
        _replace(f"[{_character_class(lambda char: unicodedata.combining(char) != 0)}]", ""),
    ]
    if do_lower_case:
        steps.append({"type": "Lowercase"})
    if vocabulary.characters_map:
        table = base64.b64encode(vocabulary.characters_map).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    if vocabulary.collapses_spaces:
        steps.append(_replace(" {2,}", " "))
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
    return steps


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _character_class(belongs) -> str:
    """The inside of a [...] of a regular expression with every character that `belongs`."""
    runs: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if belongs(chr(code)):
            if runs and runs[-1][1] == code - 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
    return "".join(
        chr(first) if first == last else f"{chr(first)}-{chr(last)}" for first, last in runs
    )


def _scores(vocabulary: _Vocabulary) -> list[tuple[str, float]]:
    """Pieces and scores; one that ends in a digit and a comma is never chosen, which makes "▁1999" "," of it."""
    best = max(score for _, score, type in vocabulary.pieces if type == _NORMAL)
    scores = []
    for piece, score, type in vocabulary.pieces:
        if type == _USER_DEFINED:
            score = len(piece.encode()) * best - 0.1  # as in SentencePiece, unigram_model.cc
        elif piece[-2:-1].isdigit() and piece.endswith(","):
            score += _NEVER
        scores.append((piece, score))
    return scores


def _with_special_pieces(ids: dict[str, int]) -> dict[str, Any]:
    def special(piece: str, type_id: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": piece, "type_id": type_id}}

    def text(name: str, type_id: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special("[SEP]", 1)],
        "special_tokens": {
            piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]}
            for piece in ("[CLS]", "[SEP]")
        },
    }


# --- SentencePiece's file, a protocol buffer ---


def _vocabulary(model_proto: bytes) -> _Vocabulary:
    """Reads sentencepiece_model.proto's ModelProto: pieces = 1, trainer_spec = 2, normalizer_spec = 3."""
    pieces, trainer, normalizer = [], {}, {}
    for number, value in _fields(memoryview(model_proto)):
        if number == 1:
            fields = dict(_fields(value))
            score = struct.unpack("<f", fields.get(2, bytes(4)))[0]
            pieces.append((bytes(fields[1]).decode(), score, fields.get(3, _NORMAL)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    return _Vocabulary(
        pieces,
        is_unigram=trainer.get(3, _UNIGRAM) == _UNIGRAM and not trainer.get(35, 0),
        characters_map=bytes(normalizer.get(2, b"")),
        adds_marker=bool(normalizer.get(3, True)),
        collapses_spaces=bool(normalizer.get(4, True)),
    )


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message: ints, or the bytes of anything else.

    Source: protobuf.dev/programming-guides/encoding.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == 0:
            value, position = _varint(message, position)
        else:
            if wire_type == 2:
                length, position = _varint(message, position)
            else:
                length = {1: 8, 5: 4}[wire_type]
            value = message[position : position + length]
            position += length
            if len(value) != length:
                raise ValueError("a field is cut off")
        yield key >> 3, value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the position behind it."""
    number = 0
    for index, byte in enumerate(message[position : position + 10]):
        number |= (byte & 127) << 7 * index
        if byte < 128:
            return number, position + index + 1
    raise ValueError("a number is cut off")
