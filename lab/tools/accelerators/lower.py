"""The program of a device's step, as XLA receives it, for an accelerator that this machine does not have.

The step is the one that `run_pretraining.py` and the fine-tuning programs run: forward and backward pass, clipping,
optimizer, accumulation. `check.py` compiles it.
"""

import collections
import contextlib
import dataclasses
import types
from collections.abc import Iterator
from typing import Any

from albert_tf.core.settings import Settings, setting
from albert_tf.model import device
from albert_tf.model.config import AlbertConfig
from lab.flops import example_flops

TASKS = ("pretraining", "classification", "span", "evaluation")
PRECISIONS = ("float32", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings(Settings):
    """A step."""

    model: str = setting("albert-base-v2", "Name of the size; v1 has dropout, v2 has none.")
    num_layers: int = setting(0, "Number of layers; 0 takes that of the model.", minimum=0)
    task: str = setting(
        "pretraining", "What is trained; `evaluation` evaluates pretraining.", choices=TASKS
    )
    batch: int = setting(32, "Examples, or packed rows, of a device.", minimum=1)
    length: int = setting(512, "Tokens of an example or row.", minimum=8)
    precision: str = setting("mixed_bfloat16", "Precision of matrix products.", choices=PRECISIONS)
    packed: bool = setting(False, "Whether rows hold several examples.")
    recompute: bool = setting(False, "Whether the step has --recompute_activations.")
    accumulation: int = setting(1, "Micro-batches.", minimum=1)
    replicas: int = setting(1, "Devices.", minimum=1)
    target: str = setting("TPU", "Kind of device for the step.", choices=("TPU", "GPU"))

    @property
    def config(self) -> AlbertConfig:
        """The model's sizes."""
        changes = {"num_hidden_layers": self.num_layers} if self.num_layers else {}
        return AlbertConfig.from_name(self.model, **changes)

    @property
    def predictions(self) -> int:
        """P."""
        return round(0.15 * self.length)

    @property
    def flops(self) -> int:
        """Floating-point operations of the step's matrix products on a device, computed by formula."""
        slots = self.predictions if self.task in ("pretraining", "evaluation") else 0
        flops = self.batch * example_flops(self.config, self.length, slots)
        return flops // 3 if self.task == "evaluation" else flops


_EXAMPLES_OF_ROW = 8


def feature_shapes(step: StepSettings) -> dict[str, tuple[list[int], str]]:
    """Shape and dtype of each feature of a device's batch by name, in the order of the program's arguments."""
    import tensorflow as tf

    from albert_tf.data.record_formats import full, packed

    if step.task in ("pretraining", "evaluation"):
        sizes = (step.length, step.predictions)
        schema = full.pretraining_schema(*sizes)
        if step.packed:
            schema = packed.packed_schema(*sizes, _EXAMPLES_OF_ROW)
    else:
        per_token = (step.length, tf.int64)
        schema = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), per_token)
        labels = ("start_positions", "end_positions", "is_impossible")
        names = ("label_ids",) if step.task == "classification" else ("p_mask", *labels)
        schema |= {name: (1, tf.int64) for name in names}
        if "p_mask" in schema:
            schema["p_mask"] = per_token
    return {
        name: ([step.batch, size], "int32" if dtype == tf.int64 else "float32")
        for name, (size, dtype) in sorted(schema.items())
    }


def _task(step: StepSettings):
    """The task (without data, which the step does not need), and its model's class."""
    from albert_tf.model import heads
    from albert_tf.tasks.classification.task import ClassificationTask
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.tasks.squad.task import SquadTask

    if step.task == "classification":
        task = ClassificationTask.__new__(ClassificationTask)
        task.is_regression, task.class_weights = False, None
        task.label_column, task.config = "label_ids", types.SimpleNamespace(label_smoothing=0.0)
        return task, heads.AlbertForSequenceClassification
    if step.task == "span":
        task = SquadTask.__new__(SquadTask)
        task.has_null = True
        return task, heads.AlbertForSpanOrNone
    return PretrainingTask.__new__(PretrainingTask), heads.AlbertForPreTraining


