"""Start values of a lowered step's variables, and its features; equal on every machine. Needs only numpy."""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np


def of_variable(name: str, shape: Sequence[int], dtype: str) -> np.ndarray:
    """The start value of a variable: a function of its released name, or 0 for variables without one."""
    if name.endswith("gamma"):
        return np.ones(shape, dtype)
    if not name or name.endswith(("beta", "bias")):
        return np.zeros(shape, dtype)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return (0.02 * random.standard_normal(shape, np.float32)).astype(dtype)


def of_features(
    shapes: Mapping[str, tuple[Sequence[int], str]], vocab_size: int
) -> dict[str, np.ndarray]:
    """Random features without padding, from the shape and dtype of each feature by name."""
    random = np.random.default_rng(1)
    (batch, length), _ = shapes["input_ids"]
    examples = shapes["first_positions"][0][1] if "first_positions" in shapes else 1
    number_L = np.arange(length) * examples // length
    firsts_S = np.searchsorted(number_L, np.arange(examples))
    constants = {
        "input_mask": 1,
        "segment_ids": np.arange(length) >= length // 2,
        "example_numbers": number_L + 1,
        "position_ids": np.arange(length) - firsts_S[number_L],
        "first_positions": firsts_S,
        "sentence_weights": 1,
        "masked_lm_weights": 1,
    }
    limits = {"input_ids": vocab_size, "masked_lm_ids": vocab_size, "masked_lm_positions": length}
    limits |= {"start_positions": length, "end_positions": length}
    values = {}
    for name, (shape, dtype) in shapes.items():
        if name in constants:
            values[name] = np.broadcast_to(constants[name], shape).astype(dtype)
        else:  # labels are 0 or 1
            values[name] = random.integers(0, limits.get(name, 2), shape).astype(dtype)
    return values
