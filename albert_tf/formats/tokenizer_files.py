"""Files with which the transformers library tokenizes as the original does: `tokenizer.json`, `tokenizer_config.json`.

The library's own conversion of `spiece.model` differs from the original: it turns two backquotes or apostrophes into a
double quote, drops vowel signs of Indic scripts with the accents, and (version 5) keeps tokens such as "▁1999,". So
the steps are written here: cleaning as in `tokenizer.clean_text`, SentencePiece's own normalization, its tokens and
their scores.
"""

import base64
import itertools
import json
import sys
import unicodedata
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

from albert_tf.core.errors import UserError
from albert_tf.formats.description import TOKENIZER_SETTINGS

TOKENIZER, SETTINGS = "tokenizer.json", TOKENIZER_SETTINGS

_NEVER = -100.0  # added to the score of a token that must not be chosen
_SPECIAL = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def tokenizer_files(
    model_proto: bytes, *, do_lower_case: bool, max_length: int, source: str
) -> dict[str, bytes]:
    """The files that go beside a `spiece.model`.

    Args:
      model_proto: the bytes of the SentencePiece model file.
      do_lower_case: whether text is lower-cased.
      max_length: longest sequence that the model takes, in tokens.
      source: what errors call the SentencePiece model.

    Returns:
      Content by name; without `tokenizer.json` for a model that is no unigram model (the library then makes its own).

    Raises:
      UserError: the bytes are no SentencePiece model, or a special token is missing.
    """
    try:
        model = ModelProto.FromString(model_proto)
    except DecodeError:
        model = ModelProto()
    if not model.pieces:
        raise UserError(f"{source}: is no SentencePiece model")
    ids = {piece.piece: id for id, piece in enumerate(model.pieces)}
    if missing := [token for token in _SPECIAL.values() if token not in ids]:
        raise UserError(f"{source}: has no piece {missing[0]}")
    trainer = model.trainer_spec
    is_unigram = trainer.model_type == TrainerSpec.UNIGRAM and not trainer.byte_fallback
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast" if is_unigram else "AlbertTokenizer",
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
    contents = {SETTINGS: json.dumps(settings, indent=2).encode() + b"\n"}
    if is_unigram:
        tokenizer = _tokenizer(model, ids, do_lower_case)
        contents[TOKENIZER] = json.dumps(tokenizer, ensure_ascii=False).encode() + b"\n"
    return contents


# --- tokenizer.json ---


def _tokenizer(model: ModelProto, ids: dict[str, int], do_lower_case: bool) -> dict[str, Any]:
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    steps = _cleaning(model.normalizer_spec, do_lower_case)
    unigrams = {"unk_id": ids["<unk>"], "vocab": _scores(model), "byte_fallback": False}
    special = sorted(_SPECIAL.values(), key=ids.__getitem__)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[token], **_added_token(token)} for token in special],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": words,
        "post_processor": _with_special_tokens(ids),
        "decoder": words,
        "model": {"type": "Unigram", **unigrams},
    }


def _added_token(token: str) -> dict[str, Any]:
    # The space before a masked word is a part of the word.
    settings = {"single_word": False, "lstrip": token == "[MASK]", "rstrip": False}
    return {"content": token, **settings, "normalized": False, "special": True}


def _cleaning(normalizer: NormalizerSpec, do_lower_case: bool) -> list[dict[str, Any]]:
    """The steps of `tokenizer.clean_text`, then those inside SentencePiece."""
    steps = [
        _replace(f"[{_character_class(str.isspace)}]+", " "),
        {"type": "NFKD"},
        _replace(f"[{_character_class(lambda char: unicodedata.combining(char) != 0)}]", ""),
    ]
    if do_lower_case:
        steps.append({"type": "Lowercase"})
    if normalizer.precompiled_charsmap:
        table = base64.b64encode(normalizer.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    if normalizer.remove_extra_whitespaces:
        steps.append(_replace(" {2,}", " "))
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
    return steps


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _character_class(belongs) -> str:
    """The inside of a [...] of a regular expression with every character that `belongs`."""
    text = ""
    for is_run, characters in itertools.groupby(map(chr, range(sys.maxunicode + 1)), belongs):
        if is_run:
            first, *rest = characters
            text += f"{first}-{rest[-1]}" if rest else first
    return text


def _scores(model: ModelProto) -> list[tuple[str, float]]:
    """Tokens and scores; a token that ends in a digit and a comma is never chosen, which gives "▁1999" ","."""
    kinds = ModelProto.SentencePiece
    best = max(piece.score for piece in model.pieces if piece.type == kinds.NORMAL)
    scores = []
    for piece in model.pieces:
        token, score = piece.piece, piece.score
        if piece.type == kinds.USER_DEFINED:
            score = len(token.encode()) * best - 0.1  # as in SentencePiece, unigram_model.cc
        elif token[-2:-1].isdigit() and token.endswith(","):
            score += _NEVER
        scores.append((token, score))
    return scores


def _with_special_tokens(ids: dict[str, int]) -> dict[str, Any]:
    tokens = ("[CLS]", "[SEP]")

    def part(id: str, type_id: int) -> dict[str, Any]:
        kind = "SpecialToken" if id in tokens else "Sequence"
        return {kind: {"id": id, "type_id": type_id}}

    special = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in tokens}
    single = [part("[CLS]", 0), part("A", 0), part("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, part("B", 1), part("[SEP]", 1)],
        "special_tokens": special,
    }
