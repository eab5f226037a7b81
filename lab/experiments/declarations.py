"""Experiments and scales: reads and checks the TOML files in `definitions/` and `scales/`.

A definition describes what the paper did, with the paper's sizes. A scale contains the sizes that replace them on a
kind of machine. Errors within a file are found when it is read; `check_fits` finds what a scale lacks for an
experiment. This module does not import TensorFlow.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

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
from lab.experiments.toml_files import check_known, check_settings, make, read_toml

FOLDER = os.path.dirname(os.path.abspath(__file__))
DEFINITIONS, SCALES = (os.path.join(FOLDER, name) for name in ("definitions", "scales"))

MEASURES = ("parameters", "speed", "intrinsic", "layer_changes", "tasks")
UNTRAINED = ("parameters", "speed")  # measures that need no trained model
TASKS = tuple(registry.preset_rows("paper"))  # the tasks for which the paper has settings
# In a claim, replaces a row or a number: the score if the most frequent answer is given to all examples.
CHANCE = "chance"
# Sizes that a scale translates; the feed-forward width keeps its ratio to the hidden width.
TRANSLATED = (
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "num_attention_heads",
)
STEPS_FACTOR = "steps_factor"  # in a row's `training`: multiplies the scale's number of steps
# In a scale's texts, replaces a pattern: text that every machine has.
SAMPLE_CORPUS = "sample_corpus"
TIMING_STEPS = "steps"  # in a scale's `speed`: number of steps of its runs
INTRINSIC_LIMITS = ("max_examples", "max_probe_examples")

# Settings that a declaration can contain, and those that a run fills in itself.
PRETRAINING = (RunConfig, OptimizerConfig, PretrainingConfig)
_OF_A_RUN = (
    *("output_dir", "overwrite_output_dir", "seed", "init_checkpoint"),
    *("spm_model_file", "vocab_file"),
)
_OF_PRETRAINING = (
    *(*_OF_A_RUN, "input_file", "eval_file", "model", "albert_config_file"),
    "warm_start_from_shallower",
)
_OF_FINE_TUNING = (
    *(*_OF_A_RUN, "task_name", "version", "data_dir", "train_file", "eval_file", "predict_file"),
    "ensemble",
)
_OF_TIMING = ("num_train_steps", "num_warmup_steps", "do_eval", "save_checkpoints_steps")
_OF_DATA = (
    *("input_file", "output_dir", "output_file", "random_next_sentence"),
    *("spm_model_file", "vocab_file"),
)
_OF_VOCABULARY = ("input_file", "output_prefix")


def fine_tuning_classes(task: str) -> tuple[type[Settings], ...]:
    """The settings classes of a task's program: of the run, of the optimizer and of the task."""
    return FineTuningRunConfig, FineTuningOptimizerConfig, registry.find(task).settings


