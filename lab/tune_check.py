r"""Checks that `albert-tf tune` finds the fastest form: its choices in short runs, and all forms measured for long.

    python -m lab.tune_check models/albert-minilm-l6 --input_file=texts.txt

The measurement of `tune` is run several times with its own seconds, and once with many more, in which every form that
is exact enough takes many turns. What a choice loses is one minus its speed in the long run, relative to that of the
fastest form there. `python -m lab.hidden_instructions ...` before the command checks it for other processors; the
output file has an entry for each model and each set of instructions.
"""

import dataclasses
import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.core import flags
from albert_tf.core.settings import Settings, changed, setting
from albert_tf.formats import layouts
from albert_tf.serving.predictors import load_predictor
from albert_tf.serving.tuning import REFERENCE, Tuning
from albert_tf.tune import TuneSettings
from lab import hidden_instructions, machine, report, tables

PAGE = "docs/guides/speed.md"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """The model, the texts, and how long is measured."""

    model: str = setting("", "Any model that `tune` takes.", required=True, input_path=True)
    input_file: str = setting("", "Lines of text.", required=True, input_path=True)
    seconds: float = setting(TuneSettings.seconds, "Of a short run.", minimum=1.0)
    repetitions: int = setting(3, "Short runs.", minimum=1)
    long_seconds: float = setting(240.0, "Of the long run.", minimum=1.0)
    min_cosine: float = changed(TuneSettings, "min_cosine", TuneSettings.min_cosine)
    output_file: str = setting("docs/results/data/tune_check.json", "JSON file of the results.")


def main(settings: CheckSettings) -> None:
    """Measures, prints, and writes the results and the table of the page."""
    choices = []
    for _ in range(settings.repetitions):
        tuning = tuned(settings, settings.seconds)
        choices.append(tuning.best(settings.min_cosine).form.title())
        print(f"chosen in {settings.seconds:g} s: {choices[-1]}", flush=True)
    long = tuned(settings, settings.long_seconds)
    speeds = {
        measured.form.title(): long.num_texts / measured.median_seconds
        for measured in long.measured
    }
    exact = [measured.form.title() for measured in long.exact(settings.min_cosine)]
    fastest = max(speeds[title] for title in exact)
    result = {
        "model": pathlib.Path(settings.model).name,
        "hidden": [*hidden_instructions.hidden()],
        "instructions": hidden_instructions.instructions(),
        "processor": machine.processor_name(),
        "date": f"{datetime.date.today()}",
        "commit": machine.commit(".", short=True),
        "seconds": settings.seconds,
        "long_seconds": settings.long_seconds,
        "texts": long.num_texts,
        "texts_per_processor_second": {title: round(speed, 1) for title, speed in speeds.items()},
        "exact_enough": exact,
        "chosen": choices,
        "lost": [round(1 - speeds[title] / fastest, 4) for title in choices],
    }
    print(json.dumps(result, indent=2))
    runs = hidden_instructions.with_run(settings.output_file, result)
    report.replace_parts(PAGE, {"tune check": table_of(runs)})


def tuned(settings: CheckSettings, seconds: float) -> Tuning:
    """The forms of the model as `albert-tf tune` measures them."""
    predictor = load_predictor(settings.model, engine=REFERENCE.engine.name)
    lines = pathlib.Path(settings.input_file).read_text(encoding="utf-8").splitlines()
    examples = [predictor.check(line) for line in lines if line.strip()]
    tuning = Tuning(layouts.read_weights(settings.model), predictor, examples, seconds)
    tuning.run(settings.min_cosine)
    return tuning


def table_of(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each model and set of instructions."""
    rows = []
    for run in runs:
        speeds = run["texts_per_processor_second"]
        fastest = max(run["exact_enough"], key=speeds.__getitem__)
        chosen = [
            f"{title} ({100 * lost:.1f} %)"
            for title, lost in dict(zip(run["chosen"], run["lost"], strict=True)).items()
        ]
        rows.append(
            (
                run["model"],
                hidden_instructions.title_of(run["instructions"]),
                f"{fastest} ({speeds[fastest]:.0f})",
                ", ".join(chosen),
                len(run["chosen"]),
            )
        )
    return tables.table(
        "model | processor | fastest in the long run (texts per second) | chosen by tune (loses) | runs of tune",
        rows,
    )


if __name__ == "__main__":
    flags.run(main, CheckSettings, description=__doc__, positional=("model",))
