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

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts, float32 [texts, D]."""
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

    def similarity(self, a: Sequence[str], b: Sequence[str]) -> np.ndarray:
        """The cosines of each of some texts with each of others, float32 [a, b]."""
        return unit_length(self.embed(a)) @ unit_length(self.embed(b)).T

    def rank(self, query: str, texts: Sequence[str]) -> list[Answer]:
        """Texts with `index`, `score` and `text`, the most similar to the query first."""
        texts = checked_texts(texts)
        return ranked(self.similarity([query], texts)[0], texts)


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


def ranked(scores: np.ndarray, texts: Sequence[str]) -> list[Answer]:
    """Texts with `index`, `score` and `text`, the highest score first; of equal scores, the first text is first."""
    order = np.argsort(-scores, kind="stable").tolist()
    return [{"index": row, "score": float(scores[row]), "text": texts[row]} for row in order]
