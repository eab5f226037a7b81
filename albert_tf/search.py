r"""Searches the texts of a file by meaning, and answers each line of standard input.

    albert-tf search runs/embedder --corpus=texts.txt < queries.txt > found.jsonl
    albert-tf search runs/embedder --corpus=products.csv --text_column=description --rerank=runs/reranker

Each result has the `index` of the text's line or row in the file, which counts from 0, and of a table the columns of
the row. The vectors are kept beside the corpus, in a file with the model's hash in its name, and are made again when
the model or the texts change. docs/guides/embeddings.md shows how to train both models.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from albert_tf import functions
from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.program import Program
from albert_tf.core.settings import setting
from albert_tf.predict import AnswerSettings, answer_lines
from albert_tf.tasks.embedding.source import read_corpus
from albert_tf.tasks.settings import files_setting

if TYPE_CHECKING:
    from albert_tf.serving.corpus_search import Search


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(AnswerSettings):
    """The model, the texts, and how they are searched."""

    corpus: str = files_setting("File of texts, one per line; or a table.", required=True)
    text_column: str = setting("", "Column with the texts, if --corpus is a table with a header.")
    top_k: int = setting(10, "Number of texts that answer a query.", minimum=1)
    rerank: str = files_setting(
        "A classifier of pairs of query and text, with one score or two labels, which orders the best texts again."
    )
    rerank_top: int = setting(50, "Number of texts that --rerank orders.", minimum=1)

    def __post_init__(self):
        super().__post_init__()
        if self.rerank and self.rerank_top < self.top_k:
            self.refuse("rerank_top", f"={self.rerank_top} must be at least --top_k={self.top_k}")


def main(settings: SearchSettings) -> None:
    """Answers the lines of standard input."""
    answer_lines(search_of(settings), settings.batch_size, settings.input_format)


def search_results(settings: SearchSettings, queries: Sequence[str]) -> list[dict[str, Any]]:
    """For each query a dictionary with `query` and `results`, the best first."""
    return search_of(settings).predict(queries)


def search_of(settings: SearchSettings) -> "Search":
    """The search in the corpus of the settings, which answers queries."""
    corpus = read_corpus(settings.corpus, settings.text_column)
    from albert_tf.serving.corpus_search import Search
    from albert_tf.serving.predictors import load_predictor  # TensorFlow

    reranker = load_predictor(settings.rerank) if settings.rerank else None
    search = Search(
        settings.load_predictor(),
        settings.corpus,
        corpus.texts,
        corpus.places,
        rows=corpus.rows,
        top_k=settings.top_k,
        reranker=reranker,
        rerank_top=settings.rerank_top,
    )
    print(f"{len(corpus.texts):,} texts", file=sys.stderr, flush=True)
    return search


program = Program(
    main=main,
    settings_classes=(SearchSettings,),
    description=__doc__,
    positional=("model",),
    answers=search_results,
    lines="queries",
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("search"))

if __name__ == "__main__":
    run()
