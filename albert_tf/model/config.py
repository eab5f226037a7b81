"""Every setting of the model, the optimiser, the run and the tasks: default, unit, help text and check, once.

A field of one of these frozen dataclasses is also a command-line flag (`cli.py`). This file imports no
TensorFlow, so that a wrong flag is refused before TensorFlow is loaded.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from albert_tf.core.errors import UserError


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    required: bool = False,
    input_path: bool = False,
) -> Any:
    """A dataclass field that carries its help text and its check.

    Args:
      default: the value when nothing is given; its type is the field's type.
      help: one sentence, with the unit where there is one.
      choices: the values allowed; empty allows all.
      minimum: the least value allowed.
      maximum: the greatest value allowed.
      required: whether a command line must give it.
      input_path: whether it names files that must exist (a path, a glob, or several separated by commas).
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "required": required,
        "input_path": input_path,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings: checks every field against its own declaration.

    Raises:
      UserError: a value is of another type, not among the choices, or out of bounds; names the field.
    """

    name_prefix: ClassVar[str] = "--"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, field.name, value)
            self._check_field(field, value)

    def _check_field(self, field: dataclasses.Field, value: Any) -> None:
        limits = field.metadata
        if isinstance(field.type, type) and type(value) is not field.type:
            self.refuse(field.name, f"must be of type {field.type.__name__}, got {value!r}")
        if limits.get("choices") and value not in limits["choices"]:
            self.refuse(field.name, f"must be one of {', '.join(limits['choices'])}; got {value!r}")
        if limits.get("minimum") is not None and not value >= limits["minimum"]:
            self.refuse(field.name, f"must be at least {limits['minimum']}, got {value}")
        if limits.get("maximum") is not None and not value <= limits["maximum"]:
            self.refuse(field.name, f"must be at most {limits['maximum']}, got {value}")

    def check_with(self, others: Mapping[type["Settings"], "Settings"]) -> None:
        """Checks what must hold between these settings and others of the same command line.

        Args:
          others: all of its settings, by class.

        Raises:
          UserError: something does not hold; names the field.
        """

    def refuse(self, field_name: str, reason: str) -> None:
        """Raises the `UserError` that names a field; a reason may begin with its value, "=value ..."."""
        space = "" if reason.startswith("=") else " "
        raise UserError(f"{self.name_prefix}{field_name}{space}{reason}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain dictionary."""
        return dataclasses.asdict(self)


ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
SHARING_STRATEGIES = ("all", "attention", "ffn", "none")

