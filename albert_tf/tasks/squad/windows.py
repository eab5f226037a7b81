"""SQuAD 1.1 and 2.0: questions from the official JSON; windows of question and context from questions.

A context that is too long for one sequence is cut into windows that overlap:

    [CLS] question [SEP] pieces of the context [SEP]        segment_ids  0 0 0 0 | 1 1 1 1
                                                            p_mask       0 1 1 1 | 0 0 0 1

Every piece of the context knows which characters of the original it stands for, so that an answer is found in the
pieces, and a prediction in the text, without aligning the two.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.core.files import read_bytes
from albert_tf.data.feature_table import FeatureTable
from albert_tf.text.tokenizer import Tokenizer

VERSIONS = ("1.1", "2.0")

_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a whole number",
    bool: "true or false",
}


@dataclasses.dataclass(frozen=True)
class SquadQuestion:
    """A question with its context.

    Attributes:
      id: names it in the files of predictions.
      question: its text.
      context: the paragraph that holds the answer, as in the file.
      answers: (text, first character in the context) of each reference answer; empty if impossible or not read.
      is_impossible: whether the context does not answer it (SQuAD 2.0).
      article: index of its article in the file.
      title: of its article; empty if the file gives none.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    is_impossible: bool = False
    article: int = 0
    title: str = ""


def read_squad(path: str, *, version: str, flag: str, need_answers: bool) -> list[SquadQuestion]:
    """Reads a file in the official format.

    Files for training give one answer to a question, files for evaluation several. The original refuses to train on
    several; here the first is trained on (`make_windows`).

    Args:
      path: the JSON file, with or without byte-order mark; a path with :// is read through TensorFlow.
      version: one of `VERSIONS`; only 2.0 has impossible questions.
      flag: the flag that named the file, for error messages.
      need_answers: whether answers are read and checked; without, a file to predict on need not have any.

    Returns:
      The questions, in the order of the file; at least one.

    Raises:
      UserError: the file cannot be read, is not in this format, gives an id twice, or has an answer that is not
        where it says.

    Source: squad_utils.py (`read_squad_examples`).
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {VERSIONS}, got {version!r}")
    source = f"--{flag}={path}"
    questions, places = [], {}
    articles = _member(_load_json(path, source), "data", list, source)
    for article_index, article in enumerate(articles):
        article_place = f"{source}: article {article_index + 1}"
        title = article.get("title", "") if isinstance(article, dict) else ""
        paragraphs = _member(article, "paragraphs", list, article_place)
        for number, paragraph in enumerate(paragraphs, start=1):
            place = f"{article_place}, paragraph {number}"
            context = _member(paragraph, "context", str, place)
            for entry in _member(paragraph, "qas", list, place):
                question = _read_question(entry, context, place, version, need_answers)
                if question.id in places:
                    first = places[question.id].removeprefix(f"{source}: ")
                    raise UserError(f"{place}: question {question.id!r} is in {first} as well")
                places[question.id] = place
                questions.append(
                    dataclasses.replace(question, article=article_index, title=str(title))
                )
    if not questions:
        raise UserError(f"{source}: holds no questions")
    return questions


def _load_json(path: str, source: str) -> Any:
    try:
        content = read_bytes(path)
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None
    if not content.strip():
        raise UserError(f"{source}: is empty; expected the JSON of a SQuAD file")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{source}: is not JSON in UTF-8 ({error})") from None


def _read_question(
    entry: Any, context: str, place: str, version: str, need_answers: bool
) -> SquadQuestion:
    id = _member(entry, "id", str, place)
    place = f"{place}, question {id!r}"
    text = _member(entry, "question", str, place)
    if not need_answers:
        return SquadQuestion(id, text, context)

    is_impossible = "is_impossible" in entry and _member(entry, "is_impossible", bool, place)
    if is_impossible and version == "1.1":
        raise UserError(f"{place}: is impossible, as only SQuAD 2.0 has it; choose version 2.0")
    if is_impossible and "answers" not in entry:
        return SquadQuestion(id, text, context, is_impossible=True)
    answers = _member(entry, "answers", list, place)
    if is_impossible and answers:
        raise UserError(f"{place}: is impossible and has answers; expected one or the other")
    if not is_impossible and not answers:
        raise UserError(f'{place}: "answers" is empty; expected at least one answer')
    checked = tuple(_read_answer(answer, context, place) for answer in answers)
    return SquadQuestion(id, text, context, checked, is_impossible)


def _read_answer(answer: Any, context: str, place: str) -> tuple[str, int]:
    text = _member(answer, "text", str, f"{place}, answers")
    start = _member(answer, "answer_start", int, f"{place}, answers")
    if not text.strip():
        raise UserError(f"{place}: an answer is empty; expected words of the context")
    found = context[start : start + len(text)] if start >= 0 else ""
    if found != text:
        raise UserError(
            f"{place}: answer {_shortened(text)} should begin at character {start} of the context,"
            f" where {_shortened(found)} stands; correct answer_start"
        )
    return text, start


def _member(parent: Any, key: str, kind: type, place: str) -> Any:
    if not isinstance(parent, dict):
        raise UserError(f'{place}: expected an object with "{key}", got {_shortened(parent)}')
    if key not in parent:
        raise UserError(f'{place}: has no "{key}"')
    if type(parent[key]) is not kind:  # True is an int
        raise UserError(
            f'{place}: "{key}" must be {_TYPE_NAMES[kind]}, got {_shortened(parent[key])}'
        )
    return parent[key]


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- Windows ---


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How questions and contexts are cut.

    Attributes:
      tokenizer: text to pieces.
      max_seq_length: most pieces of a window, special pieces included.
      doc_stride: pieces from the beginning of a window to that of the next.
      max_query_length: pieces of a question beyond these are dropped.

    Raises:
      UserError: there is no room for the context, or no step to the next window.
    """

    tokenizer: Tokenizer
    max_seq_length: int
    doc_stride: int
    max_query_length: int

    def __post_init__(self):
        if self.max_seq_length <= self.max_query_length + 3:
            raise UserError(
                f"--max_seq_length={self.max_seq_length} must exceed --max_query_length={self.max_query_length} by"
                " more than 3, for [CLS], two [SEP] and the context"
            )
        for name in ("doc_stride", "max_query_length"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}={getattr(self, name)} must be at least 1")


