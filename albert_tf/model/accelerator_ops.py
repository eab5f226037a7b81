"""The operations of `plain_ops.py` for TPUs and GPUs, where memory and its traffic limit a training step.

Attention works on blocks of a few heads, whose scores fit into the memory on the chip. It keeps no scores,
probabilities or dropout masks for the backward pass, which computes them again. XLA would merge this second computation
with the first and so keep its result; an optimization barrier prevents that.

Shape legend: `encoder.py`; R examples and G heads of a block, W width of its heads together.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from albert_tf.model import cpu_ops, device, plain_ops

bias_activation = cpu_ops.bias_activation

# Size of a block's scores in float32: on a TPU they fit into the memory on the chip, on a GPU a kernel is large enough.
_BLOCK_BYTES = {"TPU": 4 << 20, "GPU": 64 << 20}
_LANES = 128  # the width of a TPU's registers; parts of a tensor should be multiples of it


def self_attention(projected_BLJ, bias_J, num_heads: int, mask, drop=None):
    """See `plain_ops.self_attention`; `drop` is an `encoder.Dropout`; each block draws with its own seed."""
    shape = projected_BLJ.shape
    if not shape.is_fully_defined():  # on a GPU, batches may have several lengths
        return cpu_ops.self_attention(projected_BLJ, bias_J, num_heads, mask, drop)
    block = _block_of(shape, num_heads, _BLOCK_BYTES[device.target_device()])

    @tf.custom_gradient
    def function(biased_BLJ):
        context_BLD = _forward(biased_BLJ, mask, drop, num_heads, block)

        def gradient(upstream_BLD):
            again_BLJ, output_BLD, upstream_BLD = _barrier(biased_BLJ, context_BLD, upstream_BLD)
            return _backward(again_BLJ, output_BLD, upstream_BLD, mask, drop, num_heads, block)

        return context_BLD, gradient

    return function(plain_ops.bias_add(projected_BLJ, bias_J))


@device.compiled
def _barrier(*tensors):
    """The same tensors, which XLA must treat as different from the arguments."""
    return gen_xla_ops.xla_optimization_barrier(input=tensors)


def _block_of(shape, num_heads: int, most_bytes: int) -> tuple[int, int]:
    """Number of examples R and number of heads G of a block."""
    batch, length, width = shape
    most_heads = max(1, most_bytes // (4 * length**2))
    if most_heads >= num_heads:
        fitting_rows = [rows for rows in _divisors(batch) if rows * num_heads <= most_heads]
        return max(fitting_rows), num_heads

    head_size = width // (3 * num_heads)
    aligned = [heads for heads in _divisors(num_heads) if heads * head_size % _LANES == 0]
    fitting = [heads for heads in aligned if heads <= most_heads]
    return 1, max(fitting, default=min(aligned, default=num_heads))


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


class _Blocks:
    """The blocks of a tensor [B, L, J], for the body of a loop.

    Example: B = 4 examples of L = 512 tokens with N = 12 heads of width 64, so J = 3 x 768; blocks of R = 1 example and
    G = 4 heads. There are 3 groups of heads and 12 blocks. Block 5 is group 2 of example 1: it begins in row 1, at
    column 2 x 4 x 64 = 512 of the queries, 768 + 512 = 1280 of the keys and 2 x 768 + 512 = 2048 of the values.
    """

    def __init__(self, shape, num_heads: int, block: tuple[int, int]):
        batch, length, width = shape
        rows, heads = block
        self.length = length
        self.width = width // 3  # of the queries, the keys or the values of all heads
        self.head_size = self.width // num_heads
        self.rows = rows
        self.heads = heads
        self.groups = num_heads // heads
        self.number = batch // rows * self.groups

    def first_row(self, index):
        """The first example of a block."""
        return index // self.groups * self.rows

    def place(self, index, part: int = 0):
        """The position at which a block begins; `part` is 0 for queries and results, 1 for keys, 2 for values."""
        group = index % self.groups
        column = part * self.width + group * self.heads * self.head_size
        return tf.stack([self.first_row(index), 0, column])

    def heads_of(self, tensor, index, part: int = 0):
        """A block, [R, G, L, H]."""
        # [4, 512, 2304] -> [1, 512, 256] -> [1, 512, 4, 64] -> [1, 4, 512, 64]
        size = [self.rows, self.length, self.heads * self.head_size]
        block_RLW = tf.slice(tensor, self.place(index, part), size)
        block_RLGH = tf.reshape(block_RLW, [self.rows, self.length, self.heads, -1])
        return tf.transpose(block_RLGH, [0, 2, 1, 3])

    def mask_of(self, mask, index):
        """The mask of a block's examples."""
        begin = [self.first_row(index), 0, 0]
        size = [self.rows, -1, -1]
        factors = [None if factor is None else tf.slice(factor, begin, size) for factor in mask]
        return plain_ops.AttentionMask._make(factors)

    def put(self, tensor, block_RGLH, index, part: int = 0):
        """The tensor with a block replaced."""
        block_RLW = tf.reshape(tf.transpose(block_RGLH, [0, 2, 1, 3]), [self.rows, self.length, -1])
        return gen_xla_ops.xla_dynamic_update_slice(tensor, block_RLW, self.place(index, part))

    def loop(self, body: Callable, result):
        """Calls `body(index, result)` for each block in turn; returns the last result."""
        if self.number == 1:
            return body(tf.constant(0), result)
        _, result = tf.while_loop(
            lambda index, _: index < self.number,
            lambda index, result: (index + 1, body(index, result)),
            (tf.constant(0), result),
            maximum_iterations=self.number,
        )
        return result


