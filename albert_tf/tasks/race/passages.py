"""RACE: reads passages with questions, and makes features of four sequences for each question.

    [CLS] article [SEP] question and option [SEP]

There is one sequence for every option. If the question has a gap ("_"), the option fills it.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.files import read_bytes
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.sequences import pack_pairs
from albert_tf.text.tokenizer import Tokenizer

LEVELS = ("middle", "high")
ANSWERS = "ABCD"
NUM_OPTIONS = len(ANSWERS)
# The archive has a file for each passage; the original's first release needed this file, with a passage on each line.
JOINED_FILE = "all.txt"
NUM_SPECIAL = 3  # [CLS] and twice [SEP]


@dataclasses.dataclass(frozen=True)
class RaceQuestion:
    """A question about a passage.

    Attributes:
      id: level, passage and number, such as "high/19088.txt/2".
      number: index among the questions of its passage.
    """

    id: str
    level: str
    article: str
    question: str
    options: tuple[str, ...]
    answer: int | None
    file: str = dataclasses.field(repr=False)  # not used by features
    number: int


@dataclasses.dataclass(frozen=True)
class RaceSettings:
    """Settings of the features: the article is cut to fit, and question with option at their beginning."""

    tokenizer: Tokenizer
    max_seq_length: int
    max_qa_length: int = 128

    def __post_init__(self):
        if self.max_seq_length <= NUM_SPECIAL:
            raise UserError(
                f"--max_seq_length must be above {NUM_SPECIAL}, got {self.max_seq_length}"
            )
        if self.max_qa_length < 1:
            raise UserError(f"--max_qa_length must be at least 1, got {self.max_qa_length}")


def read_race(
    data_dir: str, split: str, *, level: str, flag: str, need_answers: bool
) -> list[RaceQuestion]:
    """Reads the questions of a split, sorted by level, file and number; either all have an answer or none has.

    Source: race_utils.py:98-155 (`read_examples`).
    """
    root = data_dir.rstrip("/")
    folder = next(filter(files.is_folder, [f"{root}/{split}", f"{root}/RACE/{split}"]), None)
    if not folder:
        raise UserError(
            f"--{flag}={data_dir}: has no folder {split}; expected RACE's train, dev and test,"
            " each with middle and high"
        )
    questions: list[RaceQuestion] = []
    for name in LEVELS if level == "all" else (level,):
        for path in _passage_files(f"{folder}/{name}", flag):
            questions += _read_file(path, name, need_answers)
    for part in ("article", "question"):
        if questions and not any(getattr(question, part).strip() for question in questions):
            raise UserError(f"--{flag}={data_dir}: every {part} of {split} is empty")
    if not questions:
        raise UserError(f"--{flag}={data_dir}: the passages of {split} contain no questions")
    without = [question for question in questions if question.answer is None]
    if without and len(without) < len(questions):
        raise UserError(
            f"{without[0].file}: has no answers, other files of {split} do; add them, or take all away"
        )
    return questions


def _passage_files(folder: str, flag: str) -> list[str]:
    try:
        names = [name for name in files.names_in(folder) if name.endswith(".txt")]
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be read ({error.strerror}); --{flag} must contain RACE's folders as unpacked"
        ) from error
    if not names:
        raise UserError(
            f"{folder}: contains no .txt files; --{flag} must contain RACE's files as unpacked"
        )
    return [f"{folder}/{name}" for name in ([JOINED_FILE] if JOINED_FILE in names else names)]


def _read_file(path: str, level: str, need_answers: bool) -> Iterator[RaceQuestion]:
    file_name = path.rpartition("/")[2]
    for place, passage in _passages(read_bytes(path), path):
        _check_passage(passage, place, need_answers)
        name = file_name if file_name != JOINED_FILE else str(passage["id"]).removeprefix(level)
        answers = passage.get("answers") or [None] * len(passage["questions"])
        for number, question in enumerate(passage["questions"]):
            yield RaceQuestion(
                id=f"{level}/{name}/{number}",
                level=level,
                article=passage["article"],
                question=question,
                options=tuple(passage["options"][number]),
                answer=None if answers[number] is None else ANSWERS.index(answers[number]),
                file=path,
                number=number,
            )


def _passages(content: bytes, path: str) -> Iterator[tuple[str, Any]]:
    """The JSON values of a file, each with its place for messages: one value in the file, or one on each line."""
    lines = [line for line in enumerate(content.splitlines(), start=1) if line[1].strip()]
    if len(lines) < 2 or not _is_object(lines[0][1]):
        yield path, files.parse_json(content, path, object)
        return
    for number, line in lines:
        place = f"{path}, line {number}"
        yield place, files.parse_json(line, place, object)


def _is_object(line: bytes) -> bool:
    """Whether a line is a complete JSON object; if so, the file has one object on each line."""
    try:
        files.parse_json(line, "")
    except UserError:
        return False
    return True


def _check_passage(passage: Any, place: str, need_answers: bool) -> None:
    """Raises a UserError unless a passage has all its parts in the right form."""

    def require(is_met: bool, rule: str) -> None:
        if not is_met:
            raise UserError(f"{place}: {rule}")

    kind = type(passage).__name__
    require(isinstance(passage, dict), f"must be a JSON object, got {kind}")
    needed = ["article", "questions", "options", *(["answers"] if need_answers else [])]
    needed += ["id"] if place.partition(", line ")[0].endswith(f"/{JOINED_FILE}") else []
    for key in needed:
        require(key in passage, f"has no {key!r}; a passage has {', '.join(needed)}")
    require(isinstance(passage["article"], str), "article must be a string")
    lists = {key: passage[key] for key in ("questions", "options", "answers") if key in passage}
    for key, values in lists.items():
        require(isinstance(values, list), f"{key} must be a list, got {type(values).__name__}")
    counts = ", ".join(f"{len(values)} {key}" for key, values in lists.items())
    require(
        len(set(map(len, lists.values()))) == 1,
        f"must have as many questions as options and answers; got {counts}",
    )
    for number, (question, options) in enumerate(
        zip(lists["questions"], lists["options"], strict=True)
    ):
        require(isinstance(question, str), f"questions[{number}] must be a string")
        is_texts = isinstance(options, list) and all(isinstance(text, str) for text in options)
        require(is_texts, f"options[{number}] must be a list of strings")
        rule = f"options[{number}] must be {NUM_OPTIONS} options, got {len(options)}"
        require(len(options) == NUM_OPTIONS, rule)
    for number, answer in enumerate(lists.get("answers", ())):
        rule = f"answers[{number}] must be one of {', '.join(ANSWERS)}; got {answer!r}"
        require(answer in tuple(ANSWERS), rule)


def join_question_and_option(question: str, option: str) -> str:
    """The question with the option in every gap, or after the question if it has no gap.

    Example:
      ("Ann _ , then _ .", "sang") -> "Ann sang , then sang ."; ("Who?", "Ann") -> "Who? Ann"

    Source: race_utils.py:130-133.
    """
    return question.replace("_", option) if "_" in question else f"{question} {option}"


def make_race_features(settings: RaceSettings, questions: Sequence[RaceQuestion]) -> FeatureTable:
    """Features of questions.

    Returns:
      A table of 4 sequences for each question: `input_ids` and `segment_ids` (0 for [CLS], article and first [SEP], 1
      for the rest); columns `is_high` [n, 1] and, if the questions have answers, `label_ids` [n, 1].

    Source: race_utils.py:161-247 (`convert_single_example`).
    """
    tokenizer, clean = settings.tokenizer, settings.tokenizer.clean
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
    contexts = [ids_of[question.article] for question in questions for _ in question.options]
    pairs = [
        (context[: room - len(ending)], ending)
        for context, ending in zip(contexts, endings, strict=True)
    ]
    lengths = [
        [
            len(context) + len(ending) + NUM_SPECIAL
            for context, ending in zip(contexts, endings, strict=True)
        ],
        list(map(len, uncut_endings)),
    ]
    # For each question, the length of its longest sequence.
    longest = np.reshape(lengths, [2, -1, NUM_OPTIONS]).max(axis=2)
    uncut_lengths = {"max_seq_length": longest[0], "max_qa_length": longest[1]}
    columns: dict[str, list] = {"is_high": [question.level == "high" for question in questions]}
    if all(question.answer is not None for question in questions):
        columns["label_ids"] = [question.answer for question in questions]
    return pack_pairs(tokenizer, pairs, columns, NUM_OPTIONS, uncut_lengths)
