"""Fine-tuning: time per epoch with length buckets, with fixed padding, and with the padding of transformers.

A step is timed at several lengths, and the batches of an epoch of each GLUE task are counted by length. Both together
give the time of an epoch (`run_results.py`). No epoch is run, because an epoch of MNLI takes hours on a processor.
"""

import collections
import functools
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.classification.settings import GLUE_TASK_NAMES, ClassifierConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from lab.benchmarks import measure, peers, training_step
from lab.benchmarks.inputs import TEXT, VOCABULARY, vocabulary_path
from lab.benchmarks.measure import BenchSettings, Measurement, Values

BATCH, MAX_SEQ_LENGTH, NUM_BUCKETS = 32, 128, 4
_LENGTHS = (32, 64, 128)
_REPEATS = 2
_SMALL = {"hidden_size": 256, "intermediate_size": 1024}
_SIZES = {"small": {**_SMALL, "num_hidden_layers": 4, "num_attention_heads": 4}, "base": {}}


def steps(settings: BenchSettings, *, who: str, size: str) -> Values:
    """Times steps of a classifier at several lengths.

    Returns:
      `lengths`: by length, the values of `repeated`.
    """
    from albert_tf import Tokenizer

    vocab_size = Tokenizer.from_file(vocabulary_path(settings)).vocab_size
    config = AlbertConfig.from_name("albert-base-v2", vocab_size=vocab_size, **_SIZES[size])
    step = {"ours": _our_step, "transformers": _transformers_step}[who](settings, config)
    timings = {
        str(length): measure.repeated(functools.partial(step, length), 0, least=_REPEATS)
        for length in _LENGTHS
    }
    return {"lengths": timings}


def _features(config: AlbertConfig, length: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(length)
    ids = random.integers(5, config.vocab_size, (BATCH, length))
    labels = random.integers(0, 2, (BATCH, 1))
    features = {"input_ids": ids, "segment_ids": ids * 0, "input_mask": ids * 0 + 1}
    features |= {"label_ids": labels, "example_index": labels[:, 0]}
    return {name: value.astype(np.int32) for name, value in features.items()}


def _our_step(settings: BenchSettings, config: AlbertConfig) -> Callable[[int], None]:
    """The step of run_classifier.py; it must be called `1 + _REPEATS` times for each length, length by length."""
    import tensorflow as tf

    from albert_tf.tasks.classification.task import ClassificationTask

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for length in itertools.cycle(_LENGTHS):
            yield from itertools.repeat(_features(config, length), 1 + _REPEATS)

    def dataset(task) -> tf.data.Dataset:
        spec = task.train_data.spec(BATCH)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
        return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))

    with tempfile.TemporaryDirectory() as folder:
        table_file, sizes = (pathlib.Path(folder, name) for name in ("train.tsv", "config.json"))
        rows = [f"{'word ' * (1 + number)}\t{number % 2}" for number in range(64)]
        table_file.write_text("\n".join(["text\tlabel", *rows]) + "\n")
        sizes.write_text(config.to_json_string())
        run = FineTuningRunConfig(output_dir=f"{folder}/run", train_batch_size=BATCH, do_eval=False)
        classifier = ClassifierConfig(
            task_name="tsv",
            train_file=str(table_file),
            text_columns="text",
            albert_config_file=str(sizes),
            spm_model_file=vocabulary_path(settings),
            max_seq_length=MAX_SEQ_LENGTH,
            length_buckets=NUM_BUCKETS,
            num_workers=1,
        )
        optimizer = FineTuningOptimizerConfig(learning_rate=1e-5, num_train_steps=1000)
        trainer = training_step.make_trainer(
            lambda: ClassificationTask(classifier, run), run, optimizer, dataset
        )
    one_step = tf.constant(1)
    return lambda _length: trainer.train(one_step)


def _transformers_step(settings: BenchSettings, config: AlbertConfig) -> Callable[[int], None]:
    """transformers' AlbertForSequenceClassification with PyTorch's AdamW."""
    name = "AlbertForSequenceClassification"
    train = peers.transformers_training(name, config, learning_rate=1e-5)

    def call(length: int) -> None:
        features = _features(config, length)
        labels = peers.torch_integers(features["label_ids"][:, 0])
        train({**peers.transformers_inputs(features), "labels": labels})

    return call


def epochs(settings: BenchSettings) -> Values:
    """Counts the batches of an epoch of every GLUE task in --glue_dir by their padded length.

    Returns:
      `tasks`: by task, `examples` and the values of `batches_of`.

    Raises:
      UserError: the folder contains no task.
    """
    from albert_tf import Tokenizer
    from albert_tf.tasks.classification.source import TextSource

    tokenizer = Tokenizer.from_file(vocabulary_path(settings))
    counts = {}
    for name in GLUE_TASK_NAMES:
        data = {"task_name": name, "data_dir": settings.glue_dir}
        source = TextSource(ClassifierConfig(**data, max_seq_length=MAX_SEQ_LENGTH))
        if not os.path.exists(os.path.join(settings.glue_dir, source.glue.folder, "train.tsv")):
            continue
        table = source.features("train", source.read("train"), tokenizer)
        counts[name] = {"examples": len(table), **batches_of(table.lengths)}
    if not counts:
        raise UserError(f"--glue_dir={settings.glue_dir}: no folder of a GLUE task with train.tsv")
    return {"tasks": counts}


def batches_of(lengths: np.ndarray) -> dict[str, dict[str, int]]:
    """Numbers of batches of an epoch by padded length; the lengths are strings.

    Args:
      lengths: lengths of the examples, int [examples].

    Returns:
      By kind of padding: `fixed`; length `buckets`; and `dynamic`, to the longest example of a random batch.
    """
    from albert_tf.data import feature_table

    num_batches = max(1, len(lengths) // BATCH)
    buckets = feature_table.lengths_to_pad_to(lengths, MAX_SEQ_LENGTH, NUM_BUCKETS)
    bucketed = feature_table.training_batches(lengths, buckets, BATCH, 1)
    order = np.random.default_rng(1).permutation(len(lengths))[: num_batches * BATCH]
    padded = {
        "fixed": [MAX_SEQ_LENGTH] * num_batches,
        "buckets": [batch.length for batch in itertools.islice(bucketed, num_batches)],
        "dynamic": lengths[order].reshape(num_batches, -1).max(axis=1),
    }
    return {name: dict(collections.Counter(map(str, padded[name]))) for name in padded}


MEASUREMENTS = (
    *(
        Measurement(
            f"fine_tuning.{size}.{who}",
            functools.partial(steps, who=who, size=size),
            needs=peers.PEERS[who],
            flags=("glue_dir",),
            inputs=(TEXT, VOCABULARY),
        )
        for size in _SIZES
        for who in ("ours", "transformers")
    ),
    Measurement("fine_tuning.epochs", epochs, flags=("glue_dir",), inputs=(TEXT, VOCABULARY)),
)
