"""A model as it was found on disk, whatever its layout: sizes, arrays under the released names, vocabulary."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.model.config import AlbertConfig


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model as it was found on disk.

    Attributes:
      source: where it was found, for messages.
      config: its sizes.
      arrays: float arrays by released variable name.
      model_class: name of the class in `heads.py` that they are of.
      vocabulary: path of the SentencePiece model that came with it; "" if none did.
      do_lower_case: whether its text is lower-cased; None if nothing says so.
      task: settings of the task that it was fine-tuned for, such as `max_seq_length`; empty if it was for none.
      left_out: names of encoder variables that models of its kind do not have, such as the pooler of one that marks
        spans; they keep their start values.
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


def belongs_to_ffn(name: str) -> bool:
    """Whether a released name is of the feed-forward half of a block."""
    return "/ffn_1/" in name or "/LayerNorm_1/" in name


def check_identity_projection(arrays: dict[str, np.ndarray], source: str, name: str) -> None:
    """Takes out the projection that some layouts have even where E = D.

    Args:
      arrays: by released name; the projection is taken out.
      source: the file, for the message.
      name: what the layout calls the projection.

    Raises:
      UserError: it is not the identity.
    """
    kernel = arrays.pop("bert/encoder/embedding_hidden_mapping_in/kernel", None)
    bias = arrays.pop("bert/encoder/embedding_hidden_mapping_in/bias", None)
    if kernel is not None and (np.any(kernel != np.eye(len(kernel))) or np.any(bias)):
        raise UserError(
            f"{source}: {name} is not the identity, though E = D has no projection here"
        )
