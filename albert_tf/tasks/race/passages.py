"""RACE: reads passages with questions, and makes features of a sequence for each option of a question.

    [CLS] article [SEP] question and option [SEP]

RACE has four options. Other data in its layout may have other numbers, also from question to question: among questions
with more options, one with fewer has sequences of [CLS] alone in their place. If the question has a gap ("_"), the
option fills it.
"""

import dataclasses
import itertools
import os
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.sequences import pack_pairs
from albert_tf.text.tokenizer import Tokenizer

LEVELS = ("middle", "high")
LETTERS = string.ascii_uppercase
NUM_OPTIONS = 4  # of RACE
NUM_SPECIAL = 3  # [CLS] and twice [SEP]
MOST_FILLED_CHARACTERS = 10**6


@dataclasses.dataclass(frozen=True)
class RaceQuestion:
    """A question about a passage; `id` is level, passage and number, such as "high/19088.txt/2"."""

    id: str
    level: str
    article: str
    question: str
    options: tuple[str, ...]
    answer: int | None
    num_places: int = 0  # sequences in its features, if these are more than its options


@dataclasses.dataclass(frozen=True)
class RaceSettings:
    """Settings of the features: the article is cut to fit, and question with option at their beginning."""

    tokenizer: Tokenizer
    max_seq_length: int
    max_qa_length: int = 128


def read_race(data_dir: str, split: str, *, level: str, need_answers: bool) -> list[RaceQuestion]:
    """The questions of a split by level, file and number; answers are optional unless needed (race_utils.py:98-155)."""
    folder = _folder_of(data_dir, split)
    levels = LEVELS if level == "all" else (level,)

    questions: list[RaceQuestion] = []
    for name in levels:
        for path in files.matching(f"{folder}/{name}/*.txt"):
            questions += _read_file(path, name, need_answers)
    if not questions:
        raise UserError(f"--data_dir={data_dir}: there are no questions in {folder}")

    # Answers of some questions alone are of no use.
    if not need_answers and any(question.answer is None for question in questions):
        questions = [dataclasses.replace(question, answer=None) for question in questions]
    return questions


def _folder_of(data_dir: str, split: str) -> str:
    """The folder of a split, in the given folder or in its folder RACE, as in RACE's archive."""
    root = data_dir.rstrip("/")
    for folder in (f"{root}/{split}", f"{root}/RACE/{split}"):
        if files.is_folder(folder):
            return folder
    expected = "RACE's train, dev and test, each with middle and high"
    raise UserError(f"--data_dir={data_dir}: has no folder {split}; expected {expected}")


def _read_file(path: str, level: str, need_answers: bool) -> Iterator[RaceQuestion]:
    passage = files.read_json(path)
    name = f"{level}/{os.path.basename(path)}"
    try:
        yield from _questions(passage, name, level, need_answers)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{path}: is not a passage of RACE ({reason})") from None


def _questions(passage: dict, name: str, level: str, need_answers: bool) -> Iterator[RaceQuestion]:
    """The questions of a passage; a KeyError, TypeError, ValueError or AttributeError if it is not one of RACE."""
    article = passage["article"]
    questions = passage["questions"]
    answers: Any = passage["answers"] if need_answers else passage.get("answers")
    if not need_answers and not answers:
        answers = [None] * len(questions)

    rows = zip(questions, passage["options"], answers, strict=True)
    for number, (question, options, answer) in enumerate(rows):
        if not all(isinstance(text, str) for text in (article, question, *options)):
            raise TypeError("expected texts")
        if not 2 <= len(options) <= len(LETTERS):
            expected = f"from 2 to {len(LETTERS)} options"
            raise ValueError(f"question {number}: expected {expected}, got {len(options)}")
        index = _index_of_answer(answer, len(options), number)
        check_filled_length(question, options)
        yield RaceQuestion(
            id=f"{name}/{number}",
            level=level,
            article=article,
            question=question,
            options=tuple(options),
            answer=index,
        )


def _index_of_answer(answer: str | None, num_options: int, number: int) -> int | None:
    """The index of the option that a letter names: "B" -> 1; None without an answer."""
    if answer is None:
        return None
    letters = LETTERS[:num_options]
    if len(answer) != 1 or answer not in letters:
        expected = f"an answer from {letters[0]} to {letters[-1]}"
        raise ValueError(f"question {number}: expected {expected}, got {answer!r}")
    return LETTERS.index(answer)


