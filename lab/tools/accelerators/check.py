r"""Compiles pretraining steps for TPUs that this machine does not have, and checks what the compiler reports.

    make accelerator-check
    make accelerator-check ACCELERATOR_FLAGS="--model=albert-base-v1 --chips=v5e,v6e --num_layers=0"

Every step must have static shapes, no operation of the host and large products in bfloat16 only; recomputation must
lower the memory; several devices must add up their gradients. What is broken is printed, and the exit status is then 1.
"""

import contextlib
import dataclasses
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.model import device
from albert_tf.model.config import AlbertConfig
from lab.tables import table
from lab.tools.accelerators.compile import TOPOLOGIES

# What would return to the host in the middle of a step.
_ON_HOST = ("PyFunc", "NumpyFunction", '"Print', " infeed(", " outfeed(", " send(", " recv(")
# Products with at least this share of the multiplications must be bfloat16.
_LARGE = 0.01
_EXAMPLES_OF_ROW = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """Which steps are compiled, and for which chips."""

    model: str = setting("albert-base-v2", "Name of the size; v1 has dropout, v2 has none.")
    chips: str = setting("v5e", f"Chips, separated by commas: {', '.join(TOPOLOGIES)}.")
    batch: int = setting(8, "Examples, or packed rows, of a device.", minimum=1)
    length: int = setting(512, "Tokens of an example or row.", minimum=8)
    num_layers: int = setting(2, "Number of layers; 0 takes that of the model.", minimum=0)
    python: str = setting(
        ".venv.accelerators/bin/python", "Python of the environment with jax.", input_path=True
    )

    @property
    def config(self) -> AlbertConfig:
        """The model's sizes."""
        changes = {"num_hidden_layers": self.num_layers} if self.num_layers else {}
        return AlbertConfig.from_name(self.model, **changes)


@dataclasses.dataclass(frozen=True)
class Step:
    """A variant of the pretraining step."""

    packed: bool = False
    recompute: bool = False
    replicas: int = 1
    accumulation: int = 1


STEPS = {
    "single examples": Step(),
    "recomputed": Step(recompute=True),
    "packed, recomputed, 2 micro-batches": Step(packed=True, recompute=True, accumulation=2),
    "recomputed, 4 devices": Step(recompute=True, replicas=4),
}


def feature_shapes(settings: CheckSettings, step: Step) -> dict[str, tuple[list[int], str]]:
    """Shape and dtype of each feature of a device's batch by name, in the order of the program's arguments."""
    import tensorflow as tf

    from albert_tf.data.record_formats import full, packed

    slots = round(0.15 * settings.length)
    schema = full.pretraining_schema(settings.length, slots)
    if step.packed:
        schema = packed.packed_schema(settings.length, slots, _EXAMPLES_OF_ROW)
    return {
        name: ([settings.batch, size], "int32" if dtype == tf.int64 else "float32")
        for name, (size, dtype) in sorted(schema.items())
    }


def make_program(settings: CheckSettings, step: Step) -> Any:
    """A tf.function of the features, in the order of `feature_shapes`, that runs a step of a new model."""
    import tensorflow as tf

    from albert_tf.model.heads import AlbertForPreTraining
    from albert_tf.tasks.pretraining.task import PretrainingTask
    from albert_tf.training import optimizers
    from albert_tf.training.settings import OptimizerConfig, RunConfig
    from albert_tf.training.state import Accumulators, RunState
    from albert_tf.training.step import Trainer

    shapes = feature_shapes(settings, step)
    run = RunConfig(
        output_dir="none",
        train_batch_size=settings.batch * step.replicas,
        mixed_precision="mixed_bfloat16",
        recompute_activations=step.recompute,
        gradient_accumulation_steps=step.accumulation,
        jit_compile="off",  # the whole step is compiled
    )
    dtype = run.mixed_precision
    config = OptimizerConfig()
    model = AlbertForPreTraining(settings.config, dtype=dtype, recompute_activations=step.recompute)
    strategy = tf.distribute.get_strategy()
    fields = {
        "task": PretrainingTask.__new__(PretrainingTask),  # without data
        "run_config": run,
        "optimizer_config": config,
        "strategy": strategy,
        "model": model,
        "accumulators": Accumulators(()),
        "global_step": tf.Variable(0, dtype=tf.int64),
        "optimizer": optimizers.create_optimizer(
            config, run.train_batch_size, model.named_variables()
        ),
    }
    # A step does not use the other fields.
    names = [field.name for field in dataclasses.fields(RunState)]
    state = RunState(**{**dict.fromkeys(names), **fields})
    features = {name: tf.zeros(*shape_and_dtype) for name, shape_and_dtype in shapes.items()}
    dataset = tf.data.Dataset.from_tensors(features).repeat()
    data: Any = types.SimpleNamespace(training_dataset=lambda *_, **__: dataset)
    state.task.train_data = data
    trainer = Trainer(state)

    @tf.function(jit_compile=True, autograph=False)
    def device_step(*arguments):
        named = dict(zip(shapes, arguments, strict=True))
        return strategy.run(trainer._device_step, args=(named,))

    return device_step


