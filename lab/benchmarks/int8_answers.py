"""What int8 and bfloat16 cost on fine-tuned runs: the task's own metric, and the answers that change.

    python -m lab.benchmarks.int8_answers --runs_dir=small           # the folder of `python -m lab.small_tasks`
    python -m lab.benchmarks.int8_answers    # the table of docs/int8.md again, from the committed file

A finished run is judged once: the same command adds tasks and seeds that were finished since. Texts for calibration
come from the training data. Load does not matter: nothing is timed. OpenVINO is left out if it is not installed.
"""

import contextlib
import dataclasses
import datetime
import functools
import importlib.util
import io
import json
import multiprocessing
import pathlib
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import scipy.stats

from albert_tf import load_predictor
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.export import export_model
from albert_tf.formats import description
from albert_tf.serving import calibration, onnx_model
from albert_tf.tasks import metrics, registry
from albert_tf.tasks.classification.predictor import ClassificationPredictor as Classifier
from albert_tf.tasks.predictor import Answer, Predictor
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.tagging import entities
from lab.benchmarks.run import machine
from lab.pages import with_table
from lab.small_tasks.tasks import TASKS

RESULTS = pathlib.Path(__file__).parent / "results" / "int8_answers.json"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "int8.md"
MOST_LOST = 0.4  # points
_METRICS = {"STS-B": "spearman", "SQuAD": "f1"}  # others: the first metric of the task
_EXPORTS: Mapping[str, dict[str, str]] = {
    "float32": {"format": "onnx"},
    "weights": {"format": "onnx", "quantization": "int8_weights"},
    "dynamic": {"format": "onnx", "quantization": "dynamic_int8"},
    "calibrated": {"format": "onnx", "quantization": "int8"},
    "tflite": {"format": "tflite", "quantization": "dynamic_int8"},
    "bfloat16": {"dtype": "bfloat16"},
}
# Names of `engines.ENGINES` -> the export, and its column in the table; without a title, it is only in the file.
FORMS = {
    "onnx_runtime": ("float32", ""),
    "onnx_runtime_weights": ("weights", "`int8_weights`"),
    "onnx_runtime_int8": ("dynamic", "`dynamic_int8`"),
    "onnx_runtime_static": ("calibrated", "`int8`, calibrated"),
    "openvino_static": ("calibrated", "the same in OpenVINO"),
    "openvino": ("float32", "bfloat16 in OpenVINO"),
    "openvino_int8": ("dynamic", ""),
    "tflite_int8": ("tflite", "TFLite `dynamic_int8`"),
    "saved_model_bfloat16": ("bfloat16", ""),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8AnswersSettings(Settings):
    """Finished runs."""

    runs_dir: str = setting("", "--output_dir of lab.small_tasks; empty: only the table.")
    tasks: str = setting(
        "SST-2,MRPC,STS-B,RTE,CoLA,QNLI,MNLI,SQuAD,WNUT",
        "Tasks, separated by commas; those without finished runs are left out.",
    )
    calibration_texts: int = setting(256, "Number of training texts for calibration.", minimum=1)
    output_file: str = setting(str(RESULTS), "JSON file of the results; its table is printed.")


def main(settings: Int8AnswersSettings) -> None:
    """Adds the runs that are not in the file of results, and writes the table."""
    path = pathlib.Path(settings.output_file)
    results: dict[str, Any] = files.read_json(str(path)) if path.exists() else {"tasks": {}}
    for name in settings.tasks.split(",") if settings.runs_dir else ():
        known = results["tasks"].get(name, {"metric": metric_of(name), "runs": {}})
        folder = pathlib.Path(settings.runs_dir) / "runs" / name / "model"
        for run in sorted(folder.glob("seed_*/results.json")):
            seed = run.parent.name.removeprefix("seed_")
            recorded = files.read_json(str(run))["eval"][known["metric"]]
            if known["runs"].get(seed, {}).get("recorded") == recorded:
                continue
            # A process for each run returns the memory of its models.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                job = pool.submit(judged, str(run.parent), name, settings.calibration_texts)
                known["runs"][seed] = {"recorded": recorded, **job.result()}
            print(f"{name}, seed {seed}: {json.dumps(known['runs'][seed])}", flush=True)
            results["tasks"][name] = known
            results |= {"date": str(datetime.date.today()), "machine": machine()}
            files.write_bytes(str(path), f"{json.dumps(results, indent=1)}\n".encode())
    print("\n".join(rows(results["tasks"])))
    if path == RESULTS:
        PAGE.write_text(with_table(PAGE.read_text(), "answers", rows(results["tasks"])))


def metric_of(name: str) -> str:
    """The metric by which a task is judged."""
    return _METRICS.get(name, TASKS[name].metrics[0])


# --- A run ---


def judged(run: str, name: str, calibration_texts: int) -> dict[str, Any]:
    """The score in percent of a run's model, `texts` (their number), and `forms`: `score` and `changed` of each."""
    predictor = load_predictor(run)
    source = source_of(run, predictor)
    with contextlib.redirect_stdout(io.StringIO()):
        training, examples = source.read("train"), source.read("eval")
    for_scales = random.Random(1).sample(training, min(calibration_texts, len(training)))
    items = list(map(item_of, examples))
    before = predictor.predict(items)
    score = lambda answers: round(100 * score_of(name, predictor, examples, answers), 4)  # noqa: E731
    forms: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        scales = pathlib.Path(folder, "scales.jsonl")
        scales.write_text("".join(f"{json.dumps(item_of(one))}\n" for one in for_scales))
        for export, options in _EXPORTS.items():
            calibrates = {"calibration_file": str(scales)} if export == "calibrated" else {}
            if options.get("format") != "onnx" and not isinstance(predictor, Classifier):
                continue  # there is no TFLite for other tasks
            with contextlib.redirect_stdout(io.StringIO()):
                path = export_model(run, f"{folder}/{export}", **options, **calibrates)  # type: ignore[arg-type]
            for form, (of_export, _) in FORMS.items():
                if of_export == export and (compute := computing(form, path, predictor)):
                    predictor.compute = compute
                    after = predictor.predict(items)
                    changed = sum(map(calibration.is_changed, before, after))
                    forms[form] = {"score": score(after), "changed": changed}
    return {"model": score(before), "texts": len(items), "forms": forms}


def source_of(run: str, predictor: Predictor) -> Any:
    """The data with which a run was trained and evaluated."""
    known = description.describe(run)
    definition = registry.find(known.task_name)
    assert definition, run
    source = definition.source(definition.settings(**known.settings))
    source.labels = source.labels or predictor.model.config.labels
    return source


def item_of(example: Any) -> dict[str, Any]:
    """An example as `predict` reads it."""
    example = example[1] if type(example) is tuple else example  # numbered
    if hasattr(example, "words"):
        return {"tokens": list(example.words)}
    names = ("text_a", "text_b", "question", "context")
    return {name: value for name in names if (value := getattr(example, name, None)) is not None}


def score_of(
    name: str, predictor: Predictor, examples: Sequence, answers: Sequence[Answer]
) -> float:
    """The metric of a task, at most 1; of several groups, that of the first."""
    labels = list(predictor.model.config.labels)
    if name == "SQuAD":
        questions = [question for _, question in examples]
        texts = {one.id: answer["answer"] for one, answer in zip(questions, answers, strict=True)}
        return squad_answers.score_v1(questions, texts)["f1"] / 100
    if "tags" in answers[0]:
        true = [[labels[tag] for tag in sentence.tags] for _, sentence in examples]
        scores = entities.scores(true, [answer["tags"] for answer in answers])
        return scores.get("micro avg", {}).get("f1-score", 0.0)
    pairs = [
        (answer["score"] if "score" in answer else labels.index(answer["label"]), example.label)
        for example, answer in zip(examples, answers, strict=True)
        if example.group == examples[0].group
    ]
    return metrics.METRICS[metric_of(name)](*map(np.array, zip(*pairs, strict=True)))


# --- Engines ---


def computing(form: str, path: str, predictor: Predictor) -> Any:
    """What computes the outputs of an export; None without its package."""
    config = predictor.model.config
    if form.startswith("openvino"):
        has_package = importlib.util.find_spec("openvino")
        return OpenVino({onnx_model.MODEL: path}, config) if has_package else None
    if form.startswith("onnx"):
        return onnx_model.OnnxModel({onnx_model.MODEL: path}, config)
    return (_TFLite if form.startswith("tflite") else _SavedModel)(path, predictor)


class OpenVino(onnx_model.OnnxModel):
    """An ONNX file in OpenVINO, which takes bfloat16 where the processor has it."""

    @functools.cache  # noqa: B019 - there is one file
    def _compiled(self):
        import openvino

        return openvino.Core().compile_model(self._contents[onnx_model.MODEL], "CPU")

    def outputs(self, file, features):
        outputs = self._compiled()(onnx_model.inputs_of(features))
        return {output.any_name: array for output, array in outputs.items()}


class _SavedModel:
    """An export that computes ids."""

    def __init__(self, path: str, predictor: Predictor):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (the export uses its operations)

        self._model = tf.saved_model.load(path)

    def __call__(self, features):
        return {"logits": self._model(with_all_inputs(features))["logits"].numpy()}


class _TFLite:
    """A TFLite file, which takes one sequence of the maximum length."""

    def __init__(self, path: str, predictor: Predictor):
        from albert_tf.serving import tflite

        self._run = tflite.runner(files.read_bytes(path))
        self._length = predictor.task_settings["max_seq_length"]

    def __call__(self, features):
        padded = {
            name: np.pad(array, [(0, 0), (0, self._length - array.shape[1])])
            for name, array in with_all_inputs(features).items()
        }
        rows = [
            self._run(**{name: array[row : row + 1] for name, array in padded.items()})["logits"]
            for row in range(len(features["input_ids"]))
        ]
        return {"logits": np.concatenate(rows)}


def with_all_inputs(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Features with a mask and segments, int32."""
    ids = features["input_ids"]
    every = {"input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids), **features}
    return {name: array.astype(np.int32) for name, array in every.items()}


# --- The table ---


def rows(tasks: Mapping[str, Any]) -> list[str]:
    """A row for each task: the model's mean score, and for each form what it changes."""
    titles = {form: title for form, (_, title) in FORMS.items() if title}
    cells = []
    for name, task in tasks.items():
        runs = list(task["runs"].values())
        texts = runs[0]["texts"]
        mean = f"{statistics.mean(run['model'] for run in runs):.2f}"
        row = [f"{name}, {task['metric']}", f"{len(runs)} x {texts:,}", mean]
        cells.append([*row, *(_cell(runs, form) for form in titles)])
    return table(" | ".join(["task", "runs x texts", "model", *titles.values()]), cells)


def _cell(runs: Sequence[Mapping], form: str) -> str:
    """Mean difference with its interval, difference of the worst run, changed answers of all runs."""
    judged = [run for run in runs if form in run["forms"]]
    if not judged:
        return ""
    mean, half, worst = (round(value, 2) + 0.0 for value in loss(judged, form))  # no "-0.00"
    interval = f" ± {half:.2f}" if len(judged) > 1 else ""
    mark = "**" if mean < -MOST_LOST else ""
    changed = sum(run["forms"][form]["changed"] for run in judged)
    return f"{mark}{mean:+.2f}{interval}{mark}; {worst:+.2f}; {changed}"


def loss(runs: Sequence[Mapping], form: str) -> tuple[float, float, float]:
    """The mean difference to the model in points, half of its 95 % interval by t, and the worst difference."""
    differences = [run["forms"][form]["score"] - run["model"] for run in runs]
    number = len(runs)
    half = 0.0
    if number > 1:
        half = scipy.stats.t.ppf(0.975, number - 1) * statistics.stdev(differences) / number**0.5
    return statistics.mean(differences), float(half), min(differences)


if __name__ == "__main__":
    flags.run(main, Int8AnswersSettings, description=__doc__)
