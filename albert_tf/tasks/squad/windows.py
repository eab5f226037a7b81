"""SQuAD 1.1 and 2.0: makes windows of question and context.

A context that is too long for one sequence is cut into windows that overlap:

    [CLS] question [SEP] tokens of the context [SEP]        segment_ids  0 0 0 0 | 1 1 1 1
                                                            p_mask       0 1 1 1 | 0 0 0 1

Every token of the context has its range of characters in the original text. So answers are converted to tokens, and
predictions to text, without an alignment.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks import sequences
from albert_tf.tasks.squad.questions import SquadQuestion
from albert_tf.text.tokenizer import Tokenizer

_SEQUENCES = ("input_ids", "segment_ids", "p_mask", "start_chars", "end_chars", "is_max_context")
_COLUMNS = ("question_index", "start_positions", "end_positions", "is_impossible")


@dataclasses.dataclass(frozen=True)
class WindowSettings:
    """How questions and contexts are cut into windows; lengths are numbers of tokens, including special tokens."""

    tokenizer: Tokenizer
    max_seq_length: int
    doc_stride: int
    max_query_length: int

    def __post_init__(self):
        if self.max_seq_length <= self.max_query_length + 3:
            least = f"--max_query_length={self.max_query_length} by more than 3"
            raise UserError(f"--max_seq_length={self.max_seq_length} must exceed {least}")


def make_windows(
    settings: WindowSettings, questions: Sequence[tuple[int, SquadQuestion]]
) -> FeatureTable:
    """The windows of some questions, question by question, from left to right.

    Every question has at least one window, even if its context is empty. Questions with the same context should be
    in the same call, so that it is tokenized only once.

    The target of a window is its question's first answer if the window contains all of it; otherwise position 0,
    impossible.

    Returns:
      A table with an example for every window. Sequences are int32, with one value per token:
        input_ids, segment_ids: input of the model.
        p_mask: 1 where no answer can begin or end: in the question, at [SEP] and in the padding.
        start_chars, end_chars: for a token of the context, its range of characters in the context, end exclusive; -1
          elsewhere.
        is_max_context: 1 for the tokens of the context that have more context here than in the question's other
        windows.
      Columns int32 [windows, 1]:
        question_index: index of the question in the data set.
        start_positions, end_positions: first and last token of the answer, 0 if there is none in this window.
        is_impossible: 1 if there is no answer in this window.

    Source: squad_utils.py (`convert_examples_to_features`). The original aligns tokens with characters by a longest
    common subsequence (:214-356), and leaves out questions whose context does not align well.
    """
    tokenizer = settings.tokenizer
    texts = dict.fromkeys(question.context for _, question in questions)
    contexts = {text: _Context.of(tokenizer, text) for text in texts}
    queries = tokenizer.encode_batch([question.question for _, question in questions])
    windows: list[dict[str, Any]] = []
    for (index, question), query in zip(questions, queries, strict=True):
        query = query[: settings.max_query_length]
        windows += _windows_of(question, index, query, contexts[question.context], settings)
    sequences = {name: [window[name] for window in windows] for name in _SEQUENCES}
    columns = {name: [window[name] for window in windows] for name in _COLUMNS}
    uncut_lengths = {"max_query_length": list(map(len, queries))}
    return FeatureTable.from_rows(sequences, columns, uncut_lengths=uncut_lengths)


class _Context(NamedTuple):
    """The tokens of a context, int32 [tokens] each: ids, and ranges of characters, end exclusive."""

    ids: np.ndarray
    start_chars: np.ndarray
    end_chars: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str) -> "_Context":
        ids, spans = tokenizer.encode_with_offsets(text)
        return cls(np.array(ids, np.int32), *np.array(spans, np.int32).reshape(-1, 2).T)

    def answer_tokens(self, question: SquadQuestion) -> tuple[Any, Any]:
        """First and last token of the first answer; (-1, -1) if there is no answer."""
        if not question.answers:
            return -1, -1
        text, start = question.answers[0]
        first = np.searchsorted(self.end_chars, start, side="right")
        last = np.searchsorted(self.start_chars, start + len(text), side="left") - 1
        # Characters that belong to no token, such as control characters, are not an answer.
        return (first, last) if first <= last else (-1, -1)


def _windows_of(
    question: SquadQuestion,
    index: int,
    query: np.ndarray,
    context: _Context,
    settings: WindowSettings,
) -> Iterator[dict[str, Any]]:
    """The sequences and the columns of each window of a question, from left to right."""
    # A query of 8 tokens and a context of 600, in sequences of 384: [CLS] query [SEP] 373 tokens [SEP].
    tokenizer = settings.tokenizer
    num_tokens = len(context.ids)
    room = settings.max_seq_length - len(query) - 3
    first, last = context.answer_tokens(question)
    before = [_filled(1, tokenizer.cls_id), query, _filled(1, tokenizer.sep_id)]
    shift = len(query) + 2  # position of the first token of the context
    second = int(tokenizer.rules.numbers_segments)

    for start, length, is_max in sequences.windows_over(num_tokens, room, settings.doc_stride):
        # The tokens from 128 to before 501 of the context, and whether all of the answer is among them.
        end = start + length
        is_inside = start <= first and last < end

        def around(values: np.ndarray, elsewhere: int) -> np.ndarray:
            """The values at the tokens of the context, and another value at all other positions."""
            return np.concatenate([_filled(shift, elsewhere), values, _filled(1, elsewhere)])

        yield {
            "input_ids": np.concatenate(
                [*before, context.ids[start:end], _filled(1, tokenizer.sep_id)]
            ),
            "segment_ids": np.repeat([0, second], [shift, length + 1]),
            "p_mask": np.repeat([0, 1, 0, 1], [1, shift - 1, length, 1]),
            "start_chars": around(context.start_chars[start:end], -1),
            "end_chars": around(context.end_chars[start:end], -1),
            "is_max_context": around(is_max, 0),
            "question_index": index,
            "start_positions": shift + first - start if is_inside else 0,
            "end_positions": shift + last - start if is_inside else 0,
            "is_impossible": not is_inside,
        }


def _filled(length: int, value: int) -> np.ndarray:
    return np.full(length, value, np.int32)
