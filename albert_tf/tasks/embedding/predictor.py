"""Embeds texts with a finished model, and compares, searches and ranks by the vectors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.classification.text_pairs import PairSettings
from albert_tf.tasks.embedding.metrics import unit_length
from albert_tf.tasks.embedding.source import TextGroup, make_group_features
from albert_tf.tasks.predictor import Answer, Predictor


class Embedder(Predictor):
    """The base of predictors that have a vector for each text."""

    def embed(self, texts: str | Iterable[str]) -> np.ndarray:
        """See `Predictor.embed`."""
        if isinstance(texts, str):
            return self.embed([texts])[0]
        groups = [TextGroup("", (text,)) for text in checked_texts(texts)]
        if not groups:
            config = self.model.config
            width = config.sentence_embedding["projection_size"] or config.hidden_size
            return np.zeros([0, width], np.float32)
        settings = PairSettings(self.tokenizer, self.task_settings["max_seq_length"])
        return self.vectors(make_group_features(settings, groups))

    def vectors(self, table: FeatureTable) -> np.ndarray:
        """The vectors of a table's sequences, float32 [sequences, D]."""
        return self.outputs(table)["embedding"]

    def similarity(self, a: Iterable[str], b: Iterable[str]) -> np.ndarray:
        """See `Predictor.similarity`."""
        first, second = (self.embed(checked_texts(texts)) for texts in (a, b))
        return unit_length(first) @ unit_length(second).T

    def rank(self, query: str, texts: Iterable[str], top_k: int | None = None) -> list[Answer]:
        """See `Predictor.rank`: the score is the cosine."""
        texts = checked_texts(texts)
        return ranked(self.similarity([query], texts)[0], texts, top_k)


class EmbeddingPredictor(Embedder):
    """Answers a text with its vector."""

    expects = "a text"

    def check(self, item):
        first = self.task_settings.get("text_columns", "").partition(",")[0].strip()
        text = item
        if isinstance(item, Mapping):
            text = item.get(first if first in item else "text")
        if not isinstance(text, str):
            self.refuse(item)
        self.count(text)
        return text

    def answers(self, examples):
        """See `Predictor`: `embedding`."""
        return [{"embedding": row} for row in self.embed(examples).tolist()]


def checked_texts(texts: Any) -> list[str]:
    """Texts in a list, from anything that can be iterated; anything else is an error."""
    is_several = isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Mapping)
    found = list(texts) if is_several else []
    if not is_several or not all(isinstance(text, str) for text in found):
        raise UserError(f"expected a list of texts; got {shortened(texts)}")
    return found


def ranked(scores: np.ndarray, texts: Sequence[str], top_k: int | None = None) -> list[Answer]:
    """The texts of `Predictor.rank`, of which the scores are given, float [texts]."""
    is_number = isinstance(top_k, int) and not isinstance(top_k, bool) and top_k > 0
    if top_k is not None and not is_number:
        raise UserError(f"top_k must be an integer of at least 1, or None; got {shortened(top_k)}")
    order = np.argsort(-scores, kind="stable").tolist()[:top_k]
    return [{"index": row, "score": float(scores[row]), "text": texts[row]} for row in order]
