"""Settings of the optimizer and of a run: devices, batches, intervals; for any task."""

import dataclasses
import os

from albert_tf.core.settings import Settings, setting


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
