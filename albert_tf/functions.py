"""Each program as a function of `albert_tf`, whose keyword arguments are the flags of the program.

    run = albert_tf.classify(train=(texts, labels), init_checkpoint="models/albert-minilm-l6", output_dir="runs/mine")
    run.results["eval"]["accuracy"]
    run.predictor.predict(["A text."])

Defaults, bounds and explanations are those of the settings classes. Where a flag names a file, a function also takes
data; `_DATA` says what kind. Nothing is kept between two calls.
"""

import contextlib
import dataclasses
import functools
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import command
from albert_tf.core import memory_files
from albert_tf.core.errors import UserError
from albert_tf.core.keywords import errors_of_python, settings_of, with_names
from albert_tf.core.program import Program
from albert_tf.tasks.embedding.loss_table import LOSSES
from albert_tf.user_files import python_data
from albert_tf.user_files.python_data import Content

MODULES = {**command.PROGRAMS, **command.DATA_PROGRAMS}
# Names of arguments that are shorter than those of the flags.
SHORT_NAMES = {"train": "train_file", "eval": "eval_file"}


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes:
      results: the content of results.json: `eval` has the metrics of the model that was kept.
      output_dir: the folder of the run, or the best one of several (--num_runs).
    """

    results: Mapping[str, Any]
    output_dir: str

    @functools.cached_property
    def predictor(self) -> Any:
        """The trained model, which answers texts (`load_predictor`); it is loaded when it is first used."""
        from albert_tf.serving.predictors import load_predictor

        return load_predictor(self.output_dir)


# --- Data in the place of files ---

# The arguments of a call, by name; a converter may add the names of columns that it made.
Arguments = dict[str, Any]
Converter = Callable[[Any, str, Arguments], Content]


def _labelled_texts(value: Any, name: str, arguments: Arguments) -> Content:
    """(texts, labels), a table, or for predictions a list of texts; a text may be a pair."""
    if python_data.is_table(value):
        return python_data.table_content(value, name)
    texts, labels = _inputs_and_labels(value, name, "(texts, labels)")
    columns = _columns_of_texts(texts, name, arguments)
    if labels is not None:
        label_column = str(arguments.setdefault("label_column", "label"))
        columns[label_column] = python_data.list_of(labels, name, "labels")
    return python_data.columns_content(columns, name)


def _inputs_and_labels(value: Any, name: str, expected: str) -> tuple[Any, Any]:
    """The two parts of a tuple; of what is to be predicted, all of it and None."""
    if name == "predict_file":
        return value, None
    if not isinstance(value, tuple) or len(value) != 2:
        raise UserError(f"{name}: expected {expected}, a table or a path")
    return value


def _columns_of_texts(texts: Any, name: str, arguments: Arguments) -> dict[str, list]:
    """The one or two columns of a list of texts, or of pairs of texts; their names are those of `text_columns`."""
    items = python_data.list_of(texts, name, "texts")
    if not items:
        raise UserError(f"{name}: contains no texts")
    are_pairs = isinstance(items[0], tuple | list)
    if are_pairs and not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise UserError(f"{name}: expected pairs of texts")
    usual_names = "text_a,text_b" if are_pairs else "text"
    names = _names_of(arguments.setdefault("text_columns", usual_names))
    num_columns = 2 if are_pairs else 1
    if len(names) != num_columns:
        raise UserError(f"text_columns: expected {num_columns} names for {name}, got {len(names)}")
    if not are_pairs:
        return {names[0]: python_data.texts_of(items, name)}
    firsts, seconds = zip(*items, strict=True)
    return {
        names[0]: python_data.texts_of(list(firsts), name),
        names[1]: python_data.texts_of(list(seconds), name),
    }


def _names_of(value: Any) -> list[str]:
    """The names of columns, given as a text with commas or as a list."""
    words = value.split(",") if isinstance(value, str) else list(value)
    return [str(word).strip() for word in words]


def _tagged_words(value: Any, name: str, arguments: Arguments) -> Content:
    """(sentences, tags), each a list of lists, a table, or for predictions a list of lists of words."""
    if python_data.is_table(value):
        return python_data.table_content(value, name)
    sentences, tags = _inputs_and_labels(value, name, "(sentences, tags), lists of lists")
    token_column = str(arguments.setdefault("token_column", "tokens"))
    columns = {token_column: python_data.list_of(sentences, name, "lists of words")}
    if tags is not None:
        tag_column = str(arguments.setdefault("tag_column", "tags"))
        columns[tag_column] = python_data.list_of(tags, name, "lists of tags")
    return python_data.columns_content(columns, name)


def _text_groups(value: Any, name: str, arguments: Arguments) -> Content:
    """(texts, texts that belong to them, ...), with scores last if the loss needs them; a table; or a list of texts."""
    if python_data.is_table(value):
        return python_data.table_content(value, name)
    if not isinstance(value, tuple):
        if name != "predict_file":
            raise UserError(
                f"{name}: expected a tuple of lists such as (texts_a, texts_b), a table or a path"
            )
        value = (value,)

    # (texts, texts, scores), or lists of texts alone.
    *lists, last = value
    has_scores = bool(lists) and _needs_scores(name, arguments)
    if not has_scores:
        lists.append(last)

    usual_names = ",".join(f"text_{number}" for number in range(1, len(lists) + 1))
    names = _names_of(arguments.setdefault("text_columns", usual_names))
    if len(names) < len(lists):
        raise UserError(f"text_columns: expected {len(lists)} names for {name}, got {len(names)}")
    if name == "eval_file" and len(lists) < len(names):
        arguments.setdefault("eval_columns", names[: len(lists)])

    columns: dict[str, list] = {}
    for column, texts in zip(names, lists, strict=False):
        columns[column] = python_data.texts_of(texts, name)
    if has_scores:
        score_column = str(arguments.setdefault("score_column", "score"))
        columns[score_column] = python_data.list_of(last, name, "scores")
    return python_data.columns_content(columns, name)


def _needs_scores(name: str, arguments: Arguments) -> bool:
    """Whether the loss, or for `eval_file` the evaluation, needs a score of each pair of texts."""
    loss = LOSSES.get(arguments.get("loss", "infonce"))
    if name == "eval_file":
        kind = arguments.get("eval_kind") or (loss.evaluation if loss else "")
        return kind == "scores"
    return bool(loss and loss.needs_scores)


def _rows_to_answer(value: Any, name: str, arguments: Arguments) -> Content:
    """A list of texts or of pairs of texts, or a table."""
    if python_data.is_table(value):
        return python_data.table_content(value, name)
    items = python_data.list_of(value, name, "texts")
    if items and isinstance(items[0], list) and "text_columns" not in arguments:
        return python_data.columns_content({"tokens": items}, name)  # of a tagger
    return python_data.columns_content(_columns_of_texts(items, name, arguments), name)


def _texts_or_table(value: Any, name: str, arguments: Arguments) -> Content:
    """A list of texts, or a table."""
    del arguments
    if python_data.is_table(value):
        return python_data.table_content(value, name)
    return python_data.text_content(value, name)


def _documents(value: Any, name: str, arguments: Arguments) -> Content:
    """A list of texts, each a document."""
    arguments.setdefault("document_separator", "blank_line")
    return python_data.document_content(value, name)


def _paragraphs(value: Any, name: str, arguments: Arguments) -> Content:
    """A list of documents, each a text with a sentence per line."""
    del arguments
    return python_data.document_content(value, name)


def _texts(value: Any, name: str, arguments: Arguments) -> Content:
    """A list of texts."""
    del arguments
    return python_data.text_content(value, name)


def _questions(value: Any, name: str, arguments: Arguments) -> Content:
    """The object of a file of SQuAD, or rows with `question`, `context` and `answers`, in a list or a table."""
    del arguments
    return python_data.json_content(value, name)


# Program -> setting that names a file -> what may be given in its place.
_DATA: dict[str, dict[str, Converter]] = {
    "classify": dict.fromkeys(("train_file", "eval_file", "predict_file"), _labelled_texts),
    "tag": dict.fromkeys(("train_file", "eval_file", "predict_file"), _tagged_words),
    "embed": {
        **dict.fromkeys(("train_file", "eval_file", "predict_file"), _text_groups),
        "corpus_file": _texts,
    },
    "squad": dict.fromkeys(("train_file", "eval_file", "predict_file"), _questions),
    "distill": dict.fromkeys(("input_file", "eval_file"), _texts),
    "fold": {"input_file": _texts},
    "predict": {"input_file": _rows_to_answer},
    "search": {"corpus": _texts_or_table},
    "tune": {"input_file": _rows_to_answer},
    "split_sentences": {"input_file": _documents},
    "train_sentencepiece": {"input_file": _texts},
    "create_pretraining_data": {"input_file": _paragraphs},
}


def _with_files(name: str, arguments: Mapping[str, Any]) -> tuple[Arguments, dict[str, bytes]]:
    """The arguments of a program with paths in the place of data, and the files in memory with these paths."""
    replaced = dict(arguments)
    files: dict[str, bytes] = {}
    # In the order of the table: the columns of training data decide the names of others.
    for argument, convert in data_of(name).items():
        value = arguments.get(argument)
        if not python_data.is_path(value):
            content = convert(value, argument, replaced)
            path = memory_files.path_of(argument, content.ending, content.data)
            files[path] = content.data
            replaced[argument] = path
    return replaced, files


# --- Calls ---

# Programs that train, and return a `Run`.
_TRAINING = ("pretrain", "classify", "squad", "race", "tag", "embed", "distill")
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
# Settings about standard input.
_OF_SHELL = {"input_format"}


def call(name: str, *positional: Any, **keywords: Any) -> Any:
    """Runs a program with arguments of Python; returns a `Run`, the answers, or the path that was written.

    Raises:
      UserError: an argument is unknown or wrong, or the program rejects its input.
    """
    program = program_of(name)
    if name == "embed" and positional:
        raise UserError(
            "embed trains an embedder; load_predictor(model).embed(texts) makes vectors"
        )
    with errors_of_python(program):
        arguments = with_names(program, positional, keywords, further_names(name))
        for short in SHORT_NAMES.keys() & arguments.keys():
            full = SHORT_NAMES[short]
            if full in arguments:
                raise UserError(f"{short} and {full} are the same: give one")
            arguments[full] = arguments.pop(short)

        texts = []
        if program.lines:
            if program.lines not in arguments:
                raise UserError(f"{program.lines} is required: a list of texts")
            texts.append(python_data.texts_of(arguments.pop(program.lines), program.lines))

        arguments, files = _with_files(name, arguments)
        with memory_files.held(files):
            settings = settings_of(program, arguments)
            if program.answers:
                return program.answers(*settings, *texts)
            if name in _TRAINING:
                return _run(program, settings)
            return program.main(*settings)


def further_names(name: str) -> list[str]:
    """Names of the arguments of a function that are no settings of its program."""
    short = [short for short, full in SHORT_NAMES.items() if full in data_of(name)]
    lines = program_of(name).lines
    return [lines] if lines else short


@functools.cache
def program_of(name: str) -> Program:
    """The program of a name, as it is called in Python."""
    program = command.program_of(MODULES[name])
    data = program.lines
    if program.answers and not data:
        data = "input_file"
    if not data:
        return program
    return dataclasses.replace(program, positional=(*program.positional, data))


def _run(program: Program, settings: Sequence[Any]) -> Run:
    """The run: its results and its predictor."""
    with _random_states_kept():
        results = program.main(*settings)
    return Run(results, results.get("best_run") or settings[0].output_dir)


@contextlib.contextmanager
def _random_states_kept() -> Iterator[None]:
    """After the block, the caller's random numbers go on as if no run had set its seed."""
    state = random.getstate()
    state_of_numpy = np.random.get_state()  # noqa: NPY002 - the caller may use it
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(state_of_numpy)  # noqa: NPY002


