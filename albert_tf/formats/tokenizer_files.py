"""Writes `tokenizer.json` and `tokenizer_config.json`, with which transformers tokenizes as the original does.

The library's own conversion of `spiece.model` differs from the original: it turns two backquotes or apostrophes into a
double quote, drops vowel signs of Indic scripts together with accents, and (version 5) keeps tokens such as "▁1999,".
Its `BertTokenizer` drops private characters, does not handle the final sigma, and treats words of more than 100
characters as unknown. Therefore the steps are written here: cleaning as in `tokenizer.clean_text`, SentencePiece's own
normalization, its tokens and their scores; or the steps of `wordpiece.split_words`.
"""

import base64
import json
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

from albert_tf.formats.description import TOKENIZER_SETTINGS
from albert_tf.text import wordpiece
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import Tokenizer, WordPieceTokenizer

TOKENIZER, SETTINGS = "tokenizer.json", TOKENIZER_SETTINGS

# Sigma after a letter and not before a letter; `str.lower` uses this rule, too.
_FINAL_SIGMA = r"(?<=\p{L})Σ(?!\p{L})"
_BYTES = {"type": "ByteFallback"}
_NEVER = -100.0  # added to the score of a token that must not be chosen
_SPECIAL = {"pad_token": "pad_id", "unk_token": "unk_id", "cls_token": "cls_id"}
_SPECIAL |= {"sep_token": "sep_id", "mask_token": "mask_id"}


def vocabulary_files(tokenizer: Tokenizer | None, max_length: int) -> dict[str, bytes]:
    """A vocabulary and the files with which the transformers library tokenizes, contents by name; none for None.

    There is no `tokenizer.json` for a SentencePiece model that is not a unigram model; the library then makes its own.
    """
    if not tokenizer:
        return {}
    contents = {tokenizer.file_name: tokenizer.content}
    if isinstance(tokenizer, WordPieceTokenizer):
        parts = _wordpiece_parts(tokenizer)
        strip_accents = False if tokenizer.keep_accents else None  # None follows do_lower_case
        own = {"strip_accents": strip_accents, "tokenize_chinese_chars": True}
    else:
        parts = _unigram_parts(ModelProto.FromString(tokenizer.content), tokenizer)
        own = {"keep_accents": tokenizer.keep_accents}
    special = {name: tokenizer.id_to_token(id) for name, id in _special_ids(tokenizer).items()}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast" if parts else "AlbertTokenizer",
        "do_lower_case": tokenizer.do_lower_case,
        **own,
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "mask_token": {"__type": "AddedToken", **_added_token("[MASK]")},
    }
    contents[SETTINGS] = json.dumps(settings, indent=2).encode() + b"\n"
    if parts:
        ids = {tokenizer.id_to_token(id): id for id in _special_ids(tokenizer).values()}
        contents[TOKENIZER] = _tokenizer_json(parts, ids)
    return contents


def files_without_vocabulary(cleaning: Mapping[str, bool]) -> dict[str, bytes]:
    """The settings for a vocabulary of either kind that is added later; no file if all settings are the usual ones."""
    if cleaning["do_lower_case"] and not cleaning["keep_accents"]:
        return {}
    strip_accents = False if cleaning["keep_accents"] else None
    settings = {**cleaning, "strip_accents": strip_accents}
    return {SETTINGS: json.dumps(settings, indent=2).encode() + b"\n"}


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The library's name of each special token -> its id."""
    return {name: getattr(tokenizer, id) for name, id in _SPECIAL.items()}


# --- tokenizer.json ---


def _tokenizer_json(parts: dict[str, Any], special_ids: dict[str, int]) -> bytes:
    special = sorted(special_ids, key=special_ids.__getitem__)
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": special_ids[token], **_added_token(token)} for token in special],
        "normalizer": {"type": "Sequence", "normalizers": parts["normalizers"]},
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": _with_special_tokens(special_ids),
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"


