"""The floating-point operations of training, computed from a model's sizes."""

from albert_tf.model.config import AlbertConfig


def example_flops(config: AlbertConfig, length: int, predictions: int) -> int:
    """Floating-point operations of the matrix products of a pretraining step, for one example.

    A product of [m, k] with [k, n] has 2 m k n operations, and its backward pass has two such products. Only the
    `predictions` masked tokens are multiplied with the vocabulary. Recomputation to save memory is not counted.
    Softmax, GELU, LayerNorm, dropout and the optimizer are left out: they are a small share of the operations, but not
    always of the time.
    """
    hidden, embedding = config.hidden_size, config.embedding_size
    attention = 4 * 2 * hidden**2 + 2 * 2 * length * hidden  # for one token, in one block
    feed_forward = 2 * 2 * hidden * config.intermediate_size
    projection = 2 * embedding * hidden if embedding != hidden else 0
    prediction = 2 * hidden * embedding + 2 * embedding * config.vocab_size
    pooler = 2 * hidden**2 + 2 * hidden * 2
    tokens = length * (config.num_blocks * (attention + feed_forward) + projection)
    return 3 * (tokens + predictions * prediction + pooler)
