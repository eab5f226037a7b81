"""What every form of exports has, and the files that lie beside an exported model."""

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.formats.file_names import CONFIG, EXPORT, TF1_CONFIG, TOKENIZER_SETTINGS
from albert_tf.formats.load_remarks import remark_on_load
from albert_tf.formats.tokenizer_files import vocabulary_alone, vocabulary_files
from albert_tf.formats.weights import LoadReport, Weights, report_of
from albert_tf.model.head_names import ARCHITECTURES

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead
    from albert_tf.tasks.predictor import Compute
    from albert_tf.text.tokenizer import Tokenizer


INT4 = "int4"  # the quantization that has blocks
# What each quantization does to weights, as the help says it.
QUANTIZATIONS = {
    "none": "float32",
    "int8": "8 bits, and activations are rounded to 8 bits before each product, those of a batch together",
    "int8_rows": "as int8, but the activations of each token are rounded separately",
    "int8_weights": "8 bits, and activations stay as they are",
    INT4: "half a byte for each weight",
}
# What the program says after an export that reads batches.
NOTES = {
    "int8": "note: with int8, an answer depends a little on the other texts of its batch; with int8_rows, it does not",
}
BLOCK_SIZE = 32  # its default; docs/results/small_forms.md has the measurements


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """A model to export, and how."""

    path: str  # of the file, or of the SavedModel's folder
    weights: Weights
    task: Mapping[str, Any]  # its settings
    tokenizer: "Tokenizer | None"
    quantization: str
    block_size: int  # of the quantization `INT4`
    dtype: str
    name: str  # of the model, for people
    web_engine: str  # see `page/engine.py`

    @property
    def missing(self) -> Sequence[str]:
        """The released names of variables without trained values."""
        return self._report.initialized

    def remark_on_unused(self) -> None:
        """Says which variables of the model's file are in no export of it."""
        remark_on_load(self.weights, unused=self._report.ignored)

    @functools.cached_property
    def _report(self) -> LoadReport:
        if self.weights.model_class in ARCHITECTURES:
            return report_of(self.weights)
        _, report = self._built
        return report

    @property
    def model(self) -> "ModelWithHead":
        """The model in TensorFlow, which is loaded at the first use: some forms are made of the weights alone."""
        model, _ = self._built
        return model

    @functools.cached_property
    def _built(self) -> tuple["ModelWithHead", LoadReport]:
        from albert_tf.formats import pretrained

        policy = "mixed_bfloat16" if self.dtype == "bfloat16" else self.dtype
        return pretrained.build_model(self.weights, dtype=policy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """A form of exports.

    Attributes:
      name: the value of --format.
      title: its usual name, for messages.
      description: what it is, for the help of --format.
      file: the name of its file in --output_dir; "" for a folder with the name of the version.
      write: writes an export.
      quantizations: the values of --quantization, keys of `QUANTIZATIONS`.
      default_quantization: the one that is used if none is given.
      has_every_size: whether it has files in several quantizations, `INT4` among them.
      packages: those that must be installed.
      reads_batches: whether one call answers several texts.
      reads_windows: whether programs that load such an export read long texts in windows.
      takes_texts: whether the export itself tokenizes, and so needs a vocabulary.
      is_one_file: whether it is one file that needs no others beside it, so that --output_file can name it.
      check: raises a UserError if what the setting `web_engine` names is needed, and is not there.

    Exports that `load_predictor` computes with, and not only other programs, have three more:
      recognizes: whether a path is that of such an export.
      read: what its files say about the model, without arrays.
      load: what computes the model's outputs, of what `read` returned and the name of an engine, "" for the best; it
        also has the model's `config`.
    """

    name: str
    title: str
    description: str
    file: str
    write: Callable[[Order], None]
    quantizations: tuple[str, ...] = ("none",)
    default_quantization: str = "none"
    has_every_size: bool = False
    packages: tuple[str, ...] = ()
    reads_batches: bool = True
    reads_windows: bool = False
    takes_texts: bool = False
    is_one_file: bool = False
    check: Callable[[str], Any] | None = None
    recognizes: Callable[[str], bool] = lambda path: False
    read: Callable[[str], Weights] | None = None
    load: "Callable[[Weights, str], Compute] | None" = None

    def missing_package(self) -> str:
        """The first of the packages that is not installed; "" if all are."""
        for package in self.packages:
            if not importlib.util.find_spec(package):
                return package
        return ""


def files_beside(order: Order, **how: Any) -> dict[str, bytes]:
    """Files for programs that read an export without running it: configuration, settings, vocabulary."""
    about: dict[str, Any] = {
        "model_class": order.weights.model_class,
        **order.weights.cleaning,
        **how,
        "task": dict(order.task),
        "without_values": order.missing,
    }
    tokenizer = order.tokenizer
    if tokenizer and tokenizer.rules.to_dict():
        about["rules"] = tokenizer.rules.to_dict()

    contents = {
        TF1_CONFIG: order.weights.config.to_json_string().encode(),
        EXPORT: files.json_bytes(about),
    }
    if tokenizer:
        contents |= vocabulary_alone(tokenizer, tokenizer.file_name)
    return contents


def write_files(order: Order, contents: Mapping[str, bytes], **how: Any) -> None:
    """Writes the files of an export, contents by name, with those that lie beside them; `how` it is computed."""
    folder = os.path.dirname(order.path)
    beside = files_beside(order, quantization=order.quantization, **how)
    beside |= _settings_that_replace(folder, order)
    if TOKENIZER_SETTINGS in beside and files.exists(f"{folder}/{CONFIG}"):
        _check_added_tokens(folder, order)
        del beside[TOKENIZER_SETTINGS]
    with files.errors_named(order.path, "written"):
        files.write_files(folder, {**contents, **beside})
    sizes = ", ".join(f"{name} {len(content):,} bytes" for name, content in contents.items())
    length = order.task["max_seq_length"]
    print(f"{order.path}: {order.weights.model_class}, {sizes}, length {length}")


def _check_added_tokens(folder: str, order: Order) -> None:
    """Checks that a model of transformers in the folder of an export has the same added tokens, as its file stays."""
    tokenizer = order.tokenizer
    assert tokenizer
    plain = type(tokenizer)(
        tokenizer.content,
        do_lower_case=tokenizer.do_lower_case,
        keep_accents=tokenizer.keep_accents,
        rules=tokenizer.rules,
    )
    if plain.added_in_folder(folder) != tokenizer.added_tokens:
        path = f"{folder}/{TOKENIZER_SETTINGS}"
        raise UserError(f"{path}: lists other added tokens than the model; choose another folder")


def _settings_that_replace(folder: str, order: Order) -> dict[str, bytes]:
    """The tokenizer's settings in place of those of an export that is replaced, which may list other added tokens."""
    here = {
        name for name in (EXPORT, CONFIG, TOKENIZER_SETTINGS) if files.exists(f"{folder}/{name}")
    }
    # With a `config.json`, the settings belong to a model of transformers in the same folder.
    if not order.tokenizer or here != {EXPORT, TOKENIZER_SETTINGS}:
        return {}
    contents = vocabulary_files(order.tokenizer, order.tokenizer.max_length)
    return {TOKENIZER_SETTINGS: contents[TOKENIZER_SETTINGS]}


def check_has_pooler(order: Order) -> None:
    """Checks that the pooler has trained values, for forms that cannot leave its outputs out."""
    if any(name.startswith("bert/") for name in order.missing):
        reason = f"has no values for the pooler, which {os.path.basename(order.path)} needs"
        raise UserError(f"{order.weights.source}: {reason}; export --format=saved_model")
