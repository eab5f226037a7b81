"""The settings in a folder of the sentence-transformers library, which are known before TensorFlow is loaded."""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats.lengths import LEAST_LENGTH, longest
from albert_tf.model.config import SIMILARITIES
from albert_tf.model.pooling import ORDER_OF_SWITCHES, POOLINGS, joined

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
ABOUT = "config_sentence_transformers.json"

# The kinds of modules after the pooling.
DENSE = "Dense"
LAYER_NORM = "LayerNorm"
NORMALIZE = "Normalize"
DROPOUT = "Dropout"
WITH_WEIGHTS = (DENSE, LAYER_NORM)
_ORDER = re.compile(f"Transformer Pooling( ({DENSE}|{LAYER_NORM}|{NORMALIZE}|{DROPOUT}))*")
# Where a module finds what it reads, and puts what it makes; any other name would be that of tokens or of a user.
_ENDS = ("module_input_name", "module_output_name")
_VECTOR = "sentence_embedding"
# For models of several vectors for each text.
_OF_SEVERAL_VECTORS = ("query_length", "document_length", "query_expansion")
_LONGEST = 2**31 - 1


class Module(NamedTuple):
    """A module of a folder, after the encoder."""

    kind: str
    folder: str


def recognizes(folder: str) -> bool:
    """Whether a folder has the modules of sentence embeddings; a CrossEncoder of the library is a plain classifier."""
    path = os.path.join(folder, MODULES)
    return files.exists(path) and len(files.read_json(path, list)) > 1


def about(folder: str) -> dict[str, Any]:
    """The values that belong to all modules; an error if they change texts or vectors."""
    path = os.path.join(folder, ABOUT)
    settings = files.read_json_if_there(path)
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise UserError(f"{path}: prompts is {shortened(prompts)}, expected texts by name")

    default_prompt = prompts.get(str(settings.get("default_prompt_name")))
    if default_prompt:
        _refuse(settings, "default_prompt_name", path)
    if settings.get("truncate_dim"):
        _refuse(settings, "truncate_dim", path)
    similarity(settings, path)
    return settings


def _refuse(settings: Mapping[str, Any], name: str, path: str) -> None:
    """The error of a setting that would change texts or vectors."""
    raise UserError(f"{path}: {name}={shortened(settings[name])} is not applied; expected null")


def similarity(about_modules: Mapping[str, Any], path: str) -> str:
    """The `similarity_fn_name` of a folder, by default the cosine."""
    name = about_modules.get("similarity_fn_name") or "cosine"
    if name not in SIMILARITIES:
        expected = f"one of {', '.join(SIMILARITIES)}"
        raise UserError(f"{path}: similarity_fn_name is {shortened(name)}, expected {expected}")
    return name


