"""Encoders, embeddings and classifiers as TFLite files, which run on phones; they take ids, one fixed-length sequence.

The caller tokenizes texts, because SentencePiece is not among TFLite's own operations.
"""

import contextlib
import math
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from albert_tf.core.errors import UserError, first_line
from albert_tf.model import heads
from albert_tf.model.device import silent
from albert_tf.model.heads import ModelWithHead
from albert_tf.serving.parts import TOKENS

_STEPS_PER_OCTAVE = 8  # a byte reaches from 2 ** -16 to 2 ** 15.9


def convert(model: ModelWithHead, length: int, quantization: str) -> bytes:
    """The content of a TFLite file for sequences of a length L; shorter ones must be padded, with `input_mask` 0.

    Its signature `serving_default` maps `input_ids`, `input_mask` and `segment_ids`, int32 [1, L], to `sequence_output`
    [1, L, D] and `pooled_output` [1, D], to `logits` [1, C] or `embedding` [1, D]; float32. With "int8", weights have
    one byte, with a scale for each row of a table and each output of a dense layer, and activations are rounded to 8
    bits before each product; the other quantization is "none".
    """
    function = tf.function(_outputs_of(model), autograph=False)
    specs = {name: tf.TensorSpec([1, length], tf.int32, name=name) for name in TOKENS}
    root = tf.train.Checkpoint(weights=model.named_variables())
    lookup = _scaled_rows(model) if quantization == "int8" else contextlib.nullcontext()
    with lookup:
        graph = function.get_concrete_function(**specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], root)
    if quantization == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    with silent():  # hides TFLite's messages
        return converter.convert()


@contextlib.contextmanager
def _scaled_rows(model: ModelWithHead) -> Iterator[None]:
    """Within it, the model's graph looks rows up by `_scaled_lookup`."""
    embeddings = model.encoder.embeddings
    embeddings.lookup = _scaled_lookup
    try:
        yield
    finally:
        del embeddings.lookup


def _scaled_lookup(table_VE: tf.Variable, ids_BL: tf.Tensor) -> tf.Tensor:
    """The rows [B, L, E] of a table, as products of numbers from -1 to 1 and a scale for each row.

    The converter rounds a table that is looked up with one scale for all rows: a single row of large numbers would make
    the others coarse, or zeros. Scales are powers of 2 ** (1 / 8), because the converter would round scales, too, but
    leaves integers as they are.
    """
    with tf.init_scope():  # values, although the graph is being made
        values_VE = table_VE.numpy()
    largest_V = np.maximum(np.abs(values_VE).max(axis=1), np.finfo(np.float32).tiny)
    steps_V = np.ceil(_STEPS_PER_OCTAVE * np.log2(largest_V)).clip(-128, 127)
    unit_VE = values_VE / np.exp2(steps_V / _STEPS_PER_OCTAVE)[:, None]

    # Steps [V, 1] and ids [B, L] -> [B, L, 1]; the scale of a row is 2 ** (its steps / 8).
    steps_BL1 = tf.gather(tf.constant(steps_V[:, None], tf.int8), ids_BL)
    scales_BL1 = tf.exp(tf.cast(steps_BL1, tf.float32) * (math.log(2) / _STEPS_PER_OCTAVE))
    return tf.gather(tf.constant(unit_VE, tf.float32), ids_BL) * scales_BL1


def _outputs_of(model: ModelWithHead) -> Callable[..., dict[str, tf.Tensor]]:
    """A function of ids that returns the model's outputs by name."""
    match model:
        case heads.AlbertForSequenceClassification() | heads.AlbertForEmbedding():
            return lambda **features: model(features)
        case heads.AlbertForPreTraining():
            names = ("sequence_output", "pooled_output")
            return lambda **features: {
                name: value for name, value in model.encoder(features).items() if name in names
            }
    kinds = f"encoders, embeddings and classifiers, not for an {type(model).__name__}"
    raise UserError(f"--format=tflite is for {kinds}; export --format=saved_model")


def runner(content: bytes, num_threads: int = 1) -> Callable[..., dict[str, np.ndarray]]:
    """A file's signature as a function that takes arrays by name."""
    try:
        interpreter = Interpreter(model_content=content, num_threads=num_threads)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"no usable TFLite file ({first_line(error)})") from None

    def run(**features: np.ndarray) -> dict[str, np.ndarray]:
        with silent():  # hides LiteRT's messages
            return interpreter.get_signature_runner()(**features)

    return run
