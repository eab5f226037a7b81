"""The parts of our training step, measured separately, forward and backward, with albert-base's shapes.

    python -m lab.benchmarks.run --only=step_parts

A part that is run separately finds its inputs in the cache more often than in a step, so the sum of the parts is a
little less than the step. Embeddings, clipping, LAMB and the input pipeline are not measured.
"""

import functools
from collections.abc import Callable, Iterator

from albert_tf.model.config import AlbertConfig
from lab.benchmarks import measure
from lab.benchmarks.inputs import predictions_of
from lab.benchmarks.measure import BenchSettings, Measurement, Values

_MODEL = AlbertConfig.from_name("albert-base-v2")
# D and F.
HIDDEN, INNER = _MODEL.hidden_size, _MODEL.intermediate_size
# Of the dense products of a layer: query, key and value; attention output; intermediate; output.
_SHAPES = ((HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN))
_SLOTS = 16  # maximum number of examples in a packed row


def random_tensor(dtype: str, *shape: int):
    """A tensor of random numbers."""
    import tensorflow as tf

    return tf.cast(tf.random.stateless_normal(shape, seed=[1, 2]), dtype)


def layer_products(rows: int, dtype: str) -> tuple[Callable[[], None], int]:
    """A function that computes the forward products of a layer for a batch's tokens, and its number of operations."""
    import tensorflow as tf

    pairs = [
        (random_tensor(dtype, rows, width_in), random_tensor(dtype, width_in, width_out))
        for width_in, width_out in _SHAPES
    ]

    def call() -> None:
        for x, kernel in pairs:
            tf.matmul(x, kernel)

    call()
    flops = sum(2 * rows * width_in * width_out for width_in, width_out in _SHAPES)
    return call, flops


def parts(settings: BenchSettings, *, batch: int, length: int, dtype: str) -> Values:
    """Times the parts of a step.

    Returns:
      By name of the part: the values of `repeated` for one call, and `calls`, the number of calls in a step.
    """
    values = {}
    for name, calls, call in _parts(batch, length, dtype):
        values[name] = {**measure.repeated(call, settings.seconds / 10), "calls": calls}
    return {"parts": values}


def _parts(batch: int, length: int, dtype: str) -> Iterator[tuple[str, int, Callable]]:
    import tensorflow as tf

    from albert_tf.model import cpu_ops, encoder, plain_ops
    from albert_tf.model.activations import function_of
    from albert_tf.training.losses import cross_entropy

    layers, heads = _MODEL.num_hidden_layers, _MODEL.num_attention_heads
    width, inner, head_size = HIDDEN, INNER, HIDDEN // heads
    normal = functools.partial(random_tensor, dtype)
    hidden, of_inner = normal(batch, length, width), normal(batch, length, inner)
    for matrix in _SHAPES:
        x = of_inner if matrix[0] == inner else hidden
        name = f"dense product {matrix[0]} x {matrix[1]}"
        yield name, layers, _both_ways(encoder.linear, x, normal(*matrix))
    split = functools.partial(cpu_ops.split_heads, num_heads=heads)
    projected = normal(batch, length, 3 * width), normal(3 * width)
    yield "bias and transposition of query, key, value", layers, _both_ways(split, *projected)
    of_heads = [normal(batch, heads, length, head_size) for _ in range(3)]
    numbers = tf.broadcast_to(1 + tf.range(length) * 2 // length, [batch, length])
    masks = {
        "attention": plain_ops.padding_mask(tf.ones([batch, length], tf.int32)),
        "attention, packed rows": plain_ops.example_mask(numbers, _SLOTS),
    }
    for name, mask in masks.items():
        attend = functools.partial(cpu_ops.attention, mask=mask)
        yield name, layers, _both_ways(attend, *of_heads)
    yield "of it, products", layers, _both_ways(_products, *of_heads)
    activate = functools.partial(cpu_ops.bias_activation, activation=function_of("gelu"))
    yield "bias and GELU", layers, _both_ways(activate, of_inner, normal(inner))
    norm = functools.partial(cpu_ops.residual_norm, epsilon=_MODEL.layer_norm_eps)
    residual, gamma, beta = (
        random_tensor("float32", *shape) for shape in (hidden.shape, *2 * [[width]])
    )
    operands = hidden, normal(width), residual, gamma, beta
    yield "bias, residual, LayerNorm", 2 * layers, _both_ways(norm, *operands)
    predictions = batch * predictions_of(length)
    labels = tf.zeros([predictions], tf.int32)

    def vocabulary_loss(x, table):
        logits = tf.matmul(x, table, transpose_b=True)
        return cross_entropy(logits, labels, tf.ones([predictions])).sum

    size = _MODEL.embedding_size
    table = normal(_MODEL.vocab_size, size)
    yield (
        "loss over the vocabulary",
        1,
        _both_ways(vocabulary_loss, normal(predictions, size), table),
    )


def _products(query, key, value):
    """The matrix products of attention, without the operations between them."""
    import tensorflow as tf

    return tf.matmul(tf.matmul(query, key, transpose_b=True), value)


def _both_ways(function: Callable, *inputs) -> Callable[[], None]:
    """A function that computes `function` and its gradient."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def both(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return output, tape.gradient(output, inputs)

    return lambda: tf.nest.map_structure(lambda tensor: tensor.shape, both(*inputs))


MEASUREMENTS = tuple(
    Measurement(
        f"step_parts.{batch}x{length}.{dtype}",
        functools.partial(parts, batch=batch, length=length, dtype=dtype),
    )
    for batch, length, dtype in ((8, 512, "float32"), (16, 128, "float32"), (8, 512, "bfloat16"))
)
