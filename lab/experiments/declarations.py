"""Experiments and scales: the TOML files in `definitions/` and `scales/`, converted and checked.

A definition describes what the paper did, with the paper's sizes. A scale contains the sizes that replace them on a
kind of machine. Errors within a file are found when it is read; `check_fits` finds what a scale lacks for an
experiment. This module does not import TensorFlow.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.data_prep.train_sentencepiece import TrainSettings
from albert_tf.model.config import MODEL_SIZES, AlbertConfig
from albert_tf.tasks import registry
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig
from lab.experiments.columns import COLUMNS, TABLE_TASKS

FOLDER = os.path.dirname(os.path.abspath(__file__))
DEFINITIONS, SCALES = (os.path.join(FOLDER, name) for name in ("definitions", "scales"))

MEASURES = ("parameters", "speed", "intrinsic", "layer_changes", "tasks")
UNTRAINED = ("parameters", "speed")  # measures that need no trained model


def preset_rows(preset: str) -> dict[str, Mapping[str, Any]]:
    """The settings of a preset for every task that it covers, by the task's name."""
    rows: dict[str, Mapping[str, Any]] = {}
    for definition in registry.TASKS.values():
        rows |= definition.presets.get(preset, {})
    return rows


TASKS = tuple(preset_rows("paper"))  # the tasks for which the paper has settings
# In a claim, replaces a row or a number: the score if the most frequent answer is given to all examples.
CHANCE = "chance"
# In a scale's texts, replaces a pattern: text that every machine has.
SAMPLE_CORPUS = "sample_corpus"

PRETRAINING = (RunConfig, OptimizerConfig, PretrainingConfig)
# Settings that a run fills in itself, and that no file can contain.
_FILLED_IN = {
    "output_dir",
    "seed",
    "init_checkpoint",
    "warm_start_from_shallower",
    "spm_model_file",
    "vocab_file",
    "input_file",
    "eval_file",
    "train_file",
    "predict_file",
    "model",
    "albert_config_file",
    "foreign",
    "task_name",
    "version",
    "data_dir",
    "output_file",
    "output_prefix",
}


def fine_tuning_classes(task: str) -> tuple[type[Settings], ...]:
    """The settings classes of a task's program: of the run, of the optimizer and of the task."""
    return FineTuningRunConfig, FineTuningOptimizerConfig, registry.find(task).settings


SIZES = ("embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups")
SizeName = Literal[*SIZES, "num_attention_heads"]
# A size of the paper as a key of TOML, numbers with bounds, and settings by name, which `_check_settings` checks.
Size = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]
FromZero = Annotated[int, msgspec.Meta(ge=0)]
FromOne = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Values = dict[str, Any]
Measure = Literal[*MEASURES]
Task = Literal[*TASKS]
ColumnName = Literal[*COLUMNS]


