"""The paper's tables and figures as commands.

    python -m experiments list
    python -m experiments run table_5 --scale=nano --data_dir=data --rows='SOP;NSP' --seeds=1,2,3
    python -m experiments report
    python -m experiments evaluate runs/base --intrinsic_dir=intrinsic

Each of the four explains its flags with --help.
"""

import dataclasses
import json
import os
import sys

from albert_tf.core import flags
from albert_tf.core.settings import Settings, changed, setting
from albert_tf.training.settings import PRECISIONS, RunConfig
from experiments import declarations


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultSettings(Settings):
    """Which experiments at which scale, and where their results are."""

    experiments: str = setting(
        "all",
        "Names of experiments or TOML files, separated by commas. The name of the flag may be left out.",
    )
    scale: str = setting("nano", "Name of a scale, or a TOML file.")
    results_dir: str = setting(f"{declarations.FOLDER}/results", "Folder of the results.")

    def chosen(self) -> list[declarations.Experiment]:
        """The experiments that are named.

        Raises:
          UserError: one does not exist.
        """
        names = self.experiments.split(",")
        if names == ["all"]:
            names = declarations.names_of(declarations.DEFINITIONS)
        return [declarations.read_experiment(name) for name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(ResultSettings):
    """What the report is about."""

    experiments: str = changed(
        ResultSettings,
        "experiments",
        "",
        help="TOML files of experiments of your own, reported besides those of the project, separated by commas.",
    )
    scale: str = setting("all", "Names of scales or TOML files, separated by commas.")

    def chosen(self) -> list[declarations.Experiment]:
        """All experiments of the project, and those that are named."""
        names = declarations.names_of(declarations.DEFINITIONS)
        names += [name for name in self.experiments.split(",") if name and name not in names]
        return [declarations.read_experiment(name) for name in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentSettings(ResultSettings):
    """What is run, and on which data."""

    experiments: str = changed(ResultSettings, "experiments", "", required=True)
    rows: str = setting(
        "", "Rows to run, by name or number from 1, separated by semicolons; empty is all."
    )
    seeds: str = setting("", "Seeds to run, separated by commas; empty is those of the scale.")
    measures: str = setting(
        "",
        f"What to measure, of {', '.join(declarations.MEASURES)}, separated by commas; empty is all"
        " that the experiment asks for.",
    )
    tasks: str = setting("", "Which tasks to fine-tune on, separated by commas; empty is all.")
    data_dir: str = setting(
        "",
        "Folder with text/ and, for the tasks, glue/, squad/ and race/; without it the text is that of"
        " data_prep.sample_corpus.",
        input_path=True,
    )
    work_dir: str = setting(
        "runs/experiments", "Folder for text, vocabulary, records and training runs."
    )
    mixed_precision: str = changed(
        RunConfig,
        "mixed_precision",
        "",
        choices=("", *PRECISIONS),
        help="Precision of matrix products in pretraining and fine-tuning; empty is the scale's.",
    )

    def __post_init__(self):
        super().__post_init__()
        for flag, known in (("measures", declarations.MEASURES), ("tasks", declarations.TASKS)):
            names = filter(None, getattr(self, flag).split(","))
            if unknown := [name for name in names if name not in known]:
                self.refuse(flag, f"must be among {', '.join(known)}; got {unknown[0]!r}")
        if not all(seed.isdigit() for seed in filter(None, self.seeds.split(","))):
            self.refuse("seeds", f"must be numbers separated by commas, got {self.seeds!r}")

    def chosen_scale(self) -> declarations.Scale:
        """The scale that is named, with the precision that is asked for."""
        scale = declarations.read_scale(self.scale)
        if not self.mixed_precision:
            return scale
        training = {**scale.training, "mixed_precision": self.mixed_precision}
        return dataclasses.replace(scale, training=training)

    def chosen_rows(self, experiment: declarations.Experiment) -> list[declarations.Row]:
        """The rows that are named.

        Raises:
          UserError: there is no such row.
        """
        names = [name.strip() for name in self.rows.split(";") if name.strip()]
        numbers = {str(number): row for number, row in enumerate(experiment.rows, 1)}
        return [numbers.get(name) or experiment.row(name) for name in names] or list(
            experiment.rows
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Settings):
    """A model, and the development set that its intrinsic numbers are of."""

    model: str = setting(
        "",
        "The model: whatever --init_checkpoint of run_pretraining.py takes. The name of the flag may be left out.",
        required=True,
        input_path=True,
    )
    intrinsic_dir: str = setting(
        "", "What data_prep.create_intrinsic_eval has written.", required=True, input_path=True
    )
    probe_dir: str = setting(
        "",
        "The same of other text, which probes of NSP and SOP are fitted to; none without.",
        input_path=True,
    )
    max_examples: int = setting(0, "Most examples of each set; 0 takes all.", minimum=0)


def show_list(settings: ResultSettings) -> None:
    """Prints the experiments with their rows."""
    scale = declarations.read_scale(settings.scale)
    for experiment in settings.chosen():
        print(f"{experiment.name:<10} {experiment.title} ({experiment.source})")
        for number, row in enumerate(experiment.rows, 1):
            left_out = "" if scale.has(row) else f"  (not at scale {scale.name})"
            print(f"  {number:>2}  {row.name}{left_out}")
    print(f"scales: {', '.join(declarations.names_of(declarations.SCALES))}")


def run(settings: ExperimentSettings) -> None:
    """Runs experiments."""
    # Here, so that a wrong flag is refused before TensorFlow is loaded.
    from experiments.engine import Engine
    from experiments.preparation import Workspace

    scale = settings.chosen_scale()
    work = [(experiment, settings.chosen_rows(experiment)) for experiment in settings.chosen()]
    measures = tuple(filter(None, settings.measures.split(",")))
    for experiment, rows in work:
        declarations.check_fits(experiment, scale, measures, rows)
    engine = Engine(
        Workspace(scale, settings.data_dir, settings.work_dir),
        settings.results_dir,
        measures,
        tuple(filter(None, settings.tasks.split(","))),
    )
    seeds = [int(seed) for seed in settings.seeds.split(",") if seed] or scale.seeds
    for experiment, rows in work:
        engine.run(experiment, rows, seeds)


def report(settings: ReportSettings) -> None:
    """Writes the tables and plots of what was run."""
    from experiments.report import write_report

    names = settings.scale.split(",")
    if names == ["all"]:
        names = declarations.names_of(declarations.SCALES)
    scales = [declarations.read_scale(name) for name in names]
    print(write_report(settings.chosen(), scales, settings.results_dir))


def evaluate(settings: EvaluationSettings) -> None:
    """Prints the intrinsic numbers of any checkpoint, and how much its layers change their input, as JSON."""
    from experiments import intrinsic, layer_changes

    model = intrinsic.load(settings.model, settings.intrinsic_dir)
    probes = {
        task: os.path.join(settings.probe_dir, task)
        for task in intrinsic.SENTENCE_TASKS
        if settings.probe_dir
    }
    limit = settings.max_examples
    found = {
        "intrinsic": intrinsic.measure(model, settings.intrinsic_dir, probes, limit, limit),
        "layer_changes": layer_changes.measure(model, settings.intrinsic_dir, limit),
    }
    print(json.dumps(found, indent=2))


COMMANDS = {
    "list": (show_list, ResultSettings, "experiments"),
    "run": (run, ExperimentSettings, "experiments"),
    "report": (report, ReportSettings, "experiments"),
    "evaluate": (evaluate, EvaluationSettings, "model"),
}


def main() -> None:
    """Takes the first argument for the command and leaves the others to its flags."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "help"):
        print(__doc__.strip())
        return
    if name not in COMMANDS:
        print(f"experiments: {name!r}: expected {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(flags.FLAG_ERROR)
    sys.argv[:2] = [f"experiments {name}"]
    function, settings, positional = COMMANDS[name]
    flags.run(function, settings, positional=positional)


if __name__ == "__main__":
    main()