def make_program(step: StepSettings) -> Any:
    """A tf.function of the features, in the order of `feature_shapes`, that runs a step of a new model."""
    import tensorflow as tf

    from albert_tf.training import optimizers
    from albert_tf.training.settings import OptimizerConfig, RunConfig
    from albert_tf.training.state import RunState
    from albert_tf.training.step import Accumulators, Trainer, evaluation_step

    shapes = feature_shapes(step)
    task, model_class = _task(step)
    run = RunConfig(
        output_dir="none",
        train_batch_size=step.batch * step.replicas,
        mixed_precision=step.precision,
        recompute_activations=step.recompute,
        gradient_accumulation_steps=step.accumulation,
        jit_compile="off",  # the whole step is compiled
    )
    model = model_class(step.config, dtype=step.precision, recompute_activations=step.recompute)
    strategy = tf.distribute.get_strategy()
    if step.task == "evaluation":

        def compute(features):
            return evaluation_step(task, model, features, has_labels=True)
    else:
        optimizer_config = OptimizerConfig()
        state = RunState(
            task=task,
            run_config=run,
            optimizer_config=optimizer_config,
            strategy=strategy,
            folder=None,
            model=model,
            accumulators=Accumulators(()),
            global_step=tf.Variable(0, dtype=tf.int64),
            optimizer=optimizers.create_optimizer(
                optimizer_config, run.train_batch_size, model.named_variables()
            ),
            checkpoints=None,
            majority={},
            first_step=0,
            started=0.0,
        )
        features = {name: tf.zeros(*one) for name, one in shapes.items()}
        dataset = tf.data.Dataset.from_tensors(features).repeat()
        compute = Trainer(state, lambda: dataset)._device_step

    @tf.function(jit_compile=True, autograph=False)
    def device_step(*arguments):
        return strategy.run(compute, args=(dict(zip(shapes, arguments, strict=True)),))

    return device_step


@contextlib.contextmanager
def replica_sums(replicas: int) -> Iterator[None]:
    """In the block, sums over replicas become part of the program, as with `TPUStrategy`."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    group = [list(range(replicas))]

    def all_reduce(_context, _operation, value, _options=None):
        return tf.nest.map_structure(
            lambda tensor: gen_xla_ops.xla_all_reduce(
                tensor, group, reduce_op="Add", mode="CrossReplica"
            ),
            value,
        )

    original = tf.distribute.ReplicaContext.all_reduce
    if replicas > 1:
        tf.distribute.ReplicaContext.all_reduce = all_reduce
    try:
        yield
    finally:
        tf.distribute.ReplicaContext.all_reduce = original


def lower(step: StepSettings) -> tuple[bytes, dict[str, Any]]:
    """The program of a step, and facts about it.

    Returns:
      The serialized HLO; and a dictionary with `step`, `flops`, `features` (shapes), `operations` (number of each kind
      in TensorFlow's graph) and `text` (of the HLO).
    """
    import tensorflow as tf

    shapes = feature_shapes(step)
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in shapes.values()]
    with device.compiled_for(step.target), replica_sums(step.replicas):
        function = make_program(step)
        graph = function.get_concrete_function(*specs)
        lowered = function.experimental_get_compiler_ir(*specs)
        hlo = lowered(stage="hlo_serialized")
        text = lowered(stage="hlo")
    definition = graph.graph.as_graph_def()
    bodies = [definition.node, *(body.node_def for body in definition.library.function)]
    counts = collections.Counter(node.op for body in bodies for node in body)
    about = {
        "step": dataclasses.asdict(step),
        "flops": step.flops,
        "features": shapes,
        "operations": dict(sorted(counts.items())),
        "text": text,
    }
    return hlo, about