class _Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of TOML."""


class Row(_Declared):
    """One model of a table."""

    name: str  # as in the paper's table
    base: Literal["", *MODEL_SIZES] = ""  # the paper's size of which it is a variant
    model: Values = {}  # fields of `AlbertConfig` that differ, with the paper's sizes
    data: Values = {}  # settings of data_prep.create_pretraining_data that differ
    training: Values = {}  # settings of run_pretraining.py that differ
    fine_tuning: Values = {}  # settings of its fine-tuning runs that differ
    steps_factor: Positive = 1  # multiplies the scale's number of steps, or its seconds
    text: str = "standard"  # one of the scale's texts
    warm_start_from: str = ""  # the row with fewer layers whose trained model initializes this one
    same_shape: str = ""  # the BERT row with the same depth and width
    measures: tuple[Measure, ...] = ()  # instead of the experiment's
    paper: dict[ColumnName, str | int | float] = {}  # its numbers; a pair such as F1/EM is a string


class Claim(_Declared):
    """A claim of the paper that compares numbers, with exactly one of `lower`, `near` and `at_most`.

    Each of these is a row, a number, or "chance", the score of the most frequent answer.
    """

    text: str
    metric: ColumnName
    higher: str  # the row that the claim is about: above `lower`, close to `near`, or not above `at_most`
    lower: str | float = ""
    near: str | float = ""
    at_most: str | float = ""
    within: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # distance that `near` and `at_most` allow
    instead: Literal["", *COLUMNS] = ""  # what the paper compares, if `metric` replaces it

    @property
    def compared(self) -> tuple[str, str | float]:
        """The field with which `higher` is compared, and its value."""
        return self.given()[0]

    def given(self) -> list[tuple[str, str | float]]:
        """Those of `lower`, `near` and `at_most` that are set."""
        values = {name: getattr(self, name) for name in ("lower", "near", "at_most")}
        return [(name, value) for name, value in values.items() if value != ""]


class Experiment(_Declared):
    """A table or a figure of the paper."""

    name: str  # of its file
    title: str
    source: str  # section and table of the paper
    rows: Annotated[tuple[Row, ...], msgspec.Meta(min_length=1)]
    base: Literal["", *MODEL_SIZES] = ""  # default for the rows
    # Equal for all rows: the scale's number of steps, or its seconds; with "none", nothing is trained.
    budget: Literal["none", "steps", "seconds"] = "steps"
    measures: tuple[Measure, ...] = ("parameters", "intrinsic", "tasks")
    tasks: tuple[Task, ...] = TABLE_TASKS  # those without settings in the scale are left out
    fine_tuning: Values = {}  # settings of the fine-tuning runs that differ from the scale's
    initial_tasks: dict[Task, Task] = {}  # task -> the one whose fine-tuned model initializes it
    columns: tuple[ColumnName, ...] = ()
    speed_reference: str = ""  # the row whose speed is 1
    plot: Literal["", "dots", "curves", "layers"] = ""
    claims: tuple[Claim, ...] = ()
    note: str = ""  # explains the table to readers

    @property
    def label(self) -> str:
        """The name in texts."""
        return self.name.replace("_", " ").capitalize()

    def measures_of(self, row: Row) -> tuple[str, ...]:
        """What is measured for a row."""
        return row.measures or self.measures

    def row(self, name: str) -> Row:
        """The row with the given name; raises a `UserError` if there is none."""
        rows = {row.name: row for row in self.rows}
        _check_known([name], rows, f"{self.name}: a row")
        return rows[name]

    def with_sources(self, row: Row) -> list[Row]:
        """A row, and all rows that it is made from."""
        if not row.warm_start_from:
            return [row]
        return [row, *self.with_sources(self.row(row.warm_start_from))]


class Scale(_Declared):
    """The sizes and settings for one kind of machine.

    A file with `based_on`, the name of another scale, has all entries of that scale that it does not replace: values
    outside tables, and the entries of tables, each as a whole.
    """

    name: str  # of its file
    title: str  # the machine, and how long it takes
    seeds: Annotated[tuple[FromZero, ...], msgspec.Meta(min_length=1)]
    # Name of a text -> patterns of files below --data_dir; "sample_corpus" is the text of data_prep.
    texts: dict[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]]
    fallback_texts: dict[str, tuple[Literal[SAMPLE_CORPUS], ...]] = {}  # without --data_dir
    vocabulary: Values = {}  # settings of data_prep.train_sentencepiece
    data: Values = {}  # settings of data_prep.create_pretraining_data
    training: Values = {}  # settings of run_pretraining.py
    experiments: dict[str, Values] = {}  # experiment -> settings of run_pretraining.py that differ
    steps_factors: dict[str, Positive] = {}  # replacements for rows' `steps_factor`
    seconds: FromZero = 0  # of training, for experiments whose rows get equal time
    model: Values = {}  # fields of `AlbertConfig` that replace the paper's, unless a row sets them
    # Replacements of the paper's numbers; the feed-forward width keeps its ratio to the hidden width.
    sizes: dict[SizeName, dict[Size, FromOne]] = {}
    intrinsic: dict[Literal["max_examples", "max_probe_examples"], FromZero] = {}  # 0 takes all
    speed: Values = {}  # settings of run_pretraining.py that differ where speed is measured
    tasks: dict[Task, Values] = {}  # task -> settings of its fine-tuning runs

    def has_row(self, experiment: Experiment, row: Row) -> bool:
        """Whether a row can be run: every size of it, and of the rows that it is made from, has a translation."""
        return experiment.budget == "none" or all(map(self.has, experiment.with_sources(row)))

    def has(self, row: Row) -> bool:
        """Whether the scale translates every size of a row."""
        sizes = {**MODEL_SIZES[row.base], **row.model}
        translated = [field for field in self.sizes if field in sizes]
        return all(str(sizes[field]) in self.sizes[field] for field in translated)

    def model_config(self, row: Row) -> AlbertConfig:
        """The model of a row at this scale; raises a `UserError` if a size has no translation."""
        sizes = {**MODEL_SIZES[row.base], **row.model}
        ratio = sizes["intermediate_size"] / sizes["hidden_size"]
        if "hidden_size" in row.model and "intermediate_size" not in row.model:
            ratio = 4  # paper, section 3.1
        for field, translation in self.sizes.items():
            if field not in sizes or not translation:
                continue
            size = str(sizes[field])
            if size not in translation:
                where = f"scale {self.name}: [sizes.{field}]"
                raise UserError(f"{where} has no entry for {size}, which row {row.name!r} needs")
            sizes[field] = translation[size]
        sizes["intermediate_size"] = round(ratio * sizes["hidden_size"])
        of_scale = {name: value for name, value in self.model.items() if name not in row.model}
        return AlbertConfig(**{**sizes, **of_scale})


# At this scale, a row is the paper's model.
PAPER_SIZES = Scale(name="paper", title="", seeds=(), texts={})


def names_of(folder: str) -> list[str]:
    """The names of the TOML files in a folder, sorted by the numbers in them: table_2 comes before table_10."""
    names = [name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")]
    return sorted(names, key=lambda name: re.sub("[0-9]+", lambda digits: digits[0].zfill(9), name))


def file_name(row: str) -> str:
    """The name of a row in the names of files."""
    return re.sub(r"[^a-z0-9.]+", "-", row.lower()).strip("-")


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Puts the place in front of the message of an error in a declaration."""
    try:
        yield
    except (UserError, msgspec.ValidationError) as error:
        raise UserError(f"{place}: {error}") from None