# --- The functions ---


@functools.cache
def function_of(name: str) -> Callable[..., Any]:
    """The function of a program, with a signature and a docstring for `help` and editors."""

    def function(*positional: Any, **keywords: Any) -> Any:
        return call(name, *positional, **keywords)

    function.__name__ = name
    function.__qualname__ = name
    function.__module__ = "albert_tf"
    function.__doc__ = docstring_of(name)
    function.__signature__ = signature_of(name)  # type: ignore[attr-defined]
    return function


def signature_of(name: str) -> inspect.Signature:
    """The arguments of a function: those without a name first, then all others by name, with their defaults."""
    program = program_of(name)
    fields = program.fields()
    parameters = []
    for argument in dict.fromkeys((*program.positional, *further_names(name), *fields)):
        if argument in _OF_SHELL:
            continue
        kind = _POSITIONAL if argument in program.positional else _KEYWORD
        field = fields.get(argument)
        is_required = argument == program.lines
        if field is not None and argument != "text_columns":  # lists of texts imply it
            is_required = field.metadata["required"]

        default: Any = None
        if is_required:
            default = inspect.Parameter.empty
        elif field is not None:
            default = field.default
        annotation: Any = Any
        if field is not None and argument not in data_of(name):
            annotation = field.type
        parameters.append(inspect.Parameter(argument, kind, default=default, annotation=annotation))
    return inspect.Signature(parameters, return_annotation=_result_type(name))


