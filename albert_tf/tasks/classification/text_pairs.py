"""One text or two -> the sequence that a classifier reads (`tasks/sequences.py`)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.sequences import PairSettings, pack_pairs, windows_over
from albert_tf.text.model_inputs import kept_lengths


@dataclasses.dataclass(frozen=True)
class TextExample:
    """One text or two with a label or a score."""

    id: str
    text_a: str
    text_b: str | None = None  # None if the task has one text
    label: Any = None  # int, float, a tuple with 1 or 0 for each of several labels, or None
    group: str = ""  # part of the data, such as "matched", if there are several
    row: str = ""  # where it is in the file, for messages, such as "row 3 (line 4)"

    @classmethod
    def of_texts(cls, id: str, texts: Sequence[str], **fields: Any) -> "TextExample":
        """An example of one text or two; `fields` are the others."""
        return cls(id, texts[0], texts[1] if len(texts) > 1 else None, **fields)


@dataclasses.dataclass(frozen=True)
class TextFeatureSettings(PairSettings):
    """Settings of the features of a classifier; with `windows`, examples have one text."""

    windows: bool = False


FIRST_WINDOW = "first_window"


def make_pair_features(settings: PairSettings, examples: Sequence[TextExample]) -> FeatureTable:
    """The sequences and labels of examples of one task, which all have the same kind of label, or none.

    Returns:
      A table with the sequences `input_ids` and `segment_ids`, and the column `label_ids` (int32 [examples, 1]),
      `label_scores` (float32 [examples, 1]) or `label_sets` (int32 [examples, C]), or no column without labels.

    Source: classifier_utils.py (`convert_single_example`); as there, a second text without tokens is treated as
    missing.
    """
    texts = [text for example in examples for text in (example.text_a, example.text_b or "")]
    ids = settings.tokenizer.encode_batch(texts)
    rest_to_longer = settings.tokenizer.rules.gives_rest_to_longer
    pairs = []
    uncut_lengths = []
    for ids_a, ids_b in zip(ids[::2], ids[1::2], strict=True):
        uncut_lengths.append(len(ids_a) + 2 + (len(ids_b) + 1 if len(ids_b) else 0))
        length_a, length_b = kept_lengths(
            len(ids_a), len(ids_b), settings.max_seq_length, rest_to_longer=rest_to_longer
        )
        first = settings.tokenizer.cut(ids_a, length_a)
        pairs.append((first, settings.tokenizer.cut(ids_b, length_b) if length_b else None))
    columns = _label_columns(examples)
    uncut = {"max_seq_length": uncut_lengths}
    return pack_pairs(settings.tokenizer, pairs, columns, uncut_lengths=uncut)


def make_text_features(
    settings: TextFeatureSettings, examples: Sequence[TextExample]
) -> FeatureTable:
    """`make_pair_features`; or, with windows, the windows of each text, one after the other.

    In the second case, the column `FIRST_WINDOW` (int32 [windows, 1]) is 1 for the first window of a text.
    """
    if not settings.windows:
        return make_pair_features(settings, examples)
    room = settings.max_seq_length - 2
    windows = []
    owners = []
    uncut_lengths = []
    texts = [example.text_a for example in examples]
    for example, ids in zip(examples, settings.tokenizer.encode_batch(texts), strict=True):
        uncut_lengths.append(len(ids) + 2)
        for start, length, _ in windows_over(len(ids), room, max(1, room // 2)):
            windows.append((ids[start : start + length], None))
            owners.append((example, start == 0))
    columns = _label_columns([example for example, _ in owners])
    columns[FIRST_WINDOW] = [int(is_first) for _, is_first in owners]
    uncut = {"max_seq_length": uncut_lengths}
    return pack_pairs(settings.tokenizer, windows, columns, uncut_lengths=uncut)


def mean_of_windows(table: FeatureTable, values: np.ndarray) -> np.ndarray:
    """The mean of the values [windows, ...] of each text's windows, [texts, ...]; without windows, the values."""
    if FIRST_WINDOW not in table.columns or not len(values):
        return values
    # 3 windows of the first text and 2 of the second: they begin at [0, 3], and their numbers are [3, 2].
    firsts = np.flatnonzero(table.columns[FIRST_WINDOW][:, 0])
    counts = np.diff([*firsts, len(values)])

    # [5, C] -> [2, C]; the numbers are [2, 1], for any number of axes.
    sums = np.add.reduceat(values, firsts, axis=0)
    further_axes = [1] * (values.ndim - 1)
    return sums / counts.reshape([-1, *further_axes]).astype(values.dtype)


def _label_columns(examples: Sequence[TextExample]) -> dict[str, Sequence]:
    """The column of labels of a table; see `make_pair_features`."""
    labels = [example.label for example in examples]
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        got = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"labels must be of one kind, got {got}")
    names: dict[type, str] = {int: "label_ids", float: "label_scores", tuple: "label_sets"}
    return {names[kind]: labels for kind in kinds if kind in names}
