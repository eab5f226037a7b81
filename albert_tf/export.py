"""Exports a model as a SavedModel, an ONNX or TFLite file, or a page that works alone.

    albert-tf export runs/mrpc --output_dir=served/mrpc
    albert-tf export runs/mrpc --format=web --output_file=mrpc.html

A SavedModel has the layout of TensorFlow Serving. docs/guides/export.md describes the files and their
signatures, docs/guides/web_page.md the page.
"""

import contextlib
import dataclasses
import os
from typing import Any

from albert_tf import functions
from albert_tf.core import files, flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locked
from albert_tf.core.program import Program
from albert_tf.core.settings import LARGEST_INT64, setting
from albert_tf.formats.model_tokenizer import tokenizer_of
from albert_tf.serving.exports import (
    EXPORTS,
    help_of_format,
    help_of_quantization,
    quantizations,
)
from albert_tf.serving.exports.form import BLOCK_SIZE, INT4, NOTES, Form, Order
from albert_tf.serving.settings import ModelUseSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(ModelUseSettings):
    """The model to export, and the form of the export."""

    output_dir: str = setting(
        "",
        "Folder to write to; a SavedModel is written to its subfolder --version, other files to the folder.",
    )
    output_file: str = setting("", "The file to write, instead of --output_dir; for a page (web).")
    format: str = setting(
        "saved_model",
        help_of_format(),
        choices=tuple(EXPORTS),
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
    quantization: str | None = setting(
        None,
        help_of_quantization(),
        choices=quantizations(),
    )
    block_size: int = setting(
        BLOCK_SIZE,
        "Weights of int4 that share a scale, a power of two: smaller blocks are more exact and make a larger file.",
        minimum=16,
        maximum=256,
    )
    web_engine: str = setting(
        "",
        "For a page: onnxruntime-web, the folder or .tgz of npm; by default, where npm puts it in the current folder.",
        input_path=True,
    )

    def __post_init__(self):
        super().__post_init__()
        form = EXPORTS[self.format]
        self._check_place(form)
        if not form.check:
            self._refuse_unless_default("web_engine", "")
        if form.file:
            self._refuse_unless_default("version", 1)
            self._refuse_unless_default("dtype", "float32")
        quantization = self.used_quantization
        if quantization not in form.quantizations:
            expected = f"expected one of {', '.join(form.quantizations)}"
            self.refuse("quantization", f"={quantization}: for {self.format} {expected}")
        has_blocks = quantization == INT4 or form.has_every_size
        if not has_blocks and self.block_size != BLOCK_SIZE:
            self.refuse("block_size", f"={self.block_size}: only --quantization={INT4} has blocks")
        if self.block_size.bit_count() != 1:
            self.refuse("block_size", f"={self.block_size}: expected 16, 32, 64, 128 or 256")
        package = form.missing_package()
        if package:
            reason = f"needs the package {package}: pip install {' '.join(form.packages)}"
            self.refuse("format", f"={self.format} {reason}")

    def _check_place(self, form: Form) -> None:
        """Checks that one place to write to is given, of the kind that the form has."""
        if not form.is_one_file:
            self._refuse_unless_default("output_file", "")
        if self.output_dir and self.output_file:
            self.refuse("output_file", "contradicts --output_dir: give one of them")
        if not self.output_dir and not self.output_file:
            self.refuse("output_file" if form.is_one_file else "output_dir", "is required")

    @property
    def used_quantization(self) -> str:
        """The quantization that is given, or that of the form."""
        return self.quantization or EXPORTS[self.format].default_quantization

    @property
    def path(self) -> str:
        """The file, or the folder of a SavedModel, that is written."""
        name = EXPORTS[self.format].file or str(self.version)
        return self.output_file or os.path.join(self.output_dir, name)

    def _refuse_unless_default(self, name: str, default: Any) -> None:
        """Refuses a setting that another format has."""
        value = getattr(self, name)
        if value != default:
            self.refuse(name, f"={value} contradicts --format={self.format}")


def export_model(model: files.AnyPath, output_dir: files.AnyPath, **options: Any) -> str:
    """Writes a model in a form that can be served; returns the path of the SavedModel's folder or of the file."""
    return main(ExportSettings(model=str(model), output_dir=str(output_dir), **options))


def main(settings: ExportSettings) -> str:
    """See `export_model`."""
    # A file has a lock of its own while it is written.
    lock = locked(settings.output_dir) if settings.output_dir else contextlib.nullcontext()
    with lock:
        return _export(settings)


def _export(settings: ExportSettings) -> str:
    from albert_tf.serving.finished_model import task_settings_of

    settings.register_task()
    form = EXPORTS[settings.format]
    path = settings.path
    if files.exists(path) and not settings.overwrite:
        another = "--output_dir" if form.file else "--version or --output_dir"
        another = "--output_file" if settings.output_file else another
        raise UserError(f"{path}: is there already; give another {another}, or --overwrite")
    if form.check:
        form.check(settings.web_engine)

    weights = settings.read_weights()
    task = task_settings_of(weights, settings.max_seq_length)
    if task.get("windows") and not form.reads_windows:
        forms = [other.name for other in EXPORTS.values() if other.reads_windows]
        reason = "reads long texts in windows (--windows)"
        advice = f"export --format={' or '.join(forms)}, or serve it as it is"
        raise UserError(f"{settings.model}: {reason}; {advice}")
    needs_vocabulary = weights.vocabulary or form.takes_texts
    tokenizer = tokenizer_of(weights) if needs_vocabulary else None

    order = Order(
        path=path,
        weights=weights,
        task=task,
        tokenizer=tokenizer,
        quantization=settings.used_quantization,
        block_size=settings.block_size,
        dtype=settings.dtype,
        name=os.path.basename(os.path.abspath(settings.model)),
        web_engine=settings.web_engine,
    )
    order.remark_on_unused()
    form.write(order)
    note = NOTES.get(order.quantization)
    if note and form.reads_batches:
        print(note)
    return path


program = Program(
    main=main,
    settings_classes=(ExportSettings,),
    description=__doc__,
    positional=("model",),
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("export"))

if __name__ == "__main__":
    run()
