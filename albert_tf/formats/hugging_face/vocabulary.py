"""The vocabulary in a folder, and how the files of transformers say that text is cleaned and split."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import lengths
from albert_tf.formats.file_names import TOKENIZER_SETTINGS
from albert_tf.formats.hugging_face.config_file import check_words
from albert_tf.text.rules import TokenizerRules, check_side
from albert_tf.text.tokenizer import Tokenizer

TOKENIZER_JSON = "tokenizer.json"
FINDS_SPECIAL_TOKENS = "finds_special_tokens"  # in our section
_SEGMENTS = "token_type_ids"  # as transformers names them
_CLASSES_WITHOUT_STEPS = ("PreTrainedTokenizerFast", "TokenizersBackend")
_SPECIAL_TOKENS = {
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]",),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
}


def vocabulary_of(folder: str, our_section: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of `Weights` about texts, from a folder's files; `our_section` is None for a model of others."""
    vocabulary = _vocabulary_in(folder)

    path = os.path.join(folder, TOKENIZER_SETTINGS)
    settings = files.read_json_if_there(path)
    check_words(settings, path)
    _check_special_tokens(settings, path)
    path_of_special_tokens = os.path.join(folder, "special_tokens_map.json")
    _check_special_tokens(files.read_json_if_there(path_of_special_tokens), path_of_special_tokens)

    cleaning = _cleaning_that_counts(
        settings, vocabulary.cleaning, is_of_others=our_section is None
    )
    for name in ("do_lower_case", "keep_accents", "strip_accents", "tokenize_chinese_chars"):
        switch = cleaning.get(name)
        if switch is not None and not isinstance(switch, bool):
            raise UserError(f"{path}: {name} is {shortened(switch)}, expected true or false")

    rules = _rules_of(settings, path, finds_special_tokens=_finds_special_tokens(our_section))
    keep_accents = cleaning.get("keep_accents")
    if vocabulary.kind and vocabulary.kind.is_described_by_transformers:
        strip_accents = cleaning.get("strip_accents")
        keep_accents = None if strip_accents is None else not strip_accents
        is_cased = cleaning.get("do_lower_case") is False
        rules = dataclasses.replace(
            rules,
            separates_chinese=cleaning.get("tokenize_chinese_chars") is not False,
            strips_accents=bool(strip_accents) and is_cased,
        )

    return {
        "vocabulary": vocabulary.path,
        "do_lower_case": cleaning.get("do_lower_case"),
        "keep_accents": keep_accents,
        "rules": rules,
        "max_length": lengths.longest(settings, path),
    }


def _rules_of(
    settings: Mapping[str, Any], path: str, *, finds_special_tokens: bool
) -> TokenizerRules:
    """The rules that a `tokenizer_config.json` names for a vocabulary of any kind."""
    truncation_side = settings.get("truncation_side", "right")
    check_side(truncation_side, path)
    names_of_inputs = settings.get("model_input_names") or [_SEGMENTS]
    return TokenizerRules(
        finds_special_tokens=finds_special_tokens,
        truncation_side=truncation_side,
        numbers_segments=_SEGMENTS in names_of_inputs,
    )


class _Vocabulary(NamedTuple):
    """The vocabulary in a folder."""

    path: str = ""  # "" if there is none
    kind: type[Tokenizer] | None = None
    cleaning: Mapping[str, Any] = {}  # how `tokenizer.json` cleans text, if it is read


def _vocabulary_in(folder: str) -> _Vocabulary:
    """The vocabulary in a folder, in a file of its own or in `tokenizer.json`.

    Beside a SentencePiece model, `tokenizer.json` is not read.
    """
    json_path = os.path.join(folder, TOKENIZER_JSON)
    for kind in Tokenizer.kinds:
        path = os.path.join(folder, kind.file_name)
        if not files.exists(path):
            continue
        if not kind.is_described_by_transformers:
            return _Vocabulary(path, kind)
        return _Vocabulary(path, kind, _vocabulary_in_json(json_path).cleaning)
    return _vocabulary_in_json(json_path)


def _vocabulary_in_json(path: str) -> _Vocabulary:
    """The vocabulary in a `tokenizer.json`, if it is of a kind that is read from there."""
    values = files.read_json_if_there(path)
    for kind in Tokenizer.kinds:
        if kind.vocabulary_of_json(values, path):
            return _Vocabulary(path, kind, kind.cleaning_of_json(values))
    return _Vocabulary()


def _finds_special_tokens(our_section: Mapping[str, Any] | None) -> bool:
    """Whether "[SEP]" in a text is the special token, which who made a model decides.

    Users of the models of others write "title[SEP]abstract", and their tokenizers find it. For google-research/albert,
    and so for every model made here, it is text. A model of others that was converted says so in our section.
    """
    return our_section is None or our_section.get(FINDS_SPECIAL_TOKENS) is True


def _cleaning_that_counts(
    settings: Mapping[str, Any], of_json: Mapping[str, Any], *, is_of_others: bool
) -> dict[str, Any]:
    """How text is cleaned, if `tokenizer_config.json` and `tokenizer.json` say different things.

    As in transformers 5: a class without steps of its own follows `tokenizer.json`, and a class of BERT follows
    `tokenizer_config.json`, where what it does not say has the default of BERT.

    Example: `tokenizer_config.json` says {"tokenizer_class": "BertTokenizer"} and `tokenizer.json` says
    {"do_lower_case": false}. The model of others is uncased, which is the default of BERT; with the class
    "PreTrainedTokenizerFast" it would be cased.
    """
    if not of_json:
        return dict(settings)
    if settings.get("tokenizer_class") in _CLASSES_WITHOUT_STEPS:
        return {**settings, **of_json}
    if not is_of_others:
        return {**of_json, **settings}
    return {"do_lower_case": True, **settings}


def _check_special_tokens(settings: Mapping[str, Any], path: str) -> None:
    """Checks that the special tokens have the names that a vocabulary has here."""
    for name, expected in _SPECIAL_TOKENS.items():
        entry = settings.get(name)
        token = entry.get("content") if isinstance(entry, dict) else entry
        if token is not None and token not in expected:
            names = " or ".join(expected)
            raise UserError(f"{path}: {name} is {shortened(entry)}, expected {names}")
