"""Exports a model as a SavedModel that takes strings, or as a TFLite or ONNX file.

    albert-tf export runs/mrpc --output_dir=served/mrpc

A SavedModel has the layout of TensorFlow Serving. docs/serving.md describes the files and the requests.
"""

import dataclasses
import importlib.util
import io
import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.settings import LARGEST_INT64, setting
from albert_tf.serving.settings import EarlyExitSettings, ModelUseSettings
from albert_tf.tasks.settings import files_setting
from albert_tf.text.tokenizer import Tokenizer

# The functions that need TensorFlow import it, so that a wrong flag is an error before it is loaded.

CONFIG, EXPORT = "albert_config.json", "export.json"
# Formats, and the name of the file in --output_dir; a SavedModel is in a folder with the name of its version.
_FILES = {"saved_model": "", "tflite": "model.tflite", "onnx": "model.onnx"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(EarlyExitSettings, ModelUseSettings):
    """The model to export, and the form of the export."""

    output_dir: str = setting(
        "",
        "Folder to write to; a SavedModel is written to its subfolder --version, other files to the folder.",
        required=True,
    )
    format: str = setting(
        "saved_model",
        "A SavedModel that takes strings, or a TFLite or ONNX file that takes ids.",
        choices=tuple(_FILES),
    )
    version: int = setting(
        1, "Version of a SavedModel; a server uses the highest.", minimum=1, maximum=LARGEST_INT64
    )
    overwrite: bool = setting(False, "Whether an existing export is replaced.")
    dtype: str = setting(
        "float32",
        "Precision of a SavedModel; its variables and outputs are always float32.",
        choices=("float32", "bfloat16"),
    )
    warmup: bool = setting(True, "Whether a SavedModel gets requests with which a server warms up.")
    quantization: str = setting(
        "none",
        "Weights of a TFLite or ONNX file: none is float32; int8_weights computes in float32 (ONNX only); int8 and"
        " dynamic_int8 also round activations to 8 bits before each product, in steps computed while the model runs or,"
        " for int8 with --calibration_file, before.",
        choices=("none", "dynamic_int8", "int8", "int8_weights"),
    )
    calibration_file: str = files_setting(
        "Texts with which an ONNX file's activations are measured, and its answers compared with the model's; lines as"
        " for albert-tf predict. If every line is an object with the right answer (label), the metrics are compared."
        " The export warns if more than 1% of the answers change, or the metric loses more than .004,"
        " but not because of a single answer.",
    )

    def __post_init__(self):
        super().__post_init__()
        of_file = {"version": 1, "dtype": "float32", "patience": None}
        foreign = {
            "saved_model": {"quantization": "none", "calibration_file": ""},
            "tflite": {**of_file, "calibration_file": ""},
            "onnx": of_file,
        }[self.format]
        for name, default in foreign.items():
            value = getattr(self, name)
            if value != default:
                self.refuse(name, f"={value} contradicts --format={self.format}")
        if self.format == "tflite" and self.quantization.startswith("int8"):
            self.refuse(
                "quantization", f"={self.quantization} is for --format=onnx; use dynamic_int8"
            )
        for package in ("onnx", "onnxruntime") if self.format == "onnx" else ():
            if not importlib.util.find_spec(package):
                needed = f"=onnx needs the package {package}: pip install onnx onnxruntime"
                self.refuse("format", needed)


def export_model(model: str, output_dir: str, **options: Any) -> str:
    """Writes a model in a form that can be served; returns the path of the SavedModel's folder or of the file."""
    return main(ExportSettings(model=model, output_dir=output_dir, **options))


@locks_output_dir
def main(settings: ExportSettings) -> str:
    """See `export_model`."""
    from albert_tf.formats import pretrained
    from albert_tf.serving import predictors

    settings.register_task()
    path = os.path.join(settings.output_dir, _FILES[settings.format] or str(settings.version))
    if files.exists(path) and not settings.overwrite:
        another = (
            "--version or --output_dir" if settings.format == "saved_model" else "--output_dir"
        )
        raise UserError(f"{path}: is there already; give another {another}, or --overwrite")
    weights = pretrained.read_weights(settings.model, settings.num_hidden_layers)
    task = predictors.task_settings_of(weights, settings.max_seq_length)
    if task.get("windows"):
        raise UserError(
            f"{settings.model}: reads long texts in windows (--windows), which exports cannot do; use albert-tf predict"
        )
    if settings.format == "saved_model":
        _export_saved_model(path, settings, weights, task)
    else:
        _export_files(path, settings, weights, task)
    return path


def _export_saved_model(path: str, settings: ExportSettings, weights, task: Mapping) -> None:
    import tensorflow as tf

    from albert_tf.formats import pretrained
    from albert_tf.serving import predictors, signatures, warmup

    tokenizer = predictors.tokenizer_of(weights, settings.vocabulary_file, settings.do_lower_case)
    patience = settings.patience, settings.score_tolerance
    early_exit = predictors.early_exit_of(weights, task, *patience)
    dtype = {"bfloat16": "mixed_bfloat16"}.get(settings.dtype, settings.dtype)
    model, report = pretrained.build_model(weights, dtype=dtype)
    missing = report.initialized
    definition = predictors.definition_of(weights)
    root, functions = signatures.servable(
        model,
        tokenizer,
        task,
        missing=missing,
        make_signatures=definition.signatures,
        early_exit=early_exit,
    )
    about = {
        "model_class": weights.model_class,
        **tokenizer.cleaning,
        "dtype": settings.dtype,
        "task": dict(task),
        "without_values": missing,
        "patience": settings.patience,
        "score_tolerance": settings.score_tolerance,
    }
    model_name = os.path.basename(os.path.abspath(settings.output_dir))
    parent, name = os.path.split(path)
    with (
        files.errors_named(path, "written"),
        files.staged(parent) as staging,
        tempfile.TemporaryDirectory() as assets,
    ):
        folder = os.path.join(staging, name)
        files.write_files(assets, _assets(model.config, about, tokenizer))
        root.assets = {
            name: tf.saved_model.Asset(os.path.join(assets, name)) for name in os.listdir(assets)
        }
        info = signatures.tokenization_info(
            root.assets[tokenizer.file_name], tokenizer.do_lower_case
        )
        functions["tokenization_info"] = info
        # TensorFlow cannot save the gradients of shared weights in bfloat16; such an export cannot be fine-tuned.
        has_gradients = settings.dtype == "float32"
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=has_gradients)
        tf.saved_model.save(root, folder, signatures=functions, options=options)
        if settings.warmup:
            file = os.path.join(folder, warmup.FILE)
            warmup.write(file, model_name, functions, task["max_seq_length"])
    print(f"{path}: {type(model).__name__}, signatures {', '.join(sorted(functions))}")


