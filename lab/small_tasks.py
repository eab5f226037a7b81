"""Scores of fine-tuned models in the small ONNX forms: classifiers, regressions of pairs, and taggers.

    python -m lab.small_tasks --runs=MRPC=runs/mrpc,STS-B=runs/stsb,WNUT=runs/wnut --data_dir=data

A run is the folder of a fine-tuning of a task of `lab.fine_tuning`; its development set is answered by the exports, and
by the folder itself. The forms are those of `lab.small_forms`.
"""

import csv
import dataclasses
import datetime
import itertools
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.export import export_model
from albert_tf.serving.predictors import load_predictor
from albert_tf.tasks import metrics
from albert_tf.tasks.tagging import entities
from lab import machine, tables
from lab.fine_tuning.__main__ import TASKS
from lab.report import replace_parts
from lab.small_forms import FORMS

_TAGGING = "WNUT"
_FOLDER = "the folder, float32"
Items = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallTasksSettings(Settings):
    """The runs and their data."""

    runs: str = setting("", "TASK=FOLDER, separated by commas.", required=True)
    data_dir: str = setting("", "Folder of the data.", required=True, input_path=True)
    output_file: str = setting("docs/results/data/small_tasks_in_forms.json", "JSON file.")


def read_pairs(name: str, data_dir: str) -> tuple[Items, list[str]]:
    """The texts and the labels of a development set of GLUE."""
    task = TASKS[name]
    label_column, *text_columns = task.columns
    path = pathlib.Path(data_dir, task.folder, name, task.dev)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = rows[int(task.header) :]
    names = ("text_a", "text_b")[: len(text_columns)]
    items = [
        {key: row[column] for key, column in zip(names, text_columns, strict=True)} for row in rows
    ]
    return items, [row[label_column] for row in rows]


def read_sentences(data_dir: str) -> tuple[Items, list[list[str]]]:
    """The words and the tags of each sentence of the tagging task's development set."""
    path = pathlib.Path(data_dir, "tagging", "wnut17", TASKS[_TAGGING].dev)
    items = []
    tags = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for is_sentence, group in itertools.groupby(lines, key=lambda line: bool(line.strip())):
        if is_sentence:
            words_and_tags = [line.split("\t") for line in group]
            items.append({"tokens": [word for word, _ in words_and_tags]})
            tags.append([tag for _, tag in words_and_tags])
    return items, tags


def score(name: str, answers: Sequence[Mapping[str, Any]], expected: Sequence[Any]) -> float | None:
    """The first metric of a task, in percent."""
    if name == _TAGGING:
        scores = entities.scores(expected, [answer["tags"] for answer in answers])
        return round(100 * scores["micro avg"]["f1-score"], 2)
    if "score" in answers[0]:
        predictions = np.array([answer["score"] for answer in answers])
        labels = np.array(expected, float)
    else:
        names = sorted(set(expected))
        predictions = np.array([names.index(answer["label"]) for answer in answers])
        labels = np.array([names.index(label) for label in expected])
    measure = getattr(metrics, TASKS[name].metrics[0])
    value = measure(predictions, labels)
    return None if value is None else round(100 * value, 2)


def changed(answers: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> float:
    """The share of answers that differ, in percent; of scores, the mean difference."""
    if "score" in answers[0]:
        pairs = zip(answers, others, strict=True)
        return round(float(np.mean([abs(a["score"] - b["score"]) for a, b in pairs])), 4)
    key = "tags" if "tags" in answers[0] else "label"
    differ = [a[key] != b[key] for a, b in zip(answers, others, strict=True)]
    return round(100 * float(np.mean(differ)), 2)


def main(settings: SmallTasksSettings) -> None:
    """Scores every run in every form, and writes the table of docs/results/small_forms.md."""
    results: dict[str, dict[str, dict[str, float | None]]] = {}
    for assignment in settings.runs.split(","):
        name, _, run = assignment.partition("=")
        reading = read_sentences(settings.data_dir) if name == _TAGGING else None
        items, expected = reading or read_pairs(name, settings.data_dir)
        whole = load_predictor(run).predict(items)
        results[name] = {_FOLDER: {"score": score(name, whole, expected), "changed": 0.0}}
        with tempfile.TemporaryDirectory() as folder:
            for form, how in FORMS.items():
                path = export_model(run, f"{folder}/{form}", format="onnx", **how)
                answers = load_predictor(path).predict(items)
                results[name][form] = {
                    "score": score(name, answers, expected),
                    "changed": changed(whole, answers),
                }
                print(name, form, results[name][form], flush=True)
    about = {
        "processor": machine.processor_name(),
        "commit": machine.commit(".", short=True),
        "date": f"{datetime.date.today()}",
    }
    content = {"about": about, "tasks": results}
    files.write_bytes(settings.output_file, files.json_bytes(content))
    replace_parts("docs/results/small_forms.md", {"tasks in small forms": table_of(results)})


def table_of(results: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> list[str]:
    """A row for each task: its score in float32, and score and change of each form."""
    rows = []
    forms = [form for form in FORMS if form != "float32"]
    for name, of_forms in results.items():
        cells = [f"{of_forms[_FOLDER]['score']}"]
        for form in forms:
            cells.append(f"{of_forms[form]['score']} ({of_forms[form]['changed']:.2g})")
        rows.append((f"{name}, {TASKS[name].metrics[0]}", *cells))
    head = " | ".join(["task", "float32", *map(_named, forms)])
    return tables.table(head, rows)


def _named(form: str) -> str:
    """The head of a column: the value of --quantization, and what else the form is made with."""
    value, comma, rest = form.partition(",")
    return f"`{value}`{comma}{rest}"


if __name__ == "__main__":
    flags.run(main, SmallTasksSettings, description=__doc__)
