"""Answers rows of a table, or lines of standard input.

    albert-tf predict runs/reviews --input_file=new.parquet --output_file=answers.parquet
    albert-tf predict runs/mrpc/model < pairs.txt > answers.jsonl
    albert-tf predict onnx/model.onnx < pairs.txt     # ONNX Runtime computes it, without TensorFlow

Every row of a table has its answer in further columns, whose names begin with "predicted_" where the table has such a
column. Every line has its answer as a line of JSON, empty lines too. A line is a text, or two texts with a tab between
them; with --input_format=json, it is an object: {"text_a": ..., "text_b": ...}, {"question": ..., "context": ...} for
SQuAD, {"article": ..., "question": ..., "options": [...]} for RACE, {"tokens": [...]} for the words of a tagger. Other
keys of an object, such as an id, are copied to the answer. A pretrained model fills "[MASK]", predicts whether two
texts are in order, and embeds any other text. A model for a task of your own needs --task_module=the_task.py.
"""

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from albert_tf import functions
from albert_tf.core import files, flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.errors import UserError
from albert_tf.core.program import Program
from albert_tf.core.progress import Progress
from albert_tf.core.settings import setting
from albert_tf.serving.engines import AUTO, ENGINES
from albert_tf.serving.settings import ModelUseSettings
from albert_tf.tasks.settings import files_setting
from albert_tf.user_files import answer_tables, table_files

if TYPE_CHECKING:
    import pandas

    from albert_tf.tasks.predictor import Item, Predictor

_BATCHES_AT_A_TIME = 32  # are read together, so that sequences of similar length can form a batch
_LISTS = {"tokens", "options"}  # keys of items that are lists


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings(ModelUseSettings):
    """The model that answers, and how."""

    batch_size: int = setting(
        32, "Maximum number of sequences that the model gets at once.", minimum=1, maximum=2**16
    )
    input_format: str = setting(
        "",
        "What a line of standard input is; by default a JSON object for SQuAD and RACE, otherwise a text.",
        choices=("", "text", "json"),
    )
    engine: str = setting(
        AUTO,
        "What computes the model: ONNX Runtime or OpenVINO, which start without TensorFlow, or TensorFlow. By default,"
        " an ONNX export is computed by what `albert-tf tune` found, all else by ONNX Runtime where it and the package"
        " onnx are installed and there is no GPU.",
        choices=ENGINES,
    )

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
            engine=self.engine,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowedSettings(AnswerSettings):
    """The model that answers, and how it reads long texts."""

    windows: bool | None = setting(
        None,
        "Whether a classifier of one text reads long texts in windows instead of cutting them; by default as trained.",
    )

    def load_predictor(self) -> "Predictor":
        predictor = super().load_predictor()
        if self.windows is not None:
            predictor.read_in_windows(self.windows)
        return predictor


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(WindowedSettings):
    """The model that answers, and what."""

    input_file: str = files_setting(
        "Table to answer instead of standard input: .csv, .tsv, .jsonl or .parquet."
    )
    output_file: str = setting(
        "",
        "File for the rows of --input_file with their answers; its ending selects the format. By default, standard"
        " output as JSON lines.",
    )
    text_columns: str = setting(
        "",
        "Names of the one or two columns of --input_file with the texts, separated by commas; by default those of the"
        " training, or `text`, `text_a` and `text_b`.",
    )

    def __post_init__(self):
        super().__post_init__()
        for name in ("output_file", "text_columns"):
            if getattr(self, name) and not self.input_file:
                self.refuse(name, "needs --input_file")
        answer_tables.check_ending(self.output_file, f"--output_file={self.output_file}")
        paths = map(files.real_path, (self.input_file, self.output_file))
        if self.output_file and len(set(paths)) == 1:
            self.refuse("output_file", "is --input_file, which would be replaced")
        if self.input_file and self.input_format:
            self.refuse("input_file", "contradicts --input_format")
        if not 0 <= self.text_columns.count(",") < 2:
            self.refuse("text_columns", f"must be one or two names, got {self.text_columns!r}")


