"""Search in a corpus: its vectors, kept beside it, those nearest to a query, and a second model that reranks."""

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.progress import Progress
from albert_tf.tasks.classification.predictor import ClassificationPredictor
from albert_tf.tasks.embedding.metrics import nearest, unit_length
from albert_tf.tasks.embedding.predictor import Embedder
from albert_tf.tasks.predictor import Predictor

_TEXTS_AT_A_TIME = 2048


class Search(Predictor):
    """Answers a query with the texts of a corpus whose vectors are nearest, by their cosine.

    The vectors are kept beside the file `corpus`; `places` are the texts' places in it, and `place` names them. A
    `reranker`, which scores pairs of query and text, orders the best `rerank_top` texts again.
    """

    expects = "a query"
    text_keys = ("text", "query")

    def __init__(
        self,
        embedder: Predictor,
        corpus: str,
        texts: Sequence[str],
        places: Sequence[int],
        *,
        place: str = "line",
        top_k: int = 10,
        reranker: Predictor | None = None,
        rerank_top: int = 50,
    ):
        if not isinstance(embedder, Embedder):
            raise UserError("the model has no vectors; give an embedder or a pretrained model")
        if reranker and not isinstance(reranker, ClassificationPredictor):
            raise UserError("--rerank: expected a classifier of pairs")
        super().__init__(
            embedder.model, embedder.tokenizer, embedder.task_settings, 1, compute=embedder.compute
        )
        self._embedder, self._texts, self._places, self._place = embedder, texts, places, place
        self._top_k, self._reranker, self._rerank_top = top_k, reranker, rerank_top
        self._vectors = _kept(f"{corpus}.{model_hash(embedder)[:16]}.vectors", embedder, texts)

    def check(self, item):
        text = item.get("query", item.get("text")) if isinstance(item, dict) else item
        if not isinstance(text, str):
            self.refuse(item)
        return text

    def answers(self, examples):
        """See `Predictor`: `query`, and `results` with `score`, `line` (or `row`) and `text`, the best first."""
        number = self._rerank_top if self._reranker else self._top_k
        queries = unit_length(self._embedder.embed(examples))
        answers = []
        nearby = nearest(queries, self._vectors, number)
        for query, rows, scores in zip(examples, *nearby, strict=True):
            found: list[dict[str, Any]] = [
                {"score": float(score), self._place: self._places[row], "text": self._texts[row]}
                for row, score in zip(rows, scores, strict=True)
            ]
            if self._reranker:
                again = self._reranker.rank(query, [one["text"] for one in found])
                found = [{**found[one["index"]], "score": one["score"]} for one in again]
            answers.append({"query": query, "results": found[: self._top_k]})
        return answers

    def remarks(self):
        return self._embedder.remarks()


def model_hash(predictor: Predictor) -> str:
    """A hash of everything that vectors depend on: the model's values, its vocabulary and the maximum length."""
    about = {
        "class": type(predictor.model).__name__,
        **predictor.model.config.to_dict(),
        **predictor.tokenizer.cleaning,
        "vocabulary": predictor.tokenizer.sha256,
        "max_seq_length": predictor.task_settings["max_seq_length"],
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, array in predictor.compute.values():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _kept(path: str, embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """The vectors of texts, of length 1, from a file with the same texts; otherwise they are made and written there."""
    key = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
    if files.exists(path):
        try:
            with np.load(io.BytesIO(files.read_bytes(path)), allow_pickle=False) as file:
                if file["key"] == key:
                    return file["values"]
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
            pass  # not written by this program
    parts = []
    # Standard output is for the answers.
    shown = Progress("texts", len(texts), unit="texts", seconds_between_lines=5, file=sys.stderr)
    with shown as progress:
        for start in range(0, len(texts), _TEXTS_AT_A_TIME):
            parts.append(unit_length(embedder.embed(texts[start : start + _TEXTS_AT_A_TIME])))
            progress.update(min(start + _TEXTS_AT_A_TIME, len(texts)))
    values, content = np.concatenate(parts), io.BytesIO()
    np.savez(content, key=np.array(key), values=values)
    try:
        files.write_bytes(path, content.getvalue())
    except UserError as error:
        print(f"{error}; so the vectors are made again each time", file=sys.stderr)
    return values
