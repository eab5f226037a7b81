"""Compares the outputs of exported files with those of their models, on random sequences."""

from collections.abc import Mapping

import numpy as np

from albert_tf.model import heads
from albert_tf.model.heads import ModelWithHead

TOLERANCE = 1e-4  # allowed difference for the outputs of a float32 file
_NUM_CHOICES = 3


def random_features(
    model: ModelWithHead, rng: np.random.Generator, batch: int, length: int
) -> dict[str, np.ndarray]:
    """Features for a model, int32 [B, L] (multiple choice: [B, C, L]); the sequences have random lengths."""
    shape = [batch, length]
    if isinstance(model, heads.AlbertForMultipleChoice):
        shape.insert(1, _NUM_CHOICES)
    lengths = rng.integers(2, length + 1, [*shape[:-1], 1])
    mask = np.arange(length) < lengths
    features = {
        "input_ids": rng.integers(0, model.config.vocab_size, shape) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) > lengths // 2) * mask,
    }
    if isinstance(model, heads.AlbertForSpanOrNone):
        # Candidates must be allowed positions: the other positions have equal scores, so their order is undefined.
        most = length - max(model.num_starts, model.num_ends)
        features["p_mask"] = rng.integers(0, 2, shape) * (np.arange(length) < most)
    return {name: array.astype(np.int32) for name, array in features.items()}


def largest_difference(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> float:
    """The largest difference of any output in `found`; NaN if a value is NaN."""
    # Unlike max, np.max keeps NaN.
    differences = [np.max(np.abs(array - expected[name])) for name, array in found.items()]
    return float(np.max(differences))
