"""Writes `tokenizer.json` and `tokenizer_config.json`, with which transformers tokenizes as the original does.

The library's own conversion of `spiece.model` differs from the original: it turns two backquotes or apostrophes into a
double quote, drops vowel signs of Indic scripts together with accents, and (version 5) keeps tokens such as "▁1999,".
Therefore the steps of `tokenizer.clean_text` and of SentencePiece are written here. A WordPiece vocabulary gets the
library's own steps, which differ only for private characters and the final sigma. A `tokenizer.json` of others makes
words of more than 100 characters unknown; here they are unknown from 201 characters, as in the original.
"""

import base64
import json
import unicodedata
from collections.abc import Mapping
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from albert_tf.formats.file_names import TOKENIZER_SETTINGS as SETTINGS
from albert_tf.text import added_tokens, wordpiece
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import Tokenizer, WordPieceTokenizer

NEVER = -100.0  # added to the score of a token that must not be chosen
_OF_SYMBOLS = -0.1  # the score of a user-defined symbol, which must be chosen


def vocabulary_files(tokenizer: Tokenizer | None, max_length: int | None) -> dict[str, bytes]:
    """A vocabulary and the files with which the transformers library tokenizes, contents by name; none for None.

    There is no `tokenizer.json` for a SentencePiece model that is not a unigram model; the library then makes its own.
    """
    if not tokenizer:
        return {}
    parts = (_wordpiece if isinstance(tokenizer, WordPieceTokenizer) else _unigram)(tokenizer)
    ids = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")}
    special = {f"{name}_token": tokenizer.id_to_token(id) for name, id in ids.items()}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast" if parts else "AlbertTokenizer",
        **_cleaning(tokenizer.cleaning),
        **({"model_max_length": max_length} if max_length else {}),
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **_rules(tokenizer),
        "clean_up_tokenization_spaces": False,
        **special,
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "mask_token": {"__type": "AddedToken", **_added("[MASK]")},
    }
    contents = {tokenizer.file_name: tokenizer.content, SETTINGS: _json(settings)}
    if parts:
        added = [{"id": id, **_added(tokenizer.id_to_token(id))} for id in sorted(ids.values())]
        for token in tokenizer.added_tokens:
            is_special = token.kind == added_tokens.SPECIAL
            how = {"normalized": not is_special, "special": is_special}
            added.append({"id": token.id, **_added(token.text), **how})
        unused = {"version": "1.0", "truncation": None, "padding": None}
        around = {"added_tokens": added, "post_processor": _with_special_tokens(tokenizer)}
        contents["tokenizer.json"] = _json({**unused, **around, **parts})
    return contents


def files_without_vocabulary(cleaning: Mapping[str, bool]) -> dict[str, bytes]:
    """The settings for a vocabulary that is added later; no file if all settings are the usual ones."""
    is_usual = cleaning["do_lower_case"] and not cleaning["keep_accents"]
    return {} if is_usual else {SETTINGS: _json(_cleaning(cleaning))}


def _cleaning(cleaning: Mapping[str, bool]) -> dict[str, Any]:
    strip_accents = False if cleaning["keep_accents"] else None  # None follows do_lower_case
    return {**cleaning, "strip_accents": strip_accents}