def data_of(name: str) -> dict[str, Converter]:
    """The settings of a program in whose place data may be given."""
    return _DATA.get(name, {})


def _result_type(name: str) -> Any:
    program = program_of(name)
    if name in _TRAINING:
        return Run
    function = program.answers or program.main
    return function.__annotations__["return"]


def _result_in_words(name: str) -> str:
    program = program_of(name)
    if name in _TRAINING:
        return "A `Run` with `results`, the content of results.json, and `predictor`, the trained model."
    if program.answers:
        return (program.answers.__doc__ or "").partition("\n")[0]
    return "None, when the server ends." if name == "serve" else "The path that was written."


def docstring_of(name: str, *, has_settings: bool = True) -> str:
    """What a program does, what it returns, and its arguments.

    Args:
      has_settings: whether all settings are explained, not only those that take data.
    """
    program = program_of(name)
    summary = program.description.strip().partition("\n")[0]
    lines = [summary, "", f"The program `albert-tf {words_of(name)}`: its flags are the arguments."]
    arguments = _explained_data(name)
    if has_settings:
        for argument, field in program.fields().items():
            if argument not in _OF_SHELL and argument not in data_of(name):
                arguments.append(f"{argument}: {field.metadata['help']}")
    if arguments:
        lines += ["", "Args:", *(f"  {argument}" for argument in arguments)]
    lines += ["", f"Returns:\n  {_result_in_words(name)}", ""]
    lines += ["Raises:", "  UserError: an argument is unknown or wrong, or the input is rejected."]
    return "\n".join(lines)


def _explained_data(name: str) -> list[str]:
    """The arguments that take data, each with what may be given."""
    arguments_by_converter: dict[Converter, list[str]] = {}
    for short in further_names(name):
        if converter := data_of(name).get(SHORT_NAMES.get(short, "")):
            arguments_by_converter.setdefault(converter, []).append(short)
    for argument, converter in data_of(name).items():
        arguments_by_converter.setdefault(converter, []).append(argument)
    explained = []
    if lines := program_of(name).lines:
        explained.append(f"{lines}: a list of texts.")
    for converter, names in arguments_by_converter.items():
        what = converter.__doc__ or ""
        explained.append(f"{', '.join(names)}: a path; or {what[:1].lower()}{what[1:]}")
    return explained


def words_of(name: str) -> str:
    """The words of a program on the command line: "split_sentences" -> "data split_sentences"."""
    return f"{command.DATA} {name}" if name in command.DATA_PROGRAMS else name
