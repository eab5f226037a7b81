"""Rules of the project that are not left to attention: import directions, one Keras, no setting that nobody reads."""

import ast
import dataclasses
import pathlib

import pytest

from albert_tf import convert, export, predict
from albert_tf.model import config
from benchmarks import measure, report, serving
from data_prep import (
    create_finetuning_data,
    create_intrinsic_eval,
    create_pretraining_data,
    glue_submission,
    sample_corpus,
    split_sentences,
    train_sentencepiece,
)
from experiments import __main__ as experiments
from tests.helpers import ROOT

SOURCES = [
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "docs").rglob("*.py"),
    *ROOT.glob("*.py"),
    *(ROOT / "albert_tf").rglob("*.py"),
    *(ROOT / "data_prep").rglob("*.py"),
    *(ROOT / "experiments").rglob("*.py"),
]
# Leaves that every file may import.
SHARED = {"config", "errors", "files", "progress", "quiet", "workers"}
# What each part may import of the library besides those (docs/architecture.md).
ALLOWED = {
    "albert_tf/core/errors.py": set(),
    "albert_tf/model/config.py": set(),
    "albert_tf/core/progress.py": set(),
    "albert_tf/training/losses.py": set(),
    "albert_tf/text/tokenizer.py": set(),
    "albert_tf/data/masking.py": set(),
    "albert_tf/data/compact_records.py": {"masking"},
    "albert_tf/data/records.py": {"compact_records"},
    "albert_tf/training/optimizers.py": {"fused"},
    "albert_tf/core/flags.py": set(),
    "albert_tf/training/run_folder.py": set(),
    "albert_tf/model/kernels.py": set(),
    "albert_tf/model/weight_sharing.py": set(),
    "albert_tf/model/encoder.py": {"fused", "sharing"},
    "albert_tf/model/heads.py": {"modeling"},
    "albert_tf/core/files.py": set(),
    "albert_tf/formats": {"formats", "heads", "modeling"},
    "albert_tf/formats/pretrained.py": {"formats", "heads", "modeling"},
    "albert_tf/serving/usage.py": {"formats", "tokenization"},
    "albert_tf/serving/predictors.py": {
        *("features", "heads", "pretrained", "tasks", "tokenization", "usage"),
    },
    "albert_tf/predict.py": {"cli", "predictors"},
    "albert_tf/convert.py": {"cli", "pretrained"},
    "albert_tf/serving": {"features", "heads", "serving", "tokenization"},
    "albert_tf/export.py": {
        *("cli", "heads", "pretrained", "serving", "usage"),
    },
    "albert_tf/data/datasets.py": {"records", "features"},
    "albert_tf/training/loop.py": {"data", "losses", "optimization", "checkpoints", "tasks"},
    "albert_tf/core/workers.py": set(),
    "albert_tf/tasks/presets.py": set(),
    "albert_tf/tasks/repeated_runs.py": {"train_loop", "checkpoints", "tasks"},
    "albert_tf/features": {"features", "tokenization"},
    "albert_tf/tasks": {
        *("data", "records", "compact_records", "losses", "pretrained", "heads"),
        *("tokenization", "tasks", "features"),
    },
    "data_prep": {"cli", "features", "masking", "records", "tokenization"},
    "experiments": {
        *("checkpoints", "cli", "heads", "presets", "pretrained", "protocol", "records"),
        *("tasks", "tokenization", "train_loop"),
    },
}


def imports(path: pathlib.Path) -> set[str]:
    """Every module that a file imports, anywhere in it, as dotted names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_go_one_way(part):
    path = ROOT / part
    files = list(path.rglob("*.py")) if path.is_dir() else [path]
    assert files
    for file in files:
        for name in imports(file):
            package, *rest = name.split(".")
            if package == "albert_tf" and rest and rest[0] != "__version__":
                assert rest[0] in ALLOWED[part] | SHARED, f"{file} imports {name}"
            if package in ("data_prep", "experiments", "benchmarks", "tests"):
                is_above = (part, package) == ("experiments", "data_prep")
                assert part == package or is_above, f"{file} imports {name}"


def test_the_loop_knows_no_concrete_task():
    assert not any(
        "tasks.pretraining" in name for name in imports(ROOT / "albert_tf/training/loop.py")
    )


def test_only_cli_knows_flags_in_the_library():
    for path in (ROOT / "albert_tf").rglob("*.py"):
        uses_flags = any(name.startswith("absl.flags") for name in imports(path))
        assert uses_flags == (path.name == "cli.py"), path


def test_the_configuration_needs_no_tensorflow():
    for name in ("config", "cli", "errors", "progress"):
        found = imports(ROOT / f"albert_tf/{name}.py")
        assert not any(module.startswith(("tensorflow", "tf_keras")) for module in found), name


def test_scripts_are_short():
    for path in ROOT.glob("run_*.py"):
        assert len(path.read_text().splitlines()) <= 70, path


def functions(tree: ast.AST):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def test_functions_are_short():
    for path in SOURCES:
        for function in functions(ast.parse(path.read_text())):
            has_docstring = ast.get_docstring(function) is not None
            first = function.body[has_docstring:][0].lineno if function.body[has_docstring:] else 0
            assert not first or function.end_lineno - first < 60, f"{path}: {function.name}"
            arguments = function.args.args + function.args.kwonlyargs
            assert len([a for a in arguments if a.arg != "self"]) <= 8, f"{path}: {function.name}"


SETTINGS = [
    config.AlbertConfig,
    config.OptimizerConfig,
    config.RunConfig,
    config.PretrainingConfig,
    config.FineTuningRunConfig,
    config.FineTuningOptimizerConfig,
    config.ClassifierConfig,
    config.SquadConfig,
    config.RaceConfig,
    export.ExportSettings,
    convert.ConvertSettings,
    predict.PredictSettings,
    create_finetuning_data.FineTuningDataSettings,
    create_intrinsic_eval.IntrinsicSettings,
    create_pretraining_data.PretrainingDataSettings,
    glue_submission.SubmissionSettings,
    sample_corpus.SampleSettings,
    split_sentences.SplitSettings,
    train_sentencepiece.TrainSettings,
    experiments.ReportSettings,
    experiments.ExperimentSettings,
    experiments.EvaluationSettings,
    measure.BenchSettings,
    report.ReportSettings,
    serving.ServingSettings,
]


@pytest.mark.parametrize("cls", SETTINGS, ids=lambda cls: cls.__name__)
def test_every_setting_is_read_somewhere(cls):
    read = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)  # getattr(config, name)
    unread = [field.name for field in dataclasses.fields(cls) if field.name not in read]
    assert not unread
