"""Weights, the common form of all formats: a model's sizes, arrays under the released names, and vocabulary."""

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.model import head_names
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import ARCHITECTURES, PRETRAINING
from albert_tf.model.pooling import parts_of
from albert_tf.model.vector_modules import DENSE, NORMALIZE
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead

Shapes = Mapping[str, tuple[int, ...]]
_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "inner_group_num",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
)
POOLER = ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model read from disk, in any format; None for what no file contains."""

    source: str
    config: AlbertConfig
    arrays: Mapping[str, np.ndarray]  # float, by released variable name
    model_class: str = PRETRAINING
    vocabulary: str = ""  # path of its SentencePiece model or WordPiece vocabulary, if it has one
    do_lower_case: bool | None = None
    task_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # if fine-tuned
    left_out: tuple[str, ...] = ()  # names of variables without trained values, such as a pooler
    keep_accents: bool | None = None
    rules: TokenizerRules = TokenizerRules()
    max_length: int | None = None  # of the tokenizer's files, below the number of positions
    run_settings: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # all of a fine-tuning
    engine: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # of an export: what computes it fastest, see `serving/graph_engines.py`

    @property
    def cleaning(self) -> dict[str, Any]:
        """The arguments of `Tokenizer`; values that no file contains are those of the released models."""
        is_lower = self.do_lower_case is not False
        return {"do_lower_case": is_lower, "keep_accents": self.keep_accents is True}

    @property
    def longest_sequence(self) -> int:
        """The most tokens of a sequence, by the model's positions and its tokenizer's files."""
        positions = self.config.max_position_embeddings
        return min(positions, self.max_length or positions)

    def without_head(self, *, keeps_vectors: bool = False) -> "Weights":
        """The same weights without the head.

        `keeps_vectors`: but with what an embedding model has between the pooling and the vector of a text.
        """
        kept: tuple[str, ...] = ("bert/",)
        if keeps_vectors:
            kept += (head_names.EMBEDDING_PROJECTION, head_names.EMBEDDING_MODULES)
        arrays = {name: array for name, array in self.arrays.items() if name.startswith(kept)}
        return dataclasses.replace(self, arrays=arrays)

    def has_vocabulary_of(self, tokenizer: Tokenizer) -> bool:
        """Whether the vocabulary that came with the model is a tokenizer's; true if none came with it."""
        if not self.vocabulary:
            return True
        own_tokenizer = Tokenizer.from_file(self.vocabulary, rules=self.rules)
        return own_tokenizer.sha256 == tokenizer.sha256


class LoadReport(NamedTuple):
    """Names of the variables that get values from a checkpoint, that keep their initial ones, and that only it has."""

    loaded: list[str]
    initialized: list[str]
    ignored: list[str]

    def describe(self, source: str) -> str:
        """A table of the numbers of variables, with the names of those that are not in both model and checkpoint."""
        encoder = sum(name.startswith("bert/") for name in self.loaded)
        heads = len(self.loaded) - encoder
        rows = {
            "loaded": (len(self.loaded), f"{encoder} of the encoder, {heads} of heads"),
            "newly initialized": (len(self.initialized), ", ".join(self.initialized)),
            "ignored": (len(self.ignored), ", ".join(self.ignored)),
        }
        lines = [f"  {title:<18}{number:>4}  {names}" for title, (number, names) in rows.items()]
        return "\n".join([f"variables from {source}", *map(str.rstrip, lines)])


def match(shapes: Shapes, weights: Weights) -> LoadReport:
    """Compares variables with values from disk; a different shape or set of encoder variables is a `UserError`."""
    source = weights.source
    arrays = weights.arrays
    missing = [name for name in shapes if name not in arrays]
    required = [name for name in missing if name not in weights.left_out]
    lost = [name for name in required if name.startswith("bert/")]
    if lost:
        reason = f"of the encoder's variables are not in it, {lost[0]} the first"
        raise UserError(f"{source}: {len(lost)} {reason}")

    ignored = [name for name in arrays if name not in shapes]
    unknown = [name for name in ignored if name.startswith("bert/")]
    if unknown:
        reason = f"are not in the model, {unknown[0]} the first; the configuration beside it does not describe it"
        raise UserError(f"{source}: {len(unknown)} variables of its encoder {reason}")

    loaded = [name for name in shapes if name in arrays]
    for name in loaded:
        if arrays[name].shape != shapes[name]:
            shape = list(arrays[name].shape)
            expected = list(shapes[name])
            reason = f"has shape {shape}, the model's configuration wants {expected}"
            raise UserError(f"{source}: {name} {reason}")
    return LoadReport(loaded, missing, ignored)


