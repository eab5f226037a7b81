r"""Writes the program of a device's step, as XLA receives it, for an accelerator that this machine does not have.

    python -m lab.tools.accelerators.lower --model=albert-base-v2 --batch=32 --output_dir=lowered

The step is the one that `run_pretraining.py` and the fine-tuning programs run: forward and backward pass, clipping,
optimizer, accumulation. The program writes `step.hlo`, and `step.json` with the values that `compile.py` and
`run_step.py` need.
"""

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.model import device
from albert_tf.model.config import AlbertConfig
from albert_tf.model.flops import example_flops
from lab.tools.accelerators import values

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowerSettings(StepSettings):
    """Where the program is written."""

    output_dir: str = setting("", "Folder to write to.", required=True)
    with_loss: bool = setting(False, "Whether to compute the step here, too, for `run_step.py`.")


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
        task.label_column = "label_ids"
        return task, heads.AlbertForSequenceClassification
    if step.task == "span":
        task = SquadTask.__new__(SquadTask)
        task.has_null = True
        return task, heads.AlbertForSpanOrNone
    return PretrainingTask.__new__(PretrainingTask), heads.AlbertForPreTraining


@dataclasses.dataclass
class Program:
    """A step that can be lowered."""

    function: Any  # a tf.function of the features, in the order of `feature_shapes`
    specs: list  # of its arguments
    names: Mapping[int, str]  # released name of each variable, by its handle's identity


def make_program(step: StepSettings) -> Program:
    """Builds model, optimizer and step, with the start values of `values.py`."""
    import tensorflow as tf

    from albert_tf.training import optimizers
    from albert_tf.training.accumulators import Accumulators
    from albert_tf.training.evaluation import evaluation_step
    from albert_tf.training.settings import OptimizerConfig, RunConfig
    from albert_tf.training.state import RunState
    from albert_tf.training.step import Trainer

    shapes = feature_shapes(step)
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in shapes.values()]
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
    variables = model.named_variables()
    for name, variable in variables.items():
        variable.assign(values.of_variable(name, variable.shape, variable.dtype.name))
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
                optimizer_config, run.train_batch_size, variables
            ),
            checkpoints=None,
            majority={},
            first_step=0,
            log_states={},
            started=0.0,
        )
        features = values.of_features(shapes, step.config.vocab_size)
        dataset = tf.data.Dataset.from_tensors(features).repeat()
        compute = Trainer(state, lambda: dataset)._device_step

    @tf.function(jit_compile=True, autograph=False)
    def device_step(*arguments):
        return strategy.run(compute, args=(dict(zip(shapes, arguments, strict=True)),))

    names = {id(variable.handle): name for name, variable in variables.items()}
    return Program(device_step, specs, names)


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


def lower(step: StepSettings, *, with_loss: bool = False) -> tuple[bytes, dict[str, Any]]:
    """The program of a step, and facts about it; `with_loss` also computes the step here.

    Returns:
      The serialized HLO; and a dictionary with `step`, `flops`, `features` (shapes), `variables` (name, shape and
      dtype, in the order of the program's other arguments), `operations` (number of each kind in TensorFlow's graph),
      `text` (of the HLO) and, with `with_loss`, `pairs`, the (sum, count) of each loss and metric.
    """
    import tensorflow as tf

    with device.compiled_for(step.target), replica_sums(step.replicas):
        program = make_program(step)
        graph = program.function.get_concrete_function(*program.specs)
        lowered = program.function.experimental_get_compiler_ir(*program.specs)
        hlo = lowered(stage="hlo_serialized")
        definition = graph.graph.as_graph_def()
        bodies = [definition.node, *(function.node_def for function in definition.library.function)]
        counts = collections.Counter(node.op for body in bodies for node in body)
        by_handle = {id(variable.handle): variable for variable in graph.variables}
        variables = [by_handle[id(handle)] for handle in graph.captured_inputs]
        shapes = feature_shapes(step)
        about = {
            "step": dataclasses.asdict(step),
            "config": step.config.to_dict(),
            "vocab_size": step.config.vocab_size,
            "flops": step.flops,
            "features": shapes,
            "variables": [
                (
                    program.names.get(id(variable.handle), ""),
                    variable.shape.as_list(),
                    variable.dtype.name,
                )
                for variable in variables
            ],
            "operations": dict(sorted(counts.items())),
            "text": lowered(stage="hlo"),
        }
        if with_loss:
            features = values.of_features(shapes, step.config.vocab_size)
            pairs = program.function(*map(tf.constant, features.values()))
            about["pairs"] = {name: pair.numpy().tolist() for name, pair in pairs.items()}
    return hlo, about


def main(settings: LowerSettings) -> None:
    """Writes both files and prints one line."""
    step = StepSettings(**{name: getattr(settings, name) for name in StepSettings.names()})
    hlo, about = lower(step, with_loss=settings.with_loss)
    folder = pathlib.Path(settings.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.hlo").write_bytes(hlo)
    (folder / "step.json").write_text(json.dumps(about))
    print(f"{folder}: {len(hlo):,} bytes of HLO, {about['flops']:.4g} operations by formula")


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    flags.run(main, LowerSettings, description=__doc__)