def cleaning(folder: str, of_tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """How text is cleaned in another way than a cased tokenizer does it: the module Transformer may lower-case it.

    `of_tokenizer` is how the tokenizer's own files clean text.
    """
    of_module = files.read_json_if_there(os.path.join(folder, SETTINGS))
    if of_tokenizer.get("do_lower_case") is not False or not of_module.get("do_lower_case"):
        return {}
    # The tokenizer of a cased WordPiece model keeps accents.
    is_wordpiece = not files.exists(os.path.join(folder, "spiece.model"))
    keep_accents = is_wordpiece or of_tokenizer.get("keep_accents")
    return {"do_lower_case": True, "keep_accents": keep_accents}


def modules(folder: str) -> tuple[str, list[Module]]:
    """The folder of the module Transformer, and the modules after it: Pooling, and perhaps others."""
    path = os.path.join(folder, MODULES)
    all_modules: list[Module] = []
    for entry in files.read_json(path, list):
        fields = entry if isinstance(entry, dict) else {}
        kind = str(fields.get("type", "/"))
        place = str(fields.get("path", "/"))
        # Any other name could be that of any folder of the machine.
        if not re.fullmatch(r"[\w-]*", place) or not re.fullmatch(r"[\w.]+", kind):
            raise UserError(f"{path}: expected modules with type and path, got {shortened(entry)}")
        name = kind.rpartition(".")[2]
        all_modules.append(Module(name, os.path.join(folder, place) if place else folder))
    kinds = [module.kind for module in all_modules]
    if not _ORDER.fullmatch(" ".join(kinds)):
        expected = f"Transformer, Pooling, and perhaps {DENSE}, {LAYER_NORM} and {NORMALIZE}"
        raise UserError(f"{folder}: has the modules {', '.join(kinds)}, expected {expected}")
    transformer, *following = all_modules
    return transformer.folder, following


def layers(folder: str) -> list[Module]:
    """The modules after the pooling, with what they do; Dropout does nothing in a finished model."""
    _, after = modules(folder)
    kept = [module for module in after[1:] if module.kind != DROPOUT]
    for module in kept:
        path = os.path.join(module.folder, "config.json")
        settings_of_module = files.read_json_if_there(path)
        for name in _ENDS:
            end = settings_of_module.get(name)
            if end not in (None, _VECTOR):
                raise UserError(f"{path}: {name} is {shortened(end)}, expected {_VECTOR!r}")
        if settings_of_module.get("use_residual"):
            raise UserError(f"{path}: use_residual is true, expected false")
    return kept


def is_usual(folder: str) -> bool:
    """Whether the modules after the pooling are those that a model of ours can have: a Dense, then a Normalize."""
    kinds = [module.kind for module in layers(folder)]
    return kinds in ([], [DENSE], [NORMALIZE], [DENSE, NORMALIZE])


def settings(folder: str, max_position_embeddings: int) -> dict[str, Any]:
    """The settings of the task of embeddings with which a folder was made."""
    transformer, after = modules(folder)
    about(folder)
    usual = layers(folder) if is_usual(folder) else []
    task: dict[str, Any] = {}
    for module in usual:
        if module.kind == DENSE:
            settings_of_module = files.read_json_if_there(
                os.path.join(module.folder, "config.json")
            )
            size = settings_of_module.get("out_features")
            if isinstance(size, int):
                task["projection_size"] = size
    task["max_seq_length"] = _max_length(transformer, max_position_embeddings)
    task["pooling"] = _pooling(os.path.join(after[0].folder, "config.json"))
    task["normalize"] = any(module.kind == NORMALIZE for module in usual)
    return task


def check_width(folder: str, hidden_size: int) -> None:
    """Checks that a pooling is for the vectors of an encoder of this width."""
    _, (pooling, *_) = modules(folder)
    path = os.path.join(pooling.folder, "config.json")
    settings_of_pooling = files.read_json(path)
    for name in ("word_embedding_dimension", "embedding_dimension"):
        width = settings_of_pooling.get(name, hidden_size)
        if width != hidden_size:
            expected = f"expected the hidden_size of the encoder, {hidden_size}"
            raise UserError(f"{path}: {name} is {shortened(width)}, {expected}")


def _pooling(path: str) -> str:
    """The pooling that a module's file names, under our name: the mean if it names none, several joined."""
    settings_of_pooling = files.read_json(path)
    # The name in version 6, in older folders a switch for each kind, of which several may be on.
    switches = [POOLINGS[name].sentence_transformers for name in ORDER_OF_SWITCHES]
    switches += [name for name in settings_of_pooling if name.startswith("pooling_mode_")]
    chosen: Any = [name for name in dict.fromkeys(switches) if settings_of_pooling.get(name)]
    if "pooling_mode" in settings_of_pooling:
        chosen = settings_of_pooling["pooling_mode"]
    elif not any(name.startswith("pooling_mode_") for name in settings_of_pooling):
        chosen = "mean"  # the library's default
    if not isinstance(chosen, list):
        chosen = [chosen]

    our_names = {kind.sentence_transformers: name for name, kind in POOLINGS.items()}
    our_names |= {name: name for name in POOLINGS}
    if not chosen or not all(isinstance(name, str) and name in our_names for name in chosen):
        expected = f"poolings of {', '.join(POOLINGS)}"
        got = ", ".join(map(str, chosen)) or "none"
        raise UserError(f"{path}: expected {expected}; got {shortened(got)}")
    return joined([our_names[name] for name in chosen])


def _max_length(folder: str, most: int) -> int:
    """The maximum length in the module's settings, or since version 6 in the tokenizer's; at most the model's."""
    path = os.path.join(folder, SETTINGS)
    settings_of_module = files.read_json_if_there(path)
    for name in _OF_SEVERAL_VECTORS:
        if settings_of_module.get(name):
            got = shortened(settings_of_module[name])
            raise UserError(f"{path}: {name} is {got}, expected null")
    length = settings_of_module.get("max_seq_length")
    is_length = type(length) is int and LEAST_LENGTH <= length <= _LONGEST
    if length is not None and not is_length:
        expected = f"expected null or an integer of {LEAST_LENGTH} to {_LONGEST:,}"
        raise UserError(f"{path}: max_seq_length is {shortened(length)}, {expected}")
    if length is None:
        path_of_tokenizer = os.path.join(folder, "tokenizer_config.json")
        length = longest(files.read_json_if_there(path_of_tokenizer), path_of_tokenizer)
    if length is None:
        return most
    return min(length, most) if most else length