def encoder_shapes(config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of an encoder's variables by their released names, without a model."""
    embedding = config.embedding_size
    hidden = config.hidden_size
    inner = config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (config.vocab_size, embedding),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, embedding),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, embedding),
    }
    # Layer -> widths of its input and output; both are equal for a LayerNorm.
    layers = {
        "bert/embeddings/LayerNorm": (embedding, embedding),
        "bert/pooler/dense": (hidden, hidden),
    }
    if embedding != hidden:
        layers["bert/encoder/embedding_hidden_mapping_in"] = (embedding, hidden)
    attention = {
        "attention_1/self/query": (hidden, hidden),
        "attention_1/self/key": (hidden, hidden),
        "attention_1/self/value": (hidden, hidden),
        "attention_1/output/dense": (hidden, hidden),
        "LayerNorm": (hidden, hidden),
    }
    feed_forward = {
        "ffn_1/intermediate/dense": (hidden, inner),
        "ffn_1/intermediate/output/dense": (inner, hidden),
        "LayerNorm_1": (hidden, hidden),
    }
    for layer in range(config.num_hidden_layers):
        blocks = (
            (config.attention_group_of_layer(layer), attention),
            (config.ffn_group_of_layer(layer), feed_forward),
        )
        for inner_group in range(config.inner_group_num):
            for group, block in blocks:
                start = f"bert/encoder/transformer/group_{group}/inner_group_{inner_group}/"
                layers |= {start + name: widths for name, widths in block.items()}
    for layer_name, (inputs, outputs) in layers.items():
        first, second = variables_of(layer_name)
        is_matrix = first == "kernel"
        shapes[f"{layer_name}/{first}"] = (inputs, outputs) if is_matrix else (outputs,)
        shapes[f"{layer_name}/{second}"] = (outputs,)
    return shapes