def _unigram_parts(model: ModelProto, tokenizer: Tokenizer) -> dict[str, Any]:
    """The parts of `tokenizer.json` for a SentencePiece model; empty if it is not a unigram model."""
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    if trainer.model_type != TrainerSpec.UNIGRAM:
        return {}
    scheme = "always" if normalizer.add_dummy_prefix else "never"
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    has_bytes = any(piece.type == ModelProto.SentencePiece.BYTE for piece in model.pieces)
    unigrams = {"unk_id": tokenizer.unk_id, "vocab": _scores(model), "byte_fallback": has_bytes}
    return {
        "normalizers": _cleaning(normalizer, tokenizer),
        "pre_tokenizer": words,
        "decoder": {"type": "Sequence", "decoders": [_BYTES, {"type": "Fuse"}, words]}
        if has_bytes
        else words,
        "model": {"type": "Unigram", **unigrams},
    }


def _wordpiece_parts(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    """The parts of `tokenizer.json` for a WordPiece vocabulary: the steps of `wordpiece.split_words`."""
    steps = [_remove(wordpiece.is_removed)]
    if tokenizer.do_lower_case:
        steps += _lower_case()
    if tokenizer.do_lower_case and not tokenizer.keep_accents:
        steps += [{"type": "NFD"}, _remove(wordpiece.is_accent)]
    splits = [
        {"type": "WhitespaceSplit"},
        _split(f"[{inside_class(wordpiece.is_separated)}]"),
    ]
    return {
        "normalizers": steps,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "decoder": {"type": "WordPiece", "prefix": wordpiece.CONTINUES_WORD, "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": wordpiece.UNKNOWN,
            "continuing_subword_prefix": wordpiece.CONTINUES_WORD,
            "max_input_chars_per_word": wordpiece.MOST_CHARACTERS,
            "vocab": {token: id for id, token in enumerate(tokenizer.vocabulary())},
        },
    }


def _split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _remove(belongs: Callable[[str], object]) -> dict[str, Any]:
    return _replace(f"[{inside_class(belongs)}]", "")


def _added_token(token: str) -> dict[str, Any]:
    # The space before a masked word is part of the word.
    settings = {"single_word": False, "lstrip": token == "[MASK]", "rstrip": False}
    return {"content": token, **settings, "normalized": False, "special": True}


def _cleaning(normalizer: NormalizerSpec, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The steps of `tokenizer.clean_text`, followed by those inside SentencePiece."""
    steps = [_replace(f"[{inside_class(str.isspace)}]+", " ")]
    if not tokenizer.keep_accents:
        steps += [{"type": "NFKD"}, _remove(unicodedata.combining)]
    if tokenizer.do_lower_case:
        steps += _lower_case()
    if normalizer.precompiled_charsmap:
        # The library applies the table to single characters and short groups, so it does not compose Korean syllables.
        steps += [{"type": "NFC"}] if "nfkc" in normalizer.name else []
        table = base64.b64encode(normalizer.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    if normalizer.remove_extra_whitespaces:
        steps.append(_replace(" {2,}", " "))
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
    return steps


def _lower_case() -> list[dict[str, Any]]:
    """Steps for lower case that handle the sigma at the end of a word, which the library's own step does not."""
    return [_replace(_FINAL_SIGMA, "ς"), {"type": "Lowercase"}]


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _scores(model: ModelProto) -> list[tuple[str, float]]:
    """Tokens and scores. Tokens that end in a digit and a comma are never chosen: "▁1999," becomes "▁1999" ","."""
    kinds = ModelProto.SentencePiece
    best = max(piece.score for piece in model.pieces if piece.type == kinds.NORMAL)
    scores = []
    for piece in model.pieces:
        token, score = piece.piece, piece.score
        if piece.type == kinds.USER_DEFINED:
            score = len(token.encode()) * best - 0.1  # as in SentencePiece, unigram_model.cc
        elif piece.type == kinds.BYTE or (token[-2:-1].isdigit() and token.endswith(",")):
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
