"""An ONNX export as the server sees a SavedModel: `signatures`, with texts as inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.serving.predictors import load_predictor
from albert_tf.tasks.predictor import Predictor

# Inputs of the signature, by the class of the exported model.
_TEXTS = {
    "SpanPredictor": ("question", "context"),
    "SpanOrNonePredictor": ("question", "context"),
    "ClassificationPredictor": ("text_a", "text_b"),
    "EmbeddingPredictor": ("texts",),
}


class Signature:
    """The answers of a predictor, as one array for each key."""

    structured_outputs: Mapping[str, Any] = {}  # rows are independent of each other

    def __init__(self, predictor: Predictor, names: tuple[str, ...]):
        self._predictor = predictor
        specs = {name: tf.TensorSpec([None], tf.string, name) for name in names}
        self.structured_input_signature = (), specs

    def __call__(self, **columns: tf.Tensor) -> dict[str, tf.Tensor]:
        texts = [
            [text.decode(errors="replace") for text in column.numpy()]
            for column in columns.values()
        ]
        items: list[Any] = [
            dict(zip(columns, row, strict=True)) for row in zip(*texts, strict=True)
        ]
        if list(columns) == ["texts"]:
            items = texts[0]
        for item in items:
            if "text_b" in item and not item["text_b"]:
                del item["text_b"]  # the model was trained on one text
        answers = self._predictor.answered(list(map(self._predictor.check, items)))
        for answer in answers:
            if "labels" in answer:  # as in a SavedModel: "" for a label that was not reached
                names = answer["probabilities"]
                answer["labels"] = [name if name in answer["labels"] else "" for name in names]
        return {name: _column([answer[name] for answer in answers]) for name in answers[0]}


class Served:
    """An export with its signatures."""

    def __init__(self, folder: str):
        predictor = load_predictor(folder)
        names = _TEXTS.get(type(predictor).__name__)
        if not names:
            raise UserError(
                f"{folder}: the server answers with ONNX exports of classifiers, regressions, embeddings and SQuAD"
                " models; export --format=saved_model"
            )
        self.signatures = {"serving_default": Signature(predictor, names)}
        if names == ("texts",):
            self.signatures["embed"] = self.signatures["serving_default"]


def _column(values: list[Any]) -> tf.Tensor:
    """The values of a key in every answer, [B, ...]."""
    if isinstance(values[0], dict):
        values = [list(value.values()) for value in values]
    first = values[0][0] if isinstance(values[0], list) else values[0]
    return tf.constant(np.array(values, object if isinstance(first, str) else None))
