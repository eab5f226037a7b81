"""Answers lines of standard input with a model, as JSON lines, or holds a conversation.

    albert-tf predict runs/mrpc/model < pairs.txt > answers.jsonl
    albert-tf predict albert_base --interactive
    albert-tf predict onnx/model.onnx < pairs.txt     # ONNX Runtime computes it, without TensorFlow

A line is a text, two texts with a tab between them, or a JSON object: {"text_a": ..., "text_b": ...},
{"question": ..., "context": ...} for SQuAD, {"article": ..., "question": ..., "options": [...]} for RACE,
{"tokens": [...]} for the words of a tagger. Other keys of an object, such as an id, are copied to the answer. A
pretrained model fills "[MASK]", predicts whether two texts are in order, and embeds any other text. A model for a task
of your own needs --task_module=the_task.py.
"""

import contextlib
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting
from albert_tf.serving.settings import EarlyExitSettings, ModelUseSettings

if TYPE_CHECKING:
    from albert_tf.tasks.predictor import Item, Predictor

_BATCHES_AT_A_TIME = 32  # are read together, so that sequences of similar length can form a batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings(ModelUseSettings):
    """The model that answers, and how."""

    batch_size: int = setting(
        32,
        "Maximum number of sequences that the model gets at once.",
        minimum=1,
        maximum=2**16,
    )

    def load(self) -> "Predictor":
        """The model that answers standard input."""
        if sys.stdin is None:
            raise UserError("standard input is closed; expected lines to answer there")
        return self.load_predictor()

    def load_predictor(self) -> "Predictor":
        """The model with its vocabulary and its task's settings."""
        from albert_tf.serving.predictors import load_predictor

        self.register_task()
        return load_predictor(
            self.model,
            spm_model_file=self.vocabulary_file,
            do_lower_case=self.do_lower_case,
            max_seq_length=self.max_seq_length,
            batch_size=self.batch_size,
            num_hidden_layers=self.num_hidden_layers,
            **self.early_exit(),
        )

    def early_exit(self) -> dict[str, Any]:
        """Arguments of `load_predictor` for examples that leave the model early."""
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class InteractiveSettings(AnswerSettings):
    """The model that answers, and whom."""

    interactive: bool = setting(
        False, "Whether to ask for texts, and show each answer for a person to read."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatientSettings(EarlyExitSettings, AnswerSettings):
    """The model that answers, and when texts leave it."""

    def early_exit(self) -> dict[str, Any]:
        return {"patience": self.patience, "score_tolerance": self.score_tolerance}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(PatientSettings, InteractiveSettings):
    """The model that answers, and how."""


def main(settings: PredictSettings) -> None:
    """Answers the lines of standard input, or holds a conversation."""
    answer_from_input(settings.load(), settings)


def answer_from_input(predictor: "Predictor", settings: InteractiveSettings) -> None:
    """Answers the lines of standard input with a predictor, or holds a conversation."""
    if settings.interactive:
        _reconfigure(sys.stdout, encoding="utf-8")
        _reconfigure(sys.stdin, errors="replace")
        converse(predictor)
    else:
        answer_lines(predictor, settings.batch_size)
    for line in predictor.remarks():
        print(line, file=sys.stderr)


def _reconfigure(stream: Any, **options: str) -> None:
    """Changes how a standard stream, which is a TextIOWrapper, is encoded."""
    stream.reconfigure(**options)


def answer_lines(predictor: "Predictor", batch_size: int) -> None:
    """Answers the lines of standard input."""
    _reconfigure(sys.stdout, encoding="utf-8")
    # Wrong bytes become half surrogate pairs, for which `parse` raises an error.
    _reconfigure(sys.stdin, encoding="utf-8-sig", errors="surrogateescape")
    if sys.stdin.isatty():
        print(f"reading lines, each {predictor.expects}; end with ctrl-D", file=sys.stderr)
    started, number = time.perf_counter(), 0
    lines = answers(predictor, sys.stdin, batch_size * _BATCHES_AT_A_TIME)
    for answer in lines:
        number += 1
        print(json.dumps(answer, ensure_ascii=False), flush=True)
    if number > batch_size:  # fewer say nothing about the speed
        seconds = time.perf_counter() - started
        print(f"{number:,} lines, {number / seconds:,.1f} per second", file=sys.stderr)


def answers(
    predictor: "Predictor", lines: Iterable[str], lines_at_a_time: int
) -> Iterator[dict[str, Any]]:
    """The answers to lines, in their order, without empty lines; lines before a wrong one are answered before the
    error.
    """
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    while chunk := list(itertools.islice(numbered, lines_at_a_time)):
        items, examples, line_error = [], [], None
        for number, line in chunk:
            try:
                item = parse(line.rstrip("\r\n"))
                examples.append(predictor.check(item))
            except UserError as error:
                line_error = UserError(f"line {number}: {error}")
                break
            items.append(item)
        answers_to_items = predictor.answered(examples)
        for item, answer in zip(items, answers_to_items, strict=True):
            given = item if isinstance(item, Mapping) else {}
            repeated = {key: given[key] for key in given if key not in predictor.text_keys}
            yield {**repeated, **answer}
        if line_error:
            raise line_error


def parse(line: str) -> "Item":
    """A line's text, or the object in it if it begins with a brace."""
    try:
        line.encode()
    except UnicodeEncodeError:
        raise UserError("not UTF-8") from None
    return files.parse_json(line, "begins with a brace") if line.lstrip().startswith("{") else line


def converse(predictor: "Predictor") -> None:
    """Asks for items and shows the answers, until the input ends."""
    print(f"Enter {', '.join(predictor.prompts) or predictor.expects}; ctrl-D ends.")
    with contextlib.suppress(EOFError):
        while True:
            try:
                item = _ask(predictor.prompts)
                (answer,) = predictor.answered([predictor.check(item)])
            except UserError as error:
                print(error)
                continue
            print(predictor.shown(answer), end="\n\n", flush=True)


def _ask(names: tuple[str, ...]) -> "Item":
    """An item from a person: one line, or a line for each name."""
    if not names:
        return parse(_line("> "))
    values: dict[str, Any] = {}
    for name in names:
        value = _line(f"{name}: ")
        if name.startswith("option"):
            values.setdefault("options", []).append(value)
        else:
            values[name] = value
    return values


def _line(prompt: str) -> str:
    """Reads lines until one is not empty; returns it."""
    while not (line := input(prompt)).strip():
        pass
    return line


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, PredictSettings, description=__doc__, positional=("model",))


if __name__ == "__main__":
    run()
