"""Reads a model's length, task and settings from its files, to compare flags with them before TensorFlow is loaded."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from albert_tf.core import files, run_files
from albert_tf.core.errors import UserError
from albert_tf.formats import embedding_modules
from albert_tf.model.config import OWN_SECTION, where_released

# CONFIG is used by runs and Hugging Face.
CONFIG, TF1_CONFIG = "config.json", "albert_config.json"
WEIGHTS = "model.safetensors"
WEIGHT_FILES = (WEIGHTS, "pytorch_model.bin")  # preferred first
TOKENIZER_SETTINGS = "tokenizer_config.json"
# Our own settings in the original's configuration, which ignores unknown keys.
TF1_OWN_KEY = "_albert_tf"
NOT_TFLITE = "only LiteRT and TensorFlow read a TFLite file; give the model that was exported, or export --format=onnx"
_OF_TEXT = ("do_lower_case", "keep_accents")
ASSETS, EXPORT = "assets", "export.json"  # in our own exports; EXPORT describes them


class Description(NamedTuple):
    """The known facts about a model."""

    max_position_embeddings: int | None = None
    task_name: str = ""  # "" if it was not fine-tuned
    settings: Mapping[str, Any] = {}  # of this task; for a run, all its settings


def describe(path: str) -> Description:
    """The facts about a model that its files contain.

    They are empty for models on a hub, for layouts without such files, and for damaged files, whose error is reported
    when the model is read.
    """
    with contextlib.suppress(UserError, OSError):
        return _describe(path.rstrip("/").removesuffix(".index"))
    return Description()


def check_is_there(path: str) -> None:
    """Checks that a path is that of a folder, or the prefix of a checkpoint, before its files are read."""
    if path.startswith(files.HUB_PREFIX):
        return
    if path.startswith(("http://", "https://", "kaggle://")):
        raise UserError(f"{path}: download it, and give the file or folder (docs/models.md)")
    if path.endswith(".tflite") and files.exists(path):
        raise UserError(f"{path}: {NOT_TFLITE}")
    if not files.is_folder(path) and not files.exists(path.removesuffix(".index") + ".index"):
        expected = where_released(path) or "expected a folder, or the prefix of a checkpoint"
        raise UserError(f"{path}: no such model; {expected}")


def _describe(path: str) -> Description:
    if not path or path.startswith(files.HUB_PREFIX):
        return Description()
    folder = path if files.is_folder(path) else run_files.folder_of(path) or os.path.dirname(path)

    def values(name: str) -> dict[str, Any]:
        file = os.path.join(folder, name)
        return files.read_json(file) if files.exists(file) else {}

    exported = values(os.path.join(ASSETS, EXPORT))
    sizes = values(CONFIG) or values(TF1_CONFIG) or values(os.path.join(ASSETS, TF1_CONFIG))
    if isinstance(sizes.get("run"), dict):
        return _description(sizes.get("model"), sizes.get("task"))
    own = sizes.get(OWN_SECTION) or sizes.get(TF1_OWN_KEY) or exported
    own = own if isinstance(own, dict) else {}
    of_text = {**own, **values(TOKENIZER_SETTINGS)}
    of_text = {name: of_text[name] for name in _OF_TEXT if name in of_text}
    task = own.get("task")
    settings = {**of_text, **(task if isinstance(task, dict) else {})}
    found = _description(sizes, settings)
    if found.task_name or not embedding_modules.recognizes(folder):
        return found
    of_modules = embedding_modules.settings(folder, found.max_position_embeddings or 0)
    of_modules |= embedding_modules.cleaning(folder, of_text)
    return found._replace(task_name="embedding", settings={**of_text, **of_modules})


def _description(sizes: Any, settings: Any) -> Description:
    """The description from the values of files, which may be of any type."""
    sizes = sizes if isinstance(sizes, dict) else {}
    length = sizes.get("max_position_embeddings")
    task_name = sizes.get("finetuning_task")
    return Description(
        length if type(length) is int and length > 0 else None,
        task_name if isinstance(task_name, str) else "",
        settings if isinstance(settings, dict) else {},
    )