# Keys of released configuration files that have no meaning here. They are kept, not used.
# down_scale_factor to layers_to_keep: of the released models; the others: what versions 2 to 5 of the transformers
# library write for an ALBERT, the settings of text generation among them.
_FOREIGN_KEYS = frozenset(
    {
        *("down_scale_factor", "net_structure_type", "gap_size", "num_memory_blocks"),
        *("layers_to_keep",),
        *("architectures", "model_type", "transformers_version", "torch_dtype", "dtype"),
        *("torchscript", "use_bfloat16", "tf_legacy_loss"),
        *("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id"),
        *("mask_token_id", "unk_token_id"),
        *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task"),
        *("task_specific_params", "tokenizer_class", "prefix"),
        *("position_embedding_type", "tie_word_embeddings", "pruned_heads"),
        *("chunk_size_feed_forward", "gradient_checkpointing"),
        *("attn_implementation", "output_attentions", "output_hidden_states", "output_past"),
        *("use_cache", "return_dict"),
        *("is_decoder", "is_encoder_decoder", "add_cross_attention"),
        *("cross_attention_hidden_size", "tie_encoder_decoder"),
        *("decoder_start_token_id",),
        *("bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample"),
        *("early_stopping", "encoder_no_repeat_ngram_size"),
        *("exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id"),
        *("length_penalty", "max_length", "min_length"),
        *("no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences"),
        *("output_scores", "remove_invalid_values"),
        *("repetition_penalty", "return_dict_in_generate", "suppress_tokens", "temperature"),
        *("top_k", "top_p", "typical_p"),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(Settings):
    """The sizes of a model, under the names of the released `albert_config.json`.

    The defaults are those of the original's `AlbertConfig` (modeling.py:42-57, albert-xxlarge), except
    `vocab_size`, which the original has no default for.

    Raises:
      UserError: a value is impossible or contradicts another; names the field.
    """

    name_prefix: ClassVar[str] = ""

    vocab_size: int = setting(30000, "Number of pieces in the vocabulary.", minimum=1)
    embedding_size: int = setting(128, "Width of the embeddings, E.", minimum=1)
    hidden_size: int = setting(4096, "Width of the encoder, D.", minimum=1)
    num_hidden_layers: int = setting(12, "Number of layers.", minimum=1)
    num_hidden_groups: int = setting(
        1, "Number of groups of layers; the layers of a group share parameters.", minimum=1
    )
    inner_group_num: int = setting(
        1,
        "Number of blocks (attention and feed-forward) inside a layer, each with its own variables.",
        minimum=1,
    )
    num_attention_heads: int = setting(64, "Number of attention heads, N.", minimum=1)
    intermediate_size: int = setting(16384, "Width of the feed-forward layer, F.", minimum=1)
    hidden_act: str = setting("gelu", "Activation; gelu is the tanh form.", choices=ACTIVATIONS)
    hidden_dropout_prob: float = setting(
        0.0, "Dropout after embeddings, attention and FFN.", minimum=0, maximum=0.99
    )
    attention_probs_dropout_prob: float = setting(
        0.0, "Dropout on attention probabilities.", minimum=0, maximum=0.99
    )
    classifier_dropout_prob: float = setting(
        0.1, "Dropout before a task's output layer.", minimum=0, maximum=0.99
    )
    max_position_embeddings: int = setting(512, "Longest sequence, in pieces.", minimum=1)
    type_vocab_size: int = setting(2, "Number of segment types.", minimum=1)
    initializer_range: float = setting(
        0.02, "Deviation of the truncated normal start values.", minimum=0
    )
    layer_norm_eps: float = setting(1e-12, "Epsilon of every LayerNorm.", minimum=0)
    share_parameters: str = setting(
        "all", "What the layers of a group share (paper, section 4.5).", choices=SHARING_STRATEGIES
    )
    foreign: dict = dataclasses.field(default_factory=dict)  # kept keys of released files

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            self.refuse(
                "num_attention_heads",
                f"must divide hidden_size {self.hidden_size}, got {self.num_attention_heads}",
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            self.refuse(
                "num_hidden_groups",
                f"must be at most num_hidden_layers {self.num_hidden_layers}, got {self.num_hidden_groups}",
            )
        if self.share_parameters == "none" and self.num_hidden_groups not in (
            1,
            self.num_hidden_layers,
        ):
            self.refuse(
                "num_hidden_groups",
                f"must be 1 or num_hidden_layers with share_parameters=none, got {self.num_hidden_groups}",
            )

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
        """Names of a classifier's outputs, in order; two unnamed ones if the configuration has none."""
        names = self.foreign.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        return tuple(names[key] for key in sorted(names, key=int))

    def with_labels(self, labels: Sequence[str], task_name: str) -> "AlbertConfig":
        """The same sizes for a classifier with these outputs, under the keys of Hugging Face."""
        kept = {
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)},
            "finetuning_task": task_name,
        }
        return self.replace(foreign={**self.foreign, **kept})

    def group_of_layer(self, layer: int) -> int:
        """The group that a layer belongs to (original modeling.py:1091, its floating-point rule included)."""
        return int(layer / self.num_hidden_layers * self.num_hidden_groups)

    def attention_group_of_layer(self, layer: int) -> int:
        """Which copy of the attention variables a layer uses."""
        return (
            self.group_of_layer(layer) if self.share_parameters in ("all", "attention") else layer
        )

    def ffn_group_of_layer(self, layer: int) -> int:
        """Which copy of the feed-forward variables a layer uses."""
        return self.group_of_layer(layer) if self.share_parameters in ("all", "ffn") else layer

    def replace(self, **changes) -> "AlbertConfig":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_name(cls, name: str, **changes) -> "AlbertConfig":
        """The configuration of a named size (paper, Table 1), with some fields changed.

        Raises:
          UserError: no size has that name.
        """
        if name not in MODEL_SIZES:
            raise UserError(f"model must be one of {', '.join(MODEL_SIZES)}; got {name!r}")
        return cls(**{**MODEL_SIZES[name], **changes})

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "configuration") -> "AlbertConfig":
        """The configuration in a dictionary; `source` names it in errors.

        Raises:
          UserError: a key is neither a field nor a known key of released files, or a value is wrong.
        """
        # Hugging Face's names for what the original calls otherwise.
        renamed = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu"}
        known = {field.name for field in dataclasses.fields(cls)} - {"foreign"}
        own, foreign = {}, {}
        for key, value in values.items():
            if key in known:
                own[key] = renamed.get(str(value), value) if key == "hidden_act" else value
            elif key in _FOREIGN_KEYS or key.startswith("_"):
                foreign[key] = value
            else:
                raise UserError(
                    f"{source}: unknown key {key!r}; known are {', '.join(sorted(known))}"
                )
        try:
            return cls(**own, foreign=foreign)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None

    @classmethod
    def from_json_file(cls, path: str | os.PathLike) -> "AlbertConfig":
        """Reads a configuration file, released ones included.

        Raises:
          UserError: the file does not exist, is not JSON, or holds an unknown key or an impossible value.
        """
        try:
            with open(path, encoding="utf-8") as file:
                values = json.load(file)
        except OSError as error:
            raise UserError(
                f"{path}: cannot read the model's configuration ({error.strerror})"
            ) from None
        except ValueError as error:
            raise UserError(f"{path}: not a JSON file ({error})") from None
        if not isinstance(values, dict):
            raise UserError(
                f"{path}: expected a JSON object with the model's sizes, got {type(values).__name__}"
            )
        return cls.from_dict(values, source=str(path))

    def to_dict(self) -> dict[str, Any]:
        """The fields and the kept foreign keys, as one flat dictionary."""
        values = dataclasses.asdict(self)
        return {**values.pop("foreign"), **values}

    def to_json_string(self) -> str:
        """The configuration as indented JSON, readable by `from_json_file`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def _size(embedding, hidden, layers, heads, **others) -> dict[str, Any]:
    sizes = {
        "vocab_size": 30000,
        "embedding_size": embedding,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    return {**sizes, **others}


_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}

# Paper, Table 1. Version 1 was trained with dropout 0.1, except xxlarge; version 2 without (google-research/albert#23).
# BERT is the baseline of the paper: nothing shared, E = D, dropout 0.1.
MODEL_SIZES: dict[str, dict[str, Any]] = {
    "albert-base-v1": _size(128, 768, 12, 12, **_DROPOUT),
    "albert-large-v1": _size(128, 1024, 24, 16, **_DROPOUT),
    "albert-xlarge-v1": _size(128, 2048, 24, 16, **_DROPOUT),
    "albert-xxlarge-v1": _size(128, 4096, 12, 64),
    "albert-base-v2": _size(128, 768, 12, 12),
    "albert-large-v2": _size(128, 1024, 24, 16),
    "albert-xlarge-v2": _size(128, 2048, 24, 16),
    "albert-xxlarge-v2": _size(128, 4096, 12, 64),
    "bert-base": _size(768, 768, 12, 12, num_hidden_groups=12, share_parameters="none", **_DROPOUT),
    "bert-large": _size(
        1024, 1024, 24, 16, num_hidden_groups=24, share_parameters="none", **_DROPOUT
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Settings):
    """The optimiser and its schedule (original optimization.py, lamb_optimizer.py; paper, section 4.1)."""

    optimizer: str = setting(
        "lamb", "Optimiser; both without bias correction.", choices=("lamb", "adamw")
    )
    learning_rate: float = setting(0.00176, "Peak learning rate.", minimum=0)
    learning_rate_scaling: str = setting(
        "none",
        "Scales --learning_rate by (batch / --reference_batch_size), or by its square root.",
        choices=("none", "sqrt", "linear"),
    )
    reference_batch_size: int = setting(
        4096, "Batch size that --learning_rate was chosen for.", minimum=1
    )
    num_train_steps: int = setting(
        125000, "Number of training steps, at the end of which the rate is 0.", minimum=1
    )
    num_warmup_steps: int = setting(3125, "Number of steps of linear warm-up.", minimum=0)
    start_warmup_step: int = setting(0, "Step at which the warm-up starts.", minimum=0)
    poly_power: float = setting(1.0, "Power of the polynomial decay.", minimum=0)
    decay_from: str = setting(
        "start",
        "Where the decay is counted from: `start` is the original's (the rate falls from 0.00176 to 0.001716 when"
        " a warm-up of 3125 of 125000 steps ends), `warmup_end` has no such step.",
        choices=("start", "warmup_end"),
    )
    weight_decay_rate: float = setting(
        0.01, "Decoupled weight decay; not on LayerNorm and biases.", minimum=0
    )
    beta_1: float = setting(0.9, "Decay of the first moment.", minimum=0, maximum=1)
    beta_2: float = setting(0.999, "Decay of the second moment.", minimum=0, maximum=1)
    optimizer_epsilon: float = setting(1e-6, "Added to the root of the second moment.", minimum=0)
    max_gradient_norm: float = setting(
        1.0, "Global norm that gradients are clipped to; 0 does not clip.", minimum=0
    )
    bias_correction: bool = setting(
        False, "Whether to correct the moments' bias, which the original does not."
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_warmup()

    def _check_warmup(self) -> None:
        if self.start_warmup_step + self.num_warmup_steps > self.num_train_steps:
            self.refuse(
                "num_warmup_steps",
                f"({self.num_warmup_steps}, from --start_warmup_step={self.start_warmup_step}) must end within"
                f" --num_train_steps={self.num_train_steps}",
            )

    def peak_learning_rate(self, train_batch_size: int) -> float:
        """The rate at the end of the warm-up, for a global batch of this many examples."""
        ratio = train_batch_size / self.reference_batch_size
        return (
            self.learning_rate
            * {"none": 1.0, "sqrt": ratio**0.5, "linear": ratio}[self.learning_rate_scaling]
        )


STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """How a model is trained and evaluated, whatever the task: folder, batches, devices, intervals."""

    output_dir: str = setting(
        "", "Folder of the run: checkpoints, logs, results, model.", required=True
    )
    overwrite_output_dir: bool = setting(
        False,
        "Whether to delete the run that --output_dir holds and start anew; a run is resumed otherwise.",
    )
    do_train: bool = setting(True, "Whether to train.")
    do_eval: bool = setting(True, "Whether to evaluate at the end, and while training.")
    train_batch_size: int = setting(
        4096, "Examples in a training step, over all devices.", minimum=1
    )
    eval_batch_size: int = setting(
        64, "Examples in an evaluation step, over all devices.", minimum=1
    )
    gradient_accumulation_steps: int = setting(
        1,
        "Pieces that a device's part of the batch is cut into, to save memory; changes no result.",
        minimum=1,
    )
    distribution_strategy: str = setting(
        "auto", "How the devices are used; `auto` takes what the machine has.", choices=STRATEGIES
    )
    num_devices: int = setting(
        0,
        "Devices of `mirrored`: 0 is every GPU; without a GPU, logical CPU devices are made.",
        minimum=0,
    )
    tpu_name: str = setting("", "Cloud TPU's name or grpc:// address; `local` on a TPU VM.")
    worker_hosts: str = setting(
        "", "host:port of every worker, separated by commas, for multi_worker_mirrored."
    )
    task_index: int = setting(0, "Which of --worker_hosts this process is.", minimum=0)
    mixed_precision: str = setting(
        "float32",
        "Precision of matrix products; norms, softmax and losses stay float32.",
        choices=PRECISIONS,
    )
    recompute_activations: bool = setting(
        False,
        "Whether to compute each block again in the backward pass instead of keeping its activations.",
    )
    jit_compile: str = setting(
        "auto",
        "Whether XLA compiles the step: `auto` does on GPU (a TPU always does).",
        choices=("auto", "on", "off"),
    )
    steps_per_loop: int = setting(
        1000, "Most training steps that run on the device without a return.", minimum=1
    )
    log_every_steps: int = setting(100, "Training steps between lines of metrics.jsonl.", minimum=1)
    save_checkpoints_steps: int = setting(5000, "Training steps between checkpoints.", minimum=1)
    keep_checkpoint_max: int = setting(5, "Checkpoints kept, besides the best one.", minimum=1)
    eval_every_steps: int = setting(
        5000, "Training steps between evaluations, if there are records to evaluate on.", minimum=1
    )
    max_eval_steps: int = setting(
        100, "Most steps of an evaluation; 0 evaluates all records.", minimum=0
    )
    early_stopping_evaluations: int = setting(
        0,
        "Evaluations without a new best one after which training stops; 0 never stops early.",
        minimum=0,
    )
    stop_after_steps: int = setting(
        0,
        "Step to stop at before --num_train_steps, without changing the schedule; 0 does not.",
        minimum=0,
    )
    seed: int = setting(
        12345,
        "Seed of start values, dropout, the order of records and masks that are drawn while reading.",
        minimum=0,
        maximum=2**31 - 1,
    )
    deterministic: bool = setting(
        False,
        "Whether every operation is made deterministic (slower), so that equal runs are equal bit for bit.",
    )
    init_checkpoint: str = setting(
        "",
        "Model to start from: a TF1 checkpoint, a model folder or a run's folder.",
        input_path=True,
    )
    warm_start_from_shallower: bool = setting(
        False,
        "Whether --init_checkpoint may have fewer layers or groups, whose values then start all of ours"
        " (paper, footnote 5).",
    )
    hidden_dropout_prob: float = setting(
        -1.0,
        "Dropout after embeddings, attention and FFN; -1 leaves it as in the model's configuration.",
        maximum=0.99,
    )
    attention_probs_dropout_prob: float = setting(
        -1.0,
        "Dropout on attention probabilities; -1 leaves it as in the model's configuration.",
        maximum=0.99,
    )
    classifier_dropout_prob: float = setting(
        -1.0,
        "Dropout before a task's output layer; -1 leaves it as in the model's configuration.",
        maximum=0.99,
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.has_work():
            self.refuse("do_eval", "or --do_train must be true: there is nothing to do")
        if self.warm_start_from_shallower and not self.init_checkpoint:
            self.refuse(
                "warm_start_from_shallower",
                "needs --init_checkpoint, the shallower model to start from",
            )
        if self.overwrite_output_dir and self.init_checkpoint and self._would_delete_checkpoint():
            self.refuse(
                "overwrite_output_dir",
                f"would delete --init_checkpoint={self.init_checkpoint}: choose another --output_dir",
            )
        if self.num_devices > 1 and self.distribution_strategy in ("one_device", "tpu"):
            self.refuse(
                "num_devices",
                f"({self.num_devices}) contradicts --distribution_strategy={self.distribution_strategy}",
            )
        if self.distribution_strategy == "tpu" and not self.tpu_name:
            self.refuse(
                "tpu_name", "must be given with --distribution_strategy=tpu (`local` on a TPU VM)"
            )
        if self.tpu_name and self.distribution_strategy not in ("auto", "tpu"):
            self.refuse(
                "tpu_name", f"contradicts --distribution_strategy={self.distribution_strategy}"
            )
        if self.worker_hosts and self.distribution_strategy != "multi_worker_mirrored":
            self.refuse("worker_hosts", "needs --distribution_strategy=multi_worker_mirrored")
        hosts = filter(None, self.worker_hosts.split(","))
        if wrong := [host for host in hosts if not host.rpartition(":")[2].isdigit()]:
            self.refuse("worker_hosts", f"must be host:port of every worker, got {wrong[0]!r}")
        if self.task_index and self.task_index >= len(self.worker_hosts.split(",")):
            self.refuse(
                "task_index", f"must be below the number of --worker_hosts, got {self.task_index}"
            )

    def has_work(self) -> bool:
        """Whether anything is asked for."""
        return self.do_train or self.do_eval

    def _would_delete_checkpoint(self) -> bool:
        folder, checkpoint = map(os.path.realpath, (self.output_dir, self.init_checkpoint))
        return os.path.commonpath([folder, checkpoint]) == folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelChoice(Settings):
    """Which model is built, where --init_checkpoint does not say it; the base of the tasks' settings."""

    model: str = setting("", "Name of the model's size.", choices=("", *MODEL_SIZES))
    albert_config_file: str = setting(
        "", "JSON file with the model's sizes, instead of --model.", input_path=True
    )
    share_parameters: str = setting(
        "", "Replaces the model's sharing strategy.", choices=("", *SHARING_STRATEGIES)
    )

    def __post_init__(self):
        super().__post_init__()
        if self.model and self.albert_config_file:
            self.refuse("model", "and --albert_config_file contradict each other: give one")

    def check_model(self, run: RunConfig) -> None:
        """Checks that some flag names a model.

        Raises:
          UserError: none does.
        """
        if not (self.model or self.albert_config_file or run.init_checkpoint):
            self.refuse("model", "or --albert_config_file or --init_checkpoint is required")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(ModelChoice):
    """What is pretrained on what: records, model."""

    input_file: str = setting(
        "",
        "Training records: TFRecord files, globs or folders, separated by commas.",
        input_path=True,
    )
    eval_file: str = setting(
        "", "Held-out records for evaluation, in the form of --input_file.", input_path=True
    )
    spm_model_file: str = setting(
        "",
        "SentencePiece model of the records, to be put into the model's folder.",
        input_path=True,
    )
    max_seq_length: int = setting(
        0, "Pieces in an example; 0 takes it from the records.", minimum=0
    )
    max_predictions_per_seq: int = setting(
        0, "Masked pieces in an example; 0 takes it from the records.", minimum=0
    )
    shuffle: bool = setting(True, "Whether training records are shuffled, anew each epoch.")
    shuffle_buffer_examples: int = setting(10000, "Examples that are shuffled together.", minimum=1)

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that there is something to train or evaluate, and on what.

        Raises:
          UserError: a flag is missing; names it.
        """
        run = others[RunConfig]
        if run.do_train and not self.input_file:
            self.refuse("input_file", "is required to train: TFRecords of pretraining examples")
        if not run.do_train and not self.eval_file:
            self.refuse("eval_file", "is required to evaluate: held-out TFRecords")
        self.check_model(run)


def changed(cls: type[Settings], name: str, default: Any, **metadata: Any) -> Any:
    """A field of a subclass that repeats its base class's, with another default, and other bounds or help if given."""
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    return dataclasses.field(default=default, metadata={**field.metadata, **metadata})


