"""Weights that many layers share: they are cast once, and their gradients are added up during the backward pass.

TensorFlow keeps the gradient of every use of a variable until it has those of all uses; for the 12 layers of
albert-xxlarge, that is 12 times 0.8 GB. Here every use passes the weights to the next use, so the backward pass has one
sum and adds to it in place.
"""

import collections
from collections.abc import Iterator, Sequence

import tensorflow as tf

Weights = dict[str, tf.Tensor]

# LayerNorm always computes in float32; all other weights are used in the precision of their block.
_FLOAT32_WEIGHTS = ("gamma", "beta")


def cast_weights_per_layer(blocks: Sequence, *, plain: bool) -> list[Weights]:
    """The weights of each use of some blocks by name, in the types in which they are used.

    The blocks are in the order of their use; a shared one occurs once for each use. `block.weights_by_name()` returns
    float32 tensors or variables, which are used as `block.compute_dtype`. If it is `plain`, TensorFlow adds up the
    gradients, in the type of use; otherwise they are added up in float32.
    """
    counts = collections.Counter(blocks).items()
    uses = {block: _weights_per_use(block, num_uses, plain) for block, num_uses in counts}
    return [next(uses[block]) for block in blocks]


def _weights_per_use(block, num_uses: int, plain: bool) -> Iterator[Weights]:
    uses = {}
    for name, value in block.weights_by_name().items():
        dtype = tf.float32 if name in _FLOAT32_WEIGHTS else block.compute_dtype
        value = tf.convert_to_tensor(value)
        if plain:
            uses[name] = [tf.cast(value, dtype)] * num_uses
        else:
            uses[name] = _chained_uses(value, dtype, num_uses)
    for use in range(num_uses):
        yield {name: tensors[use] for name, tensors in uses.items()}


def _chained_uses(value: tf.Tensor, dtype: tf.DType, num_uses: int) -> list[tf.Tensor]:
    """The cast value, once for each use.

    A use also passes the float32 value to the next use. In the backward pass, the gradient of the last use comes first,
    and each earlier use adds its own gradient to it.
    """
    cast = tf.stop_gradient(tf.cast(value, dtype))

    @tf.custom_gradient
    def use(value):
        def gradient(upstream, sum_of_later_uses):
            return sum_of_later_uses + tf.cast(upstream, tf.float32)

        return (tf.identity(cast), tf.identity(value)), gradient

    @tf.custom_gradient
    def last_use(value):
        del value
        return tf.identity(cast), lambda upstream: tf.cast(upstream, tf.float32)

    uses = []
    for _ in range(num_uses - 1):
        weight, value = use(value)
        uses.append(weight)
    return [*uses, last_use(value)]
