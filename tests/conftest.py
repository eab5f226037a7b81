"""What tests share: a tiny configuration whose sizes all differ, and records made from random ids."""

import io
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from absl import flags

from albert_tf import cli
from albert_tf.config import AlbertConfig, OptimizerConfig, PretrainingConfig, RunConfig

# Two logical devices, for the multi-device step; most tests use the first alone.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

ROOT = pathlib.Path(__file__).parent.parent
# Batch 6, length 11 and 8 predictions go with it: no two sizes are equal, so that no coincidence passes.
TINY = AlbertConfig(
    vocab_size=101,
    embedding_size=7,
    hidden_size=20,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=19,
    max_position_embeddings=17,
    type_vocab_size=2,
)
BATCH, LENGTH, PREDICTIONS = 6, 11, 8


@pytest.fixture
def tiny() -> AlbertConfig:
    """The tiny configuration."""
    return TINY


@pytest.fixture(scope="session")
def real_data() -> pathlib.Path:
    """The folder of real data; tests that want it are skipped without it."""
    if not os.environ.get("ALBERT_TEST_DATA"):
        pytest.skip("ALBERT_TEST_DATA is not set")
    return pathlib.Path(os.environ["ALBERT_TEST_DATA"]).resolve()


@pytest.fixture(scope="session")
def released_model_file(real_data) -> str:
    """The SentencePiece model of the released checkpoints."""
    return str(real_data / "vocab" / "30k-clean.model")


@pytest.fixture(scope="session")
def golden(real_data) -> pathlib.Path:
    """The folder of the original code's numbers, beside the real data."""
    return real_data.parent / "golden" / "a_lamb"


def random_features(num_examples: int, seed: int = 0, vocab_size: int = TINY.vocab_size) -> dict:
    """Pretraining features of random pieces, with padding and empty prediction slots.

    Args:
      num_examples: B.
      seed: of the values.
      vocab_size: pieces are below it.

    Returns:
      int32 and float32 arrays [B, values].
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, LENGTH + 1, num_examples)[:, None]
    positions = np.arange(LENGTH)[None]
    real = (positions < lengths).astype(np.int32)
    num_masked = rng.integers(1, PREDICTIONS, num_examples)[:, None]
    weights = (np.arange(PREDICTIONS)[None] < num_masked).astype(np.float32)
    shape = (num_examples, PREDICTIONS)
    return {
        "input_ids": rng.integers(5, vocab_size, (num_examples, LENGTH)).astype(np.int32) * real,
        "input_mask": real,
        "segment_ids": (positions > lengths // 2).astype(np.int32) * real,
        "masked_lm_positions": (rng.integers(0, 5, shape) * weights).astype(np.int32),
        "masked_lm_ids": (rng.integers(5, vocab_size, shape) * weights).astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, (num_examples, 1)).astype(np.int32),
    }


def write_records(path: pathlib.Path, features: dict) -> pathlib.Path:
    """Writes features as TFRecords with TensorFlow's own writer."""

    def value(row):
        if row.dtype == np.float32:
            return tf.train.Feature(float_list=tf.train.FloatList(value=row))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=row))

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for index in range(len(features["input_ids"])):
            feature = {name: value(rows[index]) for name, rows in features.items()}
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return path


@pytest.fixture
def records_file(tmp_path) -> pathlib.Path:
    """A file of 60 random pretraining records."""
    return write_records(tmp_path / "records" / "examples.tfrecord", random_features(60))


@pytest.fixture
def config_file(tmp_path) -> pathlib.Path:
    """The tiny configuration as a file."""
    path = tmp_path / "albert_config.json"
    path.write_text(TINY.to_json_string())
    return path


def run_script(script: str, *arguments: object, timeout: float = 240, **environment: str):
    """Runs a script of the project as a user would; returns the finished process with its output.

    Args:
      script: path from the project's root, or "-m module".
      arguments: its flags.
      timeout: seconds.
      environment: variables set besides the present ones.
    """
    command = [sys.executable, *script.split(), *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def pretrain_here(*arguments: object) -> dict:
    """Runs run_pretraining.py's work inside this process, without the start-up; returns its results.

    Args:
      arguments: flags, "--name=value".

    Raises:
      UserError: as the script would print it.
    """
    from albert_tf import train_loop
    from albert_tf.tasks.pretraining import PretrainingTask

    values = flags.FlagValues()
    classes = (RunConfig, OptimizerConfig, PretrainingConfig)
    cli.define_flags(classes, values)
    values(["run_pretraining.py", *map(str, arguments)])
    run, optimizer, pretraining = (cli.settings_from_flags(cls, values) for cls in classes)
    return train_loop.run(lambda: PretrainingTask(pretraining, run), run, optimizer)


def train_spm(path: pathlib.Path, sentences: Iterable[str], **changes: object) -> str:
    """Trains a small SentencePiece model that has ALBERT's control pieces; returns its path.

    Args:
      path: the file to write.
      sentences: what to learn from.
      changes: other or changed arguments of the trainer.
    """
    settings = {
        "character_coverage": 1.0,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "pad_piece": "<pad>",
        "unk_piece": "<unk>",
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "minloglevel": 2,
        "num_threads": 1,
    }
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, **settings | changes
    )
    path.write_bytes(model.getvalue())
    return str(path)


def write_files(folder: pathlib.Path, files: Mapping[str, str | bytes]) -> None:
    """Writes files, by their names, and the folders in them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def documents_in(path: pathlib.Path) -> list[list[str]]:
    """The sentences of each document of a corpus file."""
    return [document.splitlines() for document in path.read_text("utf-8").split("\n\n")]
