"""What a format of pretraining records consists of, and what formats share: counts, and masks drawn while reading.

Records are written without TensorFlow and read without numba, which both take long to load; so each is imported by the
functions that need it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.data.pretraining_examples import Masked, MaskingRule, Sequences

Metadata = Mapping[str, Any]
# Feature name -> number of values of a record, and int64 or float32.
Schema = Mapping[str, tuple[int, "tf.DType"]]
# Maps the numbers of B records, int64 [B], and the records, string [B], to features [B, values], int32 or float32.
# Masks that are drawn while reading depend on the numbers.
Parser = Callable[["tf.Tensor", "tf.Tensor"], dict[str, "tf.Tensor"]]

METADATA_FILE = "metadata.json"  # of a folder of records
LONGEST_ROW = 2**16  # tokens
# The settings of masks, which the metadata of unmasked records contains.
MASKS = (
    "masked_lm_prob",
    "max_predictions_per_seq",
    "ngram",
    "favor_shorter_ngram",
    "do_whole_word_mask",
    "word_start_rule",
)


class RecordBatch(NamedTuple):
    """The features of some records, by name."""

    features: Mapping[str, np.ndarray]  # int32 or float32 [records, values]
    lengths: Mapping[str, np.ndarray] = {}  # number of values that each record gets, if not all
    maxima: Mapping[str, int] = {}  # further counts, whose names begin with `max_`


class RecordFormat(abc.ABC):
    """How examples are written to records, described in metadata.json, and read; `masking` are values it supports."""

    help: str
    masking: tuple[str, ...] = ("static",)
    needed: tuple[str, ...] = ("max_seq_length",)  # the metadata that `schema` and `parser` use

    def rows(
        self, lengths: np.ndarray, max_seq_length: int, seed: np.uint64
    ) -> tuple[np.ndarray, np.ndarray]:
        """The indices of the examples, record after record, and how many each record has; the seed orders records."""
        return np.arange(len(lengths)), np.ones(len(lengths), np.int64)

    def encode(
        self, sequences: Sequences, per_row: np.ndarray, rule: MaskingRule, masking: str
    ) -> tuple[memoryview, dict[str, int]]:
        """The bytes of records, to be appended to a TFRecord file, and their counts (`add_counts`).

        The sequences are record after record, `per_row` of them in each, int [records]; --masking=dynamic leaves them
        unmasked.
        """
        from albert_tf.data.pretraining_examples import mask_batch
        from albert_tf.data.record_formats import record_writer

        masked = None
        if masking == "static":
            masked = mask_batch(
                sequences.input_ids, sequences.num_tokens, sequences.mask_seeds, rule
            )
        batch = self.features(sequences, masked, per_row, rule)
        num_changed = int(sequences.labels.sum())
        counts = {
            "examples": len(sequences.labels),
            "records": len(per_row),
            "tokens_in_records": int(sequences.num_tokens.sum()),
            "masked_tokens_in_records": int(masked.counts.sum()) if masked else 0,
            "label_0": len(sequences.labels) - num_changed,
            "label_1": num_changed,
            **batch.maxima,
        }
        return record_writer.encode_examples(batch.features, batch.lengths).data, counts

    @abc.abstractmethod
    def features(
        self, sequences: Sequences, masked: Masked | None, per_row: np.ndarray, rule: MaskingRule
    ) -> RecordBatch:
        """The features of records; for the arguments see `encode`. `masked` is None with --masking=dynamic."""

    @abc.abstractmethod
    def schema(self, metadata: Metadata) -> Schema:
        """The features that `parser` returns."""

    @abc.abstractmethod
    def parser(self, metadata: Metadata, schema: Schema, seed: int) -> Parser:
        """The function that parses records; the seed is that of masks drawn while reading."""


def add_counts(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Adds counts to a total; those named `max_...` are maxima."""
    for name, count in counts.items():
        before = total.get(name, 0)
        total[name] = max(before, count) if name.startswith("max_") else before + count


# --- Masks that are drawn while reading.

# TensorFlow has no operation that selects spans one after the other, and a loop of small operations would be a second,
# slower implementation of masking. The compiled function of data preparation runs without Python's global lock, but in
# this process and not on another host.


def mask_settings(metadata: Metadata) -> dict[str, Any]:
    """The settings of masks that are drawn while reading; empty if the records are masked."""
    is_dynamic = metadata.get("masking") == "dynamic"
    return {name: metadata[name] for name in MASKS} if is_dynamic else {}


def mask_function(metadata: Metadata, seed: int) -> Callable[..., Masked]:
    """The compiled function that masks examples: their numbers [B], tokens [B, L] and numbers of tokens [B], int."""
    from albert_tf.data import pretraining_examples as examples

    vocabulary = examples.Vocabulary.from_json(metadata["vocabulary"])
    rule = examples.masking_rule(vocabulary, metadata)

    def mask(numbers: np.ndarray, input_ids: np.ndarray, num_tokens: np.ndarray) -> Masked:
        return examples.mask_batch(input_ids, num_tokens, examples.seeds_of(seed, numbers), rule)

    mask(np.zeros(0, np.int64), np.zeros((0, 1), np.int32), np.zeros(0, np.int32))  # compiles it
    return mask
