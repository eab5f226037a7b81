"""Texts per processor second of folded models with six and with three layers, beside their scores.

    python -m lab.fold.depths --teacher=minilm --input_file=texts.txt

The scores are those of the trials of equal tokens (docs/results/data/fold_trials.json). Speed does not depend on the
values of weights, so each size is folded without training, exported, and measured in ONNX Runtime, all sizes in turn.
Processor time is measured, with tokens included: other programs on the machine matter less than for wall time.
"""

import dataclasses
import datetime
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import albert_tf
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.export import export_model
from lab import machine

QUANTIZATIONS = ("none", "int8")
_SHORTEST = 3  # words of a text
_LONGEST = 110


@dataclasses.dataclass(frozen=True)
class Size:
    """A size of a folded model, and the trial that trained it."""

    name: str
    trial: str  # name in fold_trials.json; "" for the teacher itself
    options: Mapping[str, Any]  # of `albert_tf.fold`


SIZES = (
    Size("all-MiniLM-L6-v2", "", {}),
    Size(
        "6 layers in 3 groups, E 128",
        "Muon, update size .2",
        {"embedding_size": 128, "num_hidden_groups": 3},
    ),
    Size(
        "3 layers, E 128",
        "three layers, E 128, no sharing, Muon .2",
        {"embedding_size": 128, "num_folded_layers": 3, "num_hidden_groups": 3},
    ),
    Size(
        "3 layers, E 384 (all-MiniLM cut)",
        "three layers, E 384, no sharing, Muon .2",
        {"embedding_size": 384, "num_folded_layers": 3, "num_hidden_groups": 3},
    ),
    Size(
        "6 layers, all shared, E 128",
        "all shared, Muon .2",
        {"embedding_size": 128, "num_hidden_groups": 1},
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DepthSettings(Settings):
    """The teacher, the texts, and how often each size is measured."""

    teacher: str = setting("", "Model to fold.", required=True, input_path=True)
    input_file: str = setting("", "Texts to embed, one per line.", required=True, input_path=True)
    texts: int = setting(512, "Number of texts: the first of suitable length.", minimum=32)
    repeats: int = setting(5, "Measurements of each form.", minimum=1)
    output_file: str = setting("docs/results/data/fold_depths.json", "JSON file of the results.")


def texts_of(path: str, number: int) -> list[str]:
    """The first lines of 3 to 110 words."""
    with open(path) as lines:
        suitable = [line.strip() for line in lines if _SHORTEST <= len(line.split()) <= _LONGEST]
    return suitable[:number]


def exported(size: Size, teacher: str, folder: pathlib.Path) -> dict[str, str]:
    """The exports of a size by quantization."""
    model = teacher
    if size.options:
        folded = albert_tf.fold(teacher, **size.options)
        model = str(folder / "model")
        folded.save_pretrained(model)
    return {
        name: export_model(model, folder / name, format="onnx", quantization=name)
        for name in QUANTIZATIONS
    }


def processor_seconds(predictor: Any, texts: Sequence[str]) -> float:
    """The processor time of one call."""
    start = time.process_time()
    predictor.embed(texts)
    return time.process_time() - start


def main(settings: DepthSettings) -> None:
    """Measures all sizes in turn, and writes their medians with the scores of the trials."""
    texts = texts_of(settings.input_file, settings.texts)
    trials = json.loads(pathlib.Path("docs/results/data/fold_trials.json").read_text())["trials"]
    scores = {trial["name"]: trial for trial in trials}

    with tempfile.TemporaryDirectory() as work:
        predictors = {}
        megabytes = {}
        for number, size in enumerate(SIZES):
            exports = exported(size, settings.teacher, pathlib.Path(work, str(number)))
            for quantization, path in exports.items():
                form = size.name, quantization
                megabytes[form] = pathlib.Path(path).stat().st_size / 1e6
                predictors[form] = albert_tf.load_predictor(str(pathlib.Path(path).parent))
                predictors[form].embed(texts)  # warms up

        seconds: dict[tuple[str, str], list[float]] = {form: [] for form in predictors}
        for _ in range(settings.repeats):
            for form, predictor in predictors.items():
                seconds[form].append(processor_seconds(predictor, texts))

    rows = []
    for size in SIZES:
        trial = scores.get(size.trial, {})
        row = {"name": size.name, "trial": size.trial}
        row |= {key: trial.get(key) for key in ("parameters", "error", "stsb_dev", "stsb_test")}
        for quantization in QUANTIZATIONS:
            form = size.name, quantization
            row[quantization] = {
                "megabytes": round(megabytes[form], 1),
                "texts_per_processor_second": round(
                    len(texts) / statistics.median(seconds[form]), 1
                ),
            }
        rows.append(row)
    about = {
        "date": str(datetime.date.today()),
        "processor": machine.processor_name(),
        "commit": machine.commit("."),
        "texts": len(texts),
        "repeats": settings.repeats,
    }
    content = {"about": about, "sizes": rows}
    files.write_bytes(settings.output_file, files.json_bytes(content))
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    flags.run(main, DepthSettings, description=__doc__)
