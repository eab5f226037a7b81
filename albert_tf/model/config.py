"""The sizes of a model: default, help text and check of each, and the named sizes of the paper.

This file imports no TensorFlow, so that wrong flags are rejected before TensorFlow is loaded.
"""

import dataclasses
import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.core.settings import Settings, setting
from albert_tf.model.activations import ACTIVATIONS, OF_TRANSFORMERS
from albert_tf.model.pooling import is_pooling, parts_of
from albert_tf.model.vector_modules import DENSE, VECTOR_ACTIVATIONS, is_module

SHARING_STRATEGIES = ("all", "attention", "ffn", "none")
MULTI_LABEL = "multi_label_classification"  # problem_type of transformers
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")  # as sentence-transformers names them
SENTENCE_EMBEDDING = {
    "pooling": "mean",
    "modules": (),  # of a model of others, between pooling and projection (`vector_modules.py`)
    "projection_size": 0,
    "projection_activation": "identity",
    "normalize": False,
    "similarity": "cosine",
}
# What the head of a sequence classifier can read, with a description for the flag.
POOLER, MEAN, EMBEDDING = "pooler", "mean", "embedding"
CLASSIFIER_POOLINGS = {
    POOLER: "the output of the pooler, which reads the first token, as in the original",
    MEAN: "the mean of the last hidden states",
    EMBEDDING: "the vector that an embedding model makes of the text; of other models the mean",
}
_RATE = {"minimum": 0, "maximum": 0.99}
_SIZE = {"minimum": 1, "maximum": 2**31 - 1}
MOST_BLOCKS = 1000  # a limit, because a file may claim any depth

# The section of the `config.json` of a model folder for what transformers does not know or means differently.
OWN_SECTION = "albert_tf"
_IN_OWN_SECTION = ("share_parameters", "num_hidden_groups")

