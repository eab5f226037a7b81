"""Exports a model as a SavedModel that takes strings, or as a TFLite or ONNX file.

    albert-tf export runs/mrpc --output_dir=served/mrpc

A SavedModel has the layout of TensorFlow Serving. docs/serving.md describes the files and the requests.
"""

import dataclasses
import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.settings import LARGEST_INT64, setting
from albert_tf.formats.description import EXPORT, TF1_CONFIG
from albert_tf.serving.settings import ModelUseSettings

if TYPE_CHECKING:
    from albert_tf.formats.weights import Weights
    from albert_tf.model.heads import ModelWithHead
    from albert_tf.text.tokenizer import Tokenizer

# The functions that need TensorFlow import it, so that a wrong flag is an error before it is loaded.


class Format(NamedTuple):
    """A form of exports."""

    file: str  # its name in --output_dir; "" for a folder with the name of the version
    quantizations: tuple[str, ...] = ("none",)
    packages: tuple[str, ...] = ()  # those that must be installed


FORMATS = {
    "saved_model": Format(""),
    "tflite": Format("model.tflite", ("none", "int8")),
    "onnx": Format("model.onnx", ("none", "int8", "int8_weights"), ("onnx", "onnxruntime")),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(ModelUseSettings):
    """The model to export, and the form of the export."""

    output_dir: str = setting(
        "",
        "Folder to write to; a SavedModel is written to its subfolder --version, other files to the folder.",
        required=True,
    )
    format: str = setting(
        "saved_model",
        "A SavedModel that takes strings, or a TFLite or ONNX file that takes ids.",
        choices=tuple(FORMATS),
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
    quantization: str = setting(
        "none",
        "Weights of a TFLite or ONNX file: none is float32; int8 also rounds activations to 8 bits before each product;"
        " int8_weights computes in float32 (ONNX only).",
        choices=FORMATS["onnx"].quantizations,
    )

    def __post_init__(self):
        super().__post_init__()
        format = FORMATS[self.format]
        for name, default in (("version", 1), ("dtype", "float32")):
            if format.file and getattr(self, name) != default:
                self.refuse(name, f"={getattr(self, name)} contradicts --format={self.format}")
        if self.quantization not in format.quantizations:
            expected = f"expected one of {', '.join(format.quantizations)}"
            self.refuse("quantization", f"={self.quantization}: for {self.format} {expected}")
        for package in format.packages:
            if not importlib.util.find_spec(package):
                needed = f"needs the package {package}: pip install {' '.join(format.packages)}"
                self.refuse("format", f"={self.format} {needed}")


class Source(NamedTuple):
    """A model to export: what was read, the settings of its task, and released names of variables without values."""

    model: "ModelWithHead"
    weights: "Weights"
    task: Mapping[str, Any]
    missing: Sequence[str]
    tokenizer: "Tokenizer | None"


def export_model(model: files.AnyPath, output_dir: files.AnyPath, **options: Any) -> str:
    """Writes a model in a form that can be served; returns the path of the SavedModel's folder or of the file."""
    return main(ExportSettings(model=str(model), output_dir=str(output_dir), **options))


@locks_output_dir
def main(settings: ExportSettings) -> str:
    """See `export_model`."""
    from albert_tf.formats import pretrained
    from albert_tf.serving import predictors

    settings.register_task()
    file = FORMATS[settings.format].file
    path = os.path.join(settings.output_dir, file or str(settings.version))
    if files.exists(path) and not settings.overwrite:
        another = "--output_dir" if file else "--version or --output_dir"
        raise UserError(f"{path}: is there already; give another {another}, or --overwrite")
    weights = pretrained.read_weights(settings.model, settings.num_hidden_layers)
    vocabulary = settings.vocabulary_file or weights.vocabulary
    weights = dataclasses.replace(weights, vocabulary=vocabulary)
    if settings.do_lower_case is not None:
        weights = dataclasses.replace(weights, do_lower_case=settings.do_lower_case)
    task = predictors.task_settings_of(weights, settings.max_seq_length)
    if task.get("windows") and settings.format != "onnx":
        reason = "reads long texts in windows (--windows)"
        advice = "export --format=onnx, or serve it as it is"
        raise UserError(f"{settings.model}: {reason}; {advice}")
    has_tokenizer = weights.vocabulary or not file
    tokenizer = predictors.tokenizer_of(weights) if has_tokenizer else None
    dtype = {"bfloat16": "mixed_bfloat16"}.get(settings.dtype, settings.dtype)
    model, report = pretrained.build_model(weights, dtype=dtype)
    source = Source(model, weights, task, report.initialized, tokenizer)
    write = {"saved_model": _write_saved_model, "tflite": _write_tflite, "onnx": _write_onnx}
    write[settings.format](path, settings, source)
    return path


def _beside(source: Source, **about: Any) -> dict[str, bytes]:
    """Files for programs that read an export without running it: configuration, settings, vocabulary."""
    about = {
        "model_class": source.weights.model_class,
        **source.weights.cleaning,
        **about,
        "task": dict(source.task),
        "without_values": source.missing,
    }
    config, tokenizer = source.model.config, source.tokenizer
    if tokenizer and (rules := tokenizer.rules.to_dict()):
        about["rules"] = rules
    contents = {TF1_CONFIG: config.to_json_string().encode(), EXPORT: files.json_bytes(about)}
    return contents | ({tokenizer.file_name: tokenizer.content} if tokenizer else {})


def _write_saved_model(path: str, settings: ExportSettings, source: Source) -> None:
    import tensorflow as tf

    from albert_tf.serving import predictors, signatures

    weights, tokenizer = source.weights, source.tokenizer
    assert tokenizer
    root, functions = signatures.servable(
        source.model,
        tokenizer,
        source.task,
        missing=source.missing,
        make_signatures=predictors.definition_of(weights).signatures,
    )
    parent, version = os.path.split(path)
    with (
        files.errors_named(path, "written"),
        files.staged(parent) as staging,
        tempfile.TemporaryDirectory() as assets,
    ):
        folder = os.path.join(staging, version)
        files.write_files(assets, _beside(source, dtype=settings.dtype))
        root.assets = {
            name: tf.saved_model.Asset(os.path.join(assets, name)) for name in os.listdir(assets)
        }
        vocabulary = root.assets[tokenizer.file_name]
        info = signatures.tokenization_info(vocabulary, tokenizer.do_lower_case)
        functions["tokenization_info"] = info
        # TensorFlow cannot save the gradients of shared weights in bfloat16; such an export cannot be fine-tuned.
        has_gradients = settings.dtype == "float32"
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=has_gradients)
        tf.saved_model.save(root, folder, signatures=functions, options=options)
    print(f"{path}: {weights.model_class}, signatures {', '.join(sorted(functions))}")


def _write_tflite(path: str, settings: ExportSettings, source: Source) -> None:
    from albert_tf.serving import tflite

    model, length = source.model, source.task["max_seq_length"]
    _check_pooler(source, model.uses_pooler, path)
    with files.errors_named(path, "written"):  # TensorFlow's converter writes temporary files
        content = tflite.convert(model, length, settings.quantization)
    _write_files(path, settings, source, {os.path.basename(path): content})


def _write_onnx(path: str, settings: ExportSettings, source: Source) -> None:
    from albert_tf.serving import onnx_files

    model = source.model
    # The files of a pretrained model omit outputs without trained values.
    is_pretrained = source.weights.model_class == "AlbertForPreTraining"
    _check_pooler(source, model.uses_pooler and not is_pretrained, path)
    contents = onnx_files.convert(model, source.missing, settings.quantization)
    _write_files(path, settings, source, contents)


def _check_pooler(source: Source, is_needed: bool, path: str) -> None:
    if is_needed and any(name.startswith("bert/") for name in source.missing):
        reason = f"has no values for the pooler, which {os.path.basename(path)} needs"
        raise UserError(f"{source.weights.source}: {reason}; export --format=saved_model")


def _write_files(
    path: str, settings: ExportSettings, source: Source, contents: Mapping[str, bytes]
) -> None:
    """Writes files with what belongs beside them."""
    beside = _beside(source, quantization=settings.quantization)
    with files.errors_named(path, "written"):
        files.write_files(settings.output_dir, {**contents, **beside})
    sizes = ", ".join(f"{name} {len(content):,} bytes" for name, content in contents.items())
    length = source.task["max_seq_length"]
    print(f"{path}: {source.weights.model_class}, {sizes}, length {length}")


run = flags.program(main, ExportSettings, description=__doc__, positional=("model",))

if __name__ == "__main__":
    run()
