"""Hugging Face folders: `config.json`, `model.safetensors` or `pytorch_model.bin`, vocabulary, tokenizer files."""

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened
from albert_tf.formats import (
    bert,
    cross_encoders,
    description,
    embedding_modules,
    lengths,
    model_card,
    setfit,
    tokenizer_files,
    torch_file,
)
from albert_tf.formats.description import Description
from albert_tf.formats.file_names import CONFIG, WEIGHT_FILES, WEIGHTS
from albert_tf.formats.weights import (
    POOLER,
    Weights,
    architecture_of,
    belongs_to_ffn,
    check_complete,
    check_identity_projection,
    variables_of,
)
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.config import MULTI_LABEL, OWN_SECTION, AlbertConfig
from albert_tf.model.head_names import (
    ARCHITECTURES,
    EMBEDDING_MODULES,
    EMBEDDING_PROJECTION,
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
)
from albert_tf.model.vector_modules import VECTOR_ACTIVATIONS
from albert_tf.text.rules import TokenizerRules, check_side
from albert_tf.text.tokenizer import KINDS, Tokenizer

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead

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
    names = {}
    for ours, theirs in layers.items():
        # "bert/pooler/dense" -> its "kernel" and "bias"; a LayerNorm has "gamma" and "beta".
        our_weight, our_bias = variables_of(ours)
        names[f"{ours}/{our_weight}"] = f"{theirs}.weight"
        names[f"{ours}/{our_bias}"] = f"{theirs}.bias"
    return names


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
    attention_groups = [config.attention_group_of_layer(layer) for layer in layers]
    ffn_groups = [config.ffn_group_of_layer(layer) for layer in layers]

    # Their rule: 4 layers in 2 groups -> [0, 0, 1, 1].
    layers_per_group = config.num_hidden_layers / config.num_hidden_groups
    their_groups = [int(layer / layers_per_group) for layer in layers]

    if attention_groups == their_groups and ffn_groups == their_groups:
        return their_groups
    return list(layers)


def _released_names(config: AlbertConfig) -> dict[str, str]:
    """Hugging Face name -> released name, for every tensor of their model with this configuration."""
    names = {theirs: ours for ours, theirs in (_NAMES | _HEAD_NAMES).items()}
    for layer, their_group in enumerate(_their_groups(config)):
        attention_group = config.attention_group_of_layer(layer)
        ffn_group = config.ffn_group_of_layer(layer)
        for inner, ours in itertools.product(range(config.inner_group_num), _BLOCK_NAMES):
            our_group = ffn_group if belongs_to_ffn("/" + ours) else attention_group
            our_layer = f"bert/encoder/transformer/group_{our_group}/inner_group_{inner}"
            their_layer = f"albert.encoder.albert_layer_groups.{their_group}.albert_layers.{inner}"
            # The first layer of each of their groups determines which of our copies the group uses.
            names.setdefault(f"{their_layer}.{_BLOCK_NAMES[ours]}", f"{our_layer}/{ours}")
    return names


def recognizes(path: str) -> bool:
    """Whether a path is that of a folder with weights; `sentence_transformers` reads those with modules."""
    if not files.is_folder(path):
        return False
    return any(name.startswith(WEIGHT_FILES) for name in files.names_in(path))


