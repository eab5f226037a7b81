"""Time and memory of a pretraining step: forward, backward, clipping, optimizer.

The batch has random tokens without padding, or packed rows of the corpus; there is no dropout (ALBERT version 2).
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from albert_tf.core import files
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.benchmarks import measure
from lab.benchmarks.inputs import RECORDS, predictions_of, records_path
from lab.benchmarks.measure import BenchSettings, Measurement, Values
from lab.flops import example_flops

PRECISIONS = ("float32", "bfloat16")
_NUM_EXAMPLES = 64  # number of examples in our records
PACKED = "ours_packed"
WHO = ("ours", PACKED)


@dataclasses.dataclass(frozen=True)
class Step:
    """A training step."""

    who: str  # one of `WHO`
    model: str = "albert-base-v2"
    batch: int = 8  # rows
    length: int = 512  # 15 % of the tokens are predicted
    precision: str = "float32"  # or "bfloat16", mixed
    recompute: bool = False  # whether the backward pass recomputes activations; ours only
    changes: tuple[tuple[str, int], ...] = ()  # fields of the model's configuration

    @property
    def config(self) -> AlbertConfig:
        """The model's sizes."""
        return AlbertConfig.from_name(self.model, **dict(self.changes))

    @property
    def predictions(self) -> int:
        """P, the number of predicted tokens."""
        return predictions_of(self.length)

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products, computed by formula."""
        return self.batch * example_flops(self.config, self.length, self.predictions)

    @property
    def dtype_policy(self) -> str:
        """The name of the precision in tf_keras and Keras."""
        return {"bfloat16": "mixed_bfloat16"}.get(self.precision, self.precision)


def features_of(step: Step, num_examples: int) -> dict[str, np.ndarray]:
    """Random pretraining features without padding, int32 and float32 [examples, values]."""
    random = np.random.default_rng(1)
    vocab_size = step.config.vocab_size
    shape, slots = (num_examples, step.length), (num_examples, step.predictions)
    order = random.random(shape).argsort(axis=1)
    features = {
        "input_ids": random.integers(5, vocab_size, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.tile(np.arange(step.length) >= step.length // 2, (num_examples, 1)),
        "masked_lm_positions": np.sort(order[:, : step.predictions], axis=1),
        "masked_lm_ids": random.integers(5, vocab_size, slots),
        "next_sentence_labels": random.integers(0, 2, (num_examples, 1)),
    }
    integers = {name: value.astype(np.int32) for name, value in features.items()}
    return {**integers, "masked_lm_weights": np.ones(slots, np.float32)}


def measure_step(
    settings: BenchSettings, *, step: Step, effort: float = 1.0, least: int = 3
) -> Values:
    """Times a step, for a share of the usual duration (`effort`).

    Returns:
      The values of `repeated`; `flops` (`Step.flops`); `examples_a_second`; for our step at base's width also `limit`,
      the floating-point operations per second of a layer's matrix products, measured between the repeats; for packed
      rows also `tokens_of_example`, the mean.
    """
    records = _PackedRecords.of(settings, step) if step.who == PACKED else None
    rows, products, product_flops = step.batch * step.length, None, 0
    with our_step(step, records) as call:
        if step.who == "ours" and step.model == "albert-base-v2":
            products, product_flops = layer_products(step.config, rows, step.precision)
        timing = measure.repeated(call, effort * settings.seconds, least=least, beside=products)
    more = {"limit": product_flops / timing["beside"]["median"]} if products else {}
    examples = step.batch
    if records:
        examples *= records.examples_of_row
        more["tokens_of_example"] = records.tokens_of_example
    return {
        **timing,
        **more,
        "flops": step.flops,
        "examples_a_second": examples / timing["median"],
    }


def layer_products(config: AlbertConfig, rows: int, dtype: str) -> tuple[Callable[[], None], int]:
    """A function that computes the forward products of a layer for a batch's tokens, and its number of operations."""
    import tensorflow as tf

    hidden, inner = config.hidden_size, config.intermediate_size
    # Query, key and value; attention output; intermediate; output.
    shapes = ((hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden))

    def random_tensor(*shape: int) -> tf.Tensor:
        return tf.cast(tf.random.stateless_normal(shape, seed=[1, 2]), dtype)

    pairs = [(random_tensor(rows, shape[0]), random_tensor(*shape)) for shape in shapes]

    def call() -> None:
        for x, kernel in pairs:
            tf.matmul(x, kernel)

    call()
    return call, sum(2 * rows * width_in * width_out for width_in, width_out in shapes)


