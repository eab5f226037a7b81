"""Lower bounds of the memory of a training step and of a prediction on a CPU, from a model's sizes.

Each is less than what was measured for every size (tests/model/test_memory.py), because what exceeds it is rejected.
"""

from albert_tf.model.config import AlbertConfig


def training_bytes(
    config: AlbertConfig,
    num_parameters: int,
    rows: int,
    length: int,
    *,
    is_half: bool = False,
    recomputes: bool = False,
) -> int:
    """What a step on a micro-batch needs besides the weights: LAMB's moments, gradients, activations.

    Of every block, the backward pass needs the inputs and outputs of its products (here 6 D + F numbers per token, of
    which it has copies) and the attention probabilities. If activations are recomputed, it keeps the input of each
    block, and all others of one block at a time.
    """
    kept, probabilities = _of_block(config, rows, length)
    block = 1.5 * kept + probabilities
    blocks = config.num_blocks
    inputs = blocks * rows * length * config.hidden_size
    values = block + inputs if recomputes else blocks * block
    return int(12 * num_parameters + (2 if is_half else 4) * values)


def inference_bytes(config: AlbertConfig, rows: int, length: int) -> int:
    """What a batch needs besides the weights, one block at a time."""
    width = max(config.hidden_size + config.intermediate_size, 4 * config.hidden_size)
    _, probabilities = _of_block(config, rows, length)
    return 4 * max(rows * length * width, probabilities)


def _of_block(config: AlbertConfig, rows: int, length: int) -> tuple[int, int]:
    """Number of activations of a block, and of its attention probabilities."""
    tokens = rows * length
    width = 6 * config.hidden_size + config.intermediate_size
    return tokens * width, tokens * length * config.num_attention_heads
