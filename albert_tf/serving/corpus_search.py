"""Search in a corpus: its vectors, kept beside it, those nearest to a query, and a second model that reranks."""

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, memory_files
from albert_tf.core.errors import UserError
from albert_tf.core.progress import Progress
from albert_tf.tasks.classification.predictor import ClassificationPredictor
from albert_tf.tasks.embedding.predictor import Embedder
from albert_tf.tasks.embedding.source import search_result
from albert_tf.tasks.embedding.vector_metrics import nearest, prepared
from albert_tf.tasks.predictor import Predictor

_TEXTS_AT_A_TIME = 2048


class Search(Predictor):
    """Answers a query with the texts of a corpus whose vectors are nearest, by their cosine or as the model says.

    Args:
      embedder: makes the vectors, which are kept beside the file `corpus`.
      texts: the texts that are searched.
      places: for each text its line or row in the file, from 0.
      rows: of a table, for each text the columns of its row.
      reranker: scores pairs of query and text, and orders the best `rerank_top` texts again.
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
        rows: Sequence[Mapping[str, Any]] = (),
        top_k: int = 10,
        reranker: Predictor | None = None,
        rerank_top: int = 50,
    ):
        if not isinstance(embedder, Embedder):
            raise UserError("the model has no vectors; give an embedder or a pretrained model")
        if reranker:
            if not isinstance(reranker, ClassificationPredictor):
                raise UserError("--rerank: expected a classifier of pairs")
            reranker.check_ranks()
        super().__init__(
            embedder.model, embedder.tokenizer, embedder.task_settings, 1, compute=embedder.compute
        )
        self._embedder = embedder
        self._texts = texts
        self._places = places
        self._rows = rows
        self._top_k = top_k
        self._reranker = reranker
        self._rerank_top = rerank_top
        self._vectors = _kept(f"{corpus}.{model_hash(embedder)[:16]}.vectors", embedder, texts)

    def check(self, item):
        text = item.get("query", item.get("text")) if isinstance(item, dict) else item
        if not isinstance(text, str):
            self.refuse(item)
        return text

    def answers(self, examples):
        """See `Predictor`: `query`, and `results` with `score`, `index` and `text`, the best first.

        The `index` is that of the text's line or row in the file, from 0. Results of a table also have the columns of
        the row, under their own names.
        """
        # 2 queries -> [2, 10]: the numbers of the nearest texts, and their scores.
        most = self._rerank_top if self._reranker else self._top_k
        kind = self._embedder.similarity_name
        queries = prepared(self._embedder.vectors_of_texts(examples), kind)
        numbers_of_queries, scores_of_queries = nearest(queries, self._vectors, most, kind)

        answers = []
        for query, numbers, scores in zip(
            examples, numbers_of_queries.tolist(), scores_of_queries.tolist(), strict=True
        ):
            best = list(zip(numbers, scores, strict=True))
            if self._reranker:
                texts = [self._texts[number] for number in numbers]
                reranked = self._reranker.ranking(query, texts)
                best = [(numbers[entry["index"]], entry["score"]) for entry in reranked]
            results = [self._result(number, score) for number, score in best[: self._top_k]]
            answers.append({"query": query, "results": results})
        return answers

    def _result(self, number: int, score: float) -> dict[str, Any]:
        """The result for one of the texts."""
        row = self._rows[number] if self._rows else {}
        return search_result(score, self._places[number], self._texts[number], row)

    def remarks(self):
        return self._embedder.remarks()


def model_hash(predictor: Predictor) -> str:
    """A hash of everything that vectors depend on: the model's values, its vocabulary and the maximum length."""
    about = {
        "class": type(predictor.model).__name__,
        **predictor.model.config.to_dict(),
        **predictor.tokenizer.cleaning,
        **predictor.tokenizer.rules.to_dict(),
        "vocabulary": predictor.tokenizer.sha256,
        "max_seq_length": predictor.task_settings["max_seq_length"],
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, array in predictor.compute.values():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _kept(path: str, embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """The vectors of texts, `prepared`, from a file with the same texts; otherwise they are made and written there.

    Beside a corpus in memory, nothing is read or written.
    """
    is_in_memory = path.startswith(memory_files.PREFIX)
    key = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
    if not is_in_memory and files.exists(path):
        try:
            with np.load(io.BytesIO(files.read_bytes(path)), allow_pickle=False) as file:
                if file["key"] == key:
                    return file["values"]
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
            pass  # not written by this program

    vectors = _prepared_vectors(embedder, texts)
    if is_in_memory:
        return vectors
    content = io.BytesIO()
    np.savez(content, key=np.array(key), values=vectors)
    try:
        files.write_bytes(path, content.getvalue())
    except UserError as error:
        print(f"{error}; so the vectors are made again each time", file=sys.stderr)
    return vectors


def _prepared_vectors(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """The vectors of texts, `prepared`, [texts, D]; shows the progress."""
    parts = []
    # Standard output is for the answers.
    progress = Progress("texts", len(texts), unit="texts", seconds_between_lines=5, file=sys.stderr)
    with progress:
        for start in range(0, len(texts), _TEXTS_AT_A_TIME):
            vectors = embedder.vectors_of_texts(texts[start : start + _TEXTS_AT_A_TIME])
            parts.append(prepared(vectors, embedder.similarity_name))
            progress.update(min(start + _TEXTS_AT_A_TIME, len(texts)))
    return np.concatenate(parts)