# --- Ours ---


@dataclasses.dataclass(frozen=True)
class _PackedRecords:
    """Packed records of the corpus: their folder, the vocabulary's size, and means over the records."""

    folder: str
    vocab_size: int
    examples_of_row: float
    tokens_of_example: float

    @classmethod
    def of(cls, settings: BenchSettings, step: Step) -> "_PackedRecords":
        folder = records_path(settings, step.length)
        metadata = files.read_json(os.path.join(folder, "metadata.json"))
        examples, rows, tokens = (
            metadata["counts"][name] for name in ("examples", "records", "tokens_in_records")
        )
        return cls(folder, metadata["vocab_size"], examples / rows, tokens / examples)


@contextlib.contextmanager
def our_step(step: Step, records: _PackedRecords | None = None) -> Iterator[Callable[[], None]]:
    """The step of run_pretraining.py on packed records, or on random examples without padding."""
    import tensorflow as tf

    from albert_tf.data.record_formats.record_writer import encode_examples
    from albert_tf.tasks.pretraining.task import PretrainingTask

    with tempfile.TemporaryDirectory() as folder:
        config, examples = step.config, step.batch
        if records:
            config = config.replace(vocab_size=records.vocab_size)
            examples = round(step.batch * records.examples_of_row)
        else:
            features = features_of(step, max(_NUM_EXAMPLES, step.batch))
            pathlib.Path(folder, "random.tfrecord").write_bytes(encode_examples(features).tobytes())
        config_file = pathlib.Path(folder, "config.json")
        config_file.write_text(config.to_json_string())
        run = RunConfig(
            output_dir=f"{folder}/run",
            train_batch_size=examples,
            mixed_precision=step.dtype_policy,
            recompute_activations=step.recompute,
        )
        pretraining = PretrainingConfig(
            input_file=records.folder if records else folder, albert_config_file=str(config_file)
        )
        trainer = make_trainer(lambda: PretrainingTask(pretraining, run), run, OptimizerConfig())
        one_step = tf.constant(1)
        yield lambda: trainer.train(one_step)


def make_trainer(make_task: Callable, run: RunConfig, optimizer: OptimizerConfig):
    """A trainer like the one that `loop.run` makes."""
    from albert_tf.training import devices
    from albert_tf.training.state import start_run
    from albert_tf.training.step import Trainer

    with devices.make_strategy(run).scope():
        return Trainer(start_run(make_task(), run, optimizer))


# --- What is measured ---


def _measurement(name: str, step: Step, in_quick: bool = False, **options) -> Measurement:
    function = functools.partial(measure_step, step=step, **options)
    inputs = (RECORDS[step.length],) if step.who == PACKED else ()
    return Measurement(name, function, inputs=inputs, in_quick=in_quick)


STEPS = tuple(
    _measurement(
        f"training_step.{batch}x{length}.{precision}.{who}",
        Step(who, batch=batch, length=length, precision=precision),
        in_quick=batch == 16 and (precision == "float32" or who == "ours"),
    )
    for batch, length in ((8, 512), (16, 128))
    for precision in PRECISIONS
    for who in WHO
)

# Sizes that fit into 24 GB. STEPS contains base at 8 x 512.
_SIZES = (("large", 1, 512), ("xxlarge", 1, 128))


def _memory(size: str, batch: int, length: int, recompute: bool) -> Measurement:
    name = f"memory.{size}.{batch}x{length}.ours{'_recomputed' if recompute else ''}"
    step = Step("ours", f"albert-{size}-v2", batch, length, recompute=recompute)
    return _measurement(name, step, effort=0, least=1)


MEMORY = (
    _memory("base", 8, 512, recompute=True),
    *(_memory(*size, recompute) for size in _SIZES for recompute in (False, True)),
)
