"""Embeds texts with a finished model, and compares, searches and ranks by the vectors."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.embedding.source import make_id_features
from albert_tf.tasks.embedding.vector_metrics import prepared, similarities
from albert_tf.tasks.predictor import Answer, Predictor
from albert_tf.tasks.ranking import checked_texts, ranked
from albert_tf.tasks.sequences import PairSettings


class Embedder(Predictor):
    """The base of predictors that have a vector for each text."""

    def embed(self, texts: str | Iterable[str]) -> np.ndarray:
        """See `Predictor.embed`; warns as `predict` does."""
        before = dataclasses.replace(self.report.tokens)
        several = [texts] if isinstance(texts, str) else texts
        vectors = self.vectors_of_texts(several)
        self.warn(before)
        return vectors[0] if isinstance(texts, str) else vectors

    def vectors_of_texts(self, texts: Iterable[str]) -> np.ndarray:
        """`embed` without warnings."""
        texts = checked_texts(texts)
        if not texts:
            return np.zeros([0, self.model.config.vector_size], np.float32)
        return self.vectors_of_table(self._features(texts))

    def vectors_and_lengths(
        self, inputs: Sequence[str | Sequence[int]]
    ) -> list[tuple[np.ndarray, int]]:
        """The vector of each text, float32 [D], and the number of its tokens that the model reads.

        A text may be given as its token ids; see `check_ids`.
        """
        table = self._features(inputs)
        return list(zip(self.vectors_of_table(table), table.lengths.tolist(), strict=True))

    def check_ids(self, ids: Sequence[Any]) -> None:
        """Checks token ids of a text, which must be those of the model's own tokenizer, from [CLS] to [SEP].

        Ids of another vocabulary, such as OpenAI's clients send, would have vectors that mean nothing. Hardly any of
        them begin with the id of [CLS] and end with that of [SEP].
        """
        first = self.tokenizer.cls_id
        last = self.tokenizer.sep_id
        size = self.tokenizer.vocab_size
        are_ids = all(type(id) is int and 0 <= id < size for id in ids)
        if len(ids) < 2 or not are_ids or ids[0] != first or ids[-1] != last:
            expected = f"from [CLS] ({first}) to [SEP] ({last})"
            advice = "or send texts (LangChain: check_embedding_ctx_length=False)"
            raise UserError(
                f"expected token ids of this model's own tokenizer, {expected}, {advice}; got {shortened(ids)}"
            )

    def _features(self, texts: Sequence[str | Sequence[int]]) -> FeatureTable:
        """The sequences of texts, which may be given as token ids from [CLS] to [SEP]."""
        settings = PairSettings(self.tokenizer, self.task_settings["max_seq_length"])
        words = [text for text in texts if isinstance(text, str)]
        encoded = iter(self.tokenizer.encode_batch(words))
        ids = [
            next(encoded) if isinstance(text, str) else np.array(text[1:-1], np.int32)
            for text in texts
        ]
        return make_id_features(settings, ids, columns={})

    def vectors_of_table(self, table: FeatureTable) -> np.ndarray:
        """The vectors of a table's sequences, float32 [sequences, D]."""
        return self.outputs(table)["embedding"]

    def similarity(self, a: Iterable[str], b: Iterable[str]) -> np.ndarray:
        """See `Predictor.similarity`; warns as `predict` does."""
        before = dataclasses.replace(self.report.tokens)
        scores = self.similarity_of_vectors(self.vectors_of_texts(a), self.vectors_of_texts(b))
        self.warn(before)
        return scores

    @property
    def similarity_name(self) -> str:
        """What `similarity` computes: cosine, dot, euclidean or manhattan."""
        return self.model.config.sentence_embedding["similarity"]

    def similarity_of_vectors(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How alike vectors [a, D] are to others [b, D], float32 [a, b]: by default, their cosines."""
        kind = self.similarity_name
        return similarities(prepared(a, kind), prepared(b, kind), kind)

    def rank(self, query: str, texts: Iterable[str], top_k: int | None = None) -> list[Answer]:
        """See `Predictor.rank`: the score is that of `similarity`; warns as `predict` does."""
        before = dataclasses.replace(self.report.tokens)
        texts = checked_texts(texts)
        scores = self.similarity_of_vectors(
            self.vectors_of_texts([query]), self.vectors_of_texts(texts)
        )
        self.warn(before)
        return ranked(scores[0], texts, top_k)


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
        return [{"embedding": row} for row in self.vectors_of_texts(examples).tolist()]
