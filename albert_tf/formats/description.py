"""What the files of a model say about it besides its weights, read without TensorFlow: its length, task and settings.

So flags are compared with the model before TensorFlow is loaded.
"""

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from albert_tf.core import checksums, files, run_files
from albert_tf.core.errors import UserError

# CONFIG: of a run, of Hugging Face, of keras-hub.
CONFIG, TF1_CONFIG = "config.json", "albert_config.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"
# Keys of our own settings in the configurations of Hugging Face and of the original, which ignore unknown keys.
HF_OWN_KEY, TF1_OWN_KEY = "albert_tf", "_albert_tf"
# Setting of a task with a number for each label; the others are single values.
THRESHOLDS = "thresholds"
_OF_TEXT = ("do_lower_case", "keep_accents")
ASSETS, EXPORT = "assets", "export.json"  # of our own exports; EXPORT says what they are


class Description(NamedTuple):
    """What is known of a model.

    Attributes:
      max_position_embeddings: length of the longest sequence, in tokens; None if no file says it.
      task_name: name of the task that it was fine-tuned for; "" if it was not.
      settings: of this task, as far as they are recorded; of a run, all of them.
    """

    max_position_embeddings: int | None = None
    task_name: str = ""
    settings: Mapping[str, Any] = {}


def describe(path: str) -> Description:
    """What is known of a model.

    Args:
      path: as for `pretrained.read_weights`. Nothing is known of models on a hub, of layouts without such files, and of
        damaged files, which are reported when the model is read.
    """
    with contextlib.suppress(UserError, OSError):
        return _describe(path.rstrip("/").removesuffix(".index"))
    return Description()


def _describe(path: str) -> Description:
    if not path or path.startswith(files.HUB_PREFIX):
        return Description()
    folder = path if files.is_folder(path) else run_files.folder_of(path) or os.path.dirname(path)

    def values(name: str) -> dict[str, Any]:
        file = os.path.join(folder, name)
        return checksums.read_json(file) if files.exists(file) else {}

    export = os.path.join(ASSETS, EXPORT)
    sizes = values(CONFIG) or values(TF1_CONFIG) or values(os.path.join(ASSETS, TF1_CONFIG))
    if isinstance(sizes.get("run"), dict):
        return _description(sizes.get("model"), sizes.get("task"))
    own = sizes.get(HF_OWN_KEY) or sizes.get(TF1_OWN_KEY) or values(export)
    own = own if isinstance(own, dict) else {}
    of_text = {**own, **values(TOKENIZER_SETTINGS)}
    of_text = {name: of_text[name] for name in _OF_TEXT if name in of_text}
    task = own.get("task")
    return _description(sizes, {**of_text, **(task if isinstance(task, dict) else {})})


def _description(sizes: Any, settings: Any) -> Description:
    """The description in values of files, which may be of any type."""
    sizes = sizes if isinstance(sizes, dict) else {}
    backbone = sizes.get("config")  # of keras-hub
    length = sizes.get("max_position_embeddings")
    if isinstance(backbone, dict):
        length = backbone.get("max_sequence_length")
    task_name = sizes.get("finetuning_task")
    return Description(
        length if type(length) is int and length > 0 else None,
        task_name if isinstance(task_name, str) else "",
        settings if isinstance(settings, dict) else {},
    )