def head_shapes(model_class: str, config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of the variables of a head by their released names, without a model; for a class of this library."""
    hidden = config.hidden_size
    match model_class:
        case head_names.PRETRAINING:
            embedding = config.embedding_size
            return {
                **_dense("cls/predictions/transform/dense", hidden, embedding),
                **_layer_norm("cls/predictions/transform/LayerNorm", embedding),
                "cls/predictions/output_bias": (config.vocab_size,),
                **_scores("cls/seq_relationship/", 2, hidden),
            }
        case head_names.SEQUENCE_CLASSIFICATION:
            return _shapes_of_classifier(config)
        case head_names.TOKEN_CLASSIFICATION:
            return _scores("", len(config.labels), hidden)
        case head_names.MULTIPLE_CHOICE:
            return _scores("", 1, hidden)
        case head_names.SPAN:
            return _scores("cls/squad/", 2, hidden)
        case head_names.SPAN_OR_NONE:
            return {
                **_dense("start_logits/dense", hidden, 1),
                **_dense("end_logits/dense_0", 2 * hidden, hidden),
                **_layer_norm("end_logits/LayerNorm", hidden),
                **_dense("end_logits/dense_1", hidden, 1),
                **_dense("answer_class/dense_0", 2 * hidden, hidden),
                "answer_class/dense_1/kernel": (hidden, 1),
            }
        case head_names.EMBEDDING:
            return _shapes_of_modules(config.hidden_size, config.sentence_embedding)
        case _:
            raise ValueError(f"{model_class}: expected a class of this library")


def _scores(prefix: str, number: int, width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a head that makes a number of scores of a vector."""
    return {f"{prefix}output_weights": (number, width), f"{prefix}output_bias": (number,)}


def _dense(layer: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{layer}/kernel": (inputs, outputs), f"{layer}/bias": (outputs,)}


def _layer_norm(layer: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{layer}/gamma": (width,), f"{layer}/beta": (width,)}


def _shapes_of_classifier(config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of the scores of texts, and of what makes the vectors that they are made of."""
    shapes = _scores("", len(config.labels), config.classifier_width)
    how = config.classifier_vector
    if how is not None:
        shapes |= _shapes_of_modules(config.hidden_size, how)
    return shapes


def _shapes_of_modules(hidden_size: int, how: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of what follows the pooling of texts; a module's width is the size of what it is given."""
    shapes: dict[str, tuple[int, ...]] = {}
    width = hidden_size * len(parts_of(how["pooling"]))
    for number, module in enumerate(how["modules"]):
        layer = f"{head_names.EMBEDDING_MODULES}{number}"
        if module["kind"] == DENSE:
            shapes[f"{layer}/kernel"] = (width, module["size"])
            shapes[f"{layer}/bias"] = (module["size"],)
            width = module["size"]
        elif module["kind"] != NORMALIZE:
            shapes[f"{layer}/gamma"] = (width,)
            shapes[f"{layer}/beta"] = (width,)
    size = how["projection_size"]
    if size:
        shapes[f"{head_names.EMBEDDING_PROJECTION}kernel"] = (width, size)
        shapes[f"{head_names.EMBEDDING_PROJECTION}bias"] = (size,)
    return shapes


def report_of(weights: Weights) -> LoadReport:
    """What the model of these weights gets from them, without a model; for errors see `match` and `check_head`."""
    shapes = {
        **encoder_shapes(weights.config),
        **head_shapes(weights.model_class, weights.config),
    }
    report = match(shapes, weights)
    check_head(report, weights)
    return report


def check_head(report: LoadReport, weights: Weights) -> None:
    """Checks that all variables of a head have values; a pretrained model may lack heads, and any model its pooler."""
    missing = [name for name in report.initialized if name not in POOLER]
    if missing and weights.model_class != PRETRAINING:
        reason = f"by its configuration, but has no values for its head, {missing[0]} the first"
        raise UserError(f"{weights.source}: is {weights.model_class} {reason}")


def check(weights: Weights) -> None:
    """Checks values from files before a model is built: its class, the shapes of the encoder, that all are finite.

    A configuration may claim any size; a model of that size would fill the memory before `match` compares the rest.
    """
    source = weights.source
    check_class(weights.model_class, source)
    check_settings(weights)
    of_encoder = {name: weights.arrays[name] for name in weights.arrays if name.startswith("bert/")}
    match(encoder_shapes(weights.config), dataclasses.replace(weights, arrays=of_encoder))
    for name, array in weights.arrays.items():
        # Minimum and maximum are NaN if any value is NaN, and computing them needs no memory.
        if array.size and not (math.isfinite(array.min()) and math.isfinite(array.max())):
            raise UserError(f"{source}: {name} contains values that are not finite; it is damaged")


def check_settings(weights: Weights) -> None:
    """Checks what files say about text, task and variables without values."""
    source = weights.source
    left_out: Any = weights.left_out
    is_list = isinstance(left_out, list | tuple)
    if not is_list or not all(isinstance(name, str) for name in left_out):
        expected = "expected the names of variables without values"
        raise UserError(f"{source}: {expected}, got {shortened(left_out)}")

    for name in weights.cleaning:
        value = getattr(weights, name)
        if not isinstance(value, bool | None):
            raise UserError(f"{source}: {name} is {shortened(value)}, expected true or false")

    task: Any = weights.task_settings
    if not isinstance(task, dict):
        raise UserError(f"{source}: expected the settings of a task, got {shortened(task)}")


def check_class(name: Any, source: str) -> None:
    """Checks that a file names the class of a model that exists here, or that a task of the user defines."""
    if isinstance(name, str) and (name in ARCHITECTURES or name in _classes_with_those_of_users()):
        return
    reason = "is unknown here; name the file that defines it with --task_module"
    raise UserError(f"{source}: model_class {shortened(name)} {reason}")


def architecture_of(name: Any, config: AlbertConfig) -> str:
    """The class of transformers that computes a class of ours; "" if there is none, or no such class of ours."""
    if not isinstance(name, str):
        return ""
    if name in ARCHITECTURES:
        return head_names.architecture_of(name, config)
    model_class = _classes_with_those_of_users().get(name)
    return model_class.hf_architecture if model_class else ""


def _classes_with_those_of_users() -> Mapping[str, type["ModelWithHead"]]:
    """All classes of models; whoever adds one to `MODEL_CLASSES` has loaded TensorFlow."""
    from albert_tf.model.heads import MODEL_CLASSES

    return MODEL_CLASSES


def check_complete(values: Mapping[str, Any], source: str) -> None:
    """Checks that a configuration from a file has every size: a default would make another model without a word."""
    missing = [name for name in _SIZES if name not in values]
    if missing:
        raise UserError(f"{source}: {', '.join(missing)}: missing; copy the file again")


def read_export(path: str) -> dict[str, Any]:
    """The fields of `Weights` in a file that describes an export of this project."""
    about = files.read_json(path)
    # Key of the file -> field of `Weights`.
    names = {
        "model_class": "model_class",
        "do_lower_case": "do_lower_case",
        "keep_accents": "keep_accents",
        "task": "task_settings",
        "without_values": "left_out",
    }
    missing = [name for name in names if name not in about]
    if missing:
        raise UserError(f"{path}: has no {missing[0]}; export the model again")

    expected_types = {
        "model_class": (str, "a name"),
        "task": (dict, "an object"),
        "without_values": (list, "a list"),
    }
    for name, (kind, expected) in expected_types.items():
        if not isinstance(about[name], kind):
            reason = f"{name} is {shortened(about[name])}, expected {expected}"
            raise UserError(f"{path}: {reason}; export the model again")
    rules = TokenizerRules.from_dict(about.get("rules"), path)
    engine = about.get("engine", {})
    if not isinstance(engine, dict):
        reason = f"engine is {shortened(engine)}, expected an object"
        raise UserError(f"{path}: {reason}; export the model again")

    fields = {field: about[name] for name, field in names.items()}
    return {**fields, "rules": rules, "engine": engine}


def read_config(path: str) -> AlbertConfig:
    """The sizes in a configuration file of a released layout."""
    sizes = files.read_json(path)
    check_complete(sizes, path)
    return AlbertConfig.from_dict(sizes, source=path)


def variables_of(layer: str) -> tuple[str, str]:
    """The names of a layer's two variables; `layer` is its released name."""
    return ("gamma", "beta") if "LayerNorm" in layer else ("kernel", "bias")


def belongs_to_ffn(name: str) -> bool:
    """Whether a released name belongs to the feed-forward half of a block."""
    return "/ffn_1/" in name or "/LayerNorm_1/" in name


def check_identity_projection(
    arrays: dict[str, np.ndarray], config: AlbertConfig, source: str, name: str
) -> None:
    """Removes the projection that some formats contain even if E = D; it must be the identity."""
    if config.embedding_size != config.hidden_size:
        return
    kernel = arrays.pop("bert/encoder/embedding_hidden_mapping_in/kernel", None)
    bias = arrays.pop("bert/encoder/embedding_hidden_mapping_in/bias", None)
    identity = np.eye(config.hidden_size)
    if kernel is not None and (not np.array_equal(kernel, identity) or np.any(bias)):
        reason = "is not the identity, though E = D has no projection here"
        raise UserError(f"{source}: {name} {reason}")


def as_matrix(name: str, array: np.ndarray) -> np.ndarray:
    """Attention kernels [D, N, H] and [N, H, D] -> [D, D], biases [N, H] -> [D]; other arrays are unchanged."""
    if array.ndim < 2:
        return array
    is_kernel = name.endswith("/kernel")
    if "/attention_1/self/" in name:
        # Of 12 heads of 64: [768, 12, 64] -> [768, 768], and a bias [12, 64] -> [768].
        return array.reshape([array.shape[0], math.prod(array.shape[1:])] if is_kernel else -1)
    if is_kernel and name.endswith("/attention_1/output/dense/kernel"):
        # [12, 64, 768] -> [768, 768]
        return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
    return array


def only_vocabulary(folder: str) -> str:
    """The path of the only vocabulary in a folder, a SentencePiece model before others; "" for none or several."""
    try:
        names = files.names_in(folder or ".")
    except OSError:
        return ""
    for kind in Tokenizer.kinds:
        vocabularies = [name for name in names if re.fullmatch(kind.file_names, name)]
        if vocabularies:
            return os.path.join(folder, vocabularies[0]) if len(vocabularies) == 1 else ""
    return ""
