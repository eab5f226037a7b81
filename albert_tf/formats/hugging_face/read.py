"""Reads a folder of transformers: its configuration, tensors under the released names, and vocabulary."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import bert, cross_encoders, description, embedding_modules, setfit
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import CONFIG, TOKENIZER_SETTINGS, WEIGHT_FILES
from albert_tf.formats.hugging_face.config_file import (
    architecture_in_file,
    architecture_of_albert,
    class_of,
    read_settings,
)
from albert_tf.formats.hugging_face.names import (
    BUFFERS,
    HEAD_NAMES,
    NO_HEAD,
    NO_POOLER,
    OUR_PREFIX,
    PROJECTION,
    WORD_TABLE,
    current_name,
    released_names,
)
from albert_tf.formats.hugging_face.tensor_files import read_tensors
from albert_tf.formats.hugging_face.vocabulary import vocabulary_of
from albert_tf.formats.weights import POOLER, Weights, check_identity_projection
from albert_tf.model.config import OWN_SECTION, AlbertConfig
from albert_tf.model.head_names import PRETRAINING, SEQUENCE_CLASSIFICATION


def recognizes(path: str) -> bool:
    """Whether a path is that of a folder with weights; `sentence_transformers` reads those with modules."""
    if not files.is_folder(path):
        return False
    return any(name.startswith(WEIGHT_FILES) for name in files.names_in(path))


def describe(path: str) -> Description:
    """The length of a folder's model, how it cleans text, and the settings of its task if it was trained here."""
    sizes = files.read_json_if_there(os.path.join(path, CONFIG))
    tokenizer_settings = files.read_json_if_there(os.path.join(path, TOKENIZER_SETTINGS))
    return description.of_model(sizes, sizes.get(OWN_SECTION), tokenizer_settings)


def read(path: str) -> Weights:
    """The model in a folder, with what sentence-transformers and SetFit say about it in files of their own."""
    setfit.remark_on_head(path)
    weights = read_model(path)
    about = embedding_modules.about(path)
    config = weights.config
    if weights.model_class == SEQUENCE_CLASSIFICATION:
        config = cross_encoders.with_activation(config, path, about)
    if about.get("similarity_fn_name"):
        similarity = embedding_modules.similarity(about, path)
        config = config.replace(
            foreign={**config.foreign, "sentence_embedding": {"similarity": similarity}}
        )
    return dataclasses.replace(weights, config=config)


def read_without_arrays(path: str) -> Weights:
    """The configuration, the class, the settings and the vocabulary of a folder's model."""
    config_path = os.path.join(path, CONFIG)
    settings = read_settings(config_path)
    config = AlbertConfig.from_dict(settings, source=config_path, is_of_transformers=True)
    our_section = settings.get(OWN_SECTION, {})
    prefix = "Bert" if settings.get("model_type") == bert.MODEL_TYPE else "Albert"
    return Weights(
        path,
        config,
        {},
        class_of(architecture_of_albert(settings), our_section, config, config_path, prefix),
        task_settings=our_section.get("task", {}),
        left_out=our_section.get("left_out", ()),
        **vocabulary_of(path, settings.get(OWN_SECTION)),
    )


def read_model(folder: str) -> Weights:
    """The model in a folder by the files of the transformers library alone.

    `AlbertModel` and `AlbertForMaskedLM` are read as an `AlbertForPreTraining`, and so is a folder that names no class
    and has no head; other arrays keep their names and are reported as ignored.
    """
    weights = read_without_arrays(folder)
    settings = read_settings(os.path.join(folder, CONFIG))

    tensors, weights_path = read_tensors(folder)
    if settings.get("model_type") == bert.MODEL_TYPE:
        tensors = bert.to_albert(tensors)
    tensors = _under_current_names(tensors, weights_path)
    if NO_HEAD in tensors and not tensors[NO_HEAD].size:
        del tensors[NO_HEAD]
    arrays = _released_arrays(tensors, weights.config, weights.model_class, weights_path)
    if weights.model_class == PRETRAINING:
        _check_has_no_other_head(arrays, architecture_in_file(settings), weights_path)
    check_identity_projection(arrays, weights.config, weights_path, PROJECTION)

    left_out = weights.left_out
    if "left_out" not in settings.get(OWN_SECTION, {}):
        left_out = _missing_pooler(architecture_of_albert(settings), arrays)
    return dataclasses.replace(weights, arrays=arrays, left_out=left_out)


def _check_has_no_other_head(arrays: Collection[str], architecture: Any, path: str) -> None:
    """Checks that a folder which names no class with a head has no head, which would be lost without a word."""
    names = [name for name in HEAD_NAMES.values() if name in arrays]
    if names:
        reason = f"a head, but {CONFIG} names no class with it ({shortened(architecture)})"
        hint = "name the class that was trained under architectures"
        raise UserError(f"{path}: has {names[0]}, {reason}; {hint}, or remove this head")


def _missing_pooler(architecture: str, arrays: Collection[str]) -> tuple[str, ...]:
    """The variables of the pooler if it is missing in a class that may lack it, as by add_pooling_layer=False."""
    may_lack_pooler = architecture in (*NO_POOLER, "AlbertModel")
    has_pooler = any(name in arrays for name in POOLER)
    if may_lack_pooler and not has_pooler:
        return POOLER
    return ()


def _under_current_names(tensors: Mapping[str, np.ndarray], path: str) -> dict[str, np.ndarray]:
    """The tensors under the names of the current `AlbertForPreTraining`, without duplicates and buffers."""
    renamed = {}
    for name, tensor in tensors.items():
        if not name.endswith(BUFFERS):
            renamed[current_name(name)] = tensor

    _drop_copy(renamed, "predictions.decoder.weight", WORD_TABLE, path)
    if "predictions.bias" not in renamed and "predictions.decoder.bias" in renamed:
        renamed["predictions.bias"] = renamed["predictions.decoder.bias"]
    _drop_copy(renamed, "predictions.decoder.bias", "predictions.bias", path)
    return renamed


def _drop_copy(tensors: dict[str, np.ndarray], copy: str, name: str, path: str) -> None:
    """Removes a tensor that repeats another one, whose `name` stays."""
    if copy not in tensors:
        return
    repeated = tensors.pop(copy)
    if name not in tensors or not np.array_equal(repeated, tensors[name]):
        raise UserError(f"{path}: {copy} differs from {name}; here they are the same variable")


def _released_arrays(
    tensors: Mapping[str, np.ndarray], config: AlbertConfig, model_class: str, path: str
) -> dict[str, np.ndarray]:
    """Float32 arrays under the released names; a tensor without a released name keeps its own."""
    released = released_names(config)
    if model_class == PRETRAINING:
        released = {theirs: ours for theirs, ours in released.items() if ours not in HEAD_NAMES}

    arrays: dict[str, np.ndarray] = {}
    for hf_name, tensor in tensors.items():
        if hf_name.startswith("albert.") and hf_name not in released:
            sizes = f"the sizes in {CONFIG}"
            raise UserError(f"{path}: {hf_name} does not belong to an ALBERT of {sizes}")
        name = released.get(hf_name, hf_name).removeprefix(OUR_PREFIX)

        array = tensor.astype(np.float32, copy=False)
        if name.endswith("/kernel") and hf_name in released:
            array = array.T

        if name in arrays and not np.array_equal(arrays[name], array):
            reason = f"differs from that of another layer, which shares it by albert_tf in {CONFIG}"
            raise UserError(f"{path}: {hf_name} {reason}; remove that section")
        arrays[name] = array
    return arrays