@contextlib.contextmanager
def replica_sums(replicas: int) -> Iterator[None]:
    """In the block, sums over replicas become part of the program, as with `TPUStrategy`."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    group = [list(range(replicas))]

    def add_up(tensor):
        mode = {"reduce_op": "Add", "mode": "CrossReplica"}
        return gen_xla_ops.xla_all_reduce(tensor, group, **mode)

    original = tf.distribute.ReplicaContext.all_reduce
    if replicas > 1:
        tf.distribute.ReplicaContext.all_reduce = lambda _, operation, value, options=None: (
            tf.nest.map_structure(add_up, value)
        )
    try:
        yield
    finally:
        tf.distribute.ReplicaContext.all_reduce = original


def lower(settings: CheckSettings, step: Step, device_type: str = "TPU") -> tuple[bytes, str, int]:
    """The program of a step as XLA receives it: serialized, as text with TensorFlow's graph; number of features."""
    import tensorflow as tf

    shapes = feature_shapes(settings, step)
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in shapes.values()]
    with device.compiled_for(device_type), replica_sums(step.replicas):
        function = make_program(settings, step)
        graph = function.get_concrete_function(*specs).graph.as_graph_def()
        lowered = function.experimental_get_compiler_ir(*specs)
        text = lowered(stage="hlo") + str(graph)
        return lowered(stage="hlo_serialized"), text, len(specs)


def broken_rules(text: str) -> list[str]:
    """The rules that a program breaks before it is compiled."""
    broken = []
    if "<=" in text:
        broken.append("a shape is not static")
    broken += [
        f"the step returns to the host: {name.strip(' (')}" for name in _ON_HOST if name in text
    ]
    work = operations(text)
    large = {types for types, number in work.items() if number > _LARGE * sum(work.values())}
    return broken + [f"large products are {types}" for types in sorted(large - {"bf16 x bf16"})]


def operations(text: str) -> dict[str, int]:
    """The multiplications of all matrix products, by the types of their operands; the body of a loop counts once."""
    # "%add.3 = bf16[8,512]" -> "%add.3": ("bf16", ["8", "512"])
    definition = r"^\s+(?:ROOT )?(%?[\w.\-]+) = (\w+)\[([\d,<=]*)\]"
    arrays = {
        name: (dtype, shape.split(","))
        for name, dtype, shape in re.findall(definition, text, re.MULTILINE)
    }
    work: dict[str, int] = {}
    dot = r"= \w+\[([\d,]*)\][^\n]*? dot\(([^)]*)\)[^\n]*lhs_contracting_dims=\{([\d,]*)\}"
    for result, operands, contracted in re.findall(dot, text):
        left, right = operands.split(", ")
        left_type, left_shape = arrays[left.split()[-1]]
        right_type, _ = arrays[right.split()[-1]]
        inner = [left_shape[int(axis)].strip("<=") for axis in contracted.split(",") if axis]
        sizes = [*filter(None, result.split(",")), *inner]
        types = f"{left_type} x {right_type}"
        work[types] = work.get(types, 0) + math.prod(map(int, sizes))
    return work


def compiled(settings: CheckSettings, lowered: tuple, chip: str, replicas: int) -> dict:
    """What `compile.py` says about a lowered program."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "step.hlo").write_bytes(lowered[0])
        pathlib.Path(folder, "features.txt").write_text(str(lowered[2]))
        script = str(pathlib.Path(__file__).with_name("compile.py"))
        command = [settings.python, script, folder, chip, str(replicas)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip()[-300:]}
    return json.loads(done.stdout.splitlines()[-1])


def main(settings: CheckSettings) -> None:
    """Compiles, prints a table, and then the rules that are broken."""
    if unknown := set(settings.chips.split(",")) - TOPOLOGIES.keys():
        settings.refuse("chips", f"names unknown chips: {', '.join(sorted(unknown))}")
    rows = []
    broken = []
    peaks = {}
    for name, step in STEPS.items():
        lowered = lower(settings, step)
        broken += [f"{name}: {rule}" for rule in broken_rules(lowered[1])]
        for chip in settings.chips.split(","):
            result = compiled(settings, lowered, chip, step.replicas)
            peak = peaks[name, chip] = result.get("peak_bytes", 0)
            rows.append((chip, name, result.get("error", f"{peak / 1e9:.2f}")))
            if "error" in result:
                broken.append(f"{chip}, {name}: does not compile: {result['error']}")
            elif bool(result["all_reduces"]) != (step.replicas > 1):
                broken.append(f"{chip}, {name}: has {result['all_reduces']} all-reduces")
            elif name == "recomputed" and peak >= peaks["single examples", chip]:
                broken.append(f"{chip}: recomputation does not lower the memory")
    work = f"{settings.model}, {settings.batch} x {settings.length}"
    print("\n".join(table(f"chip | {work} | GB at the peak", rows)))
    if broken:
        print("\n".join(broken), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    flags.run(main, CheckSettings, description=__doc__)