# A key of a file that resembles a field this much is a misspelt one (1 is equality), unless it is one of transformers'.
# All other unknown keys are kept, but not used: each version of that library writes others.
_RESEMBLES = 0.74
_FOREIGN_KEYS = (
    "classifier_dropout",
    "hidden_dropout",
    "attention_dropout",
    "position_embedding_type",
    "pooler_num_attention_heads",
    "num_beam_groups",
    "vocab_file",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(Settings):
    """The sizes of a model, under the names of the released `albert_config.json`; a wrong value is a UserError.

    The defaults are those of the original's `AlbertConfig` (modeling.py:42-57, albert-xxlarge), except
    `vocab_size`, for which the original has no default.
    """

    name_prefix: ClassVar[str] = ""

    vocab_size: int = setting(30000, "Number of tokens in the vocabulary.", **_SIZE)
    embedding_size: int = setting(128, "Width of the embeddings, E.", **_SIZE)
    hidden_size: int = setting(4096, "Width of the encoder, D.", **_SIZE)
    num_hidden_layers: int = setting(12, "Number of layers.", minimum=1, maximum=MOST_BLOCKS)
    num_hidden_groups: int = setting(
        1, "Number of groups of layers; the layers of a group share parameters.", **_SIZE
    )
    inner_group_num: int = setting(
        1, "Number of blocks (attention, feed-forward) of a layer, with own variables.", **_SIZE
    )
    num_attention_heads: int = setting(64, "Number of attention heads, N.", **_SIZE)
    intermediate_size: int = setting(16384, "Width of the feed-forward layer, F.", **_SIZE)
    hidden_act: str = setting(
        "gelu",
        "Activation; gelu is the tanh approximation, as in the original, and gelu_exact has the error function.",
        choices=tuple(ACTIVATIONS),
    )
    hidden_dropout_prob: float = setting(0.0, "Dropout after embeddings, attention, FFN.", **_RATE)
    attention_probs_dropout_prob: float = setting(0.0, "Dropout on attention weights.", **_RATE)
    classifier_dropout_prob: float = setting(0.1, "Dropout before a task's output layer.", **_RATE)
    max_position_embeddings: int = setting(512, "Tokens of the longest sequence.", **_SIZE)
    type_vocab_size: int = setting(2, "Number of segment types.", **_SIZE)
    initializer_range: float = setting(
        0.02, "Standard deviation of the truncated normal initial values.", minimum=0, maximum=10
    )
    layer_norm_eps: float = setting(1e-12, "Epsilon of LayerNorm.", minimum=1e-30, maximum=0.1)
    share_parameters: str = setting(
        "all", "What the layers of a group share (paper, section 4.5).", choices=SHARING_STRATEGIES
    )
    foreign: dict = dataclasses.field(default_factory=dict)  # kept keys of released files

    def __post_init__(self):
        super().__post_init__()
        heads = self.num_attention_heads
        groups = self.num_hidden_groups
        layers = self.num_hidden_layers
        if self.hidden_size % heads:
            reason = f"must divide hidden_size {self.hidden_size}, got {heads}"
            self.refuse("num_attention_heads", reason)
        if self.num_blocks > MOST_BLOCKS:
            reason = f"times num_hidden_layers must be at most {MOST_BLOCKS}, got {self.num_blocks}"
            self.refuse("inner_group_num", reason)
        if groups > layers:
            reason = f"must be at most num_hidden_layers {layers}, got {groups}"
            self.refuse("num_hidden_groups", reason)
        if self.share_parameters == "none" and groups not in (1, layers):
            reason = f"must be 1 or num_hidden_layers with share_parameters=none, got {groups}"
            self.refuse("num_hidden_groups", reason)

    @property
    def head_size(self) -> int:
        """Width of one attention head, H."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_blocks(self) -> int:
        """Number of blocks that an input passes: layers times inner groups."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of a classifier's outputs, in order; two default names if the configuration has none."""
        names = self.foreign.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        return tuple(names[key] for key in sorted(names, key=int))

    @property
    def sentence_embedding(self) -> dict[str, Any]:
        """How the vector of a text is made (see `AlbertForEmbedding`); a value for each of `SENTENCE_EMBEDDING`."""
        return {**SENTENCE_EMBEDDING, **(self.foreign.get("sentence_embedding") or {})}

    @property
    def vector_size(self) -> int:
        """The number of values of a text's vector."""
        return self._size_of_vector(self.sentence_embedding)

    def _size_of_vector(self, how: Mapping[str, Any]) -> int:
        """The number of values of a vector that is made as `sentence_embedding` describes it."""
        size = self.hidden_size * len(parts_of(how["pooling"]))
        for module in how["modules"]:
            if module["kind"] == DENSE:
                size = module["size"]
        return how["projection_size"] or size

    @property
    def classifier_pooling(self) -> str:
        """What the head of a sequence classifier reads, a key of `CLASSIFIER_POOLINGS`."""
        return self.foreign.get("classifier_pooling") or POOLER

    @property
    def classifier_vector(self) -> dict[str, Any] | None:
        """How the vector is made that a sequence classifier reads, as `sentence_embedding`; None: by the pooler."""
        if self.classifier_pooling == POOLER:
            return None
        if self.classifier_pooling == MEAN:
            return dict(SENTENCE_EMBEDDING)
        return self.sentence_embedding

    @property
    def classifier_width(self) -> int:
        """The number of values that the head of a sequence classifier reads."""
        how = self.classifier_vector
        return self.hidden_size if how is None else self._size_of_vector(how)

    @property
    def sentence_task(self) -> str:
        """What the sentence head predicts: `sop`, the order of two texts, or a BERT's `nsp`, if the second is next."""
        return self.foreign.get("sentence_task", "sop")

    @property
    def is_multi_label(self) -> bool:
        """Whether a classifier may give a text any number of its labels, instead of exactly one."""
        return self.foreign.get("problem_type") == MULTI_LABEL

    @property
    def has_sigmoid(self) -> bool:
        """Whether the score of a cross-encoder of others is the sigmoid of its logit (`formats/cross_encoders.py`)."""
        activation = self.foreign.get("sentence_transformers") or {}
        is_sigmoid = str(activation.get("activation_fn")).endswith("Sigmoid")
        return is_sigmoid and len(self.labels) == 1

    @property
    def score_is_probability(self) -> bool:
        """Whether a classifier with one label answers with a sigmoid, as a pipeline of transformers does."""
        is_regression = self.foreign.get("problem_type") == "regression"
        return self.has_sigmoid and not is_regression

    def with_labels(
        self,
        labels: Sequence[str],
        task_name: str,
        *,
        is_multi_label: bool = False,
        pooling: str = POOLER,
    ) -> "AlbertConfig":
        """The same configuration for a classifier with these outputs, stored under Hugging Face's keys.

        `pooling` is a key of `CLASSIFIER_POOLINGS`.
        """
        label_keys: dict[str, Any] = {
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)},
            "finetuning_task": task_name,
        }
        # The activation in `sentence_transformers` is that of the head.
        of_head = ("problem_type", "sentence_transformers", "classifier_pooling")
        others = {name: value for name, value in self.foreign.items() if name not in of_head}
        if is_multi_label:
            label_keys["problem_type"] = MULTI_LABEL
        if pooling != POOLER:
            label_keys["classifier_pooling"] = pooling
        return self.replace(foreign={**others, **label_keys})

    def group_of_layer(self, layer: int) -> int:
        """The group that a layer belongs to (as in original modeling.py:1091, including its floating-point rule)."""
        return int(layer / self.num_hidden_layers * self.num_hidden_groups)

    def attention_group_of_layer(self, layer: int) -> int:
        """The index of the copy of the attention variables that a layer uses."""
        is_shared = self.share_parameters in ("all", "attention")
        return self.group_of_layer(layer) if is_shared else layer

    def ffn_group_of_layer(self, layer: int) -> int:
        """The index of the copy of the feed-forward variables that a layer uses."""
        return self.group_of_layer(layer) if self.share_parameters in ("all", "ffn") else layer

    def shares_at_most(self, other: "AlbertConfig") -> bool:
        """Whether layers that share variables here also share them in another configuration, at least as deep."""
        for kind in ("attention_group_of_layer", "ffn_group_of_layer"):
            layers = range(self.num_hidden_layers)
            groups = {(getattr(self, kind)(layer), getattr(other, kind)(layer)) for layer in layers}
            if len(groups) > len({group for group, _ in groups}):
                return False
        return True

    def with_layers(self, num_hidden_layers: int) -> "AlbertConfig":
        """The configuration of the first layers, in the fewest groups that this allows.

        If all layers share their parameters, there may also be more layers than here; otherwise that is a UserError.
        """
        changed = self.replace(num_hidden_layers=num_hidden_layers, num_hidden_groups=1)
        if self.share_parameters == "all" and self.num_hidden_groups == 1:
            return changed
        if num_hidden_layers > self.num_hidden_layers:
            reason = f"must be at most {self.num_hidden_layers}, as not all layers share their parameters"
            self.refuse("num_hidden_layers", f"{reason}; got {num_hidden_layers}")
        groups = 1
        while not changed.shares_at_most(self):
            groups += 1
            changed = changed.replace(num_hidden_groups=groups)
        return changed

    def replace(self, **changes) -> "AlbertConfig":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_name(cls, name: str, **changes) -> "AlbertConfig":
        """The configuration of a named size (paper, Table 1), with some fields changed.

        The name is base, large, xlarge or xxlarge, each -v1 or -v2, as in `albert-base-v2`; or `bert-base` or
        `bert-large`; otherwise that is a UserError.
        """
        if name not in MODEL_SIZES:
            raise UserError(f"model must be one of {', '.join(MODEL_SIZES)}; got {name!r}")
        return cls(**{**MODEL_SIZES[name], **changes})

    @classmethod
    def from_dict(
        cls, values: dict, source: str = "configuration", *, is_of_transformers: bool = False
    ) -> "AlbertConfig":
        """The configuration in a dictionary; `source` names it in errors, which misspelt keys and wrong values are.

        With `is_of_transformers`, or if the dictionary has our section in it, as in the `config.json` of a model
        folder, `hidden_act` has the meaning that it has in transformers.
        """
        if not isinstance(values, dict):
            raise UserError(f"{source}: expected the sizes of a model, got {shortened(values)}")
        section = values.get(OWN_SECTION, {})
        if not isinstance(section, dict):
            expected = f"an object under {OWN_SECTION}"
            raise UserError(f"{source}: expected {expected}, got {shortened(section)}")
        of_section = {name: section[name] for name in _IN_OWN_SECTION if name in section}
        field_names = {field.name for field in dataclasses.fields(cls)} - {"foreign"}
        fields, foreign = _fields_and_foreign({**values, **of_section}, field_names, source)
        if "hidden_act" in fields:
            is_theirs = is_of_transformers or OWN_SECTION in values
            fields["hidden_act"] = _activation(fields["hidden_act"], is_of_transformers=is_theirs)
        try:
            _check_foreign(foreign)
            return cls(**fields, foreign=foreign)
        # OverflowError: an integer too large for a float.
        except (UserError, OverflowError) as error:
            reason = str(error)  # the reason may contain a value of any length
            reason = reason if len(reason) <= 300 else f"{reason[:297]}..."
            raise UserError(f"{source}: {reason}") from None

    @classmethod
    def from_json_file(cls, path: files.AnyPath) -> "AlbertConfig":
        """Reads a configuration file, released ones included; a misspelt key or an impossible value is a UserError."""
        return cls.from_dict(files.read_json(str(path)), source=str(path))

    def to_dict(self) -> dict[str, Any]:
        """The fields and the kept foreign keys, as one flat dictionary."""
        sizes = dataclasses.asdict(self)
        foreign = sizes.pop("foreign")
        return {**foreign, **sizes}

    def to_json_string(self) -> str:
        """The configuration as indented JSON, readable by `from_json_file`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def _fields_and_foreign(
    values: Mapping[str, Any], field_names: Collection[str], source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a dictionary that are fields of a configuration, and those that are only kept."""
    fields: dict[str, Any] = {}
    foreign: dict[str, Any] = {}
    for key, value in values.items():
        if key in field_names:
            fields[key] = value
        elif key == "id2label" and isinstance(value, dict):
            # A file has strings as keys; transformers' own `to_dict` has integers.
            foreign[key] = {str(number): name for number, name in value.items()}
        elif key != OWN_SECTION:
            if meant := _misspelt(str(key), field_names):
                raise UserError(f"{source}: unknown key {shortened(key)}; is it {meant}?")
            foreign[key] = value
    return fields, foreign


