"""What an experiment and a scale are: the TOML files in `definitions/` and `scales/`, read and checked.

A definition says what the paper did, in the paper's own sizes; a scale says what stands for these sizes on a machine.
Imports no TensorFlow.
"""

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import MODEL_SIZES, AlbertConfig
from albert_tf.errors import UserError

FOLDER = os.path.dirname(os.path.abspath(__file__))
DEFINITIONS, SCALES = (os.path.join(FOLDER, name) for name in ("definitions", "scales"))

MEASURES = ("parameters", "speed", "intrinsic", "layer_changes", "tasks")
# Instead of a row or a number in a claim: what giving the commonest answer to all scores.
CHANCE = "chance"
# What a row's own budget is: the scale's number of steps, or its number of seconds.
BUDGETS = ("none", "steps", "seconds")
# The columns of the paper's Tables 2 to 8.
TABLE_TASKS = ("squad1.1", "squad2.0", "mnli", "sst2", "race")
PLOTS = ("", "dots", "curves", "layers")
# Sizes that a scale translates; the feed-forward width keeps its ratio to the hidden width.
TRANSLATED = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups"),
    "num_attention_heads",
)


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
    measures: Sequence[str] = ()
    ensemble_of: Sequence[str] = ()
    paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A comparison that the paper makes.

    Attributes:
      text: in words.
      metric: the column that is compared.
      higher: the row that has more of it.
      lower: the row that has less of it, or a number.
      near: instead of `lower`: a row or a number that `higher` is not far from.
      within: how far is far.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
      name: of its file.
      title: what is compared.
      source: where it stands in the paper.
      rows: what is trained.
      budget: what every row gets the same of; "none" trains nothing.
      measures: what is measured of each row.
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
      fallback_texts: the same without --data_dir.
      vocabulary: settings of data_prep.train_sentencepiece.
      data: settings of data_prep.create_pretraining_data.
      training: settings of run_pretraining.py.
      experiments: settings of run_pretraining.py that differ in an experiment, by its name.
      steps_factors: what stands for a row's `steps_factor`; without an entry, it stays.
      seconds: of the experiments whose rows get equal time.
      model: fields of `AlbertConfig` that replace the paper's, unless a row names them.
      sizes: for each of `TRANSLATED`, what stands for the paper's number; without an entry, a number stays.
      intrinsic: `max_examples` of each evaluation, and of the probes' training.
      speed: settings of the runs that measure speed.
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
    values = _read_toml(path)
    base = values.pop("base", None)
    rows = [_made(Row, {"base": base, **row}, path) for row in values.pop("rows", ())]
    claims = [_made(Claim, claim, path) for claim in values.pop("claims", ())]
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    own = {"name": _stem(path), "rows": tuple(rows), "claims": tuple(claims)}
    experiment = _made(Experiment, {**values, **lists, **own}, path)
    _check_experiment(experiment, path)
    return experiment


def _check_experiment(experiment: Experiment, path: str) -> None:
    _check_rows(experiment, path)
    named = [
        name for claim in experiment.claims for name in (claim.higher, claim.lower, claim.near)
    ]
    names = [row.name for row in experiment.rows]
    if wrong := [
        name for name in named if isinstance(name, str) and name not in ("", CHANCE, *names)
    ]:
        raise UserError(f"{path}: a claim names the row {wrong[0]!r}, which is not there")
    for field, known in (("budget", BUDGETS), ("plot", PLOTS)):
        if getattr(experiment, field) not in known:
            raise UserError(f"{path}: {field} must be one of {', '.join(known)}")
    if unknown := set(experiment.measures) - set(MEASURES):
        raise UserError(f"{path}: measures must be among {', '.join(MEASURES)}; got {unknown}")


def _check_rows(experiment: Experiment, path: str) -> None:
    names = [row.name for row in experiment.rows]
    if not names or len(set(names)) < len(names):
        raise UserError(f"{path}: expected rows with names of their own, got {names}")
    for row in experiment.rows:
        if row.base not in MODEL_SIZES:
            raise UserError(
                f"{path}: row {row.name!r}: base must be one of {', '.join(MODEL_SIZES)}; got {row.base!r}"
            )
        if row.warm_start_from and row.warm_start_from not in names[: names.index(row.name)]:
            raise UserError(
                f"{path}: row {row.name!r}: warm_start_from must name a row above it, got {row.warm_start_from!r}"
            )


def read_scale(name: str) -> Scale:
    """The scale of a name, or in a TOML file.

    Raises:
      UserError: there is none, or the file says something that is not known.
    """
    path = _path(name, SCALES, "scale")
    values = _read_toml(path)
    seeds = tuple(values.pop("seeds", ()))
    scale = _made(Scale, {**values, "name": _stem(path), "seeds": seeds}, path)
    if unknown := set(scale.sizes) - set(TRANSLATED):
        raise UserError(f"{path}: [sizes] knows {', '.join(TRANSLATED)}; got {', '.join(unknown)}")
    return scale


def _path(name: str, folder: str, what: str) -> str:
    if name.endswith(".toml"):
        return name
    if name not in names_of(folder):
        known = ", ".join(names_of(folder))
        raise UserError(f"{name}: no such {what}; known are {known}, or give a .toml file")
    return os.path.join(folder, f"{name}.toml")


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".toml")


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: is not TOML ({error})") from None


def _made(cls: type, values: Mapping[str, Any], path: str) -> Any:
    """An instance of a dataclass; every key must be a field, and every field without a default be there."""
    known = {field.name: field for field in dataclasses.fields(cls)}
    if unknown := set(values) - set(known):
        raise UserError(
            f"{path}: {', '.join(sorted(unknown))}: unknown here; known are {', '.join(known)}"
        )
    missing = [
        name
        for name, field in known.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{path}: {missing[0]} is missing in {values.get('name') or cls.__name__}")
    return cls(**values)
