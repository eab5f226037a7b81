"""Encoders, embeddings and classifiers as TFLite files, which run on phones; they take ids, one fixed-length sequence.

The caller tokenizes texts, because SentencePiece is not among TFLite's own operations.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from albert_tf.core.errors import UserError, first_line
from albert_tf.model import heads
from albert_tf.model.device import silent
from albert_tf.model.heads import ModelWithHead
from albert_tf.serving.parts import TOKENS


def convert(model: ModelWithHead, length: int, quantization: str) -> bytes:
    """The content of a TFLite file for sequences of a length L; shorter ones must be padded, with `input_mask` 0.

    Its signature `serving_default` maps `input_ids`, `input_mask` and `segment_ids`, int32 [1, L], to `sequence_output`
    [1, L, D] and `pooled_output` [1, D], to `logits` [1, C] or `embedding` [1, D]; float32. With "int8", weights have
    one byte, and activations are rounded to 8 bits before each product; the other quantization is "none".
    """
    function = tf.function(_outputs_of(model), autograph=False)
    specs = {name: tf.TensorSpec([1, length], tf.int32, name=name) for name in TOKENS}
    root = tf.train.Checkpoint(weights=model.named_variables())
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function(**specs)], root
    )
    if quantization == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    with silent():  # hides TFLite's messages
        return converter.convert()


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
