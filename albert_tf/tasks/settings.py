"""Settings that tasks share: the choice of the model, and the settings of all fine-tuning."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.settings import LARGEST_INT32, Settings, changed, setting
from albert_tf.model.config import MODEL_SIZES, MOST_BLOCKS, SHARING_STRATEGIES, AlbertConfig
from albert_tf.text.settings import TextSettings, VocabularySettings
from albert_tf.training.settings import OptimizerConfig, RunConfig
from albert_tf.user_files.answer_tables import ENDINGS, check_ending

LONGEST_SEQUENCE = 2**16  # in tokens; no model has that many positions


def files_setting(help: str, **declared: Any) -> Any:
    """A `setting` with paths of input files, which may move before a run is resumed."""
    return setting("", help, input_path=True, changes_results=False, **declared)


def depth_setting() -> Any:
    """The field with the number of layers in which a model is used."""
    return setting(
        None,
        "Uses the first layers of the model, this many; if all layers share their parameters, it may be more than the"
        " model has. By default, all.",
        minimum=1,
        maximum=MOST_BLOCKS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelChoice(VocabularySettings):
    """The vocabulary, and the sizes of a new model, which has no --init_checkpoint."""

    model: str = setting("", "Name of the model's size.", choices=("", *MODEL_SIZES))
    albert_config_file: str = files_setting("JSON file with the model's sizes, instead of --model.")
    share_parameters: str = setting(
        "",
        "Replaces the model's sharing strategy; the layers of --init_checkpoint get copies of what they shared.",
        choices=("", *SHARING_STRATEGIES),
    )
    num_hidden_layers: int | None = depth_setting()

    def __post_init__(self):
        super().__post_init__()
        if self.model and self.albert_config_file:
            self.refuse("model", "and --albert_config_file contradict each other: give one")

    def check_model(self, run: RunConfig) -> None:
        """Checks that a flag specifies a model."""
        if not (self.model or self.albert_config_file or run.init_checkpoint):
            self.refuse("model", "or --albert_config_file or --init_checkpoint is required")

    def chosen_config(
        self, run: RunConfig, checkpoint: AlbertConfig | None, vocab_size: int | None
    ) -> AlbertConfig:
        """The sizes of a flag or of the initial checkpoint; V is the data's, as a name does not determine it."""
        rates = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
        changes: dict[str, Any] = {}
        for name in rates:
            rate = getattr(run, name)
            if rate is not None:
                changes[name] = rate
        if self.share_parameters:
            changes["share_parameters"] = self.share_parameters
        if self.albert_config_file:
            config = AlbertConfig.from_json_file(self.albert_config_file)
        elif not self.model and checkpoint:
            config = checkpoint
        else:
            config = AlbertConfig.from_name(self.model)
            if vocab_size:
                changes["vocab_size"] = vocab_size
        if self.num_hidden_layers:
            config = config.with_layers(self.num_hidden_layers)
        # Without sharing, groups have no meaning; kept, they would undo the new sharing.
        if self.share_parameters and "none" in (self.share_parameters, config.share_parameters):
            changes["num_hidden_groups"] = 1
        return config.replace(**changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningRunConfig(RunConfig):
    """How a model is fine-tuned for any task."""

    without_flags: ClassVar[tuple[str, ...]] = (
        "max_eval_steps",
        "keep_checkpoint_max",
        "stop_after_steps",
        "warm_start_from_shallower",
        "jit_compile",
        "train_minutes",
    )

    do_predict: bool = setting(
        False, "Whether to write predictions for data without labels.", changes_results=False
    )
    predictions_file: str = setting(
        "",
        "File for the answers of --do_predict, whose ending selects the format of a table; by default"
        " predictions/predictions.tsv in --output_dir, for SQuAD .json, for tagging .conll or, if that cannot hold the"
        " words, .jsonl.",
        changes_results=False,
    )
    train_batch_size: int = changed(RunConfig, "train_batch_size", 32)
    log_every_steps: int = changed(RunConfig, "log_every_steps", 50)
    keep_checkpoint_max: int = changed(RunConfig, "keep_checkpoint_max", 1)
    max_eval_steps: int = changed(RunConfig, "max_eval_steps", 0)  # every example
    eval_every_steps: int | None = changed(  # type: ignore[assignment]
        RunConfig,
        "eval_every_steps",
        None,
        help="Training steps between two evaluations; by default, a tenth of the training.",
    )
    save_checkpoints_steps: int | None = changed(  # type: ignore[assignment]
        RunConfig,
        "save_checkpoints_steps",
        None,
        help="Training steps between two checkpoints; by default, --eval_every_steps.",
    )

    def has_work(self) -> bool:
        return self.do_train or self.do_eval or self.do_predict


# Maximum width D -> peak learning rate of fine-tuning. Up to 384, it was measured (docs/results/real_weights.md).
# Above, larger models collapse at rates that suit smaller ones (google-research/albert#197, google-research#151,
# keras-hub#831).
_FINE_TUNING_RATES = {128: 1e-3, 512: 1e-4, 768: 3e-5, 1024: 2e-5, 2048: 1e-5, math.inf: 5e-6}
# The same for trainings of fewer than `FEW_STEPS` steps, which need longer ones (docs/guides/finetuning.md).
_RATES_OF_FEW_STEPS = {**_FINE_TUNING_RATES, 512: 3e-4}
FEW_STEPS = 300
# From random weights; wider models collapse at 3e-4, and 1e-4 is the rate of BERT's pretraining.
_RANDOM_WEIGHTS_RATES = {128: 3e-4, math.inf: 1e-4}


def _in_words(rates: Mapping[float, float]) -> str:
    parts = []
    for width, rate in rates.items():
        where = f"up to D = {width}" if width < math.inf else "above"
        parts.append(f"{rate:g} {where}")
    return ", ".join(parts)


def default_learning_rate(hidden_size: int, num_train_steps: int, *, is_random: bool) -> float:
    """The peak learning rate of fine-tuning if none is given.

    Args:
      is_random: whether the model starts from random weights.
    """
    if is_random:
        rates = _RANDOM_WEIGHTS_RATES
    else:
        rates = _RATES_OF_FEW_STEPS if num_train_steps < FEW_STEPS else _FINE_TUNING_RATES
    return next(rate for width, rate in rates.items() if hidden_size <= width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptimizerConfig(OptimizerConfig):
    """The optimizer of fine-tuning (paper, appendix A.4); defaults depend on the model and the data."""

    without_flags: ClassVar[tuple[str, ...]] = (
        "learning_rate_scaling",
        "poly_power",
        "weight_decay_rate",
        "beta_2",
    )

    optimizer: str = changed(OptimizerConfig, "optimizer", "adamw")
    bias_correction: bool = changed(
        OptimizerConfig,
        "bias_correction",
        True,
        help="Whether to correct the bias of the moments; without it, as in the original and in --preset, the first"
        " steps are several times too long and can damage pretrained weights (arXiv 2006.05987).",
    )
    learning_rate: float | None = changed(  # type: ignore[assignment]
        OptimizerConfig,
        "learning_rate",
        None,
        help=f"Peak learning rate; by default, it depends on the model's width: {_in_words(_FINE_TUNING_RATES)}; with"
        f" fewer than {FEW_STEPS} steps {_RATES_OF_FEW_STEPS[512]:g} above D = 128 up to D = 512; from random weights"
        f" {_in_words(_RANDOM_WEIGHTS_RATES)}.",
    )
    num_train_steps: int | None = changed(  # type: ignore[assignment]
        OptimizerConfig,
        "num_train_steps",
        None,
        help="Number of training steps; the learning rate is 0 at the last. By default,"
        " --num_train_epochs decides.",
    )
    num_warmup_steps: int | None = changed(  # type: ignore[assignment]
        OptimizerConfig,
        "num_warmup_steps",
        None,
        help="Number of steps of linear warm-up; by default, --warmup_proportion of the training.",
    )
    num_train_epochs: float | None = setting(
        None,
        "Number of passes through the training data, without --num_train_steps; by default, 10 for tagging,"
        " otherwise 3.",
        minimum=0.001,
        maximum=1_000_000,
    )
    warmup_proportion: float = setting(
        0.1, "Fraction of the training that is warm-up.", minimum=0, maximum=1
    )

    def resolved(
        self,
        num_examples: int,
        train_batch_size: int,
        usual_learning_rate: Callable[[int], float],
        usual_epochs: float = 3.0,
    ) -> OptimizerConfig:
        """The settings with a value for every None.

        Args:
          usual_learning_rate: the learning rate of a number of steps, if none is given.
        """
        values = self.to_dict()
        epochs = values.pop("num_train_epochs") or usual_epochs
        proportion = values.pop("warmup_proportion")
        if self.num_train_steps is None:
            values["num_train_steps"] = max(1, round(epochs * num_examples / train_batch_size))
        if self.num_warmup_steps is None:
            values["num_warmup_steps"] = int(proportion * values["num_train_steps"])
        if self.learning_rate is None:
            values["learning_rate"] = usual_learning_rate(values["num_train_steps"])
        return OptimizerConfig(**values)

    def _check_warmup(self) -> None:
        if self.num_train_steps is not None:
            super()._check_warmup()


def contains_run(folder: str) -> bool:
    """Whether a folder contains a run with checkpoints, judged from the local disk only."""
    with contextlib.suppress(OSError):
        return files.is_folder(os.path.join(folder, "checkpoints"))
    return False


def path_of_used_model(values: Mapping[str, Any]) -> str:
    """Path of the model that a fine-tuning program with these values of all flags uses; "" for random weights.

    Without training, it is the run in --output_dir if there is one; otherwise the initial checkpoint.
    """
    initial = values["init_checkpoint"]
    folder = values["output_dir"]
    if values["do_train"] or not contains_run(folder):
        return initial
    recorded = files.read_json(os.path.join(folder, "config.json")).get("run", {})
    initial_of_run = recorded.get("init_checkpoint", "")
    if initial and files.real_path(initial) != files.real_path(initial_of_run):
        reason = f"is not used without training: --output_dir={folder} contains a run, whose model answers"
        raise UserError(
            f"--init_checkpoint={initial} {reason}; leave it out, or choose another folder"
        )
    return folder


def check_fixed(given: Mapping[str, Any], trained: Mapping[str, Any], source: str) -> None:
    """Checks settings against those with which a model was trained, if these are known."""
    for name, value in given.items():
        if name in trained and value != trained[name]:
            given_flag = written_as_flag(name, value)
            trained_flag = written_as_flag(name, trained[name])
            reason = f"contradicts {source}, which was trained with {trained_flag}; use that"
            raise UserError(f"{given_flag} {reason}")


def check_length(max_seq_length: int, max_position_embeddings: int) -> None:
    """Checks that a model has enough positions for a sequence length."""
    if max_seq_length > max_position_embeddings:
        reason = f"is above the model's max_position_embeddings {max_position_embeddings}"
        raise UserError(f"--max_seq_length ({max_seq_length}) {reason}")


def written_as_flag(name: str, value: Any) -> str:
    """A setting as it is written on a command line."""
    return f"--{name}={str(value).lower() if isinstance(value, bool) else value}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig(ModelChoice, TextSettings):
    """Settings of all fine-tuning tasks."""

    predictions_endings: ClassVar[tuple[str, ...]] = ENDINGS

    spm_model_file: str = changed(
        VocabularySettings,
        "spm_model_file",
        "",
        help="SentencePiece model of the vocabulary; by default the vocabulary in --init_checkpoint's folder.",
    )
    max_seq_length: int = setting(
        128,
        "Maximum number of tokens of a sequence; longer text is cut, or read in windows (SQuAD, tagging). A model with"
        " fewer positions lowers the default.",
        minimum=8,
        maximum=LONGEST_SEQUENCE,
        of_model="fixed",
    )
    preset: str = setting(
        "",
        "Hyper-parameters for all flags that are not given: `paper` is Table 14, `readme` the original's README.",
        choices=("", "paper", "readme"),
        changes_results=False,
    )
    eval_fraction: float = setting(
        0.0,
        "Share of --train_file that is held out for evaluations, if there is no --eval_file: of each label the same"
        " share, equal texts on one side, and the same examples in every run.",
        minimum=0,
        below=1,
    )
    num_runs: int = setting(
        1,
        "Number of runs, with the seeds --seed, --seed + 1, ..., each in its own folder.",
        minimum=1,
        changes_results=False,
    )

    def check_with(self, others: Mapping[type[Settings], Any]) -> None:
        """Checks that the flags ask for some work and name a model."""
        run = others[FineTuningRunConfig]
        self.check_files(run)
        if run.do_train or not contains_run(run.output_dir):
            if not (self.model or self.albert_config_file or run.init_checkpoint):
                reason = "is required: a pretrained model, such as hf:albert/albert-base-v2"
                run.refuse("init_checkpoint", f"{reason} (or --model, a size with random weights)")
            if not run.do_train and not run.init_checkpoint:
                run.refuse("init_checkpoint", "is required without --do_train: a fine-tuned model")
            if not run.init_checkpoint:
                self.require_vocabulary(" without --init_checkpoint")
        if self.num_runs > 1 and run.predictions_file:
            run.refuse("predictions_file", "is for one run, not for --num_runs")
        if self.num_runs > 1 and not run.do_train:
            self.refuse("num_runs", f"({self.num_runs}) needs --do_train")
        if run.seed + self.num_runs > LARGEST_INT32:
            reason = f"({self.num_runs}) leads to seeds above {LARGEST_INT32}; lower --seed"
            self.refuse("num_runs", reason)

    def splits_to_read(self, run: RunConfig) -> list[str]:
        """The splits whose files a run reads."""
        choices = run.to_dict()
        flag_of_split = {"train": "do_train", "eval": "do_eval", "predict": "do_predict"}
        return [split for split, flag in flag_of_split.items() if choices[flag]]

    def columns_of_tables(self, split: str) -> list[str]:
        """The columns that the table of a split must have; none if only its reader can tell."""
        del split
        return []

    def check_predictions_file(self, run: FineTuningRunConfig) -> None:
        """Checks that the name of --predictions_file is that of a table."""
        if run.predictions_file and not run.do_predict:
            run.refuse("predictions_file", "needs --do_predict")
        path = run.predictions_file
        check_ending(path, f"--predictions_file={path}", self.predictions_endings)

    def check_files(self, run: FineTuningRunConfig) -> None:
        """Checks that --train_file, --eval_file and --predict_file are given when they are needed."""
        self.check_predictions_file(run)
        if self.eval_fraction and not (run.do_train and run.do_eval):
            self.refuse("eval_fraction", "needs --do_train and --do_eval")
        if getattr(self, "eval_file", "") and self.eval_fraction:
            self.refuse("eval_fraction", "and --eval_file contradict each other: give one")
        for is_needed, name, purpose in (
            (run.do_train, "train_file", "to train"),
            (run.do_eval and not run.do_train, "eval_file", "with --do_eval"),
            (run.do_predict, "predict_file", "with --do_predict"),
        ):
            if is_needed and not getattr(self, name, True):  # a task of folders has no such flag
                self.refuse(name, f"is required {purpose}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaughtConfig(FineTuningConfig):
    """Settings of tasks whose probabilities a larger model can teach."""

    teacher: str = setting(
        "",
        "Finished model of the same task, labels and vocabulary: half of the loss is then the divergence from its"
        " probabilities.",
        input_path=True,
    )
    teacher_temperature: float = setting(
        2.0,
        "Temperature by which the logits of --teacher and of the model are divided in the divergence.",
        minimum=0.1,
        maximum=100,
    )
