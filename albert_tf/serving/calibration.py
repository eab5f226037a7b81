"""Answers of an ONNX export to texts: the ranges of its activations, and how many answers rounding changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.serving.onnx_model import OnnxModel
from albert_tf.tasks.predictor import Answer

MOST_CHANGED = 0.01  # share of the answers, above which the export warns
_PROBABILITIES = ("probability", "probabilities", "null_odds", "masks")  # keys of answers


class Observer(OnnxModel):
    """A model whose file also returns the inputs of products; `ranges` are their smallest and largest values so far."""

    def __init__(self, contents, config):
        super().__init__(contents, config)
        self.ranges: dict[str, tuple[float, float]] = {}

    def outputs(self, file, features):
        outputs = super().outputs(file, features)
        for name in [name for name in outputs if ":" in name]:
            array = outputs.pop(name)
            low, high = self.ranges.get(name, (np.inf, -np.inf))
            self.ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
        return outputs


def changes(before: Sequence[Answer], after: Sequence[Answer]) -> str:
    """How many answers changed, with a warning if these are many; a single one is not."""
    number = sum(map(is_changed, before, after))
    line = f"{number:,} of {len(before):,} answers changed"
    if number > max(1, MOST_CHANGED * len(before)):
        line += f"\nWARNING: more than {MOST_CHANGED:.0%}; --quantization=int8_weights changes less"
    return line


def is_changed(before: Answer, after: Answer) -> bool:
    """Whether two answers to an item differ: scores by more than .1, vectors by a cosine below .99."""
    if "embedding" in before:
        one, other = (np.array(answer["embedding"]) for answer in (before, after))
        return bool(one @ other < 0.99 * np.linalg.norm(one) * np.linalg.norm(other))
    return any(
        abs(value - after[key]) > 0.1
        if isinstance(value, float)
        else _without_probability(value) != _without_probability(after[key])
        for key, value in before.items()
        if key not in _PROBABILITIES
    )


def _without_probability(value: Any) -> Any:
    """A value of an answer; of entities, without their probabilities."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [(entity["label"], entity["start"], entity["end"]) for entity in value]
    return value