def describe(path: str) -> Description:
    """The length of a folder's model, how it cleans text, and the settings of its task if it was trained here."""
    sizes = _read_if_there(os.path.join(path, CONFIG))
    tokenizer_settings = _read_if_there(os.path.join(path, tokenizer_files.SETTINGS))
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
    settings = _model_settings(config_path)
    config = AlbertConfig.from_dict(settings, source=config_path, is_of_transformers=True)
    our_section = settings.get(OWN_SECTION, {})
    prefix = "Bert" if settings.get("model_type") == bert.MODEL_TYPE else "Albert"
    return Weights(
        path,
        config,
        {},
        _class_of(_architecture(settings), our_section, config_path, prefix),
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
    settings = _model_settings(os.path.join(folder, CONFIG))

    tensors, weights_path = read_tensors(folder)
    if settings.get("model_type") == bert.MODEL_TYPE:
        tensors = bert.to_albert(tensors)
    tensors = _in_full(tensors, weights_path)
    arrays = _released_arrays(tensors, weights.config, weights.model_class, weights_path)
    if weights.model_class == PRETRAINING:
        _check_has_no_other_head(arrays, _architecture_in_file(settings), weights_path)
    check_identity_projection(arrays, weights.config, weights_path, _PROJECTION)

    left_out = weights.left_out
    if "left_out" not in settings.get(OWN_SECTION, {}):
        left_out = _missing_pooler(_architecture(settings), arrays)
    return dataclasses.replace(weights, arrays=arrays, left_out=left_out)


def _architecture_in_file(settings: Mapping[str, Any]) -> Any:
    """The class of transformers that a `config.json` names, a value of any type; "" if it names none."""
    return (settings.get("architectures") or [""])[0]


def _architecture(settings: Mapping[str, Any]) -> Any:
    """The same, where a class of BERT has the name of the ALBERT's."""
    architecture = _architecture_in_file(settings)
    if settings.get("model_type") == bert.MODEL_TYPE and isinstance(architecture, str):
        return re.sub("^Bert", "Albert", architecture)
    return architecture


def _model_settings(path: str) -> dict[str, Any]:
    """The content of a model's `config.json`, checked; that of a BERT with the sizes of an equal ALBERT."""
    settings = files.read_json(path)
    _check_words(settings, path)

    readable = {"model_type": ("albert", bert.MODEL_TYPE), "position_embedding_type": ("absolute",)}
    for name, expected in readable.items():
        value = settings.get(name, expected[0])
        if value not in expected:
            names = " or ".join(map(repr, expected))
            raise UserError(f"{path}: {name} is {shortened(value)}, expected {names}")

    _check_has_one_score(settings, path)
    if settings.get("model_type") == bert.MODEL_TYPE:
        settings = bert.with_albert_sizes(settings, path)
    check_complete(settings, path)
    return settings


def _check_has_one_score(settings: Mapping[str, Any], path: str) -> None:
    """Checks that a regression has one output; a classifier of several would answer with their softmax."""
    labels = settings.get("id2label")
    architectures = settings.get("architectures") or [""]
    is_classifier = str(architectures[0]).endswith("ForSequenceClassification")
    is_regression = settings.get("problem_type") == "regression"
    if is_classifier and is_regression and isinstance(labels, dict) and len(labels) > 1:
        reason = f"problem_type is 'regression' with {len(labels)} labels, expected one"
        raise UserError(f"{path}: {reason}: a text has one score here")


def _check_has_no_other_head(arrays: Collection[str], architecture: Any, path: str) -> None:
    """Checks that a folder which names no class with a head has no head, which would be lost without a word."""
    names = [name for name in _HEAD_NAMES.values() if name in arrays]
    if names:
        reason = f"a head, but {CONFIG} names no class with it ({shortened(architecture)})"
        hint = "name the class that was trained under architectures"
        raise UserError(f"{path}: has {names[0]}, {reason}; {hint}, or remove this head")


def _missing_pooler(architecture: str, arrays: Collection[str]) -> tuple[str, ...]:
    """The variables of the pooler if it is missing in a class that may lack it, as by add_pooling_layer=False."""
    may_lack_pooler = architecture in (*_NO_POOLER, "AlbertModel")
    has_pooler = any(name in arrays for name in POOLER)
    if may_lack_pooler and not has_pooler:
        return POOLER
    return ()


def vocabulary_of(folder: str, own_section: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of `Weights` about texts, from a folder's files; `own_section` is None for a model of others."""
    vocabulary = _vocabulary_in(folder)

    path = os.path.join(folder, tokenizer_files.SETTINGS)
    settings = _read_if_there(path)
    _check_words(settings, path)
    _check_special_tokens(settings, path)
    path_of_special_tokens = os.path.join(folder, "special_tokens_map.json")
    _check_special_tokens(_read_if_there(path_of_special_tokens), path_of_special_tokens)

    is_of_others = own_section is None
    cleaning = _cleaning_that_counts(settings, vocabulary.cleaning, is_of_others=is_of_others)
    for name in ("do_lower_case", "keep_accents", "strip_accents", "tokenize_chinese_chars"):
        switch = cleaning.get(name)
        if switch is not None and not isinstance(switch, bool):
            raise UserError(f"{path}: {name} is {shortened(switch)}, expected true or false")
    do_lower_case = cleaning.get("do_lower_case")
    keep_accents = cleaning.get("keep_accents")

    truncation_side = settings.get("truncation_side", "right")
    check_side(truncation_side, path)
    names_of_inputs = settings.get("model_input_names") or [_SEGMENTS]
    rules = TokenizerRules(
        finds_special_tokens=_finds_special_tokens(own_section),
        truncation_side=truncation_side,
        numbers_segments=_SEGMENTS in names_of_inputs,
    )

    if vocabulary.kind and vocabulary.kind.is_described_by_transformers:
        strip_accents = cleaning.get("strip_accents")
        keep_accents = None if strip_accents is None else not strip_accents
        rules = dataclasses.replace(
            rules,
            separates_chinese=cleaning.get("tokenize_chinese_chars") is not False,
            strips_accents=bool(strip_accents) and do_lower_case is False,
        )

    return {
        "vocabulary": vocabulary.path,
        "do_lower_case": do_lower_case,
        "keep_accents": keep_accents,
        "rules": rules,
        "max_length": lengths.longest(settings, path),
    }


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
    for kind in KINDS:
        path = os.path.join(folder, kind.file_name)
        if not files.exists(path):
            continue
        if not kind.is_described_by_transformers:
            return _Vocabulary(path, kind)
        return _Vocabulary(path, kind, _vocabulary_in_json(json_path).cleaning)
    return _vocabulary_in_json(json_path)


def _first_that_exists(paths: Iterable[str]) -> str:
    """The first path that leads to a file; "" if none does."""
    return next(filter(files.exists, paths), "")


def _read_if_there(path: str) -> dict[str, Any]:
    """The content of a JSON file; an empty one if the file is missing."""
    return files.read_json(path) if files.exists(path) else {}


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


def _check_special_tokens(settings: Mapping[str, Any], path: str) -> None:
    """Checks that the special tokens have the names that a vocabulary has here."""
    for name, expected in _SPECIAL_TOKENS.items():
        entry = settings.get(name)
        token = entry.get("content") if isinstance(entry, dict) else entry
        if token is not None and token not in expected:
            names = " or ".join(expected)
            raise UserError(f"{path}: {name} is {shortened(entry)}, expected {names}")


def _check_words(settings: Mapping[str, Any], path: str) -> None:
    """Checks that a file does not name a tokenizer of Japanese, which finds words in another way."""
    of_bert = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}
    of_japanese = [name for name, kind in of_bert.items() if settings.get(name, kind) != kind]
    if settings.get("tokenizer_class") == "BertJapaneseTokenizer":
        of_japanese.append("tokenizer_class")
    if of_japanese:
        name = of_japanese[0]
        raise UserError(f"{path}: {name} is {shortened(settings[name])}; expected a BertTokenizer")


def _vocabulary_in_json(path: str) -> _Vocabulary:
    """The vocabulary in a `tokenizer.json`, if it is of a kind that is read from there."""
    values = _read_if_there(path)
    for kind in KINDS:
        if kind.content_of_json(values, path):
            return _Vocabulary(path, kind, kind.cleaning_of_json(values))
    return _Vocabulary()


def _class_of(architecture: Any, our_section: Mapping, path: str, prefix: str) -> str:
    """Name of our class for an architecture; if there are several, the folder's section `albert_tf` decides.

    `prefix` begins the names of classes in the file at `path`, "Bert" or "Albert"; in `architecture` it is "Albert".
    """
    named = our_section.get("model_class")
    if named and architecture_of(named) == architecture:
        return named

    for name, theirs in ARCHITECTURES.items():
        if theirs and theirs == architecture:
            return name

    if architecture not in ("", *_WITHOUT_CLASS):
        with_class = dict.fromkeys(theirs for theirs in ARCHITECTURES.values() if theirs)
        expected = ", ".join([*with_class, *_WITHOUT_CLASS])
        hint = "to read only its encoder, write AlbertModel there"
        message = f"architectures is {shortened(architecture)}, expected {expected}; {hint}"
        raise UserError(f"{path}: {message.replace('Albert', prefix)}")
    return PRETRAINING


# --- Tensors of files ---


def read_tensors(folder: str) -> tuple[dict[str, np.ndarray], str]:
    """The tensors in a folder by their names in its file, and the path of the file.

    Several files are read as one, if an index names them; its path is returned. Names lose the prefix that PyTorch's
    DataParallel puts before all of them.
    """
    candidates = [name + end for name in WEIGHT_FILES for end in ("", _INDEX)]
    path = _first_that_exists(os.path.join(folder, name) for name in candidates)
    if not path:
        raise UserError(f"{folder}: expected one of {', '.join(WEIGHT_FILES)}, found none")

    tensors: dict[str, np.ndarray] = {}
    for part in _parts(path):
        if part.endswith(".bin"):
            tensors |= torch_file.read(part)
        else:
            tensors |= _read_safetensors(part)

    if all(name.startswith(_PARALLEL) for name in tensors):
        tensors = {name.removeprefix(_PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors, path


def _parts(path: str) -> list[str]:
    """The files with a model's tensors: the file itself, or those that an index names."""
    if not path.endswith(_INDEX):
        return [path]

    file_of_tensor = files.read_json(path).get("weight_map")
    names = sorted(set(file_of_tensor.values())) if _is_table_of_texts(file_of_tensor) else []
    # Any other name could be that of any file of the machine.
    if not names or not all(re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name) for name in names):
        raise UserError(f"{path}: expected the names of files by those of tensors in weight_map")

    parts = [os.path.join(os.path.dirname(path), name) for name in names]
    for part in parts:
        if not files.exists(part):
            raise UserError(f"{part}: is missing; {os.path.basename(path)} names it")
    return parts


def _is_table_of_texts(content: Any) -> bool:
    return isinstance(content, dict) and all(isinstance(text, str) for text in content.values())


def _read_safetensors(path: str) -> dict[str, np.ndarray]:
    """The floating-point tensors of a file; not by safetensors.numpy, which does not support bfloat16."""
    try:
        tensors = safetensors.deserialize(files.read_bytes(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: damaged safetensors file ({first_line(error)})") from None

    arrays = {}
    while tensors:  # frees each tensor after its conversion
        name, tensor = tensors.pop()
        dtype = tensor["dtype"]
        shape = tensor["shape"]
        if dtype not in _FLOATS:
            if name.endswith(_BUFFERS):
                continue
            raise UserError(f"{path}: {name} is of type {dtype}, expected floating-point numbers")

        numbers = np.frombuffer(tensor["data"], _FLOATS[dtype])
        try:
            arrays[name] = numbers.reshape(shape)
        except (ValueError, OverflowError):  # no values, or too many dimensions for NumPy
            reason = f"{name} has the shape {shortened(shape)}"
            raise UserError(f"{path}: damaged safetensors file ({reason})") from None
    return arrays


# --- From their names to the released ones ---


def _in_full(tensors: Mapping[str, np.ndarray], path: str) -> dict[str, np.ndarray]:
    """The tensors under the names of the current `AlbertForPreTraining`, without duplicates and buffers."""
    renamed = {}
    for name, tensor in tensors.items():
        if not name.endswith(_BUFFERS):
            renamed[_current_name(name)] = tensor

    _drop_copy(renamed, "predictions.decoder.weight", _WORD_TABLE, path)
    if "predictions.bias" not in renamed and "predictions.decoder.bias" in renamed:
        renamed["predictions.bias"] = renamed["predictions.decoder.bias"]
    _drop_copy(renamed, "predictions.decoder.bias", "predictions.bias", path)
    return renamed


def _current_name(name: str) -> str:
    """Example: "embeddings.LayerNorm.gamma" -> "albert.embeddings.LayerNorm.weight"."""
    if name.startswith(("embeddings.", "encoder.", "pooler.")):  # a saved AlbertModel
        name = f"albert.{name}"
    if "LayerNorm" in name or "layer_norm" in name:
        name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
    return name


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
    released = _released_names(config)
    if model_class == PRETRAINING:
        released = {theirs: ours for theirs, ours in released.items() if ours not in _HEAD_NAMES}

    arrays: dict[str, np.ndarray] = {}
    for hf_name, tensor in tensors.items():
        if hf_name.startswith("albert.") and hf_name not in released:
            sizes = f"the sizes in {CONFIG}"
            raise UserError(f"{path}: {hf_name} does not belong to an ALBERT of {sizes}")
        name = released.get(hf_name, hf_name).removeprefix(_OWN_PREFIX)

        array = tensor.astype(np.float32, copy=False)
        if name.endswith("/kernel") and hf_name in released:
            array = array.T

        if name in arrays and not np.array_equal(arrays[name], array):
            reason = f"differs from that of another layer, which shares it by albert_tf in {CONFIG}"
            raise UserError(f"{path}: {hf_name} {reason}; remove that section")
        arrays[name] = array
    return arrays


# --- Writing ---


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
    longest = (tokenizer and tokenizer.max_length) or model.config.max_position_embeddings
    contents = tokenizer_files.vocabulary_files(tokenizer, longest)
    if not contents:
        contents = tokenizer_files.files_without_vocabulary(cleaning)

    left_out = left_out_of(model, untrained)
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
    """The variables that are not written; without a pooler there, ours is not used."""
    if model.hf_architecture in _NO_POOLER:
        return {*untrained, *POOLER}
    return set(untrained)


def _their_tensors(model: "ModelWithHead", left_out: Collection[str]) -> dict[str, np.ndarray]:
    """The variables under the names and in the layout of the Hugging Face class."""
    config = model.config
    variables = model.named_variables()
    variables = {name: value for name, value in variables.items() if name not in left_out}

    tensors = {}
    written = set()
    for hf_name, name in _released_names(config).items():
        if name in variables:
            array = variables[name].numpy()
            tensors[hf_name] = np.ascontiguousarray(array.T if name.endswith("/kernel") else array)
            written.add(name)
    for name in variables.keys() - written:
        tensors[_OWN_PREFIX + name] = variables[name].numpy()

    # Their class always has the projection from E to D; ours has none if both are equal.
    if config.embedding_size == config.hidden_size:
        tensors[f"{_PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{_PROJECTION}.bias"] = np.zeros([config.hidden_size], np.float32)
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
        "num_hidden_groups": 1 + max(_their_groups(config)),
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
