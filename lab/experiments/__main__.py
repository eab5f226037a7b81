"""Runs and reports experiments that repeat the paper's tables and figures.

Use it as python -m lab.experiments COMMAND ...; COMMAND --help explains its flags.
"""

import dataclasses
import inspect
import json
import os
import shlex
import sys
from collections.abc import Mapping

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import LARGEST_INT32, Settings, changed, setting
from lab.experiments import declarations, development_set


def _names(value: str, folder: str = "") -> list[str]:
    """The names in a flag's value, separated by commas; "all" means the names of the TOML files in a folder."""
    is_all = folder and value == "all"
    return declarations.names_of(folder) if is_all else list(filter(None, value.split(",")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultSettings(Settings):
    """The experiments, their scale, and the folder of their results."""

    experiments: str = setting(
        "all",
        "Names of experiments or TOML files, separated by commas. The name of this flag can be omitted.",
    )
    scale: str = setting("nano", "Name of a scale, or a TOML file.")
    results_dir: str = setting("lab/experiments/results", "Folder of the results.")

    def chosen(self) -> list[declarations.Experiment]:
        """The chosen experiments."""
        names = _names(self.experiments, declarations.DEFINITIONS)
        return [declarations.read_experiment(name) for name in names]

    def chosen_scales(self) -> list[declarations.Scale]:
        """The chosen scales."""
        return list(map(declarations.read_scale, _names(self.scale, declarations.SCALES)))

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that the experiments and the scale exist; raises a `UserError`."""
        self.chosen()
        self.chosen_scales()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(ResultSettings):
    """The experiments and scales of the report."""

    experiments: str = changed(
        ResultSettings,
        "experiments",
        "",
        help="TOML files of your own experiments, reported in addition to the project's, separated by commas.",
    )
    scale: str = setting("all", "Names of scales or TOML files, separated by commas.")

    def chosen(self) -> list[declarations.Experiment]:
        """All experiments of the project, and the user's own."""
        names = [*_names("all", declarations.DEFINITIONS), *_names(self.experiments)]
        return [declarations.read_experiment(name) for name in dict.fromkeys(names)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentSettings(ResultSettings):
    """Which experiments are run, and with which data."""

    experiments: str = changed(ResultSettings, "experiments", "", required=True)
    rows: str = setting(
        "", "Rows to run, by name or by number from 1, separated by semicolons; empty means all."
    )
    seeds: str = setting(
        "", "Seeds to run, separated by commas; empty means the seeds of the scale."
    )
    measures: str = setting(
        "",
        f"What to measure, of {', '.join(declarations.MEASURES)}, separated by commas; empty means all"
        " measures of the experiment.",
    )
    tasks: str = setting("", "Tasks for fine-tuning, separated by commas; empty means all.")
    data_dir: str = setting(
        "",
        "Folder with text/ and, for the tasks, glue/, squad/ and race/; empty uses the text of"
        " data_prep.sample_corpus.",
        input_path=True,
    )
    work_dir: str = setting(
        "runs/experiments", "Folder for text, vocabulary, records and training runs."
    )

    def __post_init__(self):
        super().__post_init__()
        choices_of_flags = {"measures": declarations.MEASURES, "tasks": declarations.TASKS}
        for flag, choices in choices_of_flags.items():
            unknown = [name for name in _names(getattr(self, flag)) if name not in choices]
            if unknown:
                self.refuse(flag, f"must be among {', '.join(choices)}; got {unknown[0]!r}")
        seeds = _names(self.seeds)
        if not all(seed.isdecimal() and int(seed[:11]) <= LARGEST_INT32 for seed in seeds):
            self.refuse("seeds", f"must be numbers separated by commas, got {self.seeds!r}")

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that the chosen experiments, rows and scale exist and fit each other; raises a `UserError`."""
        scale = declarations.read_scale(self.scale)
        measures = tuple(_names(self.measures))
        for experiment in self.chosen():
            declarations.check_fits(experiment, scale, measures, self.chosen_rows(experiment))

    def chosen_rows(self, experiment: declarations.Experiment) -> list[declarations.Row]:
        """The chosen rows, given by name or number."""
        names = [name.strip() for name in self.rows.split(";") if name.strip()]
        numbers = {str(number): row for number, row in enumerate(experiment.rows, 1)}
        chosen = [numbers.get(name) or experiment.row(name) for name in names]
        return chosen or list(experiment.rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Settings):
    """A model, and the development set for its intrinsic evaluation."""

    model: str = setting(
        "",
        "The model, as for --init_checkpoint of run_pretraining.py. The name of this flag can be omitted.",
        required=True,
        input_path=True,
    )
    intrinsic_dir: str = setting(
        "", "Output folder of the command development_set.", required=True, input_path=True
    )
    probe_dir: str = setting(
        "",
        "The same for other text, on which probes of NSP and SOP are trained; empty makes no probes.",
        input_path=True,
    )


def show_list(settings: ResultSettings) -> None:
    """Prints the experiments with their rows.

    python -m lab.experiments list
    python -m lab.experiments list table_5,table_8 --scale=shapes
    """
    scale = declarations.read_scale(settings.scale)
    for experiment in settings.chosen():
        print(f"{experiment.name:<10} {experiment.title} ({experiment.source})")
        for number, row in enumerate(experiment.rows, 1):
            left_out = "" if scale.has_row(experiment, row) else f"  (not at scale {scale.name})"
            print(f"  {number:>2}  {row.name}{left_out}")
    print(f"scales: {', '.join(declarations.names_of(declarations.SCALES))}")


def run_experiments(settings: ExperimentSettings) -> None:
    """Runs experiments: each row with each seed, from records to the measures of the table.

    python -m lab.experiments run table_5 --data_dir=data --rows='SOP;NSP' --seeds=1,2,3
    python -m lab.experiments run table_4 --scale=nano --results_dir=my_results

    Each row and seed has a JSON file in --results_dir, which also records the command. Measures that are already in it
    are not made again, so the same command continues an experiment that was stopped.
    """
    # Imported here, so that a wrong flag is an error before TensorFlow is loaded.
    from lab.experiments.engine import Engine
    from lab.experiments.preparation import Workspace

    scale = declarations.read_scale(settings.scale)
    work = [(experiment, settings.chosen_rows(experiment)) for experiment in settings.chosen()]
    measures = tuple(_names(settings.measures))
    tasks = tuple(_names(settings.tasks))
    workspace = Workspace(scale, settings.data_dir, settings.work_dir)
    command = shlex.join(["python", "-m", "lab.experiments", "run", *sys.argv[1:]])
    engine = Engine(workspace, settings.results_dir, measures, tasks, command)
    seeds = list(map(int, _names(settings.seeds))) or scale.seeds
    for experiment, rows in work:
        try:
            engine.run(experiment, rows, seeds)
        except OSError as error:
            raise UserError(
                f"{error.filename}: cannot be written ({error.strerror}): make room or choose another folder; the"
                " same command continues"
            ) from None


def report(settings: ReportSettings) -> None:
    """Writes the tables and plots of all results, next to the paper's numbers.

    python -m lab.experiments report --results_dir=my_results
    """
    from lab.report import write_report

    print(write_report(settings.chosen(), settings.chosen_scales(), settings.results_dir))


def evaluate(settings: EvaluationSettings) -> None:
    """Prints the intrinsic evaluation of a model and the changes by its layers, as JSON.

    python -m lab.experiments evaluate runs/base --intrinsic_dir=intrinsic

    The command `development_set` makes the folder --intrinsic_dir.
    """
    from lab.experiments import intrinsic, layer_changes

    model = intrinsic.load(settings.model, settings.intrinsic_dir)
    tasks = intrinsic.PAIR_TASKS if settings.probe_dir else ()
    probes = {task: os.path.join(settings.probe_dir, task) for task in tasks}
    measured = {
        "intrinsic": intrinsic.measure(model, settings.intrinsic_dir, probes, 0, 0),
        "layer_changes": layer_changes.measure(model, settings.intrinsic_dir, 0),
    }
    print(json.dumps(measured, indent=2))


def make_development_set(settings: development_set.IntrinsicSettings) -> None:
    """Turns passages of SQuAD and RACE into the paper's development set; a killed command is resumed by the same one.

    python -m lab.experiments development_set --squad_file=squad/dev-v1.1.json --race_dir=RACE/dev \\
        --spm_model_file=30k-clean.model --output_dir=intrinsic
    """
    for task, number in development_set.make(settings).items():
        print(f"{number:,} examples in {os.path.join(settings.output_dir, task)}")


COMMANDS = {
    "list": (show_list, ResultSettings, ("experiments",)),
    "run": (run_experiments, ExperimentSettings, ("experiments",)),
    "report": (report, ReportSettings, ("experiments",)),
    "development_set": (make_development_set, development_set.IntrinsicSettings, ()),
    "evaluate": (evaluate, EvaluationSettings, ("model",)),
}


def run() -> None:
    """Runs the command that the first argument names; the other arguments are its flags."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in COMMANDS:
        if name != "--help":
            print(f"{name}: no such command", file=sys.stderr)
        print(__doc__)
        for command, (function, *_) in COMMANDS.items():
            print(f"  {command:<17}{function.__doc__.partition(chr(10))[0]}")
        sys.exit(0 if name == "--help" else flags.FLAG_ERROR)
    sys.argv[:2] = [f"experiments {name}"]
    function, settings, positional = COMMANDS[name]
    description = inspect.getdoc(function)
    flags.run(function, settings, description=description, positional=positional)


if __name__ == "__main__":
    run()
