"""Reads the data of sentence embeddings: tables of texts that belong together -> one sequence per text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.labels import parse_value
from albert_tf.tasks.sequences import PairSettings, pack_pairs
from albert_tf.tasks.source import FILE_FLAGS, Source, read_rows
from albert_tf.user_files.answer_tables import free_columns, plain_rows
from albert_tf.user_files.table_files import Cell, chosen, is_table, read_lines, read_table, text_of


@dataclasses.dataclass(frozen=True)
class TextGroup:
    """Two texts with a score, anchor with positive and negatives, or a text; equal texts share their number."""

    id: str
    texts: tuple[str, ...]
    text_ids: tuple[int, ...] = ()
    score: float | None = None


def make_group_features(settings: PairSettings, groups: Sequence[TextGroup]) -> FeatureTable:
    """A table of C sequences for each group of C texts, with `text_ids` [n, C] and perhaps `label_scores` [n, 1]."""
    columns: dict[str, list] = {}
    num_texts = 1
    if groups:
        num_texts = len(groups[0].texts)
        if groups[0].text_ids:
            columns["text_ids"] = [group.text_ids for group in groups]
        if groups[0].score is not None:
            columns["label_scores"] = [group.score for group in groups]

    texts = [text for group in groups for text in group.texts]
    ids = settings.tokenizer.encode_batch(texts)
    return make_id_features(settings, ids, columns, num_texts)


def make_id_features(
    settings: PairSettings,
    ids: Sequence[np.ndarray],
    columns: Mapping[str, Sequence],
    num_texts: int = 1,
) -> FeatureTable:
    """`make_group_features` of texts that are already token ids without special tokens, int32 [tokens] each."""
    num_special_tokens = 2  # [CLS] and [SEP]
    room = settings.max_seq_length - num_special_tokens
    sequences = [(settings.tokenizer.cut(ids_of_text, room), None) for ids_of_text in ids]
    uncut_lengths = [len(ids_of_text) + num_special_tokens for ids_of_text in ids]
    return pack_pairs(
        settings.tokenizer, sequences, columns, num_texts, {"max_seq_length": uncut_lengths}
    )


class EmbeddingSource(Source):
    """Pairs, triplets, scored pairs, or queries with a corpus; items are `TextGroup`s.

    Attributes:
      relevant: for each query of an evaluation by retrieval, the numbers of the texts to be found. The items are then
        the queries, followed by the texts that are searched.
      own_texts: for each of these queries, the number of the text that is equal to it and not to be found, or -1.
    """

    config: EmbeddingConfig
    task_name = "embedding"
    name_of_groups = "first texts"
    feature_function = (make_group_features, PairSettings)
    relevant: Sequence[Sequence[int]] = ()
    own_texts: Sequence[int] = ()

    def names(self, split: str) -> list[str]:
        """See `Source`; the columns are needed by the loss only."""
        names = [*self.sequence_names]
        if split == "train":
            names.append("text_ids")
            if self.config.row_of_loss.needs_scores:
                names.append("label_scores")
        return names

    def read(self, split: str) -> list[TextGroup] | None:
        """See `Source`; an evaluation by retrieval sets `relevant` and `own_texts`, too."""
        path = getattr(self.config, FILE_FLAGS[split])
        if not path:
            return None

        if split == "train":
            has_scores = self.config.row_of_loss.needs_scores
        elif split == "eval":
            has_scores = self.config.kind_of_evaluation == "scores"
        else:
            has_scores = False
        groups = self._rows(split, path, self.config.score_column if has_scores else "")

        if split == "eval" and self.config.kind_of_evaluation == "retrieval":
            return self._queries(groups)
        return groups

    def rows(self, items):
        """See `Source`; all columns."""
        return read_rows(self.config.predict_file, "predict_file")

    def group_of(self, item):
        return item.texts[0]

    def only(self, items, split="train"):
        """See `Source`; for an evaluation by retrieval, the queries and the texts that are searched."""
        if split == "eval" and self.config.kind_of_evaluation == "retrieval":
            return self._queries(items)
        return items

    def _rows(self, split: str, path: str, score_column: str) -> list[TextGroup]:
        """One group for each row of a table; with the name of a column, groups have scores."""
        text_columns = self.config.columns_of(split)
        columns = [*text_columns, score_column] if score_column else text_columns
        frame = read_rows(path, FILE_FLAGS[split])
        rows = chosen(frame, columns, f"--{FILE_FLAGS[split]}={path}")

        id_of_text: dict[str, int] = {}
        groups: list[TextGroup] = []
        for row, cells in zip(frame.index, rows, strict=True):
            place = f"{path}: {row}"
            texts = tuple(text_of(cell, place).strip() for cell in cells[: len(text_columns)])
            if not all(texts) and split != "predict":
                raise UserError(f"{place}: has an empty text; leave the row out")

            for text in texts:
                id_of_text.setdefault(text, len(id_of_text))
            text_ids = tuple(id_of_text[text] for text in texts)

            score = self._score(cells[-1], split, place) if score_column else None
            groups.append(TextGroup(str(len(groups)), texts, text_ids, score))
        return groups

    def _score(self, cell: Cell, split: str, place: str) -> float:
        """The number in a cell; a loss may learn it divided by --max_score, so that it may not be larger."""
        score = float(parse_value(text_of(cell, place), {}, place))
        max_score = self.config.max_score
        is_limited = split == "train" and self.config.row_of_loss.limits_scores
        if is_limited and abs(score) > max_score:
            reason = f"score {score:g} is outside of -{max_score:g} to {max_score:g}"
            raise UserError(f"{place}: {reason}; --max_score is the highest score")
        return score

    def _queries(self, groups: Sequence[TextGroup]) -> list[TextGroup]:
        """The different first texts of some groups, then the different second texts and those of --corpus_file.

        Example: the pairs (A, B), (A, C) and (B, A), of a query and a text -> the queries A and B, then the corpus
        B, C and A; `relevant` is [[0, 1], [2]]. A is itself the text 2, which is not to be found for it, and B the
        text 0: `own_texts` is [2, 0].
        """
        corpus_file = self.config.corpus_file
        further_texts = read_corpus(corpus_file, flag="corpus_file").texts if corpus_file else []
        corpus = list(dict.fromkeys([*(group.texts[1] for group in groups), *further_texts]))
        number_in_corpus = {text: number for number, text in enumerate(corpus)}

        relevant_to: dict[str, set[int]] = {}
        for group in groups:
            query, text = group.texts[:2]
            relevant_to.setdefault(query, set()).add(number_in_corpus[text])

        relevant = []
        own_texts = []
        for query, relevant_numbers in relevant_to.items():
            relevant.append(sorted(relevant_numbers))
            own_number = number_in_corpus.get(query, -1)
            # A pair of twice the same text says that this text is to be found.
            own_texts.append(-1 if own_number in relevant_numbers else own_number)
        self.relevant = relevant
        self.own_texts = own_texts

        texts = [*relevant_to, *corpus]
        return [TextGroup(str(number), (text,)) for number, text in enumerate(texts)]


class Corpus(NamedTuple):
    """Texts that are searched."""

    texts: list[str]
    places: list[int]  # of the line or row of each text in the file, from 0
    rows: list[dict[str, Any]]  # of a table, the columns of each text's row


def read_corpus(path: str, text_column: str = "", *, flag: str = "corpus") -> Corpus:
    """The texts of a file that are not empty: those of a table's column, or the lines of a text file."""
    source = f"--{flag}={path}"
    if is_table(path) and not text_column:
        raise UserError(f"--text_column must name the column of {path} that is searched")

    rows: list[dict[str, Any]] = []
    if text_column:
        frame = read_table(path, source=source)
        cells = chosen(frame, [text_column], source)
        lines = [
            text_of(cell, f"{path}: {place}")
            for place, (cell,) in zip(frame.index, cells, strict=True)
        ]
        rows = plain_rows(frame)
    else:
        lines = read_lines(path, source)

    places = [place for place, line in enumerate(lines) if line.strip()]
    if not places:
        raise UserError(f"{source}: contains no texts")
    texts = [lines[place].strip() for place in places]
    rows_of_texts = [rows[place] for place in places] if rows else []
    return Corpus(texts, places, rows_of_texts)


def search_result(score: float, index: int, text: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A text that was found, with the columns of its row in a table, which keep their names."""
    names = free_columns(["score", "index"], row)
    return {names["score"]: score, names["index"]: index, "text": text, **row}