def _read(kind: str, name: str, folder: str) -> tuple[dict[str, Any], str]:
    """The content of a TOML file, and its path; `name` is the path, or a name in the folder."""
    path = name if name.endswith(".toml") else os.path.join(folder, f"{name}.toml")
    if path != name and name not in names_of(folder):
        names = ", ".join(names_of(folder))
        raise UserError(f"{name}: no such {kind}; known are {names}, or give a .toml file")
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # includes wrong UTF-8
        raise UserError(f"{path}: is not TOML ({error})") from None
    return {**values, "name": os.path.basename(path).removesuffix(".toml")}, path


def _check_known(names: Iterable[str], known_names: Collection[str], where: str) -> None:
    for name in names:
        if name not in known_names:
            expected = ", ".join(known_names) or "none"
            raise UserError(f"{where} must be one of {expected}; got {name!r}")


def _check_settings(
    values: Mapping[str, Any], classes: Sequence[type[Settings]], where: str
) -> None:
    """Checks the names and values of settings of these classes, each separately."""
    all_fields = itertools.chain(*map(dataclasses.fields, classes))
    fields = {field.name: field for field in all_fields if field.name not in _FILLED_IN}
    _check_known(values, fields, f"{where}: a setting")

    # A class with only the given fields checks each of them, but not whether they fit other settings.
    given_fields = [
        (name, field.type, dataclasses.field(default=field.default, metadata=field.metadata))
        for name, field in fields.items()
        if name in values
    ]
    class_of_given = dataclasses.make_dataclass(
        "Given",
        given_fields,
        bases=(Settings,),
        namespace={"name_prefix": f"{where}: "},
        frozen=True,
        kw_only=True,
    )
    class_of_given(**values)


def read_experiment(name: str) -> Experiment:
    """Reads an experiment of the project by name, or one in a TOML file; raises a `UserError` if it is wrong."""
    values, path = _read("experiment", name, DEFINITIONS)
    with _at(path):
        experiment = msgspec.convert(values, Experiment)
        for row in values["rows"]:
            row.setdefault("base", experiment.base)
        experiment = msgspec.convert(values, Experiment)
        _check_experiment(experiment)
    return experiment


def _check_experiment(experiment: Experiment) -> None:
    names = [row.name for row in experiment.rows]
    if len(set(map(file_name, names))) < len(names):
        reason = "which differ in letters or numbers, because files are named after them"
        raise UserError(f"expected rows with distinct names, {reason}; got {names}")
    initial = experiment.initial_tasks
    # A task that initializes others starts from the pretrained model.
    first = [task for task in TASKS if task not in initial]
    _check_known(initial.values(), first, "a task of initial_tasks")
    for task in experiment.tasks:
        where = f"fine_tuning, for {task}"
        _check_settings(experiment.fine_tuning, fine_tuning_classes(task), where)
    references = [experiment.speed_reference, *(row.same_shape for row in experiment.rows)]
    _check_known(filter(None, references), names, "speed_reference and same_shape")
    for row in experiment.rows:
        where = f"row {row.name!r}"
        above = names[: names.index(row.name)]
        _check_known([row.base], MODEL_SIZES, f"{where}: base")
        _check_known(filter(None, [row.warm_start_from]), above, f"{where}: warm_start_from")
        for task in experiment.tasks if row.fine_tuning else ():
            _check_settings(row.fine_tuning, fine_tuning_classes(task), f"{where}: fine_tuning")
        _check_settings(row.model, (AlbertConfig,), f"{where}: model")
        _check_settings(row.data, (PretrainingDataSettings,), f"{where}: data")
        _check_settings(row.training, PRETRAINING, f"{where}: training")
        with _at(f"{where}: model"):
            PAPER_SIZES.model_config(row)
    for claim in experiment.claims:
        where = f"claim {claim.text!r}"
        references = claim.given()
        if len(references) != 1:
            reason = f"expected one of lower, near, at_most, got {len(references)}"
            raise UserError(f"{where}: {reason}")
        compared = [value for _, value in references if isinstance(value, str) and value != CHANCE]
        _check_known([claim.higher, *compared], names, f"{where}: a row")