def _activation(value: Any, *, is_of_transformers: bool) -> Any:
    """The name of an activation here; a name that both have ("gelu") means theirs only in a file of transformers."""
    name = str(value)
    if name in OF_TRANSFORMERS and (is_of_transformers or name not in ACTIVATIONS):
        return OF_TRANSFORMERS[name]
    return value


def _misspelt(key: str, fields: Collection[str]) -> str:
    """The field that a key of a file resembles; "" for none."""
    if key in _FOREIGN_KEYS or key.startswith("_"):
        return ""
    return next(iter(difflib.get_close_matches(key, fields, 1, _RESEMBLES)), "")


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _gives_labels(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != set(map(str, range(len(value)))):
        return False
    return _is_list_of_names(list(value.values()))


def _is_sentence_embedding(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= SENTENCE_EMBEDDING.keys():
        return False
    how = {**SENTENCE_EMBEDDING, **value}
    modules = how["modules"]
    size = how["projection_size"]
    return (
        is_pooling(how["pooling"])
        and how["similarity"] in SIMILARITIES
        and how["projection_activation"] in VECTOR_ACTIVATIONS
        and isinstance(modules, list | tuple)
        and all(map(is_module, modules))
        and type(size) is int
        and size >= 0
        and type(how["normalize"]) is bool
    )


# The kept keys that have a meaning here: a check, and what is expected. null is treated as absent.
_WITH_MEANING: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "finetuning_task": (lambda value: isinstance(value, str), "be a name"),
    "architectures": (_is_list_of_names, "be a list of names"),
    "id2label": (_gives_labels, 'give a name to each of "0", "1", "2", ...'),
    "classifier_pooling": (
        lambda value: value in tuple(CLASSIFIER_POOLINGS),
        f"be one of {', '.join(CLASSIFIER_POOLINGS)}",
    ),
    "sentence_embedding": (_is_sentence_embedding, f"have {', '.join(SENTENCE_EMBEDDING)}"),
}


def _check_foreign(values: Mapping[str, Any]) -> None:
    for key, (is_right, expected) in _WITH_MEANING.items():
        value = values.get(key)
        if value is not None and not is_right(value):
            raise UserError(f"{key} must {expected}; got {shortened(value)}")


def _size(embedding, hidden, layers, heads, **settings) -> dict[str, Any]:
    return {
        "vocab_size": 30000,
        "embedding_size": embedding,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        **settings,
    }


_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_BERT = {"share_parameters": "none", **_DROPOUT}

# Paper, Table 1. Version 1 was trained with dropout 0.1, except xxlarge; version 2 was trained without dropout
# (google-research/albert#23). BERT is the paper's baseline: no sharing, E = D, dropout 0.1.
MODEL_SIZES: dict[str, dict[str, Any]] = {
    "albert-base-v1": _size(128, 768, 12, 12, **_DROPOUT),
    "albert-large-v1": _size(128, 1024, 24, 16, **_DROPOUT),
    "albert-xlarge-v1": _size(128, 2048, 24, 16, **_DROPOUT),
    "albert-xxlarge-v1": _size(128, 4096, 12, 64),
    "albert-base-v2": _size(128, 768, 12, 12),
    "albert-large-v2": _size(128, 1024, 24, 16),
    "albert-xlarge-v2": _size(128, 2048, 24, 16),
    "albert-xxlarge-v2": _size(128, 4096, 12, 64),
    "bert-base": _size(768, 768, 12, 12, num_hidden_groups=12, **_BERT),
    "bert-large": _size(1024, 1024, 24, 16, num_hidden_groups=24, **_BERT),
}