def main(settings: PredictSettings) -> None:
    """Answers the rows of a table or the lines of standard input."""
    if not settings.input_file:
        answer_lines(settings.load_predictor(), settings.batch_size, settings.input_format)
        return
    answered = answer_file(settings)
    if not settings.output_file:
        table = answer_tables.answer_table("answers.jsonl", answered.frame, answered.answers)
        sys.stdout.buffer.write(table)
    for line in answered.remarks:
        print(line, file=sys.stderr)


def answered_rows(settings: PredictSettings) -> "pandas.DataFrame":
    """The rows of `input_file` with their answers in further columns."""
    if not settings.input_file:
        settings.refuse("input_file", "is required: a list of texts, a table or a path")
    answered = answer_file(settings)
    return answer_tables.with_answers(answered.frame, answered.answers)


class AnsweredFile(NamedTuple):
    """The rows of a file, the answer to each, and the remarks of the predictor."""

    frame: "pandas.DataFrame"
    answers: list[dict[str, Any]]
    remarks: list[str]


def answer_file(settings: PredictSettings) -> AnsweredFile:
    """Answers the rows of --input_file, and writes them with the answers if --output_file is given."""
    if not settings.output_file:
        return _answered(settings)
    # Opened first: nobody else writes it, and what cannot be written is known before the model has worked.
    with files.OutputFile(settings.output_file) as file:
        answered = _answered(settings)
        path = settings.output_file
        file.write(answer_tables.answer_table(path, answered.frame, answered.answers))
    print(f"{len(answered.answers):,} answers in {settings.output_file}", file=sys.stderr)
    return answered


def _answered(settings: PredictSettings) -> AnsweredFile:
    frame = read_rows(settings.input_file, settings.text_columns)
    predictor = settings.load_predictor()
    frame = predictor.unnested(frame, f"--input_file={settings.input_file}")
    answers = answers_to_rows(predictor, frame, settings)
    return AnsweredFile(frame, answers, list(predictor.remarks()))


def read_rows(path: str, text_columns: str = "") -> "pandas.DataFrame":
    """The rows of --input_file."""
    source = f"--input_file={path}"
    if not table_files.is_table(path):
        raise UserError(f"{source}: expected one of {', '.join(table_files.ENDINGS)}")
    frame = table_files.read_table(path, source=source, empty_rows=True)
    if text_columns:
        table_files.chosen(frame, list(map(str.strip, text_columns.split(","))), source)
    return frame


def answers_to_rows(
    predictor: "Predictor", frame: "pandas.DataFrame", settings: PredictSettings
) -> list[dict[str, Any]]:
    """The answer to every row; --output_file has no older answers when the first is computed."""
    examples = examples_of_rows(predictor, frame, settings.input_file, settings.text_columns)
    if settings.output_file:
        files.remove_older(settings.output_file)

    answers: list[dict[str, Any]] = []
    step = settings.batch_size * _BATCHES_AT_A_TIME
    with Progress("answering", len(examples), unit="rows", file=sys.stderr) as progress:
        for start in range(0, len(examples), step):
            answers += predictor.answered(examples[start : start + step])
            progress.update(len(answers))
    return answers


def examples_of_rows(
    predictor: "Predictor", frame: "pandas.DataFrame", path: str, text_columns: str
) -> list[Any]:
    """The examples in the rows of the table at a path; an error names the first wrong row."""
    columns = [name.strip() for name in text_columns.split(",") if name]
    examples = []
    for row, item in zip(frame.index, table_files.items_of(frame), strict=True):
        try:
            examples.append(predictor.check(_texts_of_row(predictor, item, columns)))
        except UserError as error:
            hint = "" if columns else "; --text_columns names other columns"
            raise UserError(f"{path}: {row}: {error}{hint}") from None
    return examples