_table = functools.partial(dataclasses.field, default_factory=dict)  # by default an empty table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One model of a table.

    Attributes:
      name: the name as in the paper's table.
      base: the paper's size of which it is a variant, a name in `MODEL_SIZES`.
      model: fields of `AlbertConfig` that differ, with the paper's sizes.
      data: settings of data_prep.create_pretraining_data that differ.
      training: settings of run_pretraining.py that differ; `steps_factor` multiplies the scale's number of steps.
      text: name of one of the scale's texts.
      warm_start_from: the row with fewer layers whose trained model initializes this one.
      same_shape: the BERT row with the same depth and width.
      ensemble_of: rows whose fine-tuned models are averaged; such a row has no model of its own.
      measures: what is measured for this row; empty means the experiment's measures.
      paper: the paper's numbers by column; two numbers such as F1/EM are a string.
    """

    name: str
    base: str = ""
    model: Mapping[str, Any] = _table()
    data: Mapping[str, Any] = _table()
    training: Mapping[str, Any] = _table()
    text: str = "standard"
    warm_start_from: str = ""
    same_shape: str = ""
    ensemble_of: tuple[str, ...] = ()
    measures: tuple[Literal[*MEASURES], ...] = ()
    paper: Mapping[str, str | float] = _table()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper that compares numbers, with exactly one of `lower`, `near` and `at_most`.

    Attributes:
      text: the claim in words.
      metric: the column that is compared.
      higher: the row that the claim is about: above `lower`, close to `near`, or not above `at_most`.
      lower: a row or a number with a lower value; or "chance", the score of the most frequent answer.
      near: a row or a number that `higher` is close to.
      at_most: a row or a number that `higher` does not exceed by more than `within`.
      within: the distance from `near`, or above `at_most`, that the claim allows.
      instead: the column that the paper compares, if `metric` replaces it at small scales.
    """

    text: str
    metric: str
    higher: str
    lower: str | float = ""
    near: str | float = ""
    at_most: str | float = ""
    within: float = 0.0
    instead: Literal["", *COLUMNS] = ""

    @property
    def compared(self) -> tuple[str, str | float]:
        """The field with which `higher` is compared, and its value."""
        return next(iter(self.given().items()))

    def given(self) -> dict[str, str | float]:
        """Those of `lower`, `near` and `at_most` that are set."""
        fields = {"lower": self.lower, "near": self.near, "at_most": self.at_most}
        return {field: value for field, value in fields.items() if value != ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
      name: name of its file.
      title: what is compared.
      source: section and table of the paper.
      rows: the models.
      base: default for the rows' `base`.
      budget: what is equal for all rows: the scale's number of steps, or its seconds; with "none", nothing is trained.
      measures: what is measured for rows that have no measures of their own.
      tasks: fine-tuning tasks; those without settings in the scale are left out.
      fine_tuning: settings of the fine-tuning runs that differ from the scale's.
      initial_tasks: task -> another task whose fine-tuned model initializes it.
      columns: the columns of the table, in order.
      speed_reference: the row whose speed is 1.
      plot: the kind of plot; "" draws none.
      claims: the paper's claims about the numbers.
      note: explains the table to readers.
    """

    name: str
    title: str
    source: str
    rows: tuple[Row, ...] = ()
    base: str = ""
    budget: Literal["none", "steps", "seconds"] = "steps"
    measures: tuple[Literal[*MEASURES], ...] = ("parameters", "intrinsic", "tasks")
    tasks: tuple[Literal[*TASKS], ...] = TABLE_TASKS
    fine_tuning: Mapping[str, Any] = _table()
    initial_tasks: Mapping[str, str] = _table()
    columns: tuple[Literal[*COLUMNS], ...] = ()
    speed_reference: str = ""
    plot: Literal["", "dots", "curves", "layers"] = ""
    claims: tuple[Claim, ...] = ()
    note: str = ""

    def measures_of(self, row: Row) -> tuple[str, ...]:
        """What is measured for a row."""
        return tuple(row.measures or self.measures)

    def row(self, name: str) -> Row:
        """The row with the given name.

        Raises:
          UserError: there is no such row.
        """
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise UserError(f"{self.name}: has no row {name!r}; its rows are {', '.join(rows)}")
        return rows[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes and settings for one kind of machine.

    A file with `based_on`, the name of another scale, has all entries of that scale that it does not replace: values
    outside tables, and the entries of tables, each as a whole.

    Attributes:
      name: name of its file.
      title: the machine, and how long it takes.
      seeds: seeds of the runs.
      texts: name of a text -> patterns of files below --data_dir; "sample_corpus" is the text of data_prep.
      fallback_texts: the texts without --data_dir: only "sample_corpus".
      vocabulary: settings of data_prep.train_sentencepiece.
      data: settings of data_prep.create_pretraining_data.
      training: settings of run_pretraining.py.
      experiments: experiment -> settings of run_pretraining.py that differ.
      steps_factors: replacements for a row's `steps_factor`; a factor without an entry is unchanged.
      seconds: seconds of training, for experiments whose rows get equal time.
      model: fields of `AlbertConfig` that replace the paper's, unless a row sets them.
      sizes: for each of `TRANSLATED`, replacements of the paper's numbers; without a table, they are unchanged.
      intrinsic: `max_examples` of each evaluation, and `max_probe_examples` for training the probes.
      speed: settings of the runs that measure speed: `steps`, and settings of run_pretraining.py that differ.
      tasks: task -> settings of its fine-tuning runs.
    """

    name: str
    title: str
    seeds: tuple[int, ...]
    texts: Mapping[str, tuple[str, ...]]
    fallback_texts: Mapping[str, tuple[Literal[SAMPLE_CORPUS], ...]] = _table()
    vocabulary: Mapping[str, Any] = _table()
    data: Mapping[str, Any] = _table()
    training: Mapping[str, Any] = _table()
    experiments: Mapping[str, Mapping[str, Any]] = _table()
    steps_factors: Mapping[str, float] = _table()
    seconds: int = 0
    model: Mapping[str, Any] = _table()
    sizes: Mapping[str, Mapping[str, int]] = _table()
    intrinsic: Mapping[str, int] = _table()
    speed: Mapping[str, Any] = _table()
    tasks: Mapping[str, Mapping[str, Any]] = _table()

    def has_row(self, experiment: Experiment, row: Row) -> bool:
        """Whether a row can be run: every size of it, and of the rows that it is made from, has a translation."""
        sources = map(experiment.row, filter(None, (row.warm_start_from, *row.ensemble_of)))
        return experiment.budget == "none" or (
            self.has(row) and all(self.has_row(experiment, source) for source in sources)
        )

    def has(self, row: Row) -> bool:
        """Whether the scale translates every size of a row."""
        sizes = {**MODEL_SIZES[row.base], **row.model}
        translated = [field for field in self.sizes if field in sizes]
        return all(str(sizes[field]) in self.sizes[field] for field in translated)

    def model_config(self, row: Row) -> AlbertConfig:
        """The model of a row at this scale.

        Raises:
          UserError: a size has no translation, or the sizes contradict each other.
        """
        sizes = {**MODEL_SIZES[row.base], **row.model}
        ratio = sizes["intermediate_size"] / sizes["hidden_size"]
        if "hidden_size" in row.model and "intermediate_size" not in row.model:
            ratio = 4  # paper, section 3.1
        for field, translation in self.sizes.items():
            if field not in sizes or not translation:
                continue
            if (size := str(sizes[field])) not in translation:
                where = f"scale {self.name}: [sizes.{field}]"
                raise UserError(f"{where} has no entry for {size}, which row {row.name!r} needs")
            sizes[field] = translation[size]
        sizes["intermediate_size"] = round(ratio * sizes["hidden_size"])
        own = {name: value for name, value in self.model.items() if name not in row.model}
        return AlbertConfig(**{**sizes, **own})


# At this scale, a row is the paper's model.
PAPER_SIZES = Scale(name="paper", title="", seeds=(), texts={})


def names_of(folder: str) -> list[str]:
    """The names of the TOML files in a folder, sorted by the numbers in them: table_2 comes before table_10."""
    names = [name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")]

    def parts(name: str) -> list:
        return [(int(part), "") if part.isdigit() else (0, part) for part in name.split("_")]

    return sorted(names, key=parts)


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Puts the place in front of the message of a `UserError`."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _read(kind: str, name: str, folder: str) -> tuple[dict[str, Any], str]:
    """The content of a TOML file, and its path; `name` is the path, or a name in the folder."""
    path = name if name.endswith(".toml") else os.path.join(folder, f"{name}.toml")
    if path != name and name not in names_of(folder):
        known = ", ".join(names_of(folder))
        raise UserError(f"{name}: no such {kind}; known are {known}, or give a .toml file")
    return {**read_toml(path), "name": os.path.basename(path).removesuffix(".toml")}, path


def file_name(row: str) -> str:
    """The name of a row in the names of files."""
    return re.sub(r"[^a-z0-9.]+", "-", row.lower()).strip("-")


def read_experiment(name: str) -> Experiment:
    """Reads an experiment of the project by name, or one in a TOML file.

    Raises:
      UserError: it does not exist, or the file is wrong.
    """
    values, path = _read("experiment", name, DEFINITIONS)
    experiment = make(Experiment, values, path)
    rows = (dataclasses.replace(row, base=row.base or experiment.base) for row in experiment.rows)
    experiment = dataclasses.replace(experiment, rows=tuple(rows))
    names = [row.name for row in experiment.rows]
    if not names or len(set(map(file_name, names))) < len(names):
        reason = "which differ in letters or numbers, because files are named after them"
        raise UserError(f"{path}: expected rows with distinct names, {reason}; got {names}")
    check_known([experiment.speed_reference], ("", *names), f"{path}: speed_reference")
    if "speedup" in experiment.columns and not experiment.speed_reference:
        reason = "the column speedup needs speed_reference, the row that has speed 1"
        raise UserError(f"{path}: {reason}")
    initial = experiment.initial_tasks
    check_known(initial, TASKS, f"{path}: initial_tasks")
    # A task that initializes others starts from the pretrained model.
    first = [task for task in TASKS if task not in initial]
    check_known(initial.values(), first, f"{path}: a task of initial_tasks")
    for task in experiment.tasks:
        where = f"{path}: fine_tuning, for {task}"
        check_settings(experiment.fine_tuning, fine_tuning_classes(task), where, _OF_FINE_TUNING)
    for row in experiment.rows:
        _check_row(experiment, row, f"{path}: row {row.name!r}")
    for claim in experiment.claims:
        _check_claim(experiment, claim, f"{path}: claim {claim.text!r}")
    return experiment


def _check_row(experiment: Experiment, row: Row, where: str) -> None:
    check_known([row.base], MODEL_SIZES, f"{where}: base")
    if experiment.budget == "none":
        measures = experiment.measures_of(row)
        check_known(measures, UNTRAINED, f"{where}: with budget none, measures")
    check_settings(row.model, (AlbertConfig,), f"{where}: model", ("foreign",))
    with _at(f"{where}: model"):
        PAPER_SIZES.model_config(row)
    check_settings(row.data, (PretrainingDataSettings,), f"{where}: data", _OF_DATA)
    training = {name: value for name, value in row.training.items() if name != STEPS_FACTOR}
    check_settings(training, PRETRAINING, f"{where}: training", _OF_PRETRAINING)
    factor = row.training.get(STEPS_FACTOR, 1)
    if type(factor) not in (int, float) or factor <= 0:
        raise UserError(f"{where}: {STEPS_FACTOR} must be a number above 0, got {factor!r}")
    names = [each.name for each in experiment.rows]
    models = [each.name for each in experiment.rows if not each.ensemble_of]
    above = [name for name in models if names.index(name) < names.index(row.name)]
    if row.warm_start_from and row.warm_start_from not in above:
        raise UserError(
            f"{where}: warm_start_from must name a row above it, got {row.warm_start_from!r};"
            f" these are {', '.join(above) or 'none'}"
        )
    check_known([row.same_shape], ("", *names), f"{where}: same_shape")
    check_known(row.ensemble_of, models, f"{where}: ensemble_of")
    check_known(row.paper, experiment.columns, f"{where}: a column of paper")


def _check_claim(experiment: Experiment, claim: Claim, where: str) -> None:
    names = [row.name for row in experiment.rows]
    given = claim.given()
    references = [value for value in given.values() if isinstance(value, str) and value != CHANCE]
    for name in (claim.higher, *references):
        if name not in names:
            raise UserError(f"{where} names the row {name!r}; expected one of {', '.join(names)}")
    if len(given) != 1:
        raise UserError(
            f"{where}: expected one of lower, near, at_most, got {', '.join(given) or 'none'}"
        )
    check_known([claim.metric], experiment.columns, f"{where}: metric")
    if CHANCE in given.values():
        with_chance = [name for name, column in COLUMNS.items() if column.chance]
        check_known([claim.metric], with_chance, f"{where}: a metric compared with {CHANCE}")
    if claim.within < 0 or claim.within and "lower" in given:
        raise UserError(
            f"{where}: within must be above 0 with near, at least 0 with at_most, and absent with lower; got"
            f" {claim.within}"
        )
    if "near" in given and not claim.within:
        raise UserError(f"{where}: near needs within, the allowed distance, a number above 0")


def read_scale(name: str) -> Scale:
    """Reads a scale of the project by name, or one in a TOML file.

    Raises:
      UserError: it does not exist, or the file is wrong.
    """
    values, path = _read("scale", name, SCALES)
    if "based_on" in values:
        values = _completed(values, path)
    scale = make(Scale, values, path)
    _check_sizes(scale, path)
    _check_texts(scale, path)
    _check_scale_settings(scale, path)
    return scale


def _completed(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The content of a scale that is based on another one, with the entries of that one that it does not replace."""
    base = make(str, values["based_on"], f"{path}: based_on")
    given, _ = _read("scale", base, SCALES)
    if "based_on" in given:
        raise UserError(f"{path}: based_on must name a scale that has no based_on, got {base!r}")
    own = {name: value for name, value in values.items() if name != "based_on"}
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(own.get(name, {}), dict):
            own[name] = {**value, **own.get(name, {})}
    return {**given, **own}


def _check_sizes(scale: Scale, path: str) -> None:
    if min(scale.seeds, default=-1) < 0:
        raise UserError(
            f"{path}: seeds must be whole numbers from 0, at least one; got {scale.seeds}"
        )
    if scale.seconds < 0:
        raise UserError(f"{path}: seconds must be at least 0, got {scale.seconds}")
    check_known(scale.sizes, TRANSLATED, f"{path}: a name in [sizes]")
    for field, translation in scale.sizes.items():
        for size, replacement in translation.items():
            if not size.isdigit() or replacement < 1:
                raise UserError(
                    f"{path}: [sizes.{field}] must map whole numbers to whole numbers, got {size} = {replacement}"
                )
    for factor, replacement in scale.steps_factors.items():
        if not factor.replace(".", "", 1).isdigit() or replacement <= 0:
            raise UserError(
                f"{path}: [steps_factors] must map numbers to numbers above 0, got {factor} = {replacement}"
            )


def _check_texts(scale: Scale, path: str) -> None:
    for field, texts in (("texts", scale.texts), ("fallback_texts", scale.fallback_texts)):
        if "standard" not in texts and (texts or field == "texts"):
            raise UserError(
                f"{path}: [{field}] must have `standard`, the text of rows that name none; got"
                f" {', '.join(texts) or 'nothing'}"
            )
        for name in [name for name, patterns in texts.items() if not patterns]:
            raise UserError(f"{path}: [{field}] {name} must have at least one pattern, got none")


def _check_scale_settings(scale: Scale, path: str) -> None:
    for field in ("num_train_steps", "num_warmup_steps"):
        if field not in scale.training:
            raise UserError(f"{path}: [training] must have {field}")
    speed = {name: value for name, value in scale.speed.items() if name != TIMING_STEPS}
    check_known(scale.tasks, TASKS, f"{path}: a task in [tasks]")
    check_settings(speed, PRETRAINING, f"{path}: [speed]", (*_OF_PRETRAINING, *_OF_TIMING))
    check_settings(scale.model, (AlbertConfig,), f"{path}: [model]", ("foreign",))
    check_settings(scale.data, (PretrainingDataSettings,), f"{path}: [data]", _OF_DATA)
    check_settings(scale.vocabulary, (TrainSettings,), f"{path}: [vocabulary]", _OF_VOCABULARY)
    trainings = {f"experiments.{name}": values for name, values in scale.experiments.items()}
    for place, values in {"training": scale.training, **trainings}.items():
        check_settings(values, PRETRAINING, f"{path}: [{place}]", _OF_PRETRAINING)
    for task, values in scale.tasks.items():
        place = f"{path}: [tasks.{task}]"
        check_settings(values, fine_tuning_classes(task), place, _OF_FINE_TUNING)
    check_known(scale.intrinsic, INTRINSIC_LIMITS, f"{path}: a name in [intrinsic]")
    if wrong := [name for name, number in scale.intrinsic.items() if number < 0]:
        raise UserError(f"{path}: [intrinsic] {wrong[0]} must be at least 0; 0 takes all")
    steps, default = scale.speed.get(TIMING_STEPS), RunConfig.log_every_steps
    interval = {"log_every_steps": default, **scale.training, **scale.speed}["log_every_steps"]
    if scale.speed and (type(steps) is not int or steps < 2 * interval):
        raise UserError(
            f"{path}: [speed] {TIMING_STEPS} must be at least twice log_every_steps={interval}, because the first"
            f" interval is not counted; got {steps}"
        )


def check_fits(
    experiment: Experiment, scale: Scale, measures: Collection[str] = (), rows: Sequence[Row] = ()
) -> None:
    """Checks that a scale has everything that an experiment needs.

    Args:
      experiment: the experiment that will run.
      scale: the scale at which it will run.
      measures: a choice of the experiment's measures; empty means all.
      rows: a choice of the experiment's rows; empty means all. Rows for which the scale has no sizes are not checked.

    Raises:
      UserError: something is missing in the scale, or the sizes of a row contradict each other.
    """
    where = f"scale {scale.name}, for {experiment.name}"
    used = [row for row in rows or experiment.rows if scale.has_row(experiment, row)]
    asked = {name for row in used for name in experiment.measures_of(row)}
    asked &= set(measures or MEASURES)
    is_timed = experiment.budget == "seconds" and bool(asked - {"parameters"})
    if is_timed and not scale.seconds:
        raise UserError(f"{where}: expected `seconds` above 0 for rows of equal time, got 0")
    if (is_timed or "speed" in asked) and not scale.speed:
        raise UserError(f"{where}: expected [speed] with {TIMING_STEPS}, to measure speed")
    if "tasks" in asked:
        for task, initial in experiment.initial_tasks.items():
            if task in experiment.tasks and task in scale.tasks and initial not in scale.tasks:
                raise UserError(
                    f"{where}: expected [tasks.{initial}], which {task} starts from; [tasks] has"
                    f" {', '.join(scale.tasks)}"
                )
    if experiment.budget == "none":
        return  # the models have the paper's sizes
    for row in used:
        with _at(f"{where}: row {row.name!r}"):
            scale.model_config(row)
