"""Writes `tokenizer.json` and `tokenizer_config.json`, with which transformers tokenizes as the original does.

The library's own conversion of `spiece.model` differs from the original: it turns two backquotes or apostrophes into a
double quote, drops vowel signs of Indic scripts together with accents, and (version 5) keeps tokens such as "▁1999,".
Therefore the steps of `cleaning.clean_text` and of SentencePiece are written here. A WordPiece vocabulary gets the
library's own steps, which differ only for private characters and the final sigma. A `tokenizer.json` of others makes
words of more than 100 characters unknown; here they are unknown from 201 characters, as in the original.
"""

import base64
import json
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from albert_tf.formats.file_names import TOKENIZER_SETTINGS as SETTINGS
from albert_tf.text import wordpiece
from albert_tf.text.added_tokens import HIDDEN, AddedToken, by_id, description_of
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

NEVER = -100.0  # added to the score of a token that must not be chosen
_OF_SYMBOLS = -0.1  # the score of a user-defined symbol, which must be chosen


def vocabulary_files(tokenizer: Tokenizer | None, max_length: int | None) -> dict[str, bytes]:
    """A vocabulary and the files with which the transformers library tokenizes, contents by name; none for None.

    There is no `tokenizer.json` for a SentencePiece model that is not a unigram model (`difference_in_transformers`).
    """
    if not tokenizer:
        return {}
    parts = _PARTS[type(tokenizer)](tokenizer)
    contents = {
        tokenizer.file_name: tokenizer.content,
        SETTINGS: _json(_tokenizer_config(tokenizer, max_length, has_json=bool(parts))),
    }
    if parts:
        contents["tokenizer.json"] = _json(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": _added_tokens(tokenizer),
                "post_processor": _with_special_tokens(tokenizer),
                **parts,
            }
        )
    return contents


def _tokenizer_config(
    tokenizer: Tokenizer, max_length: int | None, *, has_json: bool
) -> dict[str, Any]:
    """The content of `tokenizer_config.json`."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast" if has_json else "AlbertTokenizer",
        **_cleaning(tokenizer.cleaning),
    }
    if max_length:
        settings["model_max_length"] = max_length
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    settings |= _rules(tokenizer)
    settings |= _added_tokens_decoder(tokenizer)
    settings["clean_up_tokenization_spaces"] = False

    mask_token = AddedToken("[MASK]", tokenizer.mask_id, HIDDEN)
    settings |= {
        "pad_token": tokenizer.id_to_token(tokenizer.pad_id),
        "unk_token": tokenizer.id_to_token(tokenizer.unk_id),
        "cls_token": tokenizer.id_to_token(tokenizer.cls_id),
        "sep_token": tokenizer.id_to_token(tokenizer.sep_id),
        "mask_token": {"__type": "AddedToken", **description_of(mask_token)},
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
    }
    return settings


def _added_tokens(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The special tokens, and those that were added to the vocabulary, for `tokenizer.json`."""
    special = [AddedToken(tokenizer.id_to_token(id), id, HIDDEN) for id in tokenizer.special_ids()]
    tokens = [*by_id(special), *tokenizer.added_tokens]
    return [{"id": token.id, **description_of(token)} for token in tokens]


def _added_tokens_decoder(tokenizer: Tokenizer) -> dict[str, Any]:
    """The same for `tokenizer_config.json`, where `Tokenizer.from_file` reads them; nothing if no token was added."""
    if not tokenizer.added_tokens:
        return {}
    descriptions = _added_tokens(tokenizer)
    return {
        "added_tokens_decoder": {
            str(description.pop("id")): description for description in descriptions
        }
    }


