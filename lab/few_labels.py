"""Few labels: three ways to classify texts with 8, 32 or 128 examples of each label.

    python -m lab.few_labels --data_dir=data

The ways are fine-tuning, a logistic regression on the vectors of an embedder, and one on TF-IDF of words and pairs of
words. The tasks are SST-2 and CoLA, and authors: which of six authors wrote a passage of two sentences, where the test
passages are from other books. Each seed draws other training examples; the test examples stay.
"""

import csv
import dataclasses
import datetime
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import albert_tf
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.data_prep.sentences import split_paragraph
from lab import machine, tables
from lab.report import replace_parts

PAGE = "docs/results/few_labels.md"
FINE_TUNING = "fine-tuning"
VECTORS = "vectors"
TF_IDF = "TF-IDF"
WAYS = (TF_IDF, VECTORS, FINE_TUNING)
_NUM_TEST = 400
_MOST_STEPS = 100
_BATCH = 16
_EPOCHS = 10
_MAX_SEQ_LENGTH = 64
_BOOKS_OF_AUTHOR = 3
_NUM_AUTHORS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewLabelsSettings(Settings):
    """The data, the model, and how often each way is tried."""

    data_dir: str = setting(
        "", "Folder with glue/ and text/books/ (AUTHOR_TITLE.txt).", required=True, input_path=True
    )
    init_checkpoint: str = setting("models/albert-minilm-l6", "An embedder.", input_path=True)
    num_seeds: int = setting(10, "Number of draws of the training examples.", minimum=2)
    num_fine_tunings: int = setting(2, "Number of these that are fine-tuned, too.", minimum=2)
    output_file: str = setting("docs/results/data/few_labels.json", "JSON file.")


Scores = dict[str, list[float]]  # of each way, by seed
COUNTS = (8, 32, 128)  # examples of each label


class Examples(NamedTuple):
    """Texts with their labels."""

    texts: list[str]
    labels: np.ndarray  # of str

    def of_labels(self, number: int, seed: int) -> "Examples":
        """So many examples of each label, drawn by a seed."""
        rng = np.random.default_rng(seed)
        places: list[int] = []
        for label in np.unique(self.labels):
            places += rng.permutation(np.flatnonzero(self.labels == label))[:number].tolist()
        return Examples([self.texts[place] for place in places], self.labels[places])


class FewLabelsTask(NamedTuple):
    """The examples to draw from, and those to test with."""

    pool: Examples
    test: Examples


