"""Files of tensors: `model.safetensors` or `pytorch_model.bin`, also in several files with an index."""

import os
import re
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line, shortened
from albert_tf.formats import torch_file
from albert_tf.formats.file_names import WEIGHT_FILES
from albert_tf.formats.hugging_face.names import BUFFERS

_INDEX = ".index.json"  # ends the name of the index of several files
_PARALLEL = "module."  # DataParallel of PyTorch names the tensors of the model in it so
# Types of safetensors.
_FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def read_tensors(folder: str) -> tuple[dict[str, np.ndarray], str]:
    """The tensors in a folder by their names in its file, and the path of the file.

    Several files are read as one, if an index names them; its path is returned. Names lose the prefix that PyTorch's
    DataParallel puts before all of them.
    """
    candidates = [name + end for name in WEIGHT_FILES for end in ("", _INDEX)]
    paths = [os.path.join(folder, name) for name in candidates]
    paths = [path for path in paths if files.exists(path)]
    if not paths:
        raise UserError(f"{folder}: expected one of {', '.join(WEIGHT_FILES)}, found none")
    path = paths[0]

    tensors: dict[str, np.ndarray] = {}
    for part in _parts(path):
        if part.endswith(".bin"):
            tensors |= torch_file.read(part)
        else:
            tensors |= _read_safetensors(part)

    if all(name.startswith(_PARALLEL) for name in tensors):
        tensors = {name.removeprefix(_PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors, path


def _parts(path: str) -> list[str]:
    """The files with a model's tensors: the file itself, or those that an index names."""
    if not path.endswith(_INDEX):
        return [path]

    file_of_tensor = files.read_json(path).get("weight_map")
    names = sorted(set(file_of_tensor.values())) if _is_table_of_texts(file_of_tensor) else []
    # Any other name could be that of any file of the machine.
    if not names or not all(re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name) for name in names):
        raise UserError(f"{path}: expected the names of files by those of tensors in weight_map")

    parts = [os.path.join(os.path.dirname(path), name) for name in names]
    for part in parts:
        if not files.exists(part):
            raise UserError(f"{part}: is missing; {os.path.basename(path)} names it")
    return parts


def _is_table_of_texts(content: Any) -> bool:
    return isinstance(content, dict) and all(isinstance(text, str) for text in content.values())


def _read_safetensors(path: str) -> dict[str, np.ndarray]:
    """The floating-point tensors of a file; not by safetensors.numpy, which does not support bfloat16."""
    try:
        tensors = safetensors.deserialize(files.read_bytes(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: damaged safetensors file ({first_line(error)})") from None

    arrays = {}
    while tensors:  # frees each tensor after its conversion
        name, tensor = tensors.pop()
        dtype = tensor["dtype"]
        shape = tensor["shape"]
        if dtype not in _FLOATS:
            if name.endswith(BUFFERS):
                continue
            raise UserError(f"{path}: {name} is of type {dtype}, expected floating-point numbers")

        numbers = np.frombuffer(tensor["data"], _FLOATS[dtype])
        try:
            arrays[name] = numbers.reshape(shape)
        except (ValueError, OverflowError):  # no values, or too many dimensions for NumPy
            reason = f"{name} has the shape {shortened(shape)}"
            raise UserError(f"{path}: damaged safetensors file ({reason})") from None
    return arrays