def read_scale(name: str) -> Scale:
    """Reads a scale of the project by name, or one in a TOML file; raises a `UserError` if it is wrong."""
    values, path = _read("scale", name, SCALES)
    with _at(path):
        if "based_on" in values:
            values = _completed(values)
        scale = msgspec.convert(values, Scale)
        _check_scale(scale)
    return scale


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """The content of a scale that is based on another one, with the entries of that one that it does not replace."""
    base = str(values.pop("based_on"))
    values_of_base, _ = _read("scale", base, SCALES)
    if "based_on" in values_of_base:
        raise UserError(f"based_on must name a scale that has no based_on, got {base!r}")
    for name, value in values_of_base.items():
        if isinstance(value, dict) and isinstance(values.get(name, {}), dict):
            values[name] = {**value, **values.get(name, {})}
    return {**values_of_base, **values}


def _check_scale(scale: Scale) -> None:
    _check_known(["standard"], scale.texts, "the text of rows that name none, in [texts],")
    required = ("num_train_steps", "num_warmup_steps")
    missing = [name for name in required if name not in scale.training]
    if missing:
        raise UserError(f"[training] must have {missing[0]}")

    _check_settings(scale.speed, PRETRAINING, "[speed]")
    _check_settings(scale.training, PRETRAINING, "[training]")
    _check_settings(scale.model, (AlbertConfig,), "[model]")
    _check_settings(scale.data, (PretrainingDataSettings,), "[data]")
    _check_settings(scale.vocabulary, (TrainSettings,), "[vocabulary]")
    for name, values in scale.experiments.items():
        _check_settings(values, PRETRAINING, f"[experiments.{name}]")
    for name, values in scale.tasks.items():
        _check_settings(values, fine_tuning_classes(name), f"[tasks.{name}]")

    steps = scale.speed.get("num_train_steps", 0)
    default = RunConfig.log_every_steps
    interval = {"log_every_steps": default, **scale.training, **scale.speed}["log_every_steps"]
    if scale.speed and steps < 2 * interval:
        raise UserError(
            f"[speed] num_train_steps must be at least twice log_every_steps={interval}, because the first interval is"
            f" not counted; got {steps}"
        )


def check_fits(
    experiment: Experiment, scale: Scale, measures: Collection[str] = (), rows: Sequence[Row] = ()
) -> None:
    """Checks that a scale has everything that an experiment needs; raises a `UserError`.

    `measures` and `rows` are a choice of the experiment's; empty means all. Rows for which the scale has no sizes are
    not checked.
    """
    where = f"scale {scale.name}, for {experiment.name}"
    used = [row for row in rows or experiment.rows if scale.has_row(experiment, row)]
    asked = {name for row in used for name in experiment.measures_of(row)}
    asked &= set(measures or MEASURES)
    is_timed = experiment.budget == "seconds" and bool(asked - {"parameters"})
    if is_timed and not scale.seconds:
        raise UserError(f"{where}: expected `seconds` above 0 for rows of equal time, got 0")
    if (is_timed or "speed" in asked) and not scale.speed:
        raise UserError(f"{where}: expected [speed] with num_train_steps, to measure speed")
    if "tasks" in asked:
        for task, initial in experiment.initial_tasks.items():
            if task in experiment.tasks and task in scale.tasks and initial not in scale.tasks:
                raise UserError(f"{where}: expected [tasks.{initial}], which {task} starts from")
    if experiment.budget == "none":
        return  # the models have the paper's sizes
    for row in used:
        with _at(f"{where}: row {row.name!r}"):
            scale.model_config(row)
