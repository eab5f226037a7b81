"""Settings of distillation: teacher, text, and the weights of its losses."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from albert_tf.core.settings import Settings, changed, setting
from albert_tf.tasks.settings import LONGEST_SEQUENCE, files_setting
from albert_tf.training.settings import PRECISIONS, OptimizerConfig, RunConfig

_WEIGHT = {"minimum": 0, "maximum": 1000}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationConfig(Settings):
    """Teacher, text, and what the student learns of the teacher."""

    teacher: str = setting(
        "",
        "Model whose hidden states are learned: anything that --init_checkpoint takes, with the same vocabulary.",
        required=True,
        input_path=True,
        changes_results=False,
    )
    input_file: str = files_setting(
        "Text to learn from, one text per line: files or globs, separated by commas; also compressed ones."
    )
    eval_file: str = files_setting("Held-out text for evaluations, in the same form.")
    max_seq_length: int = setting(
        256,
        "Tokens of a text, at which it is cut. Models with fewer positions lower the default.",
        minimum=8,
        maximum=LONGEST_SEQUENCE,
    )
    teacher_precision: str = setting(
        "float32",
        "Precision of the teacher's matrix products; mixed_bfloat16 saves time where the processor has them.",
        choices=PRECISIONS,
    )
    hidden_weight: float = setting(
        0.5, "Weight of the mean relative error of embeddings and layers but the last.", **_WEIGHT
    )
    last_weight: float = setting(1.0, "Weight of the relative error of the last layer.", **_WEIGHT)
    vector_weight: float = setting(
        2.0, "Weight of 1 - the cosine of the mean vectors of a text.", **_WEIGHT
    )
    masked_lm_weight: float = setting(
        0.0,
        "Weight of the masked-LM loss of the student, whose head is trained and kept; 0 trains none.",
        **_WEIGHT,
    )

    def check_with(self, others: Mapping[type[Settings], Any]) -> None:
        """Checks that the flags name text and a student."""
        run = others[DistillationRunConfig]
        if not run.init_checkpoint:
            run.refuse("init_checkpoint", "is required: the student, as albert-tf fold makes it")
        if run.do_train and not self.input_file:
            self.refuse("input_file", "is required to train: plain text, one text per line")
        weights = (
            self.hidden_weight,
            self.last_weight,
            self.vector_weight,
            self.masked_lm_weight,
        )
        if run.do_train and not any(weights):
            reason = "must be above 0 if the other weights are 0: there is nothing to learn"
            self.refuse("last_weight", reason)
        if not run.do_train and not self.eval_file:
            self.refuse("eval_file", "is required to evaluate: plain text, one text per line")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationRunConfig(RunConfig):
    """How a student is trained."""

    # Its dropout is that of its configuration.
    without_flags: ClassVar[tuple[str, ...]] = (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout_prob",
        "max_eval_steps",
        "warm_start_from_shallower",
    )

    train_batch_size: int = changed(RunConfig, "train_batch_size", 64)
    save_checkpoints_steps: int = changed(RunConfig, "save_checkpoints_steps", 500)
    eval_every_steps: int = changed(RunConfig, "eval_every_steps", 1000)
    keep_checkpoint_max: int = changed(RunConfig, "keep_checkpoint_max", 2)
    max_eval_steps: int = changed(RunConfig, "max_eval_steps", 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationOptimizerConfig(OptimizerConfig):
    """The optimizer of distillation: AdamW with bias correction, since the student starts from trained weights."""

    optimizer: str = changed(OptimizerConfig, "optimizer", "adamw")
    learning_rate: float = changed(OptimizerConfig, "learning_rate", 1e-3)
    num_train_steps: int = changed(OptimizerConfig, "num_train_steps", 20000)
    num_warmup_steps: int = changed(OptimizerConfig, "num_warmup_steps", 200)
    beta_2: float = changed(OptimizerConfig, "beta_2", 0.98)
    bias_correction: bool = changed(OptimizerConfig, "bias_correction", True)
