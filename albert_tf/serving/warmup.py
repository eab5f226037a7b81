"""Requests that a server runs when it loads a model, so that the first user does not wait for TensorFlow.

TensorFlow Serving reads them from `assets.extra/tf_serving_warmup_requests`: TFRecords of PredictionLog. Only five
fields of this message (tensorflow/serving, tensorflow_serving/apis: prediction_log.proto, predict.proto, model.proto)
are needed; they are written here as bytes, without its package.
"""

import itertools
import os
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.serving.signatures import Signatures

FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
BATCH_SIZES = (1, 8)
SHORT = 4  # tokens of the shorter requests
NUM_OPTIONS = 2

# Field numbers.
_PREDICT_LOG, _REQUEST = 6, 1  # PredictionLog, PredictLog
_MODEL_SPEC, _INPUTS = 1, 2  # PredictRequest
_NAME, _SIGNATURE_NAME = 1, 3  # ModelSpec
_KEY, _VALUE = 1, 2  # an entry of a map


def write(path: str, model_name: str, signatures: Signatures, max_seq_length: int) -> None:
    """Writes requests for every signature, with batch sizes 1 and 8, short and with the maximum length."""
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for name, function in signatures.items():
            for inputs in requests(function, max_seq_length):
                writer.write(prediction_log(model_name, name, inputs))


def requests(function, max_seq_length: int) -> Iterator[dict[str, np.ndarray]]:
    """Arguments for a signature, with batch sizes 1 and 8, short and long; one empty request if it has no arguments."""
    specs = function.input_signature
    if not specs:
        yield {}
        return
    for batch, length in itertools.product(BATCH_SIZES, (SHORT, max_seq_length)):
        yield {spec.name: _argument(spec, batch, length) for spec in specs}


def _argument(spec: tf.TensorSpec, batch: int, length: int) -> np.ndarray:
    """Texts with at least one token per word, or ids that every model has."""
    if spec.dtype == tf.string:
        shape = [batch, NUM_OPTIONS] if spec.shape.rank == 2 else [batch]
        return np.full(shape, b"a " * length, object)
    # Logits for all tokens at every position would take more memory than everything else.
    return np.ones([batch, 1 if spec.name == "mlm_positions" else length], np.int32)


def prediction_log(model_name: str, signature_name: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """A serialized PredictionLog with a request to a signature."""
    name = _field(_NAME, model_name.encode())
    request = _field(_MODEL_SPEC, name + _field(_SIGNATURE_NAME, signature_name.encode()))
    for key, array in inputs.items():
        tensor = tf.make_tensor_proto(array).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, key.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """A field with bytes, text or a message: its number and wire type 2, the length, the content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """A number in groups of seven bits, lowest first; all groups but the last have the highest bit set."""
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
