"""What an experiment and a scale are: the TOML files in `definitions/` and `scales/`, read and checked.

A definition says what the paper did, in the paper's own sizes; a scale says what stands for these sizes on a machine.
What a file alone shows to be wrong is refused when it is read; what a scale lacks for an experiment, by `check_fits`.
Imports no TensorFlow.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings
from albert_tf.model.config import MODEL_SIZES, AlbertConfig
from albert_tf.tasks import registry
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.pretraining.settings import PretrainingConfig
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.training.settings import OptimizerConfig, RunConfig
from data_prep.pretraining.settings import PretrainingDataSettings
from data_prep.train_sentencepiece import TrainSettings
from experiments.columns import COLUMNS, TABLE_TASKS
from experiments.toml_files import check_known, check_settings, make, read_toml, tables

FOLDER = os.path.dirname(os.path.abspath(__file__))
DEFINITIONS, SCALES = (os.path.join(FOLDER, name) for name in ("definitions", "scales"))

MEASURES = ("parameters", "speed", "intrinsic", "layer_changes", "tasks")
# Instead of a row or a number in a claim: what giving the commonest answer to all scores.
CHANCE = "chance"
# What a row's own budget is: the scale's number of steps, or its number of seconds.
BUDGETS = ("none", "steps", "seconds")
# What of a row needs no trained model.
UNTRAINED = ("parameters", "speed")
TASKS = tuple(registry.preset_rows("paper"))  # the paper has settings for every task that there is
PLOTS = ("", "dots", "curves", "layers")
# Sizes that a scale translates; the feed-forward width keeps its ratio to the hidden width.
TRANSLATED = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups"),
    "num_attention_heads",
)

STEPS_FACTOR = "steps_factor"  # in a row's `training`: multiplies the scale's number of steps
SAMPLE_CORPUS = (
    "sample_corpus"  # in a scale's texts, instead of a pattern: the text that is on every machine
)
# Of a scale's `speed`: how long its runs are.
TIMING_STEPS = "steps"
INTRINSIC_LIMITS = ("max_examples", "max_probe_examples")

# Settings that a declaration can hold, and those of them that a run fills in by itself.
PRETRAINING = (RunConfig, OptimizerConfig, PretrainingConfig)
_OF_A_RUN = ("output_dir", "overwrite_output_dir", "seed", "init_checkpoint", "spm_model_file")
_OF_PRETRAINING = (
    *(*_OF_A_RUN, "input_file", "eval_file", "model", "albert_config_file"),
    "warm_start_from_shallower",
)
_OF_FINE_TUNING = (
    *(*_OF_A_RUN, "task_name", "version", "data_dir", "train_file", "eval_file", "predict_file"),
    "ensemble",
)
_OF_TIMING = ("num_train_steps", "num_warmup_steps", "do_eval", "save_checkpoints_steps")
_OF_DATA = ("input_file", "output_dir", "output_file", "spm_model_file", "random_next_sentence")
_OF_VOCABULARY = ("input_file", "output_prefix")


def fine_tuning_classes(task: str) -> tuple[type[Settings], ...]:
    """The settings of a task's program: of the run, of the optimiser, of the task."""
    kinds = {
        "race": RaceConfig,
        **dict.fromkeys(("squad1.1", "squad2.0"), SquadConfig),
    }
    own = kinds.get(task, ClassifierConfig)
    return FineTuningRunConfig, FineTuningOptimizerConfig, own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One model of a table.

    Attributes:
      name: as the table has it.
      base: the paper's size that it is a variant of, a name of `MODEL_SIZES`.
      model: fields of `AlbertConfig` that differ, in the paper's sizes.
      data: settings of data_prep.create_pretraining_data that differ.
      training: settings of run_pretraining.py that differ; `steps_factor` multiplies the scale's number of steps.
      text: which of the scale's texts.
      warm_start_from: the row whose trained model this one starts from, shallower than itself.
      same_shape: the row of the BERT with the same depth and width.
      ensemble_of: rows whose fine-tuned models are averaged, instead of a model of its own.
      measures: what is measured of this row, instead of what is measured of the experiment's; empty is the latter.
      paper: the paper's numbers by column; a pair such as F1/EM is a string.
    """

    name: str
    base: str
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    text: str = "standard"
    warm_start_from: str = ""
    same_shape: str = ""
    ensemble_of: Sequence[str] = ()
    measures: Sequence[str] = ()
    paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A comparison that the paper makes: one of `lower`, `near` and `at_most` says with what.

    Attributes:
      text: in words.
      metric: the column that is compared.
      higher: the row that is spoken of: it has more than `lower`, or as much as `near`, or no more than `at_most`.
      lower: the row that has less of it, a number, or "chance", what giving the commonest answer to all scores.
      near: a row or a number that `higher` is not far from.
      at_most: a row or a number that `higher` is not above by more than `within`.
      within: how far is far from `near`, and above `at_most`.
      instead: the column that the paper compares, where `metric` stands for it at small scales.
    """

    text: str
    metric: str
    higher: str
    lower: str | float = ""
    near: str | float = ""
    at_most: str | float = ""
    within: float = 0.0
    instead: str = ""

    @property
    def compared(self) -> tuple[str, str | float]:
        """The field that says with what `higher` is compared, and what it says."""
        ((field, other),) = self.given().items()
        return field, other

    def given(self) -> dict[str, str | float]:
        """Those of `lower`, `near` and `at_most` that say something."""
        fields = {"lower": self.lower, "near": self.near, "at_most": self.at_most}
        return {field: other for field, other in fields.items() if other != ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
      name: of its file.
      title: what is compared.
      source: where it stands in the paper.
      rows: what is trained.
      budget: what every row gets the same of; "none" trains nothing.
      measures: what is measured of each row that does not say it itself.
      tasks: what is fine-tuned, as far as the scale has settings for it.
      fine_tuning: settings of the fine-tuning runs that differ from the scale's.
      initial_tasks: for a task, the one whose fine-tuned model it starts from.
      columns: of the table, in order.
      speed_reference: the row that has speed 1.
      plot: one of `PLOTS`.
      claims: what the paper says of the numbers.
      note: what a reader must know.
    """

    name: str
    title: str
    source: str
    rows: tuple[Row, ...]
    budget: str = "steps"
    measures: tuple[str, ...] = ("parameters", "intrinsic", "tasks")
    tasks: tuple[str, ...] = TABLE_TASKS
    fine_tuning: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    initial_tasks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()
    speed_reference: str = ""
    plot: str = ""
    claims: tuple[Claim, ...] = ()
    note: str = ""

    def measures_of(self, row: Row) -> tuple[str, ...]:
        """What is measured of a row."""
        return tuple(row.measures or self.measures)

    def row(self, name: str) -> Row:
        """The row of a name.

        Raises:
          UserError: there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise UserError(f"{self.name}: has no row {name!r}; its rows are {names}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """How large everything is.

    Attributes:
      name: of its file.
      title: which machine, which time.
      seeds: of the runs.
      texts: patterns of files below --data_dir by the text's name; "sample_corpus" is that of data_prep.
      fallback_texts: the same without --data_dir: of "sample_corpus" alone.
      vocabulary: settings of data_prep.train_sentencepiece.
      data: settings of data_prep.create_pretraining_data.
      training: settings of run_pretraining.py.
      experiments: settings of run_pretraining.py that differ in an experiment, by its name.
      steps_factors: what stands for a row's `steps_factor`; without an entry, it stays.
      seconds: of the experiments whose rows get equal time.
      model: fields of `AlbertConfig` that replace the paper's, unless a row names them.
      sizes: for each of `TRANSLATED`, what stands for the paper's number; without an entry, a number stays.
      intrinsic: `max_examples` of each evaluation, and of the probes' training.
      speed: `steps`, and settings of run_pretraining.py that differ, of the runs that measure speed.
      tasks: settings of the fine-tuning runs by task.
    """

    name: str
    title: str
    seeds: tuple[int, ...]
    texts: Mapping[str, Sequence[str]]
    fallback_texts: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    vocabulary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    experiments: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    steps_factors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seconds: int = 0
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    intrinsic: Mapping[str, int] = dataclasses.field(default_factory=dict)
    speed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def has(self, row: Row) -> bool:
        """Whether every size of a row has something that stands for it."""
        sizes = {**MODEL_SIZES[row.base], **row.model}
        return all(
            str(sizes[field]) in translation
            for field, translation in self.sizes.items()
            if field in sizes
        )

    def model_config(self, row: Row) -> AlbertConfig:
        """The model that stands for a row's.

        Raises:
          UserError: a size has none; or the sizes contradict each other.
        """
        sizes = {**MODEL_SIZES[row.base], **row.model}
        ratio = sizes["intermediate_size"] / sizes["hidden_size"]
        if "hidden_size" in row.model and "intermediate_size" not in row.model:
            ratio = 4  # paper, section 3.1
        for field in TRANSLATED:
            translation = self.sizes.get(field, {})
            if field in sizes and translation and str(sizes[field]) not in translation:
                raise UserError(
                    f"scale {self.name}: [sizes.{field}] has no entry for {sizes[field]}, which row"
                    f" {row.name!r} needs"
                )
            if field in sizes:
                sizes[field] = translation.get(str(sizes[field]), sizes[field])
        sizes["intermediate_size"] = round(ratio * sizes["hidden_size"])
        kept = {name: value for name, value in self.model.items() if name not in row.model}
        return AlbertConfig(**{**sizes, **kept})


# At which a row is the paper's own model.
PAPER_SIZES = Scale(name="paper", title="", seeds=(), texts={})


def names_of(folder: str) -> list[str]:
    """The names of the TOML files in a folder, numbers in their order: table_2 before table_10."""
    names = [name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")]

    def parts(name: str) -> list:
        return [(int(part), "") if part.isdigit() else (0, part) for part in name.split("_")]

    return sorted(names, key=parts)


def read_experiment(name: str) -> Experiment:
    """The experiment of a name, or in a TOML file.

    Raises:
      UserError: there is none, or the file says something that is not known.
    """
    path = _path(name, DEFINITIONS, "experiment")
    values = read_toml(path)
    shared = {"base": values.pop("base")} if "base" in values else {}
    rows = [
        make(Row, {**shared, **row}, f"{path}: row {row.get('name', number)!r}")
        for number, row in enumerate(tables(values.pop("rows", []), f"{path}: rows"), 1)
    ]
    claims = [
        make(Claim, claim, f"{path}: claim {number}")
        for number, claim in enumerate(tables(values.pop("claims", []), f"{path}: claims"), 1)
    ]
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    own = {"name": _stem(path), "rows": tuple(rows), "claims": tuple(claims)}
    experiment = make(Experiment, {**values, **lists, **own}, path)
    _check_experiment(experiment, path)
    return experiment


def _check_experiment(experiment: Experiment, path: str) -> None:
    names = [row.name for row in experiment.rows]
    if not names or len(set(names)) < len(names):
        raise UserError(f"{path}: expected rows with names of their own, got {names}")
    for field, known in (("budget", BUDGETS), ("plot", PLOTS)):
        check_known([getattr(experiment, field)], known, f"{path}: {field}")
    for field, known in (("measures", MEASURES), ("columns", COLUMNS), ("tasks", TASKS)):
        check_known(getattr(experiment, field), known, f"{path}: {field}")
    check_known([experiment.speed_reference], ("", *names), f"{path}: speed_reference")
    if "speedup" in experiment.columns and not experiment.speed_reference:
        raise UserError(
            f"{path}: the column speedup needs speed_reference, the row that has speed 1"
        )
    initial = experiment.initial_tasks
    check_known(initial, TASKS, f"{path}: initial_tasks")
    # A model that others start from starts from the pretrained one itself.
    first = [task for task in TASKS if task not in initial]
    check_known(initial.values(), first, f"{path}: a task of initial_tasks")
    for task in experiment.tasks:
        where = f"{path}: fine_tuning, for {task}"
        own = fine_tuning_classes(task)
        check_settings(experiment.fine_tuning, own, where, _OF_FINE_TUNING)
    for row in experiment.rows:
        _check_row(experiment, row, f"{path}: row {row.name!r}")
    for claim in experiment.claims:
        _check_claim(experiment, claim, path)


def _check_row(experiment: Experiment, row: Row, where: str) -> None:
    check_known([row.base], MODEL_SIZES, f"{where}: base")
    check_known(row.measures, MEASURES, f"{where}: measures")
    if experiment.budget == "none":
        measured = experiment.measures_of(row)
        check_known(measured, UNTRAINED, f"{where}: with budget none, measures")
    _check_model(row, where)
    check_settings(row.data, (PretrainingDataSettings,), f"{where}: data", _OF_DATA)
    training = {name: value for name, value in row.training.items() if name != STEPS_FACTOR}
    check_settings(training, PRETRAINING, f"{where}: training", _OF_PRETRAINING)
    factor = row.training.get(STEPS_FACTOR, 1)
    if type(factor) not in (int, float) or factor <= 0:
        raise UserError(f"{where}: {STEPS_FACTOR} must be a number above 0, got {factor!r}")
    names = [other.name for other in experiment.rows]
    models = [other.name for other in experiment.rows if not other.ensemble_of]
    above = [name for name in names[: names.index(row.name)] if name in models]
    if row.warm_start_from and row.warm_start_from not in above:
        raise UserError(
            f"{where}: warm_start_from must name a row above it, got {row.warm_start_from!r};"
            f" these are {', '.join(above) or 'none'}"
        )
    check_known([row.same_shape], ("", *names), f"{where}: same_shape")
    check_known(row.ensemble_of, models, f"{where}: ensemble_of")
    check_known(row.paper, experiment.columns, f"{where}: a column of paper")
    for name, value in row.paper.items():
        if type(value) not in (int, float, str):
            raise UserError(f"{where}: paper.{name} must be a number or text, got {value!r}")


def _check_model(row: Row, where: str) -> None:
    check_settings(row.model, (AlbertConfig,), f"{where}: model", ("foreign",))
    try:
        PAPER_SIZES.model_config(row)
    except UserError as error:
        raise UserError(f"{where}: model: {error}") from None


def _check_claim(experiment: Experiment, claim: Claim, path: str) -> None:
    names = [row.name for row in experiment.rows]
    given = claim.given()
    for name in (claim.higher, *given.values()):
        is_chance = name == CHANCE and name in given.values()
        if isinstance(name, str) and name not in names and not is_chance:
            raise UserError(
                f"{path}: a claim names the row {name!r}, which is not there; its rows are {', '.join(names)}"
            )
    where = f"{path}: claim {claim.text!r}"
    if len(given) != 1:
        raise UserError(
            f"{where}: expected one of lower, near, at_most, got {', '.join(given) or 'none'}"
        )
    check_known([claim.metric], experiment.columns, f"{where}: metric")
    check_known([claim.instead], ("", *COLUMNS), f"{where}: instead")
    with_chance = [name for name, column in COLUMNS.items() if column.chance]
    if CHANCE in given.values() and claim.metric not in with_chance:
        raise UserError(
            f"{where}: {CHANCE} is known of {', '.join(with_chance)}, not of {claim.metric}"
        )
    if claim.within < 0 or claim.within and "lower" in given:
        raise UserError(
            f"{where}: within must be above 0 with near, at least 0 with at_most, and not there with lower,"
            f" got {claim.within}"
        )
    if "near" in given and not claim.within:
        raise UserError(f"{where}: near needs within, a number above 0: how far is far")


def read_scale(name: str) -> Scale:
    """The scale of a name, or in a TOML file.

    Raises:
      UserError: there is none, or the file says something that is not known.
    """
    path = _path(name, SCALES, "scale")
    values = read_toml(path)
    if isinstance(values.get("seeds"), list):
        values["seeds"] = tuple(values["seeds"])
    scale = make(Scale, {**values, "name": _stem(path)}, path)
    _check_sizes(scale, path)
    _check_texts(scale, path)
    _check_scale_settings(scale, path)
    return scale


def _check_sizes(scale: Scale, path: str) -> None:
    if not scale.seeds or min(scale.seeds) < 0:
        raise UserError(
            f"{path}: seeds must be one whole number or more, from 0; got {scale.seeds}"
        )
    if scale.seconds < 0:
        raise UserError(f"{path}: seconds must be at least 0, got {scale.seconds}")
    if unknown := set(scale.sizes) - set(TRANSLATED):
        raise UserError(f"{path}: [sizes] knows {', '.join(TRANSLATED)}; got {', '.join(unknown)}")
    for field, translation in scale.sizes.items():
        for size, ours in translation.items():
            if not size.isdigit() or ours < 1:
                raise UserError(
                    f"{path}: [sizes.{field}] must have whole numbers for whole numbers, got {size} = {ours}"
                )
    for factor, ours in scale.steps_factors.items():
        if not _is_number(factor) or ours <= 0:
            raise UserError(
                f"{path}: [steps_factors] must have numbers above 0 for numbers, got {factor} = {ours}"
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_texts(scale: Scale, path: str) -> None:
    for field in ("texts", "fallback_texts"):
        texts = getattr(scale, field)
        if "standard" not in texts and (texts or field == "texts"):
            raise UserError(
                f"{path}: [{field}] must have `standard`, the text of rows that name none; got"
                f" {', '.join(texts) or 'nothing'}"
            )
        for name, patterns in texts.items():
            if not patterns:
                raise UserError(f"{path}: [{field}] {name} must have a pattern or more, got none")
    for name, patterns in scale.fallback_texts.items():
        check_known(patterns, (SAMPLE_CORPUS,), f"{path}: [fallback_texts] {name}")


def _check_scale_settings(scale: Scale, path: str) -> None:
    for field in ("num_train_steps", "num_warmup_steps"):
        if field not in scale.training:
            raise UserError(f"{path}: [training] must have {field}")
    speed = {name: value for name, value in scale.speed.items() if name != TIMING_STEPS}
    own = {f"[experiments.{name}]": values for name, values in scale.experiments.items()}
    for place, values, not_among in (
        ("[training]", scale.training, _OF_PRETRAINING),
        ("[speed]", speed, (*_OF_PRETRAINING, *_OF_TIMING)),
        *((place, values, _OF_PRETRAINING) for place, values in own.items()),
    ):
        check_settings(values, PRETRAINING, f"{path}: {place}", not_among)
    for place, values, cls, not_among in (
        ("[model]", scale.model, AlbertConfig, ("foreign",)),
        ("[data]", scale.data, PretrainingDataSettings, _OF_DATA),
        ("[vocabulary]", scale.vocabulary, TrainSettings, _OF_VOCABULARY),
    ):
        check_settings(values, (cls,), f"{path}: {place}", not_among)
    check_known(scale.intrinsic, INTRINSIC_LIMITS, f"{path}: a name in [intrinsic]")
    if wrong := [name for name, number in scale.intrinsic.items() if number < 0]:
        raise UserError(f"{path}: [intrinsic] {wrong[0]} must be at least 0; 0 takes all")
    check_known(scale.tasks, TASKS, f"{path}: a task in [tasks]")
    for task, values in scale.tasks.items():
        where = f"{path}: [tasks.{task}]"
        check_settings(values, fine_tuning_classes(task), where, _OF_FINE_TUNING)
    if scale.speed:
        _check_speed(scale, path)


def _check_speed(scale: Scale, path: str) -> None:
    steps = scale.speed.get(TIMING_STEPS)
    default = RunConfig.log_every_steps
    interval = {"log_every_steps": default, **scale.training, **scale.speed}["log_every_steps"]
    if type(steps) is not int or steps < 2 * interval:
        raise UserError(
            f"{path}: [speed] {TIMING_STEPS} must be at least twice log_every_steps={interval}, as the first interval"
            f" does not count; got {steps}"
        )


def check_fits(
    experiment: Experiment, scale: Scale, measures: Collection[str] = (), rows: Sequence[Row] = ()
) -> None:
    """Checks that a scale has what an experiment needs of it.

    Args:
      experiment: what is to be run.
      scale: at which scale.
      measures: what is measured of what the experiment asks for; empty is all.
      rows: which of the experiment's; empty is all. Those that the scale has no sizes for do not count.

    Raises:
      UserError: something is missing in the scale, or a row's sizes contradict each other there.
    """
    where = f"scale {scale.name}, for {experiment.name}"
    used = [row for row in rows or experiment.rows if scale.has(row)]
    asked = {
        name
        for row in used
        for name in (experiment.measures_of(row))
        if name in measures or not measures
    }
    is_timed = experiment.budget == "seconds" and bool(asked - {"parameters"})
    if is_timed and not scale.seconds:
        raise UserError(f"{where}: expected `seconds` above 0 for its rows of equal time, got 0")
    if (is_timed or "speed" in asked) and not scale.speed:
        raise UserError(
            f"{where}: expected [speed] with {TIMING_STEPS}, which speed is measured with"
        )
    if "tasks" in asked:
        for task, initial in experiment.initial_tasks.items():
            if task in experiment.tasks and task in scale.tasks and initial not in scale.tasks:
                raise UserError(
                    f"{where}: expected [tasks.{initial}], which {task} starts from; [tasks] has"
                    f" {', '.join(scale.tasks)}"
                )
    if experiment.budget == "none":
        return  # its models have the paper's sizes
    for row in used:
        try:
            scale.model_config(row)
        except UserError as error:
            raise UserError(f"{where}: row {row.name!r}: {error}") from None


def _path(name: str, folder: str, what: str) -> str:
    if name.endswith(".toml"):
        return name
    if name not in names_of(folder):
        known = ", ".join(names_of(folder))
        raise UserError(f"{name}: no such {what}; known are {known}, or give a .toml file")
    return os.path.join(folder, f"{name}.toml")


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".toml")
