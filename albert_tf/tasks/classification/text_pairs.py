"""One text or two -> the sequence that a classifier reads (`tasks/sequences.py`)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.sequences import pack_pairs
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class TextExample:
    """One text or two with a label or a score.

    Attributes:
      text_b: the second text, or None if the task has one text.
      label: index of its label (int), its score (float), for several labels a tuple with 1 or 0 for each label of the
        task, or None if it has none of these.
      group: the part of the data to which it belongs, such as "matched"; "" if there is only one part.
      row: its line in the file, counted from 1.
    """

    id: str
    text_a: str
    text_b: str | None = None
    label: int | float | tuple[int, ...] | None = None
    group: str = ""
    row: int = 0

    @classmethod
    def of_texts(cls, id: str, texts: Sequence[str], **fields: Any) -> "TextExample":
        """An example of one text or two; `fields` are the others."""
        return cls(id, texts[0], texts[1] if len(texts) > 1 else None, **fields)


@dataclasses.dataclass(frozen=True)
class PairSettings:
    """Settings of the features."""

    tokenizer: Tokenizer
    max_seq_length: int


def make_pair_features(settings: PairSettings, examples: Sequence[TextExample]) -> FeatureTable:
    """The sequences and labels of some examples.

    Args:
      examples: examples of one task; either all have a label, all have a score, all have several labels, or none has
        any.

    Returns:
      A table with the sequences `input_ids` and `segment_ids`, and the column `label_ids` (int32 [examples, 1]),
      `label_scores` (float32 [examples, 1]) or `label_sets` (int32 [examples, C]), or no column without labels.

    Source: classifier_utils.py (`convert_single_example`); as there, a second text without tokens is treated as
    missing.
    """
    texts = [text for example in examples for text in (example.text_a, example.text_b or "")]
    ids = settings.tokenizer.encode_batch(texts)
    pairs, uncut_lengths = [], []
    for ids_a, ids_b in zip(ids[::2], ids[1::2], strict=True):
        uncut_lengths.append(len(ids_a) + 2 + (len(ids_b) + 1 if len(ids_b) else 0))
        length_a, length_b = kept_lengths(len(ids_a), len(ids_b), settings.max_seq_length)
        pairs.append((ids_a[:length_a], ids_b[:length_b] if length_b else None))
    labels = [example.label for example in examples]
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        got = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"labels must be of one kind, got {got}")
    names: dict[type, str] = {int: "label_ids", float: "label_scores", tuple: "label_sets"}
    columns = {names[kind]: labels for kind in kinds if kind in names}
    uncut = {"max_seq_length": uncut_lengths}
    return pack_pairs(settings.tokenizer, pairs, columns, uncut_lengths=uncut)


def kept_lengths(num_a: int, num_b: int, max_seq_length: int) -> tuple[int, int]:
    """Numbers of tokens of two texts to keep, so that they fit into a sequence with [CLS] and [SEP].

    The longer text loses tokens first; if both are equally long, the second one does. A missing second text saves a
    [SEP].

    Example:
      (9, 3, 10) -> (4, 3); (9, 8, 10) -> (4, 3); (9, 0, 10) -> (8, 0)

    Source: classifier_utils.py:751 (`_truncate_seq_pair`), which drops one token at a time.
    """
    if not num_b:
        return min(num_a, max_seq_length - 2), 0
    room = max_seq_length - 3
    keep_a = min(num_a, max(room - num_b, (room + 1) // 2))
    return keep_a, min(num_b, room - keep_a)