@device.compiled
def _forward(biased_BLJ, mask, drop, num_heads: int, block):
    """The context of every position, [B, L, D]."""
    blocks = _Blocks(biased_BLJ.shape, num_heads, block)

    def body(index, context_BLD):
        heads = [blocks.heads_of(biased_BLJ, index, part) for part in range(3)]
        drop_block = drop and drop.of_part(index)
        context = plain_ops.attention(*heads, blocks.mask_of(mask, index), drop_block)
        return blocks.put(context_BLD, context, index)

    return blocks.loop(body, _zeros_like(biased_BLJ[..., : blocks.width]))


@device.compiled
def _backward(biased_BLJ, output_BLD, upstream_BLD, mask, drop, num_heads: int, block):
    """The gradient of the projections, [B, L, J]; see `cpu_ops.attention`."""
    blocks = _Blocks(biased_BLJ.shape, num_heads, block)

    def body(index, gradient_BLJ):
        # Queries, keys and values of a block of 1 example and 4 heads, [1, 4, 512, 64] each, as its result's gradient.
        query, key, value = (blocks.heads_of(biased_BLJ, index, part) for part in range(3))
        upstream = blocks.heads_of(upstream_BLD, index)
        output = blocks.heads_of(output_BLD, index)

        # [1, 4, 512, 512]: the probabilities, computed again, and the gradient of the scores.
        probabilities = plain_ops.attention_probabilities(query, key, blocks.mask_of(mask, index))
        dropped = drop.of_part(index)(probabilities) if drop else probabilities
        scores = cpu_ops.gradient_of_scores(
            probabilities,
            dropped if drop else None,
            tf.matmul(upstream, value, transpose_b=True),
            upstream,
            output,
        )

        # [1, 4, 512, 64]: the gradients of queries, keys and values, put into the columns of the block.
        parts = (
            tf.matmul(scores, key),
            tf.matmul(scores, query, transpose_a=True),
            tf.matmul(dropped, upstream, transpose_a=True),
        )
        for part, gradient in enumerate(parts):
            gradient_BLJ = blocks.put(gradient_BLJ, gradient, index, part)
        return gradient_BLJ

    return blocks.loop(body, _zeros_like(biased_BLJ))


def _zeros_like(tensor):
    """Zeros that XLA does not fold into a constant of the program, unlike those of `tf.zeros`."""
    return tf.raw_ops.ZerosLike(x=tensor)


def residual_norm(update_BLD, bias_D, residual_BLD, gamma_D, beta_D, epsilon: float, drop=None):
    """See `plain_ops.residual_norm`; the backward pass draws the dropout mask again."""
    drop = drop and _drawn_again(drop)
    return cpu_ops.residual_norm(update_BLD, bias_D, residual_BLD, gamma_D, beta_D, epsilon, drop)


def _drawn_again(drop) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.custom_gradient
    def function(tensor):
        def gradient(upstream):
            upstream, seed = _barrier(upstream, drop.seed)
            return drop._replace(seed=seed)(upstream)

        return drop(tensor), gradient

    return function


def recomputed(function: Callable) -> Callable:
    """The same function of tensors, with gradients for these alone; its backward pass computes it again."""

    def call(*arguments: Any):
        @tf.custom_gradient
        def flat(*tensors):
            def gradient(upstream):
                *tensors_again, upstream = _barrier(*tensors, upstream)
                with tf.GradientTape() as tape:
                    tape.watch(tensors_again)
                    result = function(*tf.nest.pack_sequence_as(arguments, tensors_again))
                return tape.gradient(result, tensors_again, upstream)

            return function(*tf.nest.pack_sequence_as(arguments, tensors)), gradient

        return flat(*tf.nest.flatten(arguments))

    return call