def check_filled_length(question: str, options: Sequence[str]) -> None:
    """Raises a ValueError if a question with its gaps filled by an option would be longer than any real one."""
    num_gaps = len(re.findall("_+", question))
    longest_option = max(map(len, options))
    length = len(question) + num_gaps * longest_option
    if length > MOST_FILLED_CHARACTERS:
        which = f"a question with {num_gaps:,} gaps and an option of {longest_option:,} characters"
        raise ValueError(f"{which} is too long; expected at most {MOST_FILLED_CHARACTERS:,}")


def join_question_and_option(question: str, option: str) -> str:
    """The question with the option in every gap, one low line or several, or after it (race_utils.py:130).

    Example: ("Ann _ , then _ .", "sang") -> "Ann sang , then sang ."; ("Who?", "Ann") -> "Who? Ann"
    """
    return re.sub("_+", lambda _: option, question) if "_" in question else f"{question} {option}"


def make_race_features(settings: RaceSettings, questions: Sequence[RaceQuestion]) -> FeatureTable:
    """Features of questions.

    Returns:
      A table of as many sequences for each question as the most options of one of them: `input_ids` and `segment_ids`
      (0 for [CLS], article and first [SEP], 1 for the rest); columns `is_high` [n, 1] and, if the questions have
      answers, `label_ids` [n, 1].

    Source: race_utils.py:161-247 (`convert_single_example`).
    """
    tokenizer = settings.tokenizer
    num_options = most_options(questions)
    room = settings.max_seq_length - NUM_SPECIAL  # for the article and an ending
    room_for_ending = min(settings.max_qa_length, room)

    # Several questions are about the same article, which is tokenized once.
    articles = list(dict.fromkeys(question.article for question in questions))
    article_ids = dict(zip(articles, tokenizer.encode_batch(articles), strict=True))

    # Endings are questions with their options: of 2 questions with 4 options 8 arrays, int32 [tokens] each.
    all_endings = iter(tokenizer.encode_batch(_endings_of(tokenizer, questions)))

    pairs: list[tuple[np.ndarray, np.ndarray] | None] = []
    longest_sequences = []
    longest_endings = []
    for question in questions:
        article = article_ids[question.article]

        # The last tokens of an ending are kept, and as many of the article as there is room for:
        # an article of 600 tokens and an ending of 20 -> 489 and 20, in sequences of 512 with 3 special tokens.
        uncut_endings = list(itertools.islice(all_endings, len(question.options)))
        endings = [ending[-room_for_ending:] for ending in uncut_endings]
        for ending in endings:
            pairs.append((article[: room - len(ending)], ending))

        # Every question has as many places as the one with the most options.
        num_empty = num_options - len(endings)
        pairs += [None] * num_empty

        longest_sequences.append(len(article) + max(map(len, endings)) + NUM_SPECIAL)
        longest_endings.append(max(map(len, uncut_endings)))

    columns: dict[str, list] = {"is_high": [question.level == "high" for question in questions]}
    if all(question.answer is not None for question in questions):
        columns["label_ids"] = [question.answer for question in questions]
    # By the flags that cut them.
    uncut_lengths = {"max_seq_length": longest_sequences, "max_qa_length": longest_endings}
    return pack_pairs(tokenizer, pairs, columns, num_options, uncut_lengths)


def _endings_of(tokenizer: Tokenizer, questions: Sequence[RaceQuestion]) -> list[str]:
    """The texts of all questions, each with every one of its options.

    They are cleaned before they are joined, because cleaning turns other low lines ("＿") into gaps.
    """
    texts = []
    for question in questions:
        cleaned_question = tokenizer.clean(question.question)
        for option in question.options:
            texts.append(join_question_and_option(cleaned_question, tokenizer.clean(option)))
    return texts


def most_options(questions: Sequence[RaceQuestion]) -> int:
    """The greatest number of options, or of their places, of a question; that of RACE without questions."""
    numbers = [max(len(question.options), question.num_places) for question in questions]
    return max(numbers, default=NUM_OPTIONS)