def _texts_of_row(
    predictor: "Predictor", item: Mapping[str, Any], columns: Sequence[str]
) -> "Item":
    """What a row gives the predictor, by the names that it knows; its empty example for a row without values."""
    texts = _renamed(item, columns) if columns else item

    # Cells with lists, such as the words of a tagger; a column of this name that the predictor does not read stays.
    names_of_lists = _LISTS & texts.keys() & {*predictor.text_keys}
    lists = {name: table_files.as_list(texts[name], name) for name in names_of_lists}

    # A list without words is no empty row, but an empty text of a tagger.
    is_empty = not any(item.values()) and "tokens" not in lists
    return predictor.empty if is_empty else {**texts, **lists}


def _renamed(item: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The texts in chosen columns, by the names that a predictor knows.

    Example, the columns "a" and "b": {"a": "It rains.", "b": "", "c": 3} -> {"text_a": "It rains.", "text_b": ""}
    """
    keys = ("text_a", "text_b") if len(columns) > 1 else ("text",)
    return {key: item.get(column) for key, column in zip(keys, columns, strict=True)}


def answer_lines(predictor: "Predictor", batch_size: int, input_format: str = "") -> None:
    """Answers the lines of standard input."""
    standard_input: Any = sys.stdin
    standard_output: Any = sys.stdout
    if standard_input is None:
        raise UserError("standard input is closed; expected lines to answer there")
    standard_output.reconfigure(encoding="utf-8")
    # Wrong bytes become half surrogate pairs, for which `parse` raises an error.
    standard_input.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    if standard_input.isatty():
        print(f"reading lines, each {predictor.expects}; end with ctrl-D", file=sys.stderr)
    started = time.perf_counter()
    number = 0
    lines = answers(predictor, standard_input, batch_size * _BATCHES_AT_A_TIME, input_format)
    for answer in lines:
        number += 1
        print(json.dumps(answer, ensure_ascii=False), flush=True)
    if number > batch_size:  # fewer say nothing about the speed
        seconds = time.perf_counter() - started
        print(f"{number:,} lines, {number / seconds:,.1f} per second", file=sys.stderr)
    for line in predictor.remarks():
        print(line, file=sys.stderr)


def answers(
    predictor: "Predictor", lines: Iterable[str], lines_at_a_time: int, input_format: str = ""
) -> Iterator[dict[str, Any]]:
    """An answer to each line, in their order; lines before a wrong one are answered before the error."""
    from albert_tf.tasks.predictor import without_missing  # NumPy

    numbered_lines = enumerate(lines, start=1)
    input_format = input_format or predictor.line_format
    while chunk := list(itertools.islice(numbered_lines, lines_at_a_time)):
        items: list[Item | None] = []
        examples = []
        line_error = None
        for number, line in chunk:
            item = None  # of a blank line
            try:
                if line.strip():
                    item = parse(line.rstrip("\r\n"), input_format)
                checked = predictor.empty if item is None else without_missing(item)
                examples.append(predictor.check(checked))
            except UserError as error:
                line_error = UserError(f"line {number}: {error}")
                break
            items.append(item)

        answers_to_items = predictor.answered(examples)
        for item, answer in zip(items, answers_to_items, strict=True):
            # Keys that the predictor does not read, such as an id.
            fields = item if isinstance(item, Mapping) else {}
            repeated = {key: fields[key] for key in fields if key not in predictor.text_keys}
            names = answer_tables.free_columns(answer, repeated)
            yield {**repeated, **{names[name]: answer[name] for name in answer}}
        if line_error:
            raise line_error


def parse(line: str, input_format: str) -> "Item":
    """A line's text, or the object in it."""
    try:
        line.encode()
    except UnicodeEncodeError:
        raise UserError("not UTF-8") from None
    return files.parse_json(line, "not JSON", object) if input_format == "json" else line


program = Program(
    main=main,
    settings_classes=(PredictSettings,),
    description=__doc__,
    positional=("model",),
    answers=answered_rows,
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("predict"))

if __name__ == "__main__":
    run()
