"""What every module of this package reads a model into: sizes, arrays under the released names, vocabulary."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.model.config import AlbertConfig


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model on disk, whatever its format.

    Attributes:
      source: its path, for messages.
      config: its sizes.
      arrays: float arrays by released variable name.
      model_class: name of its class in `heads.py`.
      vocabulary: path of its SentencePiece model; "" if it has none.
      do_lower_case: whether its text is lower-cased; None if no file says so.
      task: settings of the task that it was fine-tuned for, such as `max_seq_length`; empty if it was not.
      left_out: names of encoder variables that models of its kind do not have, such as the pooler of a model that marks
        spans; they keep their initial values.
    """

    source: str
    config: AlbertConfig
    arrays: Mapping[str, np.ndarray]
    model_class: str = "AlbertForPreTraining"
    vocabulary: str = ""
    do_lower_case: bool | None = None
    task: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def without_head(self) -> "Weights":
        """The encoder alone."""
        arrays = {name: array for name, array in self.arrays.items() if name.startswith("bert/")}
        return dataclasses.replace(self, arrays=arrays)


def variables_of(layer: str) -> tuple[str, str]:
    """The names of a layer's two variables; `layer` is its released name."""
    return ("gamma", "beta") if "LayerNorm" in layer else ("kernel", "bias")


def belongs_to_ffn(name: str) -> bool:
    """Whether a released name is of the feed-forward half of a block."""
    return "/ffn_1/" in name or "/LayerNorm_1/" in name


def check_identity_projection(
    arrays: dict[str, np.ndarray], config: AlbertConfig, source: str, name: str
) -> None:
    """Removes the projection that some formats have even where E = D.

    Args:
      arrays: by released name.
      config: the sizes; nothing changes where E differs from D.
      source: the file, for the message.
      name: what the format calls the projection.

    Raises:
      UserError: it is not the identity.
    """
    if config.embedding_size != config.hidden_size:
        return
    kernel = arrays.pop("bert/encoder/embedding_hidden_mapping_in/kernel", None)
    bias = arrays.pop("bert/encoder/embedding_hidden_mapping_in/bias", None)
    if kernel is not None and (np.any(kernel != np.eye(len(kernel))) or np.any(bias)):
        reason = "is not the identity, though E = D has no projection here"
        raise UserError(f"{source}: {name} {reason}")


def as_matrix(name: str, array: np.ndarray) -> np.ndarray:
    """Attention kernels [D, N, H] and [N, H, D] -> [D, D], biases [N, H] -> [D]; other arrays as they are.

    Args:
      name: released name of the variable.
      array: its value.
    """
    if "/attention_1/self/" in name and array.ndim > 1:
        return array.reshape([array.shape[0], -1] if name.endswith("/kernel") else -1)
    if name.endswith("/attention_1/output/dense/kernel"):
        return array.reshape(-1, array.shape[-1])
    return array


def if_exists(path: str) -> str:
    """The path of a file; "" if there is no such file."""
    return path if files.exists(path) else ""
