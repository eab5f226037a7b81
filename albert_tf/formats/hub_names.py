"""Downloads models by name: `hf:albert/albert-base-v2` -> a folder in the cache of the library huggingface_hub.

The library's settings apply: HF_HUB_OFFLINE, HF_HOME, HF_ENDPOINT, HF_TOKEN. Without a network, it uses its cache.
"""

import re

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.files import HUB_PREFIX
from albert_tf.formats import embedding_modules, hugging_face, transformers_folders
from albert_tf.formats.description import Description
from albert_tf.formats.weights import Weights

_NAME = re.compile(HUB_PREFIX + r"(?P<model>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")
_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
_NOT_READ = ["onnx/*", "openvino/*"]  # exports of the same weights


def recognizes(path: str) -> bool:
    """Whether a path is the name of a model on the hub."""
    return path.startswith(HUB_PREFIX)


def describe(path: str) -> Description:
    """Nothing: a model is downloaded only when it is read."""
    return Description()


def read_without_arrays(path: str) -> Weights:
    """The model with this name without arrays; it is downloaded as a whole, as it will mostly be needed next."""
    folder = fetched(path)
    return transformers_folders.layout_of(folder).read_without_arrays(folder)


def read(path: str) -> Weights:
    """The model with this name."""
    folder = fetched(path)
    return transformers_folders.layout_of(folder).read(folder)


def fetched(name: str) -> str:
    """The folder of "hf:organization/model" or "hf:organization/model@revision" (branch, tag, commit) in the cache."""
    match = _NAME.fullmatch(name)
    if not match:
        raise UserError(f"{name}: expected hf:organization/model or hf:organization/model@revision")
    try:
        from huggingface_hub import snapshot_download  # an optional dependency
    except ImportError:
        hint = "models by name need huggingface_hub; pip install huggingface_hub"
        raise UserError(f"{name}: {hint}") from None
    options = {"revision": match["revision"], "ignore_patterns": _NOT_READ}
    try:
        folder = snapshot_download(match["model"], allow_patterns=_FILES, **options)
        # Files of torch are needed only where there are no others.
        if not all(map(hugging_face.recognizes, _folders_with_weights(folder))):
            folder = snapshot_download(match["model"], allow_patterns=[*_FILES, "*.bin"], **options)
    except UserError:
        raise
    except Exception as error:  # the classes differ between versions
        raise UserError(f"{name}: cannot be downloaded ({first_line(error)})") from None
    return folder


def _folders_with_weights(folder: str) -> list[str]:
    """The folders of a model that must have a file of weights: its own, or those of its modules."""
    if not embedding_modules.recognizes(folder):
        return [folder]
    transformer, _ = embedding_modules.modules(folder)
    of_modules = [
        module.folder
        for module in embedding_modules.layers(folder)
        if module.kind in embedding_modules.WITH_WEIGHTS
    ]
    return [transformer, *of_modules]
