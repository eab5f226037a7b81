"""The page that works alone: one HTML file with a model, its vocabulary, a tokenizer and an engine.

It opens from a folder, without a server and a network. `offline.js` unpacks its parts.
"""

import base64
import gzip
import json
from collections.abc import Collection, Mapping
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.serving.onnx_model import MASKED_LM
from albert_tf.serving.page import engine, html
from albert_tf.serving.page.tokenizer_data import tokenizer_data
from albert_tf.tasks.predictor import Predictor

_SCRIPTS = ("tokenizer.js", "predictors.js", "offline.js", "page.js")
# The predictors that `predictors.js` has, with the settings of the task that each reads.
_SETTINGS_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "ClassificationPredictor": ("windows",),
    "EmbeddingPredictor": (),
    "PretrainedPredictor": (),
    "TaggingPredictor": ("doc_stride", "word_separator", "tag_scheme"),
    "SpanPredictor": ("doc_stride", "max_query_length", "n_best_size", "max_answer_length"),
    "SpanOrNonePredictor": (
        "doc_stride",
        "max_query_length",
        "n_best_size",
        "max_answer_length",
        "null_threshold",
    ),
    "ChoicePredictor": ("max_qa_length",),
}


def offline_page(
    predictor: Predictor,
    onnx_files: Mapping[str, bytes],
    engine_files: Mapping[str, bytes],
    *,
    name: str,
    source: str,
) -> bytes:
    """The page.

    Args:
      predictor: the model; nothing is computed with it.
      onnx_files: the model as `onnx_files.convert` writes it.
      engine_files: see `engine.engine_files`.
      name: the title of the page.
      source: the model's folder, for messages and for its license.

    Raises:
      UserError: the page has no predictor for the model's task, or cannot read its vocabulary.
    """
    model = {
        **html.description(predictor, name, source),
        **model_data(predictor, onnx_files, source),
    }
    model["about"] = [*model["about"], f"{engine.NAME} {engine.VERSION} ({engine.LICENSE})"]
    vocabulary = tokenizer_data(predictor.tokenizer, source)
    contents = {
        **engine_files,
        **onnx_files,
        "tokenizer.json": json.dumps(vocabulary, ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        ),
    }
    parts = {id: packed(content) for id, content in contents.items()}
    return html.assembled(model, _SCRIPTS, parts).encode()


def model_data(predictor: Predictor, onnx_files: Collection[str], source: str) -> dict[str, Any]:
    """The argument `model` of `makePredictor` in `predictors.js`.

    Args:
      onnx_files: the names of the model's files.
      source: the model's folder, for the message if the page cannot answer for its task.
    """
    kind = type(predictor).__name__
    if kind not in _SETTINGS_OF_KIND:
        expected = f"expected one of {', '.join(_SETTINGS_OF_KIND)}"
        raise UserError(f"--format=web: {source} answers by {kind}, {expected}")
    config = predictor.model.config
    return {
        "kind": kind,
        "labels": list(config.labels),
        "is_multi_label": config.is_multi_label,
        "score_is_probability": config.score_is_probability,
        "sentence_task": config.sentence_task,
        "has_null": kind == "SpanOrNonePredictor",
        "fills_masks": MASKED_LM in onnx_files,
        "settings": predictor.settings("max_seq_length", *_SETTINGS_OF_KIND[kind]),
    }


def packed(content: bytes) -> str:
    """Bytes as `partOfPage` in `offline.js` reads them: compressed, and five characters for four bytes.

    They are those of Python's base 85, but for "<", which could end a script. Base 64 needs 7 % more.
    """
    return base64.b85encode(gzip.compress(content, mtime=0)).decode().replace("<", ",")
