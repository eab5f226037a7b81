"""Hugging Face folders: `config.json`, `model.safetensors` or `pytorch_model.bin`, vocabulary, tokenizer files."""

import itertools
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened
from albert_tf.formats import bert, lengths, model_card, tokenizer_files, torch_file
from albert_tf.formats.description import CONFIG, WEIGHT_FILES, WEIGHTS
from albert_tf.formats.weights import (
    POOLER,
    Weights,
    belongs_to_ffn,
    check_complete,
    check_identity_projection,
    variables_of,
)
from albert_tf.model import heads
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.config import MULTI_LABEL, OWN_SECTION, AlbertConfig
from albert_tf.model.heads import ModelWithHead
from albert_tf.model.vector_modules import VECTOR_ACTIVATIONS
from albert_tf.text import added_tokens
from albert_tf.text.rules import TokenizerRules, check_side
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

VOCABULARIES = (SentencePieceTokenizer.file_name, WordPieceTokenizer.file_name)
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

# Our layer -> Hugging Face's layer. Their "kernel" matrices are transposed.
_BLOCK_LAYERS = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "LayerNorm": "attention.LayerNorm",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
    "LayerNorm_1": "full_layer_layer_norm",
}
_LAYERS = {
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "bert/encoder/embedding_hidden_mapping_in": "albert.encoder.embedding_hidden_mapping_in",
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}


def _variables(layers: Mapping[str, str]) -> dict[str, str]:
    """Our name -> Hugging Face's name, for the two variables of each layer."""
    return {
        f"{ours}/{variable}": f"{theirs}.{their_variable}"
        for ours, theirs in layers.items()
        for variable, their_variable in zip(variables_of(ours), ("weight", "bias"), strict=True)
    }


