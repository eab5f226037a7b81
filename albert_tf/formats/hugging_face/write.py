"""Writes a model into a folder that transformers reads."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy

from albert_tf.core import files
from albert_tf.formats import bert, model_card, tokenizer_files
from albert_tf.formats.file_names import CONFIG, WEIGHTS
from albert_tf.formats.hugging_face.names import (
    HEAD_NAMES,
    NO_HEAD,
    NO_POOLER,
    OUR_PREFIX,
    PROJECTION,
    groups_of_layers,
    released_names,
)
from albert_tf.formats.hugging_face.vocabulary import FINDS_SPECIAL_TOKENS
from albert_tf.formats.weights import POOLER
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.config import MULTI_LABEL, OWN_SECTION, AlbertConfig
from albert_tf.model.head_names import EMBEDDING_MODULES, EMBEDDING_PROJECTION
from albert_tf.model.vector_modules import VECTOR_ACTIVATIONS
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead


def write(
    model: "ModelWithHead",
    folder: str,
    task: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    cleaning: Mapping[str, bool],
    untrained: Collection[str] = (),
    card: str = "",
    further: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a model's configuration, tensors, tokenizer and description, and further files, given by their paths."""
    from albert_tf.model import heads

    longest = (tokenizer and tokenizer.max_length) or model.config.max_position_embeddings
    contents = tokenizer_files.vocabulary_files(tokenizer, longest)
    if not contents:
        contents = tokenizer_files.files_without_vocabulary(cleaning)

    left_out = left_out_of(model, untrained)
    elsewhere: set[str] = set()
    if isinstance(model, heads.AlbertForEmbedding):
        # Projection and further modules are in folders of their own (`sentence_transformers.py`).
        prefixes = (EMBEDDING_PROJECTION, EMBEDDING_MODULES)
        elsewhere = {name for name in model.named_variables() if name.startswith(prefixes)}
    tensors = _their_tensors(model, left_out | elsewhere)

    if bert.is_bert(model.config):
        tensors = bert.to_bert(tensors)
    config = config_of(model, task, tokenizer, left_out)

    contents[WEIGHTS] = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    contents[CONFIG] = json.dumps(config, indent=2).encode() + b"\n"
    contents |= further or {}
    files.write_files(folder, {**contents, model_card.FILE: card.encode()})


def config_of(
    model: "ModelWithHead",
    task: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    left_out: Collection[str],
) -> dict[str, Any]:
    """The values of `config.json`; the variables that are left out are given by their released names."""
    finds_special_tokens = tokenizer is not None and tokenizer.rules.finds_special_tokens
    config = _their_config(model, task, sorted(left_out), finds_special_tokens=finds_special_tokens)
    if bert.is_bert(model.config):
        config = bert.without_albert_sizes(config)
    config["pad_token_id"] = tokenizer.pad_id if tokenizer else 0
    config["bos_token_id"] = tokenizer.cls_id if tokenizer else 2
    config["eos_token_id"] = tokenizer.sep_id if tokenizer else 3
    return config


def left_out_of(model: "ModelWithHead", untrained: Collection[str]) -> set[str]:
    """The variables that are not written; without a pooler there, or without a use of it, ours is left out."""
    if model.reads_vectors or model.hf_architecture in NO_POOLER:
        return {*untrained, *POOLER}
    return set(untrained)


def _their_tensors(model: "ModelWithHead", left_out: Collection[str]) -> dict[str, np.ndarray]:
    """The variables under the names and in the layout of the Hugging Face class.

    The head of a classifier of vectors, which their class does not have, gets names that they do not know.
    """
    config = model.config
    variables = model.named_variables()
    variables = {name: value for name, value in variables.items() if name not in left_out}

    tensors = {}
    written = set()
    for hf_name, name in released_names(config).items():
        if model.reads_vectors and name in HEAD_NAMES:
            continue
        if name in variables:
            array = variables[name].numpy()
            tensors[hf_name] = np.ascontiguousarray(array.T if name.endswith("/kernel") else array)
            written.add(name)
    if model.reads_vectors:
        tensors[NO_HEAD] = np.zeros([0, 0], np.float32)
    for name in variables.keys() - written:
        tensors[OUR_PREFIX + name] = variables[name].numpy()

    # Their class always has the projection from E to D; ours has none if both are equal.
    if config.embedding_size == config.hidden_size:
        tensors[f"{PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{PROJECTION}.bias"] = np.zeros([config.hidden_size], np.float32)
    return tensors


def _their_config(
    model: "ModelWithHead",
    task: Mapping[str, Any],
    left_out: Sequence[str],
    *,
    finds_special_tokens: bool,
) -> dict[str, Any]:
    """The configuration of the Hugging Face class, with a section `albert_tf` for our own settings."""
    from albert_tf.model import heads

    config = model.config
    architecture = model.hf_architecture
    if isinstance(model, heads.AlbertForEmbedding):  # read as such only with its modules
        architecture = "AlbertModel"

    our_section: dict[str, Any] = {
        "share_parameters": config.share_parameters,
        "num_hidden_groups": config.num_hidden_groups,
        "model_class": type(model).__name__,
    }
    if task:
        our_section["task"] = dict(task)
    if left_out:
        our_section["left_out"] = left_out
    if finds_special_tokens:
        our_section[FINDS_SPECIAL_TOKENS] = True

    their_activations = ACTIVATIONS[config.hidden_act].transformers
    settings = {
        **config.to_dict(),
        "architectures": [architecture] if architecture else [],
        "model_type": "albert",
        "dtype": "float32",
        "hidden_act": their_activations[0] if their_activations else config.hidden_act,
        "num_hidden_groups": 1 + max(groups_of_layers(config)),
        OWN_SECTION: our_section,
    }

    dropped = ["share_parameters", "torch_dtype", "problem_type"]
    has_two_labels = len(settings.get("id2label") or {}) == 2
    has_head_of_two = isinstance(model, heads.AlbertForPreTraining | heads.AlbertForSpan)
    if has_head_of_two and not has_two_labels:
        # transformers would derive the size of the sentence-order or span head from the number of labels.
        dropped += ["id2label", "label2id"]
    settings = {name: value for name, value in settings.items() if name not in dropped}

    if isinstance(model, heads.AlbertForSequenceClassification):
        settings |= _kind_of_scores(config, settings)
    return settings


def _kind_of_scores(config: AlbertConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What tells pipelines and `CrossEncoder` which function they apply to a classifier's outputs."""
    if config.is_multi_label:
        return {"problem_type": MULTI_LABEL}

    is_regression = len(config.labels) == 1
    kind: dict[str, Any] = {}
    if not config.score_is_probability:
        # Without problem_type, pipelines apply a sigmoid to the output of a regression.
        kind["problem_type"] = "regression" if is_regression else "single_label_classification"
    if is_regression and "sentence_transformers" not in settings:
        # Without it, CrossEncoder of sentence-transformers applies a sigmoid, too.
        kind["sentence_transformers"] = {"activation_fn": VECTOR_ACTIVATIONS["identity"].torch}
    return kind