def _rules(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the settings say in addition for a model of others."""
    rules, settings = tokenizer.rules, dict[str, Any]()
    if rules.truncation_side != "right":
        settings["truncation_side"] = rules.truncation_side
    if not rules.separates_chinese:
        settings["tokenize_chinese_chars"] = False
    if rules.strips_accents:
        settings["strip_accents"] = True
    if not rules.numbers_segments:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    return settings


def _json(values: Any) -> bytes:
    return json.dumps(values, indent=1, ensure_ascii=False).encode() + b"\n"


def _wordpiece(tokenizer: Any) -> dict[str, Any]:
    """The parts of `tokenizer.json` that depend on the kind of vocabulary."""
    settings = {**_cleaning(tokenizer.cleaning), **_rules(tokenizer)}
    steps = {
        "handle_chinese_chars": tokenizer.rules.separates_chinese,
        "strip_accents": settings["strip_accents"],
        "lowercase": settings["do_lower_case"],
    }
    model = {
        "unk_token": wordpiece.UNKNOWN,
        "continuing_subword_prefix": wordpiece.CONTINUES_WORD,
        "max_input_chars_per_word": wordpiece.MOST_CHARACTERS,
        "vocab": {token: id for id, token in enumerate(tokenizer.vocabulary())},
    }
    cleaned = {"type": "BertNormalizer", "clean_text": True, **steps}
    return {
        "normalizer": cleaned,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": wordpiece.CONTINUES_WORD, "cleanup": False},
        "model": {"type": "WordPiece", **model},
    }


def _unigram(tokenizer: Any) -> dict[str, Any]:
    """The same for a SentencePiece model; empty if it is not a unigram model."""
    proto = ModelProto.FromString(tokenizer.content)
    normalizer = proto.normalizer_spec
    if proto.trainer_spec.model_type != TrainerSpec.UNIGRAM:
        return {}
    steps = [_replace(f"[{inside_class(str.isspace)}]+", " ")]
    if not tokenizer.keep_accents:
        steps += [{"type": "NFKD"}, _replace(f"[{inside_class(unicodedata.combining)}]", "")]
    if tokenizer.do_lower_case:
        # `str.lower` writes the sigma at the end of a word in another way; the library does not.
        steps += [_replace(r"(?<=\p{L})Σ(?!\p{L})", "ς"), {"type": "Lowercase"}]
    if normalizer.precompiled_charsmap:
        # The library applies the table to single characters and short groups, so it does not compose Korean syllables.
        steps += [{"type": "NFC"}] if "nfkc" in normalizer.name else []
        table = base64.b64encode(normalizer.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    if normalizer.remove_extra_whitespaces:
        strip = {"type": "Strip", "strip_left": True, "strip_right": True}
        steps += [_replace(" {2,}", " "), strip]
    scheme = "always" if normalizer.add_dummy_prefix else "never"
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    has_bytes = any(piece.type == piece.BYTE for piece in proto.pieces)
    decoders = [{"type": "ByteFallback"}, {"type": "Fuse"}, words]
    model = {"unk_id": tokenizer.unk_id, "vocab": _scores(proto), "byte_fallback": has_bytes}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": words,
        "decoder": {"type": "Sequence", "decoders": decoders} if has_bytes else words,
        "model": {"type": "Unigram", **model},
    }


def _scores(proto: ModelProto) -> list[tuple[str, float]]:
    """Tokens and scores. Tokens that end in a digit and a comma are never chosen: "▁1999," becomes "▁1999" ","."""
    scores = []
    for piece in proto.pieces:
        token, score = piece.piece, piece.score
        if piece.type == piece.USER_DEFINED:
            # As in SentencePiece (unigram_model.cc): its length times the best score, which counts as 0 if it is below,
            # less 0.1. So it is chosen wherever it is found, whatever its length.
            score = _OF_SYMBOLS
        elif piece.type == piece.BYTE or (token[-2:-1].isdigit() and token.endswith(",")):
            score += NEVER
        scores.append((token, score))
    return scores


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _added(token: str) -> dict[str, Any]:
    # The space before a masked word is part of the word.
    settings = {"single_word": False, "lstrip": token == "[MASK]", "rstrip": False}
    return {"content": token, **settings, "normalized": False, "special": True}


def _with_special_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = {"[CLS]": tokenizer.cls_id, "[SEP]": tokenizer.sep_id}
    special = {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in ids.items()}
    cls, first, end, second, last = (
        {"SpecialToken" if id in ids else "Sequence": {"id": id, "type_id": type_id}}
        for id, type_id in (("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", 1), ("[SEP]", 1))
    )
    templates = {"single": [cls, first, end], "pair": [cls, first, end, second, last]}
    return {"type": "TemplateProcessing", **templates, "special_tokens": special}