_BLOCK_NAMES = _variables(_BLOCK_LAYERS)
_WORD_TABLE = "albert.embeddings.word_embeddings.weight"
_NAMES = {
    "bert/embeddings/word_embeddings": _WORD_TABLE,
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    **_variables(_LAYERS),
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
}
_HEAD_NAMES = {
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
# Prefix of tensors that the model of transformers does not have.
_OWN_PREFIX = "albert_tf."
_PROJECTION = _LAYERS["bert/encoder/embedding_hidden_mapping_in"]
# Classes of transformers that have no pooler.
_NO_POOLER = ("AlbertForMaskedLM", "AlbertForQuestionAnswering", "AlbertForTokenClassification")
_WITHOUT_CLASS = ("AlbertModel", "AlbertForMaskedLM")  # parts of an AlbertForPreTraining
# Constants that old versions of transformers saved together with the parameters.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_INDEX = ".index.json"  # ends the name of the index of several files
_PARALLEL = "module."  # DataParallel of PyTorch names the tensors of the model in it so
# Types of safetensors.
_FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def _their_groups(config: AlbertConfig) -> list[int]:
    """The group of each layer in the equivalent Hugging Face model: ours, or one per layer if its rule differs."""
    layers = range(config.num_hidden_layers)
    theirs = [int(layer / (len(layers) / config.num_hidden_groups)) for layer in layers]
    ours = (map(config.attention_group_of_layer, layers), map(config.ffn_group_of_layer, layers))
    return theirs if all(list(groups) == theirs for groups in ours) else list(layers)


def _released_names(config: AlbertConfig) -> dict[str, str]:
    """Hugging Face name -> released name, for every tensor of their model with this configuration."""
    names = {theirs: ours for ours, theirs in (_NAMES | _HEAD_NAMES).items()}
    for layer, group in enumerate(_their_groups(config)):
        groups = (config.attention_group_of_layer(layer), config.ffn_group_of_layer(layer))
        for inner, ours in itertools.product(range(config.inner_group_num), _BLOCK_NAMES):
            start = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
            own_group = groups[belongs_to_ffn("/" + ours)]
            name = f"bert/encoder/transformer/group_{own_group}/inner_group_{inner}/{ours}"
            # The first layer of each of their groups determines which of our copies the group uses.
            names.setdefault(f"{start}.{_BLOCK_NAMES[ours]}", name)
    return names


def read(folder: str) -> Weights:
    """The model in a folder.

    `AlbertModel` and `AlbertForMaskedLM` are read as an `AlbertForPreTraining`, and so is a folder that names no class
    and has no head; other arrays keep their names and are reported as ignored.
    """
    path = os.path.join(folder, CONFIG)
    values = files.read_json(path)
    _check_words(values, path)
    known = {"model_type": ("albert", bert.MODEL_TYPE), "position_embedding_type": ("absolute",)}
    for key, expected in known.items():
        if (value := values.get(key, expected[0])) not in expected:
            names = " or ".join(map(repr, expected))
            raise UserError(f"{path}: {key} is {shortened(value)}, expected {names}")
    is_bert = values.get("model_type") == bert.MODEL_TYPE
    if is_bert:
        values = bert.with_albert_sizes(values, path)
    check_complete(values, path)
    config = AlbertConfig.from_dict(values, source=path, is_of_transformers=True)
    own = values.get(OWN_SECTION, {})
    architecture = given = (values.get("architectures") or [""])[0]
    if is_bert and isinstance(given, str):
        architecture = re.sub("^Bert", "Albert", given)
    model_class = _class_of(architecture, own, path, "Bert" if is_bert else "Albert")
    tensors, path = read_tensors(folder)
    tensors = bert.to_albert(tensors) if is_bert else tensors
    arrays = _released_arrays(_in_full(tensors, path), config, model_class, path)
    own_heads = [name for name in _HEAD_NAMES.values() if name in arrays]
    if model_class == heads.AlbertForPreTraining.__name__ and own_heads:
        reason = f"a head, but {CONFIG} names no class with it ({shortened(given)})"
        hint = "name the class that was trained under architectures"
        raise UserError(f"{path}: has {own_heads[0]}, {reason}; {hint}, or remove this head")
    check_identity_projection(arrays, config, path, _PROJECTION)
    may_lack_pooler = architecture in (*_NO_POOLER, "AlbertModel")  # add_pooling_layer=False
    has_pooler = not may_lack_pooler or any(name in arrays for name in POOLER)
    left_out = own.get("left_out", () if has_pooler else POOLER)
    settings = {"task_settings": own.get("task", {}), "left_out": left_out}
    of_text = vocabulary_of(folder, values.get(OWN_SECTION))
    return Weights(folder, config, arrays, model_class, **settings, **of_text)


def vocabulary_of(folder: str, own_section: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of `Weights` about texts, from a folder's files; `own_section` is None for a model of others."""
    paths = (os.path.join(folder, name) for name in VOCABULARIES)
    vocabulary, of_json = next(filter(files.exists, paths), ""), {}  # type: str, dict[str, Any]
    if not vocabulary.endswith(SentencePieceTokenizer.file_name):
        path, of_json = _vocabulary_in_json(os.path.join(folder, TOKENIZER_JSON))
        vocabulary = vocabulary or path
    path = os.path.join(folder, tokenizer_files.SETTINGS)
    settings = files.read_json(path) if files.exists(path) else {}
    _check_words(settings, path)
    for name in (path, os.path.join(folder, "special_tokens_map.json")):
        _check_special_tokens(files.read_json(name) if files.exists(name) else {}, name)
    values = _cleaning_that_counts(settings, of_json, is_of_others=own_section is None)
    for name in ("do_lower_case", "keep_accents", "strip_accents", "tokenize_chinese_chars"):
        if (value := values.get(name)) is not None and not isinstance(value, bool):
            raise UserError(f"{path}: {name} is {shortened(value)}, expected true or false")
    check_side(settings.get("truncation_side", "right"), path)
    rules = {
        "finds_special_tokens": _finds_special_tokens(own_section),
        "truncation_side": settings.get("truncation_side", "right"),
        "numbers_segments": _SEGMENTS in (settings.get("model_input_names") or [_SEGMENTS]),
    }
    is_lower, keep_accents = values.get("do_lower_case"), values.get("keep_accents")
    if vocabulary.endswith((WordPieceTokenizer.file_name, TOKENIZER_JSON)):
        rules["separates_chinese"] = values.get("tokenize_chinese_chars") is not False
        strip_accents = values.get("strip_accents")
        rules["strips_accents"] = bool(strip_accents) and is_lower is False
        keep_accents = None if strip_accents is None else not strip_accents
    return {
        "vocabulary": vocabulary,
        "do_lower_case": is_lower,
        "keep_accents": keep_accents,
        "rules": TokenizerRules(**rules),
        "max_length": lengths.longest(settings, path),
    }


def _finds_special_tokens(own_section: Mapping[str, Any] | None) -> bool:
    """Whether "[SEP]" in a text is the special token, which who made a model decides.

    Users of the models of others write "title[SEP]abstract", and their tokenizers find it. For google-research/albert,
    and so for every model made here, it is text. A model of others that was converted says so in our section.
    """
    return own_section is None or own_section.get(FINDS_SPECIAL_TOKENS) is True


def _cleaning_that_counts(
    settings: Mapping[str, Any], of_json: Mapping[str, Any], *, is_of_others: bool
) -> dict[str, Any]:
    """How text is cleaned, if `tokenizer_config.json` and `tokenizer.json` say different things.

    As in transformers 5: a class without steps of its own follows `tokenizer.json`, and a class of BERT follows
    `tokenizer_config.json`, where what it does not say has the default of BERT.
    """
    if not of_json:
        return dict(settings)
    if settings.get("tokenizer_class") in _CLASSES_WITHOUT_STEPS:
        return {**settings, **of_json}
    if not is_of_others:
        return {**of_json, **settings}
    return {"do_lower_case": True, **settings}


def _check_special_tokens(values: Mapping[str, Any], path: str) -> None:
    """Checks that the special tokens have the names that a vocabulary has here."""
    for name, expected in _SPECIAL_TOKENS.items():
        value = values.get(name)
        token = value.get("content") if isinstance(value, dict) else value
        if token is not None and token not in expected:
            names = " or ".join(expected)
            raise UserError(f"{path}: {name} is {shortened(value)}, expected {names}")


def _check_words(values: Mapping[str, Any], path: str) -> None:
    """Checks that a file does not name a tokenizer of Japanese, which finds words in another way."""
    known = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}
    others = [name for name, value in known.items() if values.get(name, value) != value]
    others += ["tokenizer_class"] * (values.get("tokenizer_class") == "BertJapaneseTokenizer")
    for name in others:
        raise UserError(f"{path}: {name} is {shortened(values[name])}; expected a BertTokenizer")


def _vocabulary_in_json(path: str) -> tuple[str, dict[str, Any]]:
    """The path of a `tokenizer.json` with a WordPiece vocabulary, and how it cleans text; "" if there is none."""
    values = files.read_json(path) if files.exists(path) else {}
    if not added_tokens.content_of_json(values, path):
        return "", {}
    names = {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    }
    return path, {name: values["normalizer"].get(own) for name, own in names.items()}


def _class_of(architecture: Any, own: Mapping, path: str, prefix: str) -> str:
    """Name of our class for an architecture; if there are several, the folder's section `albert_tf` decides."""
    ours = {name: cls.hf_architecture for name, cls in heads.MODEL_CLASSES.items()}
    name = own.get("model_class")
    if isinstance(name, str) and ours.get(name, "") == architecture:
        return name
    names = [name for name, theirs in ours.items() if theirs and theirs == architecture]
    if not names and architecture not in ("", *_WITHOUT_CLASS):
        known = ", ".join([*dict.fromkeys(filter(None, ours.values())), *_WITHOUT_CLASS])
        hint = "to read only its encoder, write AlbertModel there"
        message = f"architectures is {shortened(architecture)}, expected {known}; {hint}"
        raise UserError(f"{path}: {message.replace('Albert', prefix)}")
    return names[0] if names else heads.AlbertForPreTraining.__name__


# --- Tensors of files ---


def read_tensors(folder: str) -> tuple[dict[str, np.ndarray], str]:
    """The tensors in a folder by their names in its file, and the path of the file.

    Several files are read as one, if an index names them; its path is returned. Names lose the prefix that PyTorch's
    DataParallel puts before all of them.
    """
    candidates = [name + end for name in WEIGHT_FILES for end in ("", _INDEX)]
    path = next(filter(files.exists, (os.path.join(folder, name) for name in candidates)), "")
    if not path:
        raise UserError(f"{folder}: expected one of {', '.join(WEIGHT_FILES)}, found none")
    tensors: dict[str, np.ndarray] = {}
    for part in _parts(path):
        tensors |= (torch_file.read if part.endswith(".bin") else _read_file)(part)
    if all(name.startswith(_PARALLEL) for name in tensors):
        tensors = {name.removeprefix(_PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors, path


def _parts(path: str) -> list[str]:
    """The files with a model's tensors: the file itself, or those that an index names."""
    if not path.endswith(_INDEX):
        return [path]
    names = files.read_json(path).get("weight_map")
    names = sorted(set(names.values())) if _is_table_of_texts(names) else []
    # Any other name could be that of any file of the machine.
    if not names or not all(re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name) for name in names):
        raise UserError(f"{path}: expected the names of files by those of tensors in weight_map")
    parts = [os.path.join(os.path.dirname(path), name) for name in names]
    for part in parts:
        if not files.exists(part):
            raise UserError(f"{part}: is missing; {os.path.basename(path)} names it")
    return parts


def _is_table_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value.values())


def _read_file(path: str) -> dict[str, np.ndarray]:
    try:
        tensors = safetensors.deserialize(files.read_bytes(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: damaged safetensors file ({first_line(error)})") from None
    # Not safetensors.numpy, which does not support bfloat16.
    arrays = {}
    while tensors:  # frees each tensor after its conversion
        name, tensor = tensors.pop()
        dtype = tensor["dtype"]
        if dtype not in _FLOATS:
            if name.endswith(_BUFFERS):
                continue
            raise UserError(f"{path}: {name} is of type {dtype}, expected floating-point numbers")
        values = np.frombuffer(tensor["data"], _FLOATS[dtype])
        try:
            values = values.reshape(tensor["shape"])
        except (ValueError, OverflowError):  # no values, or too many dimensions for NumPy
            reason = f"{name} has the shape {shortened(tensor['shape'])}"
            raise UserError(f"{path}: damaged safetensors file ({reason})") from None
        arrays[name] = values
    return arrays


# --- From their names to the released ones ---


def _in_full(tensors: Mapping[str, np.ndarray], path: str) -> dict[str, np.ndarray]:
    """The tensors under the names of the current `AlbertForPreTraining`, without duplicates and buffers."""
    renamed = {}
    for name, tensor in tensors.items():
        if name.startswith(("embeddings.", "encoder.", "pooler.")):  # a saved AlbertModel
            name = f"albert.{name}"
        if "LayerNorm" in name or "layer_norm" in name:
            name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        if not name.endswith(_BUFFERS):
            renamed[name] = tensor
    _drop_copy(renamed, "predictions.decoder.weight", _WORD_TABLE, path)
    if "predictions.bias" not in renamed and "predictions.decoder.bias" in renamed:
        renamed["predictions.bias"] = renamed["predictions.decoder.bias"]
    _drop_copy(renamed, "predictions.decoder.bias", "predictions.bias", path)
    return renamed


def _drop_copy(tensors: dict[str, np.ndarray], copy: str, name: str, path: str) -> None:
    if copy in tensors and not np.array_equal(tensors.pop(copy), tensors.get(name, np.array(None))):
        raise UserError(f"{path}: {copy} differs from {name}; here they are the same variable")


def _released_arrays(
    tensors: Mapping[str, np.ndarray], config: AlbertConfig, model_class: str, path: str
) -> dict[str, np.ndarray]:
    """Float32 arrays under the released names; a tensor without a released name keeps its own."""
    released = _released_names(config)
    if model_class == heads.AlbertForPreTraining.__name__:
        released = {name: own for name, own in released.items() if own not in _HEAD_NAMES}
    arrays: dict[str, np.ndarray] = {}
    for hf_name, tensor in tensors.items():
        if hf_name.startswith("albert.") and hf_name not in released:
            sizes = f"the sizes in {CONFIG}"
            raise UserError(f"{path}: {hf_name} does not belong to an ALBERT of {sizes}")
        name = released.get(hf_name, hf_name).removeprefix(_OWN_PREFIX)
        array = tensor.astype(np.float32, copy=False)
        array = array.T if name.endswith("/kernel") and hf_name in released else array
        if name in arrays and not np.array_equal(arrays[name], array):
            reason = f"differs from that of another layer, which shares it by albert_tf in {CONFIG}"
            raise UserError(f"{path}: {hf_name} {reason}; remove that section")
        arrays[name] = array
    return arrays


# --- Writing ---


def write(
    model: ModelWithHead,
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
    of_tokenizer = tokenizer and (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id)
    length = (tokenizer and tokenizer.max_length) or model.config.max_position_embeddings
    contents = tokenizer_files.vocabulary_files(tokenizer, length)
    contents = contents or tokenizer_files.files_without_vocabulary(cleaning)
    left_out = left_out_of(model, untrained)
    # Projection and further modules are in folders of their own (`sentence_transformers.py`).
    prefixes = (heads.AlbertForEmbedding.head_prefix, heads.AlbertForEmbedding.modules_prefix)
    elsewhere = {name for name in model.named_variables() if name.startswith(prefixes)}
    tensors = _their_tensors(model, left_out | elsewhere)
    finds_special_tokens = tokenizer is not None and tokenizer.rules.finds_special_tokens
    config = _their_config(model, task, sorted(left_out), finds_special_tokens=finds_special_tokens)
    if bert.is_bert(model.config):
        tensors, config = bert.to_bert(tensors), bert.without_albert_sizes(config)
    contents[WEIGHTS] = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    config |= zip(names, of_tokenizer or (0, 2, 3), strict=True)
    contents[CONFIG] = json.dumps(config, indent=2).encode() + b"\n"
    contents |= further or {}
    files.write_files(folder, {**contents, model_card.FILE: card.encode()})


def left_out_of(model: ModelWithHead, untrained: Collection[str]) -> set[str]:
    """The variables that are not written; without a pooler there, ours is not used."""
    return {*untrained, *(POOLER if model.hf_architecture in _NO_POOLER else ())}


def _their_tensors(model: ModelWithHead, left_out: Collection[str]) -> dict[str, np.ndarray]:
    """The variables under the names and in the layout of the Hugging Face class."""
    config, variables = model.config, model.named_variables()
    variables = {name: value for name, value in variables.items() if name not in left_out}
    tensors, written = {}, set()
    for hf_name, name in _released_names(config).items():
        if name in variables:
            array = variables[name].numpy()
            tensors[hf_name] = np.ascontiguousarray(array.T if name.endswith("/kernel") else array)
            written.add(name)
    for name in variables.keys() - written:
        tensors[_OWN_PREFIX + name] = variables[name].numpy()
    if config.embedding_size == config.hidden_size:
        tensors[f"{_PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{_PROJECTION}.bias"] = np.zeros([config.hidden_size], np.float32)
    return tensors


def _their_config(
    model: ModelWithHead,
    task: Mapping[str, Any],
    left_out: Sequence[str],
    *,
    finds_special_tokens: bool,
) -> dict[str, Any]:
    """The configuration of the Hugging Face class, with a section `albert_tf` for our own settings."""
    config, architecture = model.config, model.hf_architecture
    if isinstance(model, heads.AlbertForEmbedding):  # read as such only with its modules
        architecture = "AlbertModel"
    values = {
        **config.to_dict(),
        "architectures": [architecture] if architecture else [],
        "model_type": "albert",
        "dtype": "float32",
        "hidden_act": (ACTIVATIONS[config.hidden_act].transformers or (config.hidden_act,))[0],
        "num_hidden_groups": 1 + max(_their_groups(config)),
        OWN_SECTION: {
            "share_parameters": config.share_parameters,
            "num_hidden_groups": config.num_hidden_groups,
            "model_class": type(model).__name__,
            **({"task": dict(task)} if task else {}),
            **({"left_out": left_out} if left_out else {}),
            **({FINDS_SPECIAL_TOKENS: True} if finds_special_tokens else {}),
        },
    }
    dropped = ["share_parameters", "torch_dtype", "problem_type"]
    has_two = len(values.get("id2label") or {}) == 2
    if isinstance(model, heads.AlbertForPreTraining | heads.AlbertForSpan) and not has_two:
        # transformers would derive the size of the sentence-order or span head from the number of labels.
        dropped += ["id2label", "label2id"]
    values = {key: value for key, value in values.items() if key not in dropped}
    if isinstance(model, heads.AlbertForSequenceClassification):
        # Without problem_type, pipelines apply a sigmoid to the output of a regression.
        values["problem_type"] = MULTI_LABEL
        if not config.is_multi_label:
            is_one = len(config.labels) == 1
            values["problem_type"] = "regression" if is_one else "single_label_classification"
            identity = VECTOR_ACTIVATIONS["identity"].torch
            if is_one:  # otherwise CrossEncoder of sentence-transformers applies one, too
                values.setdefault("sentence_transformers", {"activation_fn": identity})
            if config.score_is_probability:
                values.pop("problem_type")
    return values
