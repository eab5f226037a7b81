"""SQuAD 1.1 and 2.0: reads questions from the official JSON."""

import dataclasses
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened


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
    source = f"--{flag}={path}"
    questions: dict[str, SquadQuestion] = {}
    data = files.read_json(path)
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    question = _question(entry, paragraph["context"], version, need_answers)
                    if question.id in questions:
                        raise ValueError(f"there are two questions {question.id!r}")
                    questions[question.id] = question
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{source}: is not in the format of SQuAD ({reason})") from None
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if not questions:
        raise UserError(f"{source}: contains no questions")
    return list(questions.values())


def _question(entry: Any, context: str, version: str, need_answers: bool) -> SquadQuestion:
    id, text = entry["id"], entry["question"]
    is_impossible = need_answers and entry.get("is_impossible", False)
    answers = entry["answers"] if need_answers and not is_impossible else ()
    pairs = tuple((answer["text"], answer["answer_start"]) for answer in answers)
    texts = (id, text, context, *(text for text, _ in pairs))
    if not all(isinstance(text, str) for text in texts) or not isinstance(is_impossible, bool):
        raise TypeError(f"question {shortened(id)} has a value of another type")
    if is_impossible and version == "1.1":
        raise ValueError(f"question {id!r}: is impossible, which needs --version=2.0")
    if need_answers and not is_impossible and not pairs:
        raise ValueError(f"question {id!r}: has no answer, and is not marked as impossible")
    for answer, start in pairs:
        present = context[start : start + len(answer)] if start >= 0 else ""
        if present != answer or not answer.strip():
            raise ValueError(
                f"question {id!r}: answer {shortened(answer)} should begin at character {start} of the context, where"
                f" {shortened(present)} stands; correct answer_start"
            )
    return SquadQuestion(id, text, context, pairs, is_impossible)
