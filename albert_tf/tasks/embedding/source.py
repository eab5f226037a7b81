"""Reads the data of sentence embeddings: tables of texts that belong together -> one sequence per text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.data.answer_tables import beside, plain_rows
from albert_tf.data.feature_table import FeatureTable
from albert_tf.data.tables import chosen, is_table, read_lines, read_table, text_of
from albert_tf.tasks.classification.text_pairs import PairSettings
from albert_tf.tasks.classification.tsv import parse_value, read_rows
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.sequences import pack_pairs
from albert_tf.tasks.source import FILE_FLAGS, Source


@dataclasses.dataclass(frozen=True)
class TextGroup:
    """Two texts with a score, anchor with positive and negatives, or a text; equal texts share their number."""

    id: str
    texts: tuple[str, ...]
    text_ids: tuple[int, ...] = ()
    score: float | None = None


def make_group_features(settings: PairSettings, groups: Sequence[TextGroup]) -> FeatureTable:
    """A table of C sequences for each group of C texts, with `text_ids` [n, C] and perhaps `label_scores` [n, 1]."""
    num_texts = len(groups[0].texts) if groups else 1
    ids = settings.tokenizer.encode_batch([text for group in groups for text in group.texts])
    columns: dict[str, list] = {}
    if groups and groups[0].text_ids:
        columns["text_ids"] = [group.text_ids for group in groups]
    if groups and groups[0].score is not None:
        columns["label_scores"] = [group.score for group in groups]
    return make_id_features(settings, ids, columns, num_texts)


def make_id_features(
    settings: PairSettings,
    ids: Sequence[np.ndarray],
    columns: Mapping[str, Sequence],
    num_texts: int = 1,
) -> FeatureTable:
    """`make_group_features` of texts that are already token ids without special tokens, int32 [tokens] each."""
    uncut = {"max_seq_length": [len(each) + 2 for each in ids]}
    room = settings.max_seq_length - 2
    sequences = [(settings.tokenizer.cut(each, room), None) for each in ids]
    return pack_pairs(settings.tokenizer, sequences, columns, num_texts, uncut)


class EmbeddingSource(Source):
    """Pairs, triplets, scored pairs, or queries with a corpus; items are `TextGroup`s.

    Attributes:
      relevant: for each query of an evaluation by retrieval, the numbers of the texts to be found. The items are then
        the queries, followed by the texts that are searched.
      own_texts: for each of these queries, the number of the text that is equal to it and not to be found, or -1.
    """

    config: EmbeddingConfig
    task_name = "embedding"
    feature_function = (make_group_features, PairSettings)
    relevant: Sequence[Sequence[int]] = ()
    own_texts: Sequence[int] = ()

    def names(self, split: str) -> list[str]:
        """See `Source`; the columns are needed by the loss only."""
        has_scores = self.config.loss in ("cosine", "cosent")
        columns = ["text_ids", *(["label_scores"] if has_scores else [])]
        return [*self.sequence_names, *(columns if split == "train" else ())]

    def read(self, split: str) -> list[TextGroup] | None:
        config, path = self.config, getattr(self.config, FILE_FLAGS[split])
        if not path:
            return None
        kind = config.kind_of_evaluation if split == "eval" else config.loss
        has_scores = split != "predict" and kind in ("scores", "cosine", "cosent")
        groups = self._rows(split, path, config.score_column if has_scores else "")
        return self._queries(groups) if split == "eval" and kind == "retrieval" else groups

    def rows(self, items):
        """See `Source`; all columns."""
        return read_rows(self.config.predict_file, "predict_file")

    def _rows(self, split: str, path: str, score_column: str) -> list[TextGroup]:
        source = f"--{FILE_FLAGS[split]}={path}"
        frame = read_rows(path, FILE_FLAGS[split])
        names = self.config.columns_of(split)
        rows = chosen(frame, [*names, *([score_column] if score_column else [])], source)
        numbers: dict[str, int] = {}
        groups: list[TextGroup] = []
        for row, cells in zip(frame.index, rows, strict=True):
            place = f"{path}: {row}"
            words = tuple(text_of(cell, place).strip() for cell in cells[: len(names)])
            if not all(words) and split != "predict":
                raise UserError(f"{place}: has an empty text; leave the row out")
            ids = tuple(numbers.setdefault(text, len(numbers)) for text in words)
            value = None
            if score_column:
                value = float(parse_value(text_of(cells[-1], place), {}, place))
                most = self.config.max_score
                if split == "train" and self.config.loss == "cosine" and abs(value) > most:
                    reason = f"score {value:g} is outside of -{most:g} to {most:g}"
                    raise UserError(f"{place}: {reason}; --max_score is the highest score")
            groups.append(TextGroup(str(len(groups)), words, ids, value))
        return groups

    def _queries(self, groups: Sequence[TextGroup]) -> list[TextGroup]:
        """The different first texts of some groups, then the different second texts and those of --corpus_file."""
        path = self.config.corpus_file
        further = read_corpus(path, flag="corpus_file").texts if path else []
        corpus = list(dict.fromkeys([*(group.texts[1] for group in groups), *further]))
        place = {text: number for number, text in enumerate(corpus)}
        relevant: dict[str, set[int]] = {}
        for group in groups:
            relevant.setdefault(group.texts[0], set()).add(place[group.texts[1]])
        self.relevant = [sorted(numbers) for numbers in relevant.values()]
        own = {query: place.get(query, -1) for query in relevant}
        self.own_texts = [-1 if own[query] in relevant[query] else own[query] for query in relevant]
        texts = [*relevant, *corpus]
        return [TextGroup(str(number), (text,)) for number, text in enumerate(texts)]


class Corpus(NamedTuple):
    """Texts that are searched."""

    texts: list[str]
    places: list[int]  # of the line or row of each text in the file, from 0
    rows: list[dict[str, Any]]  # of a table, the columns of each text's row


def read_corpus(path: str, text_column: str = "", *, flag: str = "corpus") -> Corpus:
    """The texts of a file that are not empty."""
    source = f"--{flag}={path}"
    if is_table(path) and not text_column:
        raise UserError(f"--text_column must name the column of {path} that is searched")
    rows: list[dict[str, Any]] = []
    if text_column:
        frame = read_table(path, source=source)
        cells = chosen(frame, [text_column], source)
        places_of_cells = zip(frame.index, cells, strict=True)
        lines = [text_of(text, f"{path}: {place}") for place, (text,) in places_of_cells]
        rows = plain_rows(frame)
    else:
        lines = read_lines(path, source)
    places = [place for place, line in enumerate(lines) if line.strip()]
    if not places:
        raise UserError(f"{source}: contains no texts")
    texts = [lines[place].strip() for place in places]
    return Corpus(texts, places, [rows[place] for place in places] if rows else [])


def search_result(score: float, index: int, text: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A text that was found, with the columns of its row in a table, which keep their names."""
    names = beside(["score", "index"], row)
    return {names["score"]: score, names["index"]: index, "text": text, **row}
