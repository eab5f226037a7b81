"""How many answers change in int8: a fine-tuned model's ONNX files on labeled texts, in ONNX Runtime and OpenVINO.

    python -m lab.benchmarks.int8_answers --name='SST-2' --runs=runs/seed_1,runs/seed_2 --texts=dev.jsonl
    python -m lab.benchmarks.int8_answers    # the table of docs/int8.md again, from the committed file

The first half of the texts is for calibration and is not judged. Load does not matter: nothing is timed.
"""

import dataclasses
import datetime
import json
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from typing import Any

from albert_tf import load_predictor
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.export import export_model
from albert_tf.serving.calibration import Comparison
from lab.benchmarks.run import machine
from lab.pages import with_table

RESULTS = pathlib.Path(__file__).parent / "results" / "int8_answers.json"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "int8.md"
FORMS = {
    "float32": {},
    "`int8_weights`": {"quantization": "int8_weights"},
    "`dynamic_int8`": {"quantization": "dynamic_int8"},
    "`int8`, calibrated": {"quantization": "int8"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8AnswersSettings(Settings):
    """Finished runs and labeled texts."""

    name: str = setting("", "The task, for the table.")
    runs: str = setting("", "Folders of runs, separated by commas; empty: only the table.")
    texts: str = setting("", "JSON lines as for predict, with `label` or `score`.")


def main(settings: Int8AnswersSettings) -> None:
    """Adds a task to the file of results, and writes the table."""
    results = files.read_json(str(RESULTS)) if RESULTS.exists() else {}
    if settings.runs:
        items = [json.loads(line) for line in pathlib.Path(settings.texts).read_text().splitlines()]
        middle = len(items) // 2
        judged = [compared(run, items[:middle], items[middle:]) for run in settings.runs.split(",")]
        results[settings.name] = {"date": str(datetime.date.today()), "machine": machine()}
        results[settings.name] |= {"texts": len(items) - middle, "runs": judged}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), "answers", rows(results)))


def compared(run: str, for_scales: list[dict], items: list[dict]) -> dict[str, dict[str, Any]]:
    """The number of changed answers and the metric, for each form and engine."""
    found: dict[str, dict[str, Any]] = {}
    before: list = []
    with tempfile.TemporaryDirectory() as folder:
        scales = pathlib.Path(folder) / "scales.jsonl"
        scales.write_text("\n".join(map(json.dumps, for_scales)) + "\n")
        for form, options in FORMS.items():
            if "calibrated" in form:
                options = {**options, "calibration_file": str(scales)}
            path = export_model(run, f"{folder}/{form}", format="onnx", **options)
            for engine in ("ONNX Runtime", "OpenVINO"):
                predictor = load_predictor(path)
                if engine == "OpenVINO":
                    predictor.model.session = lambda _, path=path: OpenVino(path)  # type: ignore[method-assign, union-attr]
                after = predictor.predict(items)
                before = before or after
                comparison = Comparison(items, before, after)
                name, value = comparison.metric(after) or ("", float("nan"))
                cell = {"changed": comparison.num_changed(), name: round(value, 4)}
                found.setdefault(form, {})[engine] = cell
    return found


class OpenVino:
    """A file in OpenVINO, which takes bfloat16 where the processor has it, with the methods of an ONNX session."""

    def __init__(self, path: str):
        import openvino

        self.model = openvino.Core().compile_model(path, "CPU")

    def get_outputs(self) -> Iterator[Any]:
        return (_Named(output.any_name) for output in self.model.outputs)

    def run(self, names: list[str], inputs: dict) -> list:
        outputs = self.model(inputs)
        return [outputs[name] for name in names]


@dataclasses.dataclass
class _Named:
    name: str


def rows(results: dict[str, dict]) -> list[str]:
    """A row for each task and form: changed answers and metric, the median with the range over runs."""
    header = "model | texts | form | " + " | ".join(
        f"{engine}: changed, metric" for engine in ("ONNX Runtime", "OpenVINO")
    )
    cells = []
    for task, of_task in results.items():
        for form in FORMS:
            row = [task, of_task["texts"], form]
            for engine in ("ONNX Runtime", "OpenVINO"):
                each = [list(run[form][engine].values()) for run in of_task["runs"]]
                row.append(", ".join(map(_over_runs, zip(*each, strict=True))))
            cells.append(row)
    return list(table(header, cells))


def _over_runs(values: tuple) -> str:
    middle = f"{statistics.median(values):.4g}"
    return middle if len(set(values)) == 1 else f"{middle} ({min(values):.4g} to {max(values):.4g})"


if __name__ == "__main__":
    flags.run(main, Int8AnswersSettings, description=__doc__)
