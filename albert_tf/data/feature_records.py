"""Fine-tuning records: padded features of a `FeatureTable`, with a metadata.json of their own."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data.record_formats.base import Schema
from albert_tf.data.record_metadata import TOKENS, WORDS, Kinds, check_entries, reject
from albert_tf.data.record_set import RecordSet, find_records

# Columns whose values are floats.
_FLOAT_COLUMNS = frozenset({"label_scores"})
_ENTRIES: Kinds = {
    "task_name": str,
    "labels": list,
    "max_seq_length": TOKENS,
    "choices": WORDS,
    "columns": dict,
    "do_lower_case": bool,
    "keep_accents": bool,
    "spm_sha256": str,
    "table_sha256": str,
}


def feature_schema(
    columns: Mapping[str, int], names: Sequence[str], sequence_values: int
) -> Schema:
    """Features of a fine-tuning record.

    Args:
      columns: number of values of each column, by name; other names are sequences.
      names: the features to return.
      sequence_values: choices x length.
    """
    types = {name: tf.float32 if name in _FLOAT_COLUMNS else tf.int64 for name in names}
    return {name: (columns.get(name, sequence_values), dtype) for name, dtype in types.items()}


def find_feature_records(folder: str, flag: str) -> RecordSet:
    """The fine-tuning records in a folder; for the errors see `find_records`."""
    record_set = find_records(folder, flag)
    metadata = record_set.metadata
    if "table_sha256" not in metadata:
        raise UserError(
            f"--{flag}={folder}: not written with --write_records of a fine-tuning program"
        )
    source = f"--{flag}={folder}: metadata.json"
    check_entries(metadata, _ENTRIES, source)
    check_entries(metadata["columns"], dict.fromkeys(metadata["columns"], TOKENS), source)
    if not all(isinstance(label, str) for label in metadata["labels"]):
        reject(source, "labels", "texts", metadata["labels"])
    return record_set