def make_windows(
    settings: WindowSettings, item: tuple[int, Sequence[SquadQuestion]]
) -> FeatureTable:
    """The windows of some questions, question by question and from left to right.

    Every question has at least one, even if its context is empty. Questions that share a context should come in the
    same call: it is tokenized once.

    A window is trained on its question's first answer if it holds all of it, otherwise on position 0, as impossible.

    Args:
      settings: how to cut.
      item: index of the first question in the data set, and the questions, at least one. (One argument, for
        `Workers.map`.)

    Returns:
      A table with an example for every window. Sequences int32, one value a piece:
        input_ids, segment_ids: what the model reads.
        p_mask: 1 where no answer can begin or end: in the question, at [SEP], in the padding.
        start_chars, end_chars: the context's characters from start to before end that a piece of the context stands
          for; -1 elsewhere.
        is_max_context: 1 at the pieces of the context that have more context here than in the question's other
          windows.
      Columns int32 [windows, 1]:
        question_index: in the data set.
        start_positions, end_positions: first and last piece of the answer, 0 if there is none in this window.
        is_impossible: 1 if there is none.

    Raises:
      UserError: the tokenizer cannot give offsets (byte_fallback).

    Source: squad_utils.py (`convert_examples_to_features`). There, pieces are aligned with characters by a longest
    common subsequence (:214-356), and questions whose context does not align well are left out.
    """
    first_question, questions = item
    contexts = _encode_contexts(settings.tokenizer, [question.context for question in questions])
    queries = [
        ids[: settings.max_query_length]
        for ids in settings.tokenizer.encode_batch([question.question for question in questions])
    ]
    windows = _cut(
        np.array([len(query) for query in queries], np.int64),
        np.array([contexts.num_pieces(question) for question in questions], np.int64),
        settings,
    )
    piece_offsets = np.array([contexts.first_piece(question) for question in questions], np.int64)
    return FeatureTable(
        windows.row_splits,
        _sequences(windows, queries, contexts, piece_offsets, settings.tokenizer),
        {
            "question_index": (first_question + windows.question)[:, None].astype(np.int32),
            **_labels(windows, np.array([contexts.answer_pieces(q) for q in questions], np.int64)),
        },
    )


