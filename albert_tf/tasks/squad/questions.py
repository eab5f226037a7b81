"""SQuAD 1.1 and 2.0: reads questions from the official JSON."""

import dataclasses
from typing import Any

from albert_tf.core.errors import UserError, shortened
from albert_tf.core.files import parse_json, read_bytes

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
      answers: for each reference answer its text and its first character in the context; empty if the question is
        impossible or the answers were not read.
      is_impossible: whether the context does not answer the question (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    is_impossible: bool = False


def read_squad(path: str, *, version: str, flag: str, need_answers: bool) -> list[SquadQuestion]:
    """Reads the questions of a file in the official format, in its order; for predictions, it need not have answers.

    Training files have one answer to a question, evaluation files several. The original cannot train on several
    answers; here the first one is used (`make_windows`).

    Source: squad_utils.py (`read_squad_examples`).
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {VERSIONS}, got {version!r}")
    source = f"--{flag}={path}"
    questions: list[SquadQuestion] = []
    places: dict[str, str] = {}
    articles = _member(_load_json(path, source), "data", list, source)
    for article_number, article in enumerate(articles, start=1):
        article_place = f"{source}: article {article_number}"
        for number, paragraph in enumerate(_member(article, "paragraphs", list, article_place), 1):
            place = f"{article_place}, paragraph {number}"
            context = _member(paragraph, "context", str, place)
            for entry in _member(paragraph, "qas", list, place):
                question = _read_question(entry, context, place, version, need_answers)
                if question.id in places:
                    first = places[question.id].removeprefix(f"{source}: ")
                    raise UserError(f"{place}: question {question.id!r} is in {first} as well")
                places[question.id] = place
                questions.append(question)
    if not questions:
        raise UserError(f"{source}: contains no questions")
    for name in ("question", "context"):
        if not any(getattr(question, name).strip() for question in questions):
            raise UserError(f'{source}: every "{name}" is empty')
    return questions


def _load_json(path: str, source: str) -> Any:
    try:
        content = read_bytes(path)
    except UserError as error:
        raise UserError(f"{source}{str(error).removeprefix(path)}") from None
    if not content.strip():
        raise UserError(f"{source}: is empty; expected the JSON of a SQuAD file")
    return parse_json(content, source, object)


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
        raise UserError(
            f"{place}: is marked impossible, which only SQuAD 2.0 allows; choose version 2.0"
        )
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
    present = context[start : start + len(text)] if start >= 0 else ""
    if present != text:
        raise UserError(
            f"{place}: answer {shortened(text)} should begin at character {start} of the context,"
            f" where {shortened(present)} stands; correct answer_start"
        )
    return text, start


def _member(parent: Any, key: str, kind: type, place: str) -> Any:
    if not isinstance(parent, dict):
        raise UserError(f'{place}: expected an object with "{key}", got {shortened(parent)}')
    if key not in parent:
        raise UserError(f'{place}: has no "{key}"')
    if type(parent[key]) is not kind:  # True is an int
        raise UserError(
            f'{place}: "{key}" must be {_TYPE_NAMES[kind]}, got {shortened(parent[key])}'
        )
    return parent[key]