def read_glue(
    folder: pathlib.Path, text_column: int, label_column: int, has_header: bool
) -> FewLabelsTask:
    """A task of GLUE with one text; of the development set, the first rows."""

    def examples(name: str) -> Examples:
        with (folder / name).open(encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[int(has_header) :]
        labels = np.array([row[label_column] for row in rows])
        return Examples([row[text_column] for row in rows], labels)

    test = examples("dev.tsv")
    return FewLabelsTask(
        examples("train.tsv"), Examples(test.texts[:_NUM_TEST], test.labels[:_NUM_TEST])
    )


def read_authors(folder: pathlib.Path) -> FewLabelsTask:
    """Passages of the first authors that have three books; the last book of each is for tests."""
    books: dict[str, list[pathlib.Path]] = {}
    for path in sorted(folder.glob("*.txt")):
        books.setdefault(path.name.partition("_")[0], []).append(path)
    authors = [author for author in books if len(books[author]) >= _BOOKS_OF_AUTHOR][:_NUM_AUTHORS]

    pool: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for author in authors:
        *for_training, for_test = books[author][:_BOOKS_OF_AUTHOR]
        for path in for_training:
            pool += [(passage, author) for passage in passages_of(path)]
        passages = passages_of(for_test)
        step = max(1, len(passages) * _NUM_AUTHORS // _NUM_TEST)
        test += [(passage, author) for passage in passages[::step]]
    return FewLabelsTask(_examples_of(pool), _examples_of(test))


def _examples_of(rows: Sequence[tuple[str, str]]) -> Examples:
    """The examples of pairs of a text and its label."""
    return Examples([text for text, _ in rows], np.array([label for _, label in rows]))


def passages_of(path: pathlib.Path) -> list[str]:
    """The pairs of sentences of a book, without short paragraphs, such as titles."""
    paragraphs = path.read_text(encoding="utf-8", errors="replace").split("\n\n")
    sentences: list[str] = []
    for paragraph in paragraphs:
        text = " ".join(paragraph.split())
        if len(text) > 100:
            sentences += split_paragraph(text)
    return [" ".join(pair) for pair in zip(sentences[::2], sentences[1::2], strict=False)]


Way = Callable[
    [Examples, int], np.ndarray
]  # training examples and seed -> labels of the test texts


def ways_of(task: FewLabelsTask, model: str) -> dict[str, Way]:
    """The ways to classify the test texts of a task, by name."""
    embedder = albert_tf.load_predictor(model, max_seq_length=_MAX_SEQ_LENGTH)
    test_vectors = embedder.embed(task.test.texts)

    def by_words(train: Examples, _seed: int) -> np.ndarray:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        classifier = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
        return classifier.fit(train.texts, train.labels).predict(task.test.texts)

    def by_vectors(train: Examples, _seed: int) -> np.ndarray:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        return classifier.fit(embedder.embed(train.texts), train.labels).predict(test_vectors)

    def by_fine_tuning(train: Examples, seed: int) -> np.ndarray:
        num_steps = min(_MOST_STEPS, round(_EPOCHS * len(train.texts) / _BATCH))
        with tempfile.TemporaryDirectory() as folder:
            run = albert_tf.classify(
                train=(train.texts, train.labels),
                init_checkpoint=model,
                output_dir=f"{folder}/run",
                train_batch_size=_BATCH,
                num_train_steps=num_steps,
                max_seq_length=_MAX_SEQ_LENGTH,
                seed=seed,
            )
            return np.array([answer["label"] for answer in run.predictor.predict(task.test.texts)])

    return {TF_IDF: by_words, VECTORS: by_vectors, FINE_TUNING: by_fine_tuning}


def main(settings: FewLabelsSettings) -> None:
    """Measures every way on every task, and writes the JSON file and the table."""
    folder = pathlib.Path(settings.data_dir)
    tasks = {
        "SST-2": read_glue(folder / "glue" / "SST-2", 0, 1, has_header=True),
        "CoLA": read_glue(folder / "glue" / "CoLA", 3, 1, has_header=False),
        "authors": read_authors(folder / "text" / "books"),
    }
    ways = {name: ways_of(task, settings.init_checkpoint) for name, task in tasks.items()}
    results: dict[str, Scores] = {f"{name}, {number}": {} for name in tasks for number in COUNTS}
    content = {
        "processor": machine.processor_name(),
        "commit": machine.commit(".", short=True),
        "date": f"{datetime.date.today()}",
        "model": settings.init_checkpoint,
        "num_test_examples": {name: len(task.test.texts) for name, task in tasks.items()},
        "macro_f1": results,
    }
    # Fine-tuning, which takes most of the time, comes last; what is done is kept if the program is stopped.
    for way, (name, number) in itertools.product(WAYS, itertools.product(tasks, COUNTS)):
        task = tasks[name]
        num_seeds = settings.num_fine_tunings if way == FINE_TUNING else settings.num_seeds
        scores = []
        for seed in range(num_seeds):
            labels = ways[name][way](task.pool.of_labels(number, seed), seed)
            scores.append(macro_f1(task.test, labels))
        results[f"{name}, {number}"][way] = scores
        print(f"{name}, {number}, {way}: {interval(scores)}", flush=True)
        files.write_bytes(settings.output_file, files.json_bytes(content))
        replace_parts(PAGE, {"few labels": table_of(results)})


def macro_f1(test: Examples, labels: np.ndarray) -> float:
    """The mean over the labels of F1, in percent."""
    return round(100 * float(f1_score(test.labels, labels, average="macro")), 2)


def interval(scores: Sequence[float]) -> str:
    """The mean of scores, and half of its interval of 95 % (Student's t); of two scores both."""
    if len(scores) == 2:
        return f"{np.mean(scores):.1f} ({min(scores):.1f}, {max(scores):.1f})"
    half = scipy.stats.t.ppf(0.975, len(scores) - 1) * scipy.stats.sem(scores)
    return f"{np.mean(scores):.1f} ± {half:.1f}"


def table_of(results: dict[str, Scores]) -> list[str]:
    """A row for each task and number of examples."""
    rows = []
    for name, of_ways in results.items():
        cells = [interval(of_ways[way]) if way in of_ways else "not run" for way in WAYS]
        rows.append((name, *cells))
    return tables.table(f"task, examples per label | {' | '.join(WAYS)}", rows)


if __name__ == "__main__":
    flags.run(main, FewLabelsSettings, description=__doc__)
