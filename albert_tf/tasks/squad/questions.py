"""SQuAD 1.1 and 2.0: reads questions from the official JSON, or from rows."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened
from albert_tf.user_files.table_files import has_lists, is_missing, read_table


@dataclasses.dataclass(frozen=True)
class SquadQuestion:
    """A question with its context."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()  # text and first character of each, if any were read
    is_impossible: bool = False  # whether the context does not answer it (SQuAD 2.0)


def read_squad(
    path: str, *, version: str, flag: str, need_answers: bool, skip_wrong: bool = False
) -> list[SquadQuestion]:
    """Reads the questions of a file, in its order; for predictions, it need not have answers.

    The file is in the official format, or has rows as `datasets` writes them: a list of JSON, JSON lines, Parquet.
    Evaluation files have several answers to a question; of those for training, the first one is used. With
    `skip_wrong`, answers that are not at their answer_start are left out, and questions without another.

    Source: squad_utils.py (`read_squad_examples`).
    """
    source = f"--{flag}={path}"
    questions: dict[str, SquadQuestion] = {}
    wrong: list[str] = []
    entry: Any = {}
    try:
        for entry, context in _entries(path, source):
            question = _question(entry, context, version, need_answers)
            if question.id in questions:
                raise ValueError(f"there are two questions {question.id!r}")
            right_answers, reasons = _right_answers(question)
            wrong += reasons
            if right_answers or not question.answers:
                questions[question.id] = dataclasses.replace(question, answers=right_answers)
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        id = entry.get("id") if isinstance(entry, dict) else None
        where = f"question {shortened(id)} " if id else ""
        raise UserError(f"{source}: {where}is not in the format of SQuAD ({reason})") from None
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if wrong:
        counted = f"{source}: {len(wrong):,} answers are not at answer_start, first: {wrong[0]}"
        if not skip_wrong:
            raise UserError(f"{counted}; correct it, or --skip_wrong_answers leaves them out")
        print(f"{counted}; left out, and questions without another answer", flush=True)
    if not questions:
        raise UserError(f"{source}: contains no questions")
    return list(questions.values())


def _right_answers(question: SquadQuestion) -> tuple[tuple[tuple[str, int], ...], list[str]]:
    """The answers of a question that are at their answer_start, and what is wrong with the others."""
    right_answers = []
    reasons = []
    for answer in question.answers:
        reason = _why_wrong(question, answer)
        if reason:
            reasons.append(reason)
        else:
            right_answers.append(answer)
    return tuple(right_answers), reasons


def version_of(path: str, source: str) -> str:
    """The version of SQuAD of a file: 2.0 if some question is impossible, otherwise 1.1."""
    try:
        has_impossible = any(_is_impossible(entry) for entry, _ in _entries(path, source))
    except (KeyError, TypeError, AttributeError):
        return "2.0"  # reading the file is an error
    return "2.0" if has_impossible else "1.1"


def _entries(path: str, source: str) -> Iterator[tuple[Any, Any]]:
    """Each question with its context."""
    data: Any = None
    if not has_lists(path):
        data = files.read_json(path, object)
    elif path.lower().endswith(".json"):
        with contextlib.suppress(UserError):  # JSON lines, to which `datasets` gives this ending
            data = files.read_json(path, object)
    if data is None:
        rows = read_table(path, source=source).to_dict("records")
        data = [{key: row[key] for key in row if not is_missing(row[key])} for row in rows]
        if len(data) == 1 and "data" in data[0]:  # the official format, written in one line
            data = data[0]
    yield from entries_of(data["data"] if isinstance(data, dict) else data)


def entries_of(rows: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each question with its context, of articles with paragraphs, or of rows with one question each."""
    for row in rows:
        if "paragraphs" not in row:
            yield row, row["context"]
            continue
        for paragraph in row["paragraphs"]:
            yield from ((entry, paragraph["context"]) for entry in paragraph["qas"])


def _answers_of(entry: Any) -> list[tuple[Any, Any]]:
    """Texts and starts of the answers: a list of objects, or as in `datasets` an object of lists."""
    answers = entry["answers"]
    if isinstance(answers, dict):
        starts = np.asarray(answers["answer_start"]).tolist()
        return list(zip(answers["text"], starts, strict=True))
    return [(answer["text"], answer["answer_start"]) for answer in answers]


def _is_impossible(entry: Any) -> Any:
    """Whether a question is impossible; rows of `datasets` say so by having no answers."""
    if "answers" in entry and isinstance(entry["answers"], dict) and "is_impossible" not in entry:
        return not _answers_of(entry)
    return entry.get("is_impossible", False)


def _question(entry: Any, context: str, version: str, need_answers: bool) -> SquadQuestion:
    id = entry["id"]
    if type(id) is int:
        id = str(id)
    text = entry["question"]
    is_impossible = need_answers and _is_impossible(entry)
    pairs = tuple(_answers_of(entry)) if need_answers and not is_impossible else ()
    texts = (id, text, context, *(text for text, _ in pairs))
    if not all(isinstance(text, str) for text in texts) or not isinstance(is_impossible, bool):
        raise TypeError(f"question {shortened(id)} has a value of another type")
    if not all(type(start) is int for _, start in pairs):
        raise TypeError(f"question {shortened(id)} has an answer_start that is no whole number")
    if is_impossible and version == "1.1":
        raise ValueError(f"question {id!r}: is impossible, which needs --version=2.0")
    if need_answers and not is_impossible and not pairs:
        raise ValueError(f"question {id!r}: has no answer, and is not marked as impossible")
    return SquadQuestion(id, text, context, pairs, is_impossible)


def _why_wrong(question: SquadQuestion, answer: tuple[str, int]) -> str:
    """Why an answer is not where it should be; "" if it is there."""
    text, start = answer
    present = question.context[start : start + len(text)] if start >= 0 else ""
    if present == text and text.strip():
        return ""
    place = f"should begin at character {start} of the context, where {shortened(present)} stands"
    return f"question {question.id!r}: answer {shortened(text)} {place}"
