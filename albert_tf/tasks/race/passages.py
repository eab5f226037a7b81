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
    root = data_dir.rstrip("/")
    folder = next(filter(files.is_folder, [f"{root}/{split}", f"{root}/RACE/{split}"]), None)
    if not folder:
        expected = "RACE's train, dev and test, each with middle and high"
        raise UserError(f"--data_dir={data_dir}: has no folder {split}; expected {expected}")
    questions: list[RaceQuestion] = []
    for name in LEVELS if level == "all" else (level,):
        for path in files.matching(f"{folder}/{name}/*.txt"):
            questions += _read_file(path, name, need_answers)
    if not questions:
        raise UserError(f"--data_dir={data_dir}: there are no questions in {folder}")
    if not need_answers and any(question.answer is None for question in questions):
        questions = [dataclasses.replace(question, answer=None) for question in questions]
    return questions


def _read_file(path: str, level: str, need_answers: bool) -> Iterator[RaceQuestion]:
    passage, name = files.read_json(path), f"{level}/{os.path.basename(path)}"
    try:
        yield from _questions(passage, name, level, need_answers)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{path}: is not a passage of RACE ({reason})") from None


def _questions(passage: dict, name: str, level: str, need_answers: bool) -> Iterator[RaceQuestion]:
    article, texts = passage["article"], passage["questions"]
    answers = passage["answers"] if need_answers else passage.get("answers") or [None] * len(texts)
    rows = zip(texts, passage["options"], answers, strict=True)
    for number, (question, options, answer) in enumerate(rows):
        if not all(isinstance(text, str) for text in (article, question, *options)):
            raise TypeError("expected texts")
        if not 2 <= len(options) <= len(LETTERS):
            expected = f"from 2 to {len(LETTERS)} options"
            raise ValueError(f"question {number}: expected {expected}, got {len(options)}")
        letters = LETTERS[: len(options)]
        if answer is not None and (not answer or answer not in letters):
            expected = f"an answer from {letters[0]} to {letters[-1]}"
            raise ValueError(f"question {number}: expected {expected}, got {answer!r}")
        check_filled_length(question, options)
        label = None if answer is None else LETTERS.index(answer)
        yield RaceQuestion(f"{name}/{number}", level, article, question, tuple(options), label)


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
    tokenizer, clean = settings.tokenizer, settings.tokenizer.clean
    num_options = most_options(questions)
    articles = list(dict.fromkeys(question.article for question in questions))
    ids_of = dict(zip(articles, tokenizer.encode_batch(articles), strict=True))
    texts = []
    for question in questions:
        # Cleaned before they are joined, because cleaning turns other low lines ("＿") into gaps.
        cleaned = clean(question.question)
        texts += [join_question_and_option(cleaned, clean(option)) for option in question.options]
    room = settings.max_seq_length - NUM_SPECIAL
    most = min(settings.max_qa_length, room)
    uncut_endings = tokenizer.encode_batch(texts)
    endings = [ids[-most:] for ids in uncut_endings]
    every_ending = zip(endings, uncut_endings, strict=True)
    pairs: list[tuple[np.ndarray, np.ndarray] | None] = []
    # For each question, the length of its longest sequence, and of its longest ending.
    uncut_lengths: dict[str, list[int]] = {"max_seq_length": [], "max_qa_length": []}
    for question in questions:
        context = ids_of[question.article]
        of_question = list(itertools.islice(every_ending, len(question.options)))
        pairs += [(context[: room - len(ending)], ending) for ending, _ in of_question]
        pairs += [None] * (num_options - len(of_question))
        longest = max(len(ending) for ending, _ in of_question)
        uncut_lengths["max_seq_length"].append(len(context) + longest + NUM_SPECIAL)
        uncut_lengths["max_qa_length"].append(max(len(uncut) for _, uncut in of_question))
    columns: dict[str, list] = {"is_high": [question.level == "high" for question in questions]}
    if all(question.answer is not None for question in questions):
        columns["label_ids"] = [question.answer for question in questions]
    return pack_pairs(tokenizer, pairs, columns, num_options, uncut_lengths)


def most_options(questions: Sequence[RaceQuestion]) -> int:
    """The greatest number of options, or of their places, of a question; that of RACE without questions."""
    numbers = [max(len(question.options), question.num_places) for question in questions]
    return max(numbers, default=NUM_OPTIONS)
