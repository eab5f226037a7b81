"""Settings of the optimizer and of a run: devices, batches, intervals; for any task."""

import dataclasses
import math
import re
from typing import Any, ClassVar

from albert_tf.core.settings import LARGEST_INT32, Settings, setting
from albert_tf.model.released_models import where_released

_REFERENCE_BATCH_SIZE = 4096  # the paper's, for which its learning rate was chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Settings):
    """The optimizer and its schedule (original optimization.py, lamb_optimizer.py; paper, section 4.1)."""

    optimizer: str = setting(
        "lamb",
        "Optimizer; muon is Muon for the kernels of the blocks and AdamW for the rest.",
        choices=("lamb", "adamw", "muon"),
    )
    learning_rate: float = setting(0.00176, "Peak learning rate.", above=0)
    learning_rate_scaling: str = setting(
        "none",
        "Factor of --learning_rate: batch / 4096, or its square root.",
        choices=("none", "sqrt", "linear"),
    )
    num_train_steps: int = setting(
        125000, "Number of training steps; the learning rate is 0 at the last.", minimum=1
    )
    num_warmup_steps: int = setting(3125, "Number of steps of linear warm-up.", minimum=0)
    poly_power: float = setting(
        1.0, "Power of the polynomial decay; 0 keeps the rate constant.", minimum=0
    )
    weight_decay_rate: float = setting(
        0.01, "Decoupled weight decay; not applied to LayerNorm and biases.", minimum=0
    )
    # With 1, the second moment would stay 0, and every update would be divided by almost nothing.
    beta_2: float = setting(0.999, "Decay of the second moment.", minimum=0, below=1)
    learning_rate_factors: str = setting(
        "",
        "Factors of the learning rate by part of the model, such as embeddings:0.1,encoder:0.5,head:1; group_0, group_1"
        " and so on are the groups of layers that share their weights. A part without a factor has 1. A factor of 0"
        " freezes the part: it has no gradients, moments or weight decay.",
    )
    bias_correction: bool = setting(
        False, "Whether to correct the bias of the moments; the original does not."
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_warmup()
        for part in self.factors:
            if not re.fullmatch(r"embeddings|encoder|head|group_\d+", part):
                reason = f"is for embeddings, encoder, head, group_0, ...; got {part!r}"
                self.refuse("learning_rate_factors", reason)

    @property
    def factors(self) -> dict[str, float]:
        """The values of --learning_rate_factors by part."""
        factors: dict[str, float] = {}
        for pair in filter(None, self.learning_rate_factors.split(",")):
            part, _, word = map(str.strip, pair.rpartition(":"))
            try:
                factors[part] = float(word)
            except ValueError:
                factors[part] = math.nan
            if not part or not 0 <= factors[part] < math.inf:
                self.refuse("learning_rate_factors", f"must be part:factor pairs, got {pair!r}")
        return factors

    def _check_warmup(self) -> None:
        warmup = self.num_warmup_steps or 0
        last = self.num_train_steps
        if warmup > last:
            self.refuse("num_warmup_steps", f"({warmup}) must end within the {last} training steps")

    def peak_learning_rate(self, train_batch_size: int) -> float:
        """The learning rate at the end of the warm-up, for a global batch of this many examples."""
        ratio = train_batch_size / _REFERENCE_BATCH_SIZE
        factors = {"none": 1.0, "sqrt": ratio**0.5, "linear": ratio}
        return self.learning_rate * factors[self.learning_rate_scaling]


STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
_SAME = {"changes_results": False}
_COUNT = {**_SAME, "minimum": 1}
_MOST_EXAMPLES = 2**20  # of a step


def _dropout(sites: str) -> Any:
    """The field of a dropout rate that overrides the rate in the model's configuration."""
    default = "by default, the rate in the model's configuration."
    return setting(None, f"{sites}; {default}", minimum=0, maximum=0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """How a model is trained and evaluated for any task: folder, batches, devices, intervals."""

    without_flags: ClassVar[tuple[str, ...]] = ("classifier_dropout_prob",)

    output_dir: str = setting(
        "", "Folder of the run: checkpoints, logs, results, model.", required=True, **_SAME
    )
    do_train: bool = setting(True, "Whether to train.", **_SAME)
    do_eval: bool = setting(True, "Whether to evaluate at the end, and during training.", **_SAME)
    train_batch_size: int = setting(
        4096, "Examples in a training step, over all devices.", minimum=1, maximum=_MOST_EXAMPLES
    )
    eval_batch_size: int = setting(
        64, "Examples in an evaluation step, over all devices.", **_COUNT, maximum=_MOST_EXAMPLES
    )
    gradient_accumulation_steps: int = setting(
        1,
        "Number of micro-batches into which a device's part of the batch is split, to save memory; changes only dropout"
        " masks and rounding. If the loss compares the examples of a batch (infonce and cosent of embeddings), each"
        " micro-batch is computed twice.",
        **_COUNT,
    )
    distribution_strategy: str = setting(
        "auto",
        "Use of the devices; `auto` uses all GPUs, or the TPU of --tpu_name, or the CPU. `multi_worker_mirrored` reads"
        " TF_CONFIG.",
        choices=STRATEGIES,
        **_SAME,
    )
    worker_timeout_seconds: int = setting(
        600,
        "Seconds that a worker of `multi_worker_mirrored` waits for the others at the start.",
        **_COUNT,
    )
    tpu_name: str = setting(
        "", "Name or grpc:// address of a Cloud TPU; `local` on a TPU VM.", **_SAME
    )
    mixed_precision: str = setting(
        "float32",
        "Precision of matrix products; norms, softmax and losses stay float32.",
        choices=PRECISIONS,
    )
    recompute_activations: bool = setting(
        False,
        "Whether to compute each block again in the backward pass instead of keeping its activations.",
        **_SAME,
    )
    jit_compile: str = setting(
        "auto",
        "Whether XLA compiles the step: `auto` does on GPU (on TPU it always does).",
        choices=("auto", "on", "off"),
        **_SAME,
    )
    log_every_steps: int = setting(
        100, "Training steps between two lines of metrics.jsonl.", **_COUNT
    )
    save_checkpoints_steps: int = setting(5000, "Training steps between two checkpoints.", **_COUNT)
    keep_checkpoint_max: int = setting(
        5, "Number of checkpoints that are kept, besides the best one.", **_COUNT
    )
    eval_every_steps: int = setting(
        5000,
        "Training steps between two evaluations, if there are records to evaluate on.",
        **_COUNT,
    )
    max_eval_steps: int = setting(
        100,
        "Maximum number of steps of an evaluation; 0 evaluates all records.",
        minimum=0,
        **_SAME,
    )
    stop_after_steps: int | None = setting(
        None,
        "Step to stop at before --num_train_steps, without changing the schedule; by default"
        " --num_train_steps.",
        **_COUNT,
    )
    early_stopping_patience: int | None = setting(
        None,
        "Number of evaluations in a row without a better value of the metric that selects the best checkpoint, after"
        " which training stops; the learning rate follows the whole schedule until then. An evaluation in which the"
        " metric is undefined does not count. By default, all steps run.",
        **_COUNT,
    )
    train_minutes: float | None = setting(
        None,
        "Budget of time: training ends after these minutes, and warm-up and decay take the same shares of them as of"
        " --num_train_steps. Training steps count, without the first one of a process, evaluations and checkpoints. By"
        " default, steps decide.",
        minimum=0.001,
    )
    seed: int = setting(
        12345,
        "Seed of initial values, dropout, the order of the records, and masks drawn while reading.",
        minimum=0,
        maximum=LARGEST_INT32,
    )
    deterministic: bool = setting(
        False,
        "Whether every operation is deterministic (slower on a GPU), so that equal runs are equal bit for bit.",
        **_SAME,
    )
    init_checkpoint: str = setting(
        "",
        "Model to start from: a TF1 checkpoint, a model folder or the folder of a run.",
        input_path=where_released,
        **_SAME,
    )
    warm_start_from_shallower: bool = setting(
        False,
        "Whether --init_checkpoint may have fewer layers or groups; its values then initialize all layers of the model"
        " (paper, footnote 5).",
    )
    hidden_dropout_prob: float | None = _dropout("Dropout after embeddings, attention and FFN")
    attention_probs_dropout_prob: float | None = _dropout("Dropout on attention probabilities")
    classifier_dropout_prob: float | None = _dropout("Dropout before a task's output layer")

    def __post_init__(self):
        super().__post_init__()
        if not self.has_work():
            self.refuse("do_eval", "or --do_train must be true: there is nothing to do")
        if self.warm_start_from_shallower and not self.init_checkpoint:
            reason = "needs --init_checkpoint, the shallower model to start from"
            self.refuse("warm_start_from_shallower", reason)
        if self.train_minutes and self.deterministic:
            reason = "and --deterministic contradict each other: the learning rate would follow the clock"
            self.refuse("train_minutes", reason)
        self._check_devices()

    def _check_devices(self) -> None:
        strategy = self.distribution_strategy
        if strategy == "tpu" and not self.tpu_name:
            reason = "must be given with --distribution_strategy=tpu (`local` on a TPU VM)"
            self.refuse("tpu_name", reason)
        if self.tpu_name and strategy not in ("auto", "tpu"):
            self.refuse("tpu_name", f"contradicts --distribution_strategy={strategy}")

    def has_work(self) -> bool:
        """Whether the settings ask for any work."""
        return self.do_train or self.do_eval