def make_numbered_windows(
    settings: WindowSettings, questions: Sequence[tuple[int, SquadQuestion]]
) -> FeatureTable:
    """The windows of some questions that come with their indices, for `prepare.build`."""
    if not questions:
        return make_windows(settings, (0, []))
    return make_windows(settings, (questions[0][0], [question for _, question in questions]))


@dataclasses.dataclass(frozen=True)
class _Contexts:
    """Distinct contexts, their pieces end to end.

    Attributes:
      indices: number of each context.
      splits: int64 [contexts + 1]; context i has the pieces from splits[i] to splits[i + 1].
      ids, start_chars, end_chars: int32 [pieces].
    """

    indices: dict[str, int]
    splits: np.ndarray
    ids: np.ndarray
    start_chars: np.ndarray
    end_chars: np.ndarray

    def first_piece(self, question: SquadQuestion) -> int:
        return self.splits[self.indices[question.context]]

    def num_pieces(self, question: SquadQuestion) -> int:
        index = self.indices[question.context]
        return self.splits[index + 1] - self.splits[index]

    def answer_pieces(self, question: SquadQuestion) -> tuple[int, int]:
        """First and last piece of the first answer, counted from the context's first; (-1, -1) without answer."""
        if not question.answers:
            return -1, -1
        index = self.indices[question.context]
        pieces = slice(self.splits[index], self.splits[index + 1])
        text, start = question.answers[0]
        first = np.searchsorted(self.end_chars[pieces], start, side="right")
        last = np.searchsorted(self.start_chars[pieces], start + len(text), side="left") - 1
        # Characters that no piece stands for, such as control characters, are no answer.
        return (first, last) if first <= last else (-1, -1)


def _encode_contexts(tokenizer: Tokenizer, texts: Sequence[str]) -> _Contexts:
    distinct = list(dict.fromkeys(texts))
    encoded = [tokenizer.encode_with_offsets(text) for text in distinct]
    lengths = [len(ids) for ids, _ in encoded]
    ids = [id for ids, _ in encoded for id in ids]
    spans = np.array([span for _, spans in encoded for span in spans], np.int32).reshape(-1, 2)
    return _Contexts(
        {text: index for index, text in enumerate(distinct)},
        np.cumsum([0, *lengths]),
        np.array(ids, np.int32),
        spans[:, 0],
        spans[:, 1],
    )


@dataclasses.dataclass(frozen=True)
class _Windows:
    """Which pieces make up which window; int64 [windows] each.

    Attributes:
      question: index of its question.
      query_length: pieces of the question.
      first_piece: the context's piece that it begins with.
      context_length: pieces of the context.
      is_max_context: int32, for all windows' pieces of the context, end to end.
    """

    question: np.ndarray
    query_length: np.ndarray
    first_piece: np.ndarray
    context_length: np.ndarray
    is_max_context: np.ndarray

    @property
    def row_splits(self) -> np.ndarray:
        lengths = self.query_length + self.context_length + 3
        return np.concatenate([[0], np.cumsum(lengths)])


