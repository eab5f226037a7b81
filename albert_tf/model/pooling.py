"""The kinds of pooling: how the hidden states of a text become one vector.

This file imports no TensorFlow: the sizes of a model are checked before TensorFlow is loaded.
`serving/onnx_embedding.py` has the same computations for ONNX. Shape legend: `encoder.py`; a mask has 1 for a token and
0 for padding.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Pooling(NamedTuple):
    """One kind of pooling."""

    help: str  # what it is, for the flag
    pool: Callable[..., Any]  # (tensorflow, hidden_BLD, mask_BL1) -> vectors [B, D]; all float32
    sentence_transformers: str  # its key in files of version 5 and older; version 6 reads it, too


def _mean(tf, hidden_BLD, mask_BL1):
    count_B1 = tf.maximum(tf.reduce_sum(mask_BL1, axis=1), 1.0)
    return tf.reduce_sum(hidden_BLD * mask_BL1, axis=1) / count_B1


def _first(tf, hidden_BLD, mask_BL1):
    return hidden_BLD[:, 0]


def _max(tf, hidden_BLD, mask_BL1):
    return tf.reduce_max(hidden_BLD * mask_BL1 - 1e9 * (1.0 - mask_BL1), axis=1)


def _mean_sqrt(tf, hidden_BLD, mask_BL1):
    count_B1 = tf.maximum(tf.reduce_sum(mask_BL1, axis=1), 1.0)
    return tf.reduce_sum(hidden_BLD * mask_BL1, axis=1) / tf.sqrt(count_B1)


def _weighted_mean(tf, hidden_BLD, mask_BL1):
    # 1 1 1 0 -> 1 2 3 0: the weight of a token is its position, counted from 1
    weights_BL1 = tf.cumsum(mask_BL1, axis=1) * mask_BL1
    total_B1 = tf.maximum(tf.reduce_sum(weights_BL1, axis=1), 1.0)
    return tf.reduce_sum(hidden_BLD * weights_BL1, axis=1) / total_B1


def _last(tf, hidden_BLD, mask_BL1):
    # 1 1 1 0 -> positions 1 2 3 3, minus their number, plus 1 -> -1 0 1 1 -> without padding 0 0 1 0
    count_B11 = tf.reduce_sum(mask_BL1, axis=1, keepdims=True)
    is_last_BL1 = tf.nn.relu(tf.cumsum(mask_BL1, axis=1) - count_B11 + 1.0) * mask_BL1
    return tf.reduce_sum(hidden_BLD * is_last_BL1, axis=1)


POOLINGS = {
    "mean": Pooling("their mean", _mean, "pooling_mode_mean_tokens"),
    "cls": Pooling(
        "that of [CLS]",
        _first,
        "pooling_mode_cls_token",
    ),
    "max": Pooling("the maximum of each value", _max, "pooling_mode_max_tokens"),
    "mean_sqrt_len_tokens": Pooling(
        "their sum, divided by the root of their number",
        _mean_sqrt,
        "pooling_mode_mean_sqrt_len_tokens",
    ),
    "weightedmean": Pooling(
        "their mean, weighted by their positions",
        _weighted_mean,
        "pooling_mode_weightedmean_tokens",
    ),
    "lasttoken": Pooling("that of the last [SEP]", _last, "pooling_mode_lasttoken"),
}
# In which older files of sentence-transformers, which have a switch for each, put several side by side.
ORDER_OF_SWITCHES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_BETWEEN = "+"


def joined(names: Sequence[str]) -> str:
    """The name of several poolings side by side, such as "cls+mean"."""
    return _BETWEEN.join(names)


def parts_of(name: str) -> list[str]:
    """The inverse of `joined`."""
    return name.split(_BETWEEN)


def is_pooling(name: object) -> bool:
    """Whether a value is the name of a pooling, or of several side by side."""
    return isinstance(name, str) and all(part in POOLINGS for part in parts_of(name))
