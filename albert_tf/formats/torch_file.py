"""Reads `pytorch_model.bin`, which older models have instead of `model.safetensors`, with the library torch."""

import io
from collections.abc import Mapping

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line


def read(path: str) -> dict[str, np.ndarray]:
    """The floating-point tensors of a file that torch.save wrote, by name; no code in the file is run.

    A UserError if torch is not installed, or the file contains anything else than tensors.
    """
    content = io.BytesIO(files.read_bytes(path))
    try:
        import torch  # an optional dependency
    except ImportError:
        hint = "pip install torch, or give the model as model.safetensors"
        raise UserError(f"{path}: is a file of torch, which is not installed; {hint}") from None
    try:
        tensors = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises exceptions of many classes for damaged files
        raise UserError(f"{path}: cannot be read by torch ({first_line(error)})") from None
    if not isinstance(tensors, Mapping) or not all(map(torch.is_tensor, tensors.values())):
        raise UserError(f"{path}: expected the tensors of a model by name")
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    return {name: tensor.detach().float().numpy() for name, tensor in floats.items()}
