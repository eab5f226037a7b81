"""Time and memory of a pretraining step: forward, backward, clipping, optimizer.

The batch has random tokens without padding, or packed rows of the corpus; there is no dropout (ALBERT version 2).
"""

import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable

import numpy as np

from albert_tf.core import files
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.benchmarks import inputs, measure
from lab.benchmarks.inputs import predictions_of
from lab.benchmarks.measure import BenchSettings, Measurement, Values

_NUM_EXAMPLES = 64  # number of random examples


@dataclasses.dataclass(frozen=True)
class Step:
    """A training step."""

    model: str = "albert-base-v2"
    batch: int = 8  # rows
    length: int = 512  # 15 % of the tokens are predicted
    precision: str = "float32"  # or "bfloat16", mixed
    packed: bool = False  # rows of the corpus instead of random tokens
    recompute: bool = False  # whether the backward pass recomputes activations


def random_features(step: Step, vocab_size: int, num_examples: int) -> dict[str, np.ndarray]:
    """Random pretraining features without padding, int32 and float32 [examples, values]."""
    random = np.random.default_rng(1)
    predictions = predictions_of(step.length)
    # 64 examples of 512 tokens, of which 77 are predicted: [64, 512] and [64, 77].
    shape = (num_examples, step.length)
    slots = (num_examples, predictions)
    order = random.random(shape).argsort(axis=1)
    features = {
        "input_ids": random.integers(5, vocab_size, shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.tile(np.arange(step.length) >= step.length // 2, (num_examples, 1)),
        "masked_lm_positions": np.sort(order[:, :predictions], axis=1),
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
      The values of `repeated`; `examples_a_second`; for packed rows also `tokens_of_example`, the mean.
    """
    import tensorflow as tf

    from albert_tf.data.record_formats.record_writer import encode_examples
    from albert_tf.tasks.pretraining.task import PretrainingTask

    config = AlbertConfig.from_name(step.model)
    examples = float(step.batch)
    more = {}
    with tempfile.TemporaryDirectory() as folder:
        if step.packed:
            records = inputs.records(settings, step.length)
            metadata = files.read_json(os.path.join(records, "metadata.json"))
            counts = metadata["counts"]
            config = config.replace(vocab_size=metadata["vocab_size"])
            examples *= counts["examples"] / counts["records"]
            more = {"tokens_of_example": counts["tokens_in_records"] / counts["examples"]}
        else:
            records = f"{folder}/random.tfrecord"
            features = random_features(step, config.vocab_size, max(_NUM_EXAMPLES, step.batch))
            files.write_bytes(records, encode_examples(features).tobytes())
        config_file = f"{folder}/config.json"
        files.write_bytes(config_file, config.to_json_string().encode())
        run = RunConfig(
            output_dir=f"{folder}/run",
            train_batch_size=round(examples),
            mixed_precision={"bfloat16": "mixed_bfloat16"}.get(step.precision, step.precision),
            recompute_activations=step.recompute,
        )
        pretraining = PretrainingConfig(input_file=records, albert_config_file=config_file)
        trainer = make_trainer(lambda: PretrainingTask(pretraining, run), run, OptimizerConfig())
        one_step = tf.constant(1)
        call = functools.partial(trainer.train, one_step)
        timing = measure.repeated(call, effort * settings.seconds, least=least)
    return {**timing, **more, "examples_a_second": examples / timing["median"]}


def make_trainer(make_task: Callable, run: RunConfig, optimizer: OptimizerConfig):
    """A trainer like the one that `loop.run` makes."""
    from albert_tf.training import devices
    from albert_tf.training.state import start_run
    from albert_tf.training.step import Trainer

    with devices.make_strategy(run).scope():
        return Trainer(start_run(make_task(), run, optimizer))


def _measurement(name: str, step: Step, in_quick: bool = False, **options) -> Measurement:
    function = functools.partial(measure_step, step=step, **options)
    records = functools.partial(inputs.records, length=step.length) if step.packed else None
    return Measurement(name, function, records, in_quick)


STEPS = tuple(
    _measurement(
        f"training_step.{batch}x{length}.{precision}.{'ours_packed' if packed else 'ours'}",
        Step(batch=batch, length=length, precision=precision, packed=packed),
        in_quick=batch == 16 and (precision == "float32" or not packed),
    )
    for batch, length in ((8, 512), (16, 128))
    for precision in ("float32", "bfloat16")
    for packed in (False, True)
)


def _memory(size: str, batch: int, length: int, recompute: bool) -> Measurement:
    name = f"memory.{size}.{batch}x{length}.ours{'_recomputed' if recompute else ''}"
    step = Step(f"albert-{size}-v2", batch, length, recompute=recompute)
    return _measurement(name, step, effort=0, least=1)


# Sizes that fit into 24 GB. STEPS contains base at 8 x 512.
MEMORY = (
    _memory("base", 8, 512, recompute=True),
    *(_memory("large", 1, 512, recompute) for recompute in (False, True)),
    *(_memory("xxlarge", 1, 128, recompute) for recompute in (False, True)),
)
