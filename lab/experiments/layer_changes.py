"""How much each layer changes its input: L2 distance and angle (paper, section 3.1, Figure 1).

The paper does not say over which positions it averages. Both interpretations are measured: all tokens of an example,
including [CLS] and [SEP], without padding; and only [CLS]. The input of the first layer is the input of the first
block, after the projection of the embeddings to the hidden width. The angle between the two vectors is in degrees; the
mean is over angles, and is not the angle of mean vectors.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.model.heads import AlbertForPreTraining
from lab.experiments.intrinsic import run_over


def measure(model: AlbertForPreTraining, intrinsic_dir: str, max_examples: int) -> dict[str, Any]:
    """Distance and angle for every layer, of all tokens ("pieces") and of [CLS], on at most so many ordered pairs."""
    forward = tf.function(lambda features: _changes(model, features), reduce_retracing=True)
    outputs = run_over(forward, model, os.path.join(intrinsic_dir, "none"), max_examples)
    num_tokens = outputs["num_tokens"].sum()
    return {
        "pieces": {
            "l2_distance": (outputs["distance_sums"].sum(axis=0) / num_tokens).tolist(),
            "degrees": (outputs["angle_sums"].sum(axis=0) / num_tokens).tolist(),
        },
        "cls": {
            "l2_distance": outputs["cls_distances"].mean(axis=0).tolist(),
            "degrees": outputs["cls_angles"].mean(axis=0).tolist(),
        },
        "examples": len(outputs["num_tokens"]),
    }


def _changes(model, features) -> dict[str, tf.Tensor]:
    """For each example: sums over its tokens, and values at [CLS], [B, layers]."""
    # [2, 8, 32] of the embeddings and of each of 3 layers -> between neighbors, [2, 8, 3]
    encoder = model.encoder
    hidden = encoder.embeddings(features["input_ids"], features["segment_ids"])
    if encoder.projection is not None:
        hidden = encoder.projection(hidden)
    outputs = encoder(features, training=False)["all_layers"]
    states = [tf.cast(hidden, tf.float32), *(tf.cast(output, tf.float32) for output in outputs)]
    pairs = [changes(before, after) for before, after in zip(states, states[1:], strict=False)]
    distances, angles = (tf.stack(values, axis=-1) for values in zip(*pairs, strict=True))

    # [2, 8, 3] -> [2, 3], without padding
    is_real = tf.cast(features["input_mask"], tf.float32)
    return {
        "distance_sums": tf.einsum("BLK,BL->BK", distances, is_real),
        "angle_sums": tf.einsum("BLK,BL->BK", angles, is_real),
        "num_tokens": tf.reduce_sum(is_real, axis=-1),
        "cls_distances": distances[:, 0],
        "cls_angles": angles[:, 0],
    }


def changes(before: tf.Tensor, after: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """L2 distance, and angle in degrees, of vectors [..., D]; both are [...]."""
    distance = tf.norm(after - before, axis=-1)
    cosine = tf.reduce_sum(
        tf.math.l2_normalize(before, axis=-1) * tf.math.l2_normalize(after, axis=-1), axis=-1
    )
    return distance, tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) * (180.0 / np.pi)