def _assets(config, about: Mapping[str, Any], tokenizer: Tokenizer | None) -> dict[str, bytes]:
    """The model's files for programs that read the export without running it."""
    contents = {
        CONFIG: config.to_json_string().encode(),
        EXPORT: (json.dumps(about, indent=2) + "\n").encode(),
    }
    return contents | ({tokenizer.file_name: tokenizer.content} if tokenizer else {})


def _export_files(path: str, settings: ExportSettings, weights, task: Mapping) -> None:
    """Writes a TFLite file or ONNX files, after comparing their outputs with the model's."""
    from albert_tf.formats import pretrained
    from albert_tf.serving import comparison

    model, report = pretrained.build_model(weights, dtype="float32")
    with files.errors_named(path, "written"):  # TensorFlow's converter writes temporary files
        contents, difference = _files_of(model, report.initialized, settings, weights, task)
    if settings.quantization == "none" and not difference <= comparison.TOLERANCE:
        raise UserError(
            f"{path}: not written, as its outputs differ from the model's by up to {difference:.1e}"
            f" (at most {comparison.TOLERANCE:.0e} is right); export --format=saved_model"
        )
    vocabulary = settings.vocabulary_file or weights.vocabulary
    cleaning = weights.cleaning
    if settings.do_lower_case is not None:
        cleaning["do_lower_case"] = settings.do_lower_case
    about = {
        "model_class": weights.model_class,
        **cleaning,
        "quantization": settings.quantization,
        "task": dict(task),
        "without_values": report.initialized,
    }
    tokenizer = Tokenizer.from_file(vocabulary, **cleaning) if vocabulary else None
    lines: list[str] = []
    if settings.calibration_file:
        contents, difference, lines = _calibrated(
            model, contents, report.initialized, settings, weights, task
        )
    sizes = ", ".join(f"{name} {len(content):,} bytes" for name, content in contents.items())
    with files.errors_named(path, "written"):
        contents |= _assets(model.config, about, tokenizer)
        files.write_files(settings.output_dir, contents)
    print(
        f"{path}: {type(model).__name__}, {sizes}, length {task['max_seq_length']};"
        f" outputs differ from the model's by up to {difference:.1e}"
    )
    for line in lines:
        print(line)


