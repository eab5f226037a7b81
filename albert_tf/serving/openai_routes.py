"""The routes of OpenAI's API, and /v1/rerank in the form of Cohere's and Jina's.

Errors have OpenAI's form (`web.error_response`). Tokens are counted as the model reads them, with [CLS] and [SEP].
"""

import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.serving.batches import Batches
from albert_tf.serving.settings import LimitSettings
from albert_tf.serving.web import ApiError
from albert_tf.tasks.classification.predictor import ClassificationPredictor
from albert_tf.tasks.classification.text_pairs import TextExample
from albert_tf.tasks.embedding.predictor import Embedder
from albert_tf.tasks.predictor import Predictor
from albert_tf.tasks.ranking import ranked


class OpenAIRoutes:
    """Answers to the requests of these routes; `body` is a request's JSON object."""

    def __init__(self, predictor: Predictor, name: str, limits: LimitSettings, batches: Batches):
        self._predictor = predictor
        self._name = name
        self._limits = limits
        self._batches = batches
        self._created = int(time.time())

    def model(self) -> dict[str, Any]:
        """The model here, as in OpenAI's list of models."""
        return {
            "id": self._name,
            "object": "model",
            "created": self._created,
            "owned_by": "albert-tf",
        }

    def models(self) -> dict[str, Any]:
        """The list of models, with the only one here."""
        return {"object": "list", "data": [self.model()]}

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The vectors of `input`: a text or several, or token ids of this model's own tokenizer."""
        self._check_model(body)
        predictor = self._predictor
        if not isinstance(predictor, Embedder):
            raise ApiError(400, "expected a model that embeds; this one has no vectors")
        encoding = body.get("encoding_format")
        if encoding not in (None, "float", "base64"):
            raise ApiError(400, "encoding_format must be float or base64", param="encoding_format")
        inputs = self._inputs(predictor, body.get("input"))
        answers = await self._batches.answers(predictor.vectors_and_lengths, inputs)
        vectors = [vector for vector, _ in answers]
        self._check_dimensions(body, len(vectors[0]))
        data = []
        for index, vector in enumerate(vectors):
            embedding: Any = vector.tolist()
            if encoding == "base64":
                embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            data.append({"object": "embedding", "index": index, "embedding": embedding})
        usage = _usage(num_tokens for _, num_tokens in answers)
        return {"object": "list", "data": data, "model": self._name, "usage": usage}

    async def rerank(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`documents`, texts or objects with a `text`, by what they have to do with `query`, the best first.

        The `relevance_score` is the score of the predictor's `rank`; `index` counts from 0.
        """
        self._check_model(body)
        query = body.get("query")
        if not isinstance(query, str):
            raise ApiError(400, f"query must be a text, got {shortened(query)}", param="query")
        texts = self._documents(body.get("documents"))
        top_n = body.get("top_n")
        if top_n is not None and (type(top_n) is not int or top_n < 1):
            reason = f"top_n must be a whole number above 0, got {shortened(top_n)}"
            raise ApiError(400, reason, param="top_n")
        scores, usage = await self._relevance(query, texts)
        results = []
        for entry in ranked(scores, texts)[:top_n]:
            result = {"index": entry["index"], "relevance_score": entry["score"]}
            if body.get("return_documents"):
                result["document"] = {"text": entry["text"]}
            results.append(result)
        return {"object": "list", "model": self._name, "results": results, "usage": usage}

    async def _relevance(self, query: str, texts: Sequence[str]) -> tuple[np.ndarray, dict]:
        """A score of each text, float32 [texts], and the tokens that were read."""
        predictor = self._predictor
        if isinstance(predictor, Embedder):
            answers = await self._batches.answers(predictor.vectors_and_lengths, [query, *texts])
            vectors = np.stack([vector for vector, _ in answers])
            scores = predictor.similarity_of_vectors(vectors[:1], vectors[1:])[0]
        elif isinstance(predictor, ClassificationPredictor):
            predictor.check_ranks()
            pairs = [TextExample("", query, text) for text in texts]
            answers = await self._batches.answers(predictor.relevance, pairs)
            scores = np.array([score for score, _ in answers], np.float32)
        else:
            raise ApiError(400, "expected a model that ranks: an embedder or a classifier of pairs")
        return scores, _usage(num_tokens for _, num_tokens in answers)

    def _check_model(self, body: Mapping[str, Any]) -> None:
        name = body.get("model")
        if name not in (None, self._name):
            reason = f"there is no model {shortened(name)}; the model here is {self._name}"
            raise ApiError(404, reason, param="model", code="model_not_found")

    def _check_dimensions(self, body: Mapping[str, Any], width: int) -> None:
        if body.get("dimensions") not in (None, width):
            reason = f"dimensions: the vectors of this model have {width} numbers"
            raise ApiError(400, reason, param="dimensions")

    def _check_number(self, items: Any, param: str) -> None:
        most = self._limits.max_instances
        if not isinstance(items, list) or not items:
            expected = "a text, or a list of texts" if param == "input" else "a list of texts"
            reason = f"{param}: expected {expected}; got {shortened(items)}"
            raise ApiError(400, reason, param=param)
        if len(items) > most:
            reason = f"{param}: expected at most {most:,} texts, got {len(items):,}"
            raise ApiError(413, reason, param=param)

    def _inputs(self, predictor: Embedder, value: Any) -> list[str | list[int]]:
        """The texts, or lists of token ids, of `input`, which may be one of either."""
        are_ids = isinstance(value, list) and bool(value) and type(value[0]) is int
        inputs = [value] if isinstance(value, str) or are_ids else value
        self._check_number(inputs, "input")
        for entry in inputs:
            if isinstance(entry, str):
                continue
            if not isinstance(entry, list):
                raise ApiError(400, f"input: expected texts, got {shortened(entry)}", param="input")
            try:
                predictor.check_ids(entry)
            except UserError as error:
                raise ApiError(400, f"input: {error}", param="input") from None
        return inputs

    def _documents(self, documents: Any) -> list[str]:
        """The texts of `documents`."""
        self._check_number(documents, "documents")
        texts: list[str] = []
        for index, document in enumerate(documents):
            text = document.get("text") if isinstance(document, dict) else document
            if not isinstance(text, str):
                reason = f"document {index}: expected a text, got {shortened(document)}"
                raise ApiError(400, reason, param="documents")
            texts.append(text)
        return texts


def _usage(counts: Any) -> dict[str, int]:
    total = sum(counts)
    return {"prompt_tokens": total, "total_tokens": total}
