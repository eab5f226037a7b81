"""Which tokens are masked, and what they become."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.tasks.distillation import random_masks


def test_masks_are_drawn_as_declared():
    lengths = np.array([2, 3, 9, 22, 60] * 40)
    mask = (np.arange(60) < lengths[:, None]).astype(np.int32)
    ids = np.where(np.arange(60) == lengths[:, None] - 1, 3, 7) * mask
    ids[:, 0] = 2
    inputs = {"input_ids": tf.constant(ids), "input_mask": tf.constant(mask)}
    sizes = {"mask_id": 4, "vocab_size": 1000, "longest": 70}
    found, chosen = random_masks.masked(inputs, tf.constant([1, 2]), **sizes)
    weights_BP = random_masks.masked_weights(inputs["input_mask"]).numpy()
    np.testing.assert_array_equal(weights_BP.sum(axis=1)[:5], [0, 1, 1, 3, 9])
    old = tf.gather(ids, chosen["masked_lm_positions"], batch_dims=1).numpy()
    assert (old[weights_BP > 0] == 7).all()  # never [CLS], [SEP], padding
    new = found["input_ids"].numpy()
    assert (new == 4).sum() / weights_BP.sum() == pytest.approx(0.8, abs=0.06)
    assert (new != ids).sum() / weights_BP.sum() == pytest.approx(0.9, abs=0.04)
    longer = {name: tf.pad(value[3:], [[0, 0], [0, 5]]) for name, value in inputs.items()}
    one, other = (
        random_masks.masked(these, None, **sizes)[0]["input_ids"] for these in (inputs, longer)
    )
    np.testing.assert_array_equal(one[3:], other[:, :60])
