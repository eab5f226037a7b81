"""The floating-point operations of training, computed from a model's sizes."""

from albert_tf.model.config import AlbertConfig


def example_flops(config: AlbertConfig, length: int, predictions: int) -> int:
    """Floating-point operations of the matrix products of a pretraining step, for one example.

    A product of [m, k] with [k, n] is 2 m k n operations, and the backward pass does two such products for each.
    Recomputation to save memory does not count. Softmax, GELU, LayerNorm, dropout and the optimizer are left out: they
    are a small share of the operations, if not of the time.

    Args:
      config: the sizes.
      length: L, tokens of the example.
      predictions: P, masked tokens; the product with the vocabulary counts for these only.
    """
    hidden, embedding = config.hidden_size, config.embedding_size
    attention = 4 * 2 * hidden**2 + 2 * 2 * length * hidden  # of a token, in a block
    feed_forward = 2 * 2 * hidden * config.intermediate_size
    projection = 2 * embedding * hidden if embedding != hidden else 0
    prediction = 2 * hidden * embedding + 2 * embedding * config.vocab_size
    pooler = 2 * hidden**2 + 2 * hidden * 2
    tokens = length * (config.num_blocks * (attention + feed_forward) + projection)
    return 3 * (tokens + predictions * prediction + pooler)