def vocabulary_alone(tokenizer: Tokenizer, name: str) -> dict[str, bytes]:
    """A vocabulary under a name, for folders that transformers does not read, with the file that lists added tokens."""
    contents = {name: tokenizer.content}
    if tokenizer.added_tokens:
        # All of the file, in case the folder has a model of transformers, too.
        contents[SETTINGS] = vocabulary_files(tokenizer, tokenizer.max_length)[SETTINGS]
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
    rules = tokenizer.rules
    settings: dict[str, Any] = {}
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
    # The other tokens are in the list of added tokens.
    tokens_of_file = wordpiece.read_tokens(tokenizer.content, tokenizer.file_name)
    steps = {
        "handle_chinese_chars": tokenizer.rules.separates_chinese,
        "strip_accents": settings["strip_accents"],
        "lowercase": settings["do_lower_case"],
    }
    model = {
        "unk_token": wordpiece.UNKNOWN,
        "continuing_subword_prefix": wordpiece.CONTINUES_WORD,
        "max_input_chars_per_word": wordpiece.MOST_CHARACTERS,
        "vocab": {token: id for id, token in enumerate(tokens_of_file)},
    }
    cleaned = {"type": "BertNormalizer", "clean_text": True, **steps}
    return {
        "normalizer": cleaned,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": wordpiece.CONTINUES_WORD, "cleanup": False},
        "model": {"type": "WordPiece", **model},
    }


def difference_in_transformers(tokenizer: Tokenizer) -> str:
    """Why transformers finds other tokens with the written files; "" if it finds the same.

    Its AlbertTokenizer reads a BPE model of SentencePiece as a unigram model, whose pieces are chosen by the sum of
    their scores (findings/transformers_albert_reads_bpe_as_unigram.sh).
    """
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return ""
    model_type = ModelProto.FromString(tokenizer.content).trainer_spec.model_type
    if model_type != TrainerSpec.BPE:
        return ""
    return (
        "the vocabulary is a BPE model of SentencePiece, which transformers reads as a unigram model: it finds other"
        " tokens; make them with SentencePiece or here"
    )


def _unigram(tokenizer: Any) -> dict[str, Any]:
    """The same for a SentencePiece model; empty if it is not a unigram model."""
    proto = tokenizer.model()
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
        if "nfkc" in normalizer.name:
            steps += _composed(tokenizer.keep_accents)
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


def _composed(has_accents: bool) -> list[dict[str, Any]]:
    """The steps before the table of a SentencePiece model that composes characters, as the library does not by itself.

    It applies the table to single characters and short groups. So it does not compose Korean syllables, and of a group
    that begins with an entry of the table it drops the rest: a wide "Ａ" with an acute would become "A", not "Á".
    Without accents, compatibility forms are gone before. The table's only exception to NFKC is the wide tilde, which
    the tables of the kind nmt_nfkc keep; another character takes its place here.
    """
    if not has_accents:
        return [{"type": "NFC"}]
    return [_replace_text("～", "\uffff"), {"type": "NFKC"}, _replace_text("\uffff", "～")]


def _scores(proto: ModelProto) -> list[tuple[str, float]]:
    """Tokens and scores. Tokens that end in a digit and a comma are never chosen: "▁1999," becomes "▁1999" ","."""
    scores = []
    for piece in proto.pieces:
        token = piece.piece
        score = piece.score
        if piece.type == piece.USER_DEFINED:
            # As in SentencePiece (unigram_model.cc): its length times the best score, which counts as 0 if it is below,
            # less 0.1. So it is chosen wherever it is found, whatever its length.
            score = _OF_SYMBOLS
        elif piece.type == piece.BYTE or (token[-2:-1].isdigit() and token.endswith(",")):
            score += NEVER
        scores.append((token, score))
    return scores


# A kind of vocabulary -> the parts of `tokenizer.json` that depend on it; {} if the library makes its own file.
_PARTS: Mapping[type[Tokenizer], Callable[[Any], dict[str, Any]]] = {
    SentencePieceTokenizer: _unigram,
    WordPieceTokenizer: _wordpiece,
}


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _replace_text(text: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def _with_special_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """What puts [CLS] before a text or a pair of texts A and B, and [SEP] after each text."""
    ids = {"[CLS]": tokenizer.cls_id, "[SEP]": tokenizer.sep_id}
    special = {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in ids.items()}
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    pair = [
        *single,
        {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
    ]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": special,
    }