# --- Fine-tuning ---


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningRunConfig(RunConfig):
    """How a model is fine-tuned, whatever the task."""

    do_predict: bool = setting(False, "Whether to write predictions for data without labels.")
    train_batch_size: int = changed(RunConfig, "train_batch_size", 32)
    log_every_steps: int = changed(RunConfig, "log_every_steps", 50)
    keep_checkpoint_max: int = changed(RunConfig, "keep_checkpoint_max", 1)
    max_eval_steps: int = changed(
        RunConfig,
        "max_eval_steps",
        0,
        maximum=0,
        help="0: every example is evaluated, or the metrics would be wrong.",
    )
    eval_every_steps: int = changed(
        RunConfig,
        "eval_every_steps",
        0,
        minimum=0,
        help="Training steps between evaluations; 0 is a tenth of the training.",
    )
    save_checkpoints_steps: int = changed(
        RunConfig,
        "save_checkpoints_steps",
        0,
        minimum=0,
        help="Training steps between checkpoints; 0 is --eval_every_steps.",
    )

    def has_work(self) -> bool:
        """Whether anything is asked for."""
        return self.do_train or self.do_eval or self.do_predict


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptimizerConfig(OptimizerConfig):
    """The optimiser of fine-tuning (paper, appendix A.4); what is left open follows from model and data."""

    optimizer: str = changed(OptimizerConfig, "optimizer", "adamw")
    learning_rate: float = changed(
        OptimizerConfig,
        "learning_rate",
        0.0,
        help="Peak learning rate; 0 takes one for the model's width: 3e-5 up to D = 768, 2e-5 up to 1024, 1e-5 up"
        " to 2048, 5e-6 above; ten times as much from random weights.",
    )
    num_train_steps: int = changed(
        OptimizerConfig,
        "num_train_steps",
        0,
        minimum=0,
        help="Number of training steps, at the end of which the rate is 0; 0 takes --num_train_epochs.",
    )
    num_warmup_steps: int = changed(
        OptimizerConfig,
        "num_warmup_steps",
        -1,
        minimum=-1,
        help="Number of steps of linear warm-up; -1 takes --warmup_proportion of the training.",
    )
    num_train_epochs: float = setting(
        3.0, "Passes through the training data, without --num_train_steps.", minimum=0.001
    )
    warmup_proportion: float = setting(
        0.1, "Share of the training that is warm-up.", minimum=0, maximum=1
    )

    def resolved(
        self, num_examples: int, train_batch_size: int, hidden_size: int, is_random: bool
    ) -> OptimizerConfig:
        """The settings with everything that was left open filled in.

        Args:
          num_examples: of the training data.
          train_batch_size: examples in a step.
          hidden_size: D of the model.
          is_random: whether the model starts from random weights.

        Raises:
          UserError: the warm-up is longer than the training.
        """
        values = self.to_dict()
        epochs, proportion = values.pop("num_train_epochs"), values.pop("warmup_proportion")
        if not self.num_train_steps:
            values["num_train_steps"] = max(1, round(epochs * num_examples / train_batch_size))
        if self.num_warmup_steps < 0:
            values["num_warmup_steps"] = int(proportion * values["num_train_steps"])
        if not self.learning_rate:
            rate = next(rate for width, rate in _FINE_TUNING_RATES if hidden_size <= width)
            values["learning_rate"] = rate * (10 if is_random else 1)
        return OptimizerConfig(**values)

    def _check_warmup(self) -> None:
        if self.num_train_steps:
            super()._check_warmup()