def _calibrated(
    model, contents: dict, missing: list[str], settings: ExportSettings, weights, task: Mapping
) -> tuple[dict[str, bytes], float, list[str]]:
    """ONNX files whose steps fit --calibration_file, if they are to be static, and how they differ from the model.

    Returns:
      The files, the largest difference of outputs, and lines that compare the answers.
    """
    from albert_tf.serving import calibration, onnx_files, predictors
    from albert_tf.serving.onnx_model import OnnxModel

    items = _read_items(settings.calibration_file)
    tokenizer = predictors.tokenizer_of(weights, settings.vocabulary_file, settings.do_lower_case)

    def answers(compute: OnnxModel) -> list:
        predictor_class = predictors.predictor_class_of(weights)
        predictor = predictor_class(compute, tokenizer, task, 32, missing, compute=compute)
        return predictor.answered(list(map(predictor.check, items)))

    observing = onnx_files.convert(model, missing, onnx_files.Precision(observes=True))
    observer = calibration.Observer(observing, model.config)
    expected = answers(observer)
    if settings.quantization == "int8":
        precision = onnx_files.Precision("int8", observer.ranges)
        contents = onnx_files.convert(model, missing, precision)
    found = answers(OnnxModel(contents, model.config))
    comparison = calibration.Comparison(items, expected, found, settings.calibration_file)
    return contents, onnx_files.largest_difference(contents, model), comparison.lines()


def _read_items(path: str) -> list:
    """The items in the lines of a file, as `albert-tf predict` reads them."""
    from albert_tf.predict import parse

    text = files.read_bytes(path).decode("utf-8-sig", "surrogateescape")
    lines = list(io.StringIO(text, newline=None))  # str.splitlines splits at U+2028 and others, too
    if not text.strip():
        raise UserError(f"{path}: expected lines as for albert-tf predict; it has none")
    try:
        return [parse(line.removesuffix("\n")) for line in lines if line.strip()]
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _files_of(
    model, missing: list[str], settings: ExportSettings, weights, task: Mapping
) -> tuple[dict[str, bytes], float]:
    """Contents of TFLite or ONNX files by name, and the largest difference between their outputs and the model's."""
    # The ONNX files of a pretrained model omit outputs without trained values.
    leaves_out = settings.format == "onnx" and weights.model_class == "AlbertForPreTraining"
    needs_pooler = model.uses_pooler and not leaves_out
    if needs_pooler and any(name.startswith("bert/") for name in missing):
        name = _FILES[settings.format]
        raise UserError(
            f"{weights.source}: its file has no values for the pooler, which {name} needs; export"
            " --format=saved_model"
        )
    if settings.format == "onnx":
        from albert_tf.serving import onnx_files

        quantization = settings.quantization.removeprefix("dynamic_")
        contents = onnx_files.convert(model, missing, onnx_files.Precision(quantization))
        return contents, onnx_files.largest_difference(contents, model)
    from albert_tf.serving import tflite

    length = task["max_seq_length"]
    content = tflite.convert(model, length, settings.quantization)
    return {_FILES["tflite"]: content}, tflite.largest_difference(content, model, length)


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, ExportSettings, description=__doc__, positional=("model",))


if __name__ == "__main__":
    run()
