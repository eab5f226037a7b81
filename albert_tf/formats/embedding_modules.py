"""The settings in a folder of the sentence-transformers library, which are known before TensorFlow is loaded."""

import os
import re
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.model.pooling import POOLINGS

MODULES, SETTINGS = "modules.json", "sentence_bert_config.json"
ABOUT = "config_sentence_transformers.json"
_ORDER = re.compile("Transformer Pooling( Dense)?( Normalize)?")


def recognizes(folder: str) -> bool:
    """Whether a folder has the modules of sentence embeddings; a CrossEncoder of the library is a plain classifier."""
    path = os.path.join(folder, MODULES)
    return files.exists(path) and len(files.read_json(path, list)) > 1


def values(path: str) -> dict[str, Any]:
    """The values of a JSON file; none if there is no such file."""
    return files.read_json(path) if files.exists(path) else {}


def about(folder: str) -> dict[str, Any]:
    """The values that belong to all modules; an error if they change texts or vectors."""
    own = values(path := os.path.join(folder, ABOUT))
    prompt = (own.get("prompts") or {}).get(str(own.get("default_prompt_name")))
    unread = {"default_prompt_name": prompt, "truncate_dim": own.get("truncate_dim")}
    for name in filter(unread.get, unread):
        raise UserError(f"{path}: {name}={shortened(own[name])} is not applied; expected null")
    return own


def cleaning(folder: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """How text is cleaned in another way than a cased tokenizer does it: the module Transformer may lower-case it."""
    of_module = values(os.path.join(folder, SETTINGS))
    if own.get("do_lower_case") is not False or not of_module.get("do_lower_case"):
        return {}
    # The tokenizer of a cased WordPiece model keeps accents.
    is_wordpiece = not files.exists(os.path.join(folder, "spiece.model"))
    return {"do_lower_case": True, "keep_accents": is_wordpiece or own.get("keep_accents")}


def modules(folder: str) -> dict[str, str]:
    """The folder of each kind of module: Transformer, Pooling, and perhaps Dense and Normalize."""
    path, found = os.path.join(folder, MODULES), {}
    for entry in files.read_json(path, list):
        own = entry if isinstance(entry, dict) else {}
        kind, place = str(own.get("type", "/")), str(own.get("path", "/"))
        # Any other name could be that of any folder of the machine.
        if not re.fullmatch(r"[\w-]*", place) or not re.fullmatch(r"[\w.]+", kind):
            raise UserError(f"{path}: expected modules with type and path, got {shortened(entry)}")
        name = kind.rpartition(".")[2]
        if name in found:
            raise UserError(f"{path}: has two modules {name}, expected one of each kind")
        found[name] = os.path.join(folder, place) if place else folder
    if not _ORDER.fullmatch(" ".join(found)):
        expected = "Transformer, Pooling, and perhaps Dense and Normalize"
        raise UserError(f"{folder}: has the modules {', '.join(found)}, expected {expected}")
    return found


def settings(folder: str, max_position_embeddings: int) -> dict[str, Any]:
    """The settings of the task of embeddings with which a folder was made."""
    places = modules(folder)
    about(folder)
    dense = values(os.path.join(places["Dense"], "config.json")) if "Dense" in places else {}
    size = dense.get("out_features")
    return {
        **({"projection_size": size} if isinstance(size, int) else {}),
        "max_seq_length": _max_length(places["Transformer"], max_position_embeddings),
        "pooling": _pooling(os.path.join(places["Pooling"], "config.json")),
        "normalize": "Normalize" in places,
    }


def _pooling(path: str) -> str:
    own = files.read_json(path)
    names = {kind.sentence_transformers: name for name, kind in POOLINGS.items()}
    names |= {name: name for name in POOLINGS}
    # The name in version 6, in older folders a switch for each kind, of which several may be on.
    switches = [name for name in own if name.startswith("pooling_mode_") and own[name]]
    chosen = [str(own["pooling_mode"])] if "pooling_mode" in own else switches
    if len(chosen) != 1 or chosen[0] not in names:
        expected = f"one pooling of {', '.join(POOLINGS)}"
        raise UserError(f"{path}: expected {expected}; got {', '.join(chosen) or 'none'}")
    return names[chosen[0]]


def _max_length(folder: str, most: int) -> int:
    """The maximum length in the module's settings, or since version 6 in the tokenizer's; at most the model's."""
    for name, key in ((SETTINGS, "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        value = values(os.path.join(folder, name)).get(key)
        if isinstance(value, int) and value > 2:
            return min(value, most) if most else value
    return most