# Larger models collapse at rates that suit the smaller ones (google-research/albert#197, keras-hub#831).
_FINE_TUNING_RATES = ((768, 3e-5), (1024, 2e-5), (2048, 1e-5), (math.inf, 5e-6))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig(ModelChoice):
    """What all fine-tuning tasks have in common."""

    spm_model_file: str = setting(
        "",
        "SentencePiece model of the vocabulary; by default the one in --init_checkpoint's folder.",
        input_path=True,
    )
    do_lower_case: bool = setting(True, "Whether text is lower-cased; false for a cased model.")
    max_seq_length: int = setting(128, "Most pieces of a sequence; longer text is cut.", minimum=8)
    length_buckets: int = setting(
        0,
        "Lengths that batches are padded to: 1 pads every batch to --max_seq_length; 0 is 4, and 1 on a TPU.",
        minimum=0,
        maximum=64,
    )
    feature_cache_dir: str = setting(
        "", "Folder where features are kept for further runs; without it they are made anew."
    )
    num_workers: int = setting(
        0, "Processes that make features; 0 is one for every core.", minimum=0
    )
    train_records: str = setting(
        "",
        "Folder that data_prep/create_finetuning_data.py wrote; training reads it instead of the task's own files.",
        input_path=True,
    )
    preset: str = setting(
        "",
        "Fills every setting that is not given: `paper` is Table 14, `readme` the original's README.",
        choices=("", "paper", "readme"),
    )
    num_runs: int = setting(
        1, "Runs with the seeds --seed, --seed + 1, ..., each in a folder of its own.", minimum=1
    )
    restart_collapsed: int = setting(
        0,
        "Times that a run which predicts one class for everything is started again, with another seed.",
        minimum=0,
    )
    ensemble: str = setting(
        "",
        "Folders of finished runs, separated by commas, whose predictions are averaged; nothing is trained.",
        input_path=True,
    )
    ensemble_selection: str = setting(
        "greedy",
        "Members of an ensemble: `all`, or `greedy`, which adds members as long as the dev score gets better.",
        choices=("greedy", "all"),
    )

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that there is something to do and a model to do it with.

        Raises:
          UserError: a flag is missing or contradicts another; names it.
        """
        run = others[FineTuningRunConfig]
        if self.ensemble:
            return
        folder = os.path.join(run.output_dir, "checkpoints")
        has_run = os.path.isdir(folder) or "://" in folder
        if run.do_train or not has_run:
            self.check_model(run)
            if not run.do_train and not run.init_checkpoint:
                run.refuse("init_checkpoint", "is required without --do_train: a fine-tuned model")
            if not run.init_checkpoint and not self.spm_model_file:
                self.refuse("spm_model_file", "is required without --init_checkpoint")
        if self.num_runs > 1 and not run.do_train:
            self.refuse("num_runs", f"({self.num_runs}) needs --do_train")


GLUE_TASK_NAMES = (*("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI", "AX"),)
OWN_TASK = "tsv"
RANKED_TASKS = ("qnli", "wnli")


def task_key(name: str) -> str:
    """A task's name without case, hyphens and underscores: "STS-B" is "stsb", AX's folder "diagnostic" is "ax"."""
    key = name.strip().lower().replace("-", "").replace("_", "")
    return "ax" if key == "diagnostic" else key


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(FineTuningConfig):
    """A GLUE task, or a classification or regression task of the user's own."""

    task_name: str = setting(
        "",
        "GLUE task: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI or AX; `tsv` for files of your own.",
        required=True,
    )
    data_dir: str = setting(
        "",
        "Folder of GLUE's files or of the task's; `tfds` downloads them by tensorflow-datasets.",
    )
    train_file: str = setting("", "Training data of --task_name=tsv.", input_path=True)
    eval_file: str = setting("", "Development data of --task_name=tsv.", input_path=True)
    predict_file: str = setting(
        "",
        "Data to predict for with --do_predict, with or without labels; a GLUE task's test data by default.",
        input_path=True,
    )
    text_columns: str = setting(
        "", "One or two column names with the text, separated by commas, of --task_name=tsv."
    )
    label_column: str = setting("label", "Column with the label or score of --task_name=tsv.")
    id_column: str = setting("", "Column that predictions are named by; the row number without.")
    kind: str = setting(
        "classification",
        "What --task_name=tsv predicts: a label, or a score.",
        choices=("classification", "regression"),
    )
    pair_ranking: bool = setting(
        False,
        "Whether QNLI and WNLI rank the candidates of a question or sentence against each other (paper, appendix).",
    )

    def __post_init__(self):
        super().__post_init__()
        known = (*GLUE_TASK_NAMES, OWN_TASK)
        if self.task_key not in map(task_key, known):
            self.refuse("task_name", f"must be one of {', '.join(known)}; got {self.task_name!r}")
        if self.pair_ranking and self.task_key not in RANKED_TASKS:
            self.refuse("pair_ranking", f"is for QNLI and WNLI, not {self.task_name}")
        if self.pair_ranking and self.train_records:
            self.refuse("pair_ranking", "and --train_records contradict each other")

    @property
    def task_key(self) -> str:
        """The task's name as models and presets know it."""
        return task_key(self.task_name)

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that the data is named.

        Raises:
          UserError: a flag is missing; names it.
        """
        super().check_with(others)
        run = others[FineTuningRunConfig]
        if self.task_key != OWN_TASK:
            if not self.data_dir:
                self.refuse("data_dir", f"is required: the folder of {self.task_name}")
            if not (
                self.data_dir == "tfds" or "://" in self.data_dir or os.path.isdir(self.data_dir)
            ):
                self.refuse("data_dir", f"={self.data_dir}: no such folder")
            if self.train_file or self.eval_file:
                self.refuse("train_file", "and --eval_file belong to --task_name=tsv")
            return
        if not self.text_columns:
            self.refuse("text_columns", "is required with --task_name=tsv")
        if len(self.text_columns.split(",")) > 2:
            self.refuse("text_columns", f"must be one or two names, got {self.text_columns!r}")
        for wanted, name in (
            (run.do_train and not self.train_records, "train_file"),
            (run.do_eval and not run.do_train, "eval_file"),
            (run.do_predict, "predict_file"),
        ):
            if wanted and not getattr(self, name) and not self.ensemble:
                self.refuse(name, "is required with --task_name=tsv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(FineTuningConfig):
    """SQuAD 1.1 or 2.0."""

    version: str = setting("2.0", "1.1: every question has an answer; 2.0.", choices=("1.1", "2.0"))
    train_file: str = setting("", "SQuAD's JSON file to train on.", input_path=True)
    eval_file: str = setting("", "SQuAD's JSON file to evaluate on.", input_path=True)
    predict_file: str = setting(
        "", "JSON file with questions to answer; needs no answers.", input_path=True
    )
    max_seq_length: int = changed(FineTuningConfig, "max_seq_length", 384)
    doc_stride: int = setting(128, "Pieces from the start of a window to the next.", minimum=1)
    max_query_length: int = setting(64, "Most pieces of a question.", minimum=1)
    max_answer_length: int = setting(30, "Most pieces of an answer.", minimum=1)
    n_best_size: int = setting(20, "Answers of a question in nbest_predictions.json.", minimum=1)
    null_threshold: str = setting(
        "best",
        "SQuAD 2.0: answers whose null odds are above it are left empty: a number, or `best`, the one that was best on"
        " the evaluated file, saved with the model.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.null_threshold != "best":
            try:
                float(self.null_threshold)
            except ValueError:
                self.refuse(
                    "null_threshold", f"must be `best` or a number, got {self.null_threshold!r}"
                )
        if self.max_query_length + 3 >= self.max_seq_length:
            self.refuse(
                "max_query_length",
                f"({self.max_query_length}) leaves no room for text in --max_seq_length={self.max_seq_length}",
            )

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that the files are named.

        Raises:
          UserError: a flag is missing; names it.
        """
        super().check_with(others)
        run = others[FineTuningRunConfig]
        if run.do_train and not (self.train_file or self.train_records or self.ensemble):
            self.refuse("train_file", "is required to train")
        if run.do_eval and not run.do_train and not self.eval_file:
            self.refuse("eval_file", "is required to evaluate")
        if run.do_predict and not self.predict_file and not self.ensemble:
            self.refuse("predict_file", "is required with --do_predict")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceConfig(FineTuningConfig):
    """RACE: reading comprehension with four options."""

    data_dir: str = setting(
        "",
        "Folder of the RACE archive, with train/, dev/ and test/.",
        required=True,
        input_path=True,
    )
    level: str = setting("all", "Which schools' passages.", choices=("all", "middle", "high"))
    max_seq_length: int = changed(FineTuningConfig, "max_seq_length", 512)
    max_qa_length: int = setting(128, "Most pieces of question and option.", minimum=1)


# --- Finished models ---


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource(Settings):
    """A finished model, wherever it is from."""

    model: str = setting(
        "",
        "The model: a model's or run's folder, a TF1 checkpoint, a hub module, or hf:NAME. The name of the flag may be"
        " left out.",
        required=True,
        input_path=True,
    )
    spm_model_file: str = setting(
        "", "Its SentencePiece model, if none came with it.", input_path=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelUse(ModelSource):
    """A finished model and how texts become its input."""

    do_lower_case: str = setting(
        "auto",
        "Whether text is lower-cased; `auto` takes what the model's folder says, true if it says nothing.",
        choices=("auto", "true", "false"),
    )
    max_seq_length: int = setting(
        0,
        "Most pieces of a sequence; 0 takes what the model was fine-tuned with, or its longest.",
        minimum=0,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_seq_length and self.max_seq_length < 4:
            self.refuse("max_seq_length", f"must be 0 or at least 4, got {self.max_seq_length}")

    @property
    def lower_case(self) -> bool | None:
        """Whether text is lower-cased; None if the model's folder is to say."""
        return {"auto": None, "true": True, "false": False}[self.do_lower_case]