def _cut(query_lengths: np.ndarray, num_pieces: np.ndarray, settings: WindowSettings) -> _Windows:
    """The windows of questions with `query_lengths` and contexts of `num_pieces`, both int64 [questions]."""
    room = settings.max_seq_length - query_lengths - 3
    # All windows but a question's last are full.
    stride = np.minimum(room, settings.doc_stride)
    num_windows = 1 + np.maximum(0, -(-(num_pieces - room) // stride))

    question = np.repeat(np.arange(len(num_windows)), num_windows)
    number = np.arange(len(question)) - np.repeat(np.cumsum(num_windows) - num_windows, num_windows)
    first_piece = number * stride[question]
    context_length = np.minimum(room[question], num_pieces[question] - first_piece)

    ends = np.cumsum(num_windows)
    is_max_context = [np.zeros(0, np.int32)]
    for begin, end in zip(ends - num_windows, ends, strict=True):
        is_max_context.append(_max_context(first_piece[begin:end], context_length[begin:end]))
    return _Windows(
        question,
        query_lengths[question],
        first_piece,
        context_length,
        np.concatenate(is_max_context),
    )


def _max_context(first_pieces: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where the pieces of one question's windows have the most context, int32 [all windows' pieces].

    Context is the lesser of the numbers of pieces before and after in the window, and a little for the window's
    length; of equals the first window has it.

    Example:
      windows at 0 and 3 of 5 and 4 pieces -> 1 1 1 1 0 | 0 1 1 1

    Source: squad_utils.py (`_check_is_max_context`).
    """
    if len(lengths) == 1:
        return np.ones(lengths[0], np.int32)
    left = np.arange(first_pieces[-1] + lengths[-1]) - first_pieces[:, None]
    right = lengths[:, None] - 1 - left
    scores = np.where((left >= 0) & (right >= 0), np.minimum(left, right), -np.inf)
    best = np.argmax(scores + 0.01 * lengths[:, None], axis=0)
    return np.concatenate(
        [
            best[first : first + length] == window
            for window, (first, length) in enumerate(zip(first_pieces, lengths, strict=True))
        ]
    ).astype(np.int32)


def _sequences(
    windows: _Windows,
    queries: Sequence[np.ndarray],
    contexts: _Contexts,
    piece_offsets: np.ndarray,
    tokenizer: Tokenizer,
) -> dict[str, np.ndarray]:
    """The sequences of `make_windows`; `piece_offsets` [questions] says where their contexts begin."""
    row_splits = windows.row_splits
    window = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
    position = np.arange(row_splits[-1]) - row_splits[window]
    query_length = windows.query_length[window]
    in_query = (position >= 1) & (position <= query_length)
    # The context is what comes after the first [SEP], but for the last piece.
    is_last = np.zeros(len(window), bool)
    is_last[row_splits[1:] - 1] = True
    in_context = (position >= query_length + 2) & ~is_last

    first_piece = windows.first_piece + piece_offsets[windows.question]
    piece = (first_piece[window] + position - query_length - 2)[in_context]
    input_ids = np.full(len(window), tokenizer.sep_id, np.int32)
    input_ids[position == 0] = tokenizer.cls_id
    input_ids[in_query] = np.concatenate([queries[question] for question in windows.question])
    input_ids[in_context] = contexts.ids[piece]

    def in_contexts(values: np.ndarray, elsewhere: int) -> np.ndarray:
        filled = np.full(len(window), elsewhere, np.int32)
        filled[in_context] = values
        return filled

    return {
        "input_ids": input_ids,
        "segment_ids": (position >= query_length + 2).astype(np.int32),
        "p_mask": (~in_context & (position > 0)).astype(np.int32),
        "start_chars": in_contexts(contexts.start_chars[piece], -1),
        "end_chars": in_contexts(contexts.end_chars[piece], -1),
        "is_max_context": in_contexts(windows.is_max_context, 0),
    }


def _labels(windows: _Windows, answer_pieces: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of labels of `make_windows`; `answer_pieces` int64 [questions, 2], -1 without answer."""
    first, last = answer_pieces[windows.question].T
    end = windows.first_piece + windows.context_length
    is_inside = (first >= 0) & (first >= windows.first_piece) & (last < end)
    shift = windows.query_length + 2 - windows.first_piece
    labels = {
        "start_positions": np.where(is_inside, first + shift, 0),
        "end_positions": np.where(is_inside, last + shift, 0),
        "is_impossible": ~is_inside,
    }
    return {name: values[:, None].astype(np.int32) for name, values in labels.items()}
