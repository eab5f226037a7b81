"""Checks of the inputs of a model, before Keras sees them."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.model.config import AlbertConfig, shortened

_SHAPED_AS_IDS = ("input_mask", "segment_ids", "position_ids", "example_numbers")
# Names of inputs in transformers, keras-hub and the TF Model Garden, and ours of the same meaning.
_FOREIGN_INPUTS = {
    **dict.fromkeys(("token_ids", "input_word_ids", "word_ids"), "input_ids"),
    **dict.fromkeys(("attention_mask", "padding_mask"), "input_mask"),
    **dict.fromkeys(("token_type_ids", "input_type_ids", "type_ids"), "segment_ids"),
    "mask_positions": "masked_lm_positions",
}


def checked_inputs(inputs: Any, config: AlbertConfig) -> dict[str, Any]:
    """The inputs of a model under our names, with lists converted to tensors."""
    expected = (
        'a model expects {"input_ids": [[2, 13, 3], ...]}, ids [B, L], as tokenizer(texts) returns them'
        " (load_predictor(path).predict(texts) takes texts)"
    )
    if isinstance(inputs, Mapping):
        inputs = _renamed(inputs)
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        raise UserError(f"{expected}; got {shortened(inputs)}")
    check_keras_objects(input=list(inputs.values()))
    try:
        tensors = {
            name: value if hasattr(value, "shape") else tf.convert_to_tensor(value)
            for name, value in inputs.items()
        }
    except (TypeError, ValueError):
        raise UserError(f"{expected}, all of one length; got {shortened(inputs)}") from None

    ids = tensors["input_ids"]
    dtype = tf.as_dtype(ids.dtype)
    shape = tf.TensorShape(ids.shape)
    if not dtype.is_integer or shape.rank in (0, 1):
        raise UserError(f"{expected}; got {dtype.name} {shape}")

    length = shape[-1] if shape.rank else None
    limit = config.max_position_embeddings
    if length is not None and length > limit and "position_ids" not in tensors:
        reason = f"but max_position_embeddings is {limit}: tokenizer(texts, max_length={limit}) cuts them"
        raise UserError(f"input_ids has {length} tokens, {reason}")

    for name in _SHAPED_AS_IDS:
        tensor = tensors.get(name)
        if tensor is not None and not shape.is_compatible_with(tensor.shape):
            got = tf.TensorShape(tensor.shape)
            raise UserError(f"{name} must have the shape of input_ids, {shape}; got {got}")
    return tensors


def check_keras_objects(**values: Any) -> None:
    """Raises a UserError for an object of Keras 3 among arguments of a model, or in lists and dictionaries there."""
    for name, value in values.items():
        if isinstance(value, Mapping | list | tuple):
            elements = value.values() if isinstance(value, Mapping) else value
            for element in elements:
                check_keras_objects(**{name: element})
        elif any(base.__module__.startswith("keras.") for base in type(value).__mro__):
            reason = f"{type(value).__name__} ({name}) is of Keras 3"
            advice = "import tf_keras instead of keras (or tf.keras after TF_USE_LEGACY_KERAS=1)"
            raise UserError(f"this model is built with tf_keras, but {reason}: {advice}")


def _renamed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with the names of other libraries replaced by ours."""
    renamed: dict[str, Any] = {}
    for name, value in inputs.items():
        our_name = _FOREIGN_INPUTS.get(name, name)
        if our_name in renamed or (our_name != name and our_name in inputs):
            raise UserError(f"{name} is another name of {our_name}: give one of them")
        renamed[our_name] = value
    return renamed
