"""Writes the features of a task's training data as TFRecords, which --train_records reads; TPUs need no text then."""

import io
import os

import numpy as np

from albert_tf import __version__
from albert_tf.core import checksums, files
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.core.progress import Progress
from albert_tf.data import record_metadata
from albert_tf.data.record_formats.record_writer import encode_examples
from albert_tf.tasks.finetuning import FineTuningTask
from albert_tf.tasks.source import plain_settings

_EXAMPLES_AT_A_TIME = 512


def write(task: FineTuningTask) -> dict:
    """Writes the training data to --write_records; returns the records' metadata."""
    config, table = task.config, task.tables["train"]
    folder = config.write_records
    if len(table) < config.num_shards:
        reason = (
            f"={config.num_shards}: the data has {len(table):,} examples, too few for as many files"
        )
        config.refuse("num_shards", reason)
    try:
        with locked(folder, "write_records"):
            files.remove_leftovers(folder)
            if files.exists(os.path.join(folder, record_metadata.METADATA_FILE)):
                config.refuse("write_records", f"={folder} contains records: choose another folder")
            metadata = _write_files(task, folder)
    except OSError as error:
        raise UserError(f"--write_records={folder} cannot be written ({error.strerror})") from None
    size = sum(shard["bytes"] for shard in metadata["shards"])
    print(
        f"{len(table):,} examples of {config.max_seq_length} tokens, {size:,} bytes in"
        f" {config.num_shards} files in {folder}"
    )
    return metadata


def _write_files(task: FineTuningTask, folder: str) -> dict:
    """Distributes the examples over the files in turn, then writes the metadata, which it returns."""
    table, num_shards = task.tables["train"], task.config.num_shards
    shards = []
    with Progress("records", len(table), unit="examples", seconds_between_lines=5) as progress:
        for shard in range(num_shards):
            examples = np.arange(shard, len(table), num_shards)
            content = _records(task, examples)
            name = f"train-{shard:05d}-of-{num_shards:05d}.tfrecord"
            files.write_bytes(os.path.join(folder, name), content)
            file = io.BytesIO(content)
            shards.append(record_metadata.shard_entry(name, len(examples), len(content), file))
            progress.update(sum(written["examples"] for written in shards))
    metadata = {
        "task_name": task.task_name,
        "labels": list(task.labels),
        "max_seq_length": task.config.max_seq_length,
        "choices": table.choices,
        "columns": {name: values.shape[1] for name, values in table.columns.items()},
        "vocab_size": task.tokenizer.vocab_size,
        "spm_sha256": task.tokenizer.sha256,
        **task.tokenizer.cleaning,
        "table_sha256": table.sha256(),
        "settings": plain_settings(task.source.featuriser(task.tokenizer)[1]),
        "version": __version__,
        "shards": shards,
    }
    content = checksums.json_file(metadata)
    files.write_bytes(os.path.join(folder, record_metadata.METADATA_FILE), content)
    return metadata


def _records(task: FineTuningTask, examples: np.ndarray) -> bytes:
    """The records of some examples, all padded to --max_seq_length."""
    names, table = task.source.names("train"), task.tables["train"]
    parts = []
    for start in range(0, len(examples), _EXAMPLES_AT_A_TIME):
        chunk = examples[start : start + _EXAMPLES_AT_A_TIME]
        features = table.batch(chunk, task.config.max_seq_length, names)
        flat = {name: values.reshape(len(chunk), -1) for name, values in features.items()}
        parts.append(encode_examples(flat).tobytes())
    return b"".join(parts)
