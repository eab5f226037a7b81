"""Few labels: ways to classify texts with 8, 32 or 128 examples of each label.

    python -m lab.few_labels --data_dir=data

The ways are a logistic regression on TF-IDF of words and pairs of words; the head alone, as `classify
--train_head_only` trains it; and fine-tuning, with the pooler of the model, as by default, and with the vectors of the
head. The tasks are SST-2; articles: which of ten articles a question of SQuAD is about, where the test questions are
about other paragraphs; and authors: which of six authors wrote a passage of two sentences, where the test passages are
from other books. Each seed draws other training examples; the test examples stay.
"""

import csv
import dataclasses
import datetime
import functools
import itertools
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline

import albert_tf
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.data_prep.sentences import split_paragraph
from albert_tf.model.config import EMBEDDING, POOLER
from albert_tf.tasks.classification import linear_models
from albert_tf.tasks.classification.settings import ClassifierConfig
from lab import machine, tables
from lab.report import replace_parts

PAGE = "docs/results/few_labels.md"
TF_IDF = "TF-IDF"
HEAD = "head alone"
FINE_TUNING = "fine-tuning"
FINE_TUNING_OF_VECTORS = "fine-tuning of vectors"  # in the JSON file
FINE_TUNINGS = {FINE_TUNING: POOLER, FINE_TUNING_OF_VECTORS: EMBEDDING}  # --classifier_pooling
WAYS = (TF_IDF, HEAD, *FINE_TUNINGS)
# The heads of columns.
SHOWN = {FINE_TUNING_OF_VECTORS: "fine-tuning, head on the vector"}
_NUM_TEST = 400
_MOST_STEPS = 100
_BATCH = 16
_EPOCHS = 10
_MAX_SEQ_LENGTH = 64
_BOOKS_OF_AUTHOR = 3
_NUM_AUTHORS = 6
_NUM_ARTICLES = 10
_PARAGRAPHS_PER_TEST = 4  # one of them is for tests
_NUM_LABELS = {"SST-2": 2, "articles": _NUM_ARTICLES, "authors": _NUM_AUTHORS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewLabelsSettings(Settings):
    """The data, the model, and how often each way is tried."""

    data_dir: str = setting(
        "",
        "Folder with glue/, squad/dev-v1.1.json and text/books/ (AUTHOR_TITLE.txt).",
        required=True,
        input_path=True,
    )
    init_checkpoint: str = setting("models/albert-minilm-l6", "An embedder.", input_path=True)
    num_seeds: int = setting(10, "Number of draws of the training examples.", minimum=2)
    num_fine_tunings: int = setting(3, "Number of these that are fine-tuned, too.", minimum=1)
    cpu_minutes: float = setting(
        25.0, "Processor minutes after which no further fine-tuning begins.", above=0
    )
    output_file: str = setting("docs/results/data/few_labels.json", "JSON file.")


Scores = dict[str, list[float]]  # of each way, by seed
COUNTS = (8, 32, 128)  # examples of each label
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of --inverse_regularization


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


def read_articles(path: pathlib.Path) -> FewLabelsTask:
    """Questions of SQuAD about the articles with the most questions; every fourth paragraph is for tests."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]

    def num_questions(article: dict) -> int:
        return sum(len(paragraph["qas"]) for paragraph in article["paragraphs"])

    pool: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for article in sorted(articles, key=num_questions, reverse=True)[:_NUM_ARTICLES]:
        for number, paragraph in enumerate(article["paragraphs"]):
            questions = [(answer["question"], article["title"]) for answer in paragraph["qas"]]
            is_test = number % _PARAGRAPHS_PER_TEST == 0
            (test if is_test else pool).extend(questions)
    step = max(1, len(test) // _NUM_TEST)
    return FewLabelsTask(_examples_of(pool), _examples_of(test[::step]))


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


# Training examples and seed -> labels of the test texts.
Way = Callable[[Examples, int], np.ndarray]


class Vectors:
    """The vectors of texts; each text is read once."""

    def __init__(self, model: str):
        self._embedder = albert_tf.load_predictor(model, max_seq_length=_MAX_SEQ_LENGTH)
        self._of_texts: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [texts, D]."""
        new = [text for text in dict.fromkeys(texts) if text not in self._of_texts]
        if new:
            self._of_texts.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._of_texts[text] for text in texts])


def by_head(task: FewLabelsTask, vectors: Vectors, strength: float, train: Examples) -> np.ndarray:
    """The labels of the test texts by a head alone, with a strength of --inverse_regularization."""
    names, indices = np.unique(train.labels, return_inverse=True)
    head = linear_models.fit_labels(vectors(train.texts), indices, len(names), strength)
    logits = vectors(task.test.texts) @ head.weights.T + head.bias
    return names[np.argmax(logits, axis=1)]


def ways_of(task: FewLabelsTask, model: str, vectors: Vectors) -> dict[str, Way]:
    """The ways to classify the test texts of a task, by name."""

    def by_words(train: Examples, _seed: int) -> np.ndarray:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        classifier = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
        return classifier.fit(train.texts, train.labels).predict(task.test.texts)

    def by_usual_head(train: Examples, _seed: int) -> np.ndarray:
        return by_head(task, vectors, ClassifierConfig.inverse_regularization, train)

    ways: dict[str, Way] = {TF_IDF: by_words, HEAD: by_usual_head}
    for name, pooling in FINE_TUNINGS.items():
        ways[name] = functools.partial(_by_fine_tuning, task, model, pooling)
    return ways


def _by_fine_tuning(
    task: FewLabelsTask, model: str, pooling: str, train: Examples, seed: int
) -> np.ndarray:
    """A way of `ways_of`: labels by a model whose head reads what --classifier_pooling says."""
    num_steps = _num_steps(len(train.texts))
    return _by_program(
        task,
        model,
        train,
        classifier_pooling=pooling,
        train_batch_size=_BATCH,
        num_train_steps=num_steps,
        seed=seed,
    )


def _num_steps(num_examples: int) -> int:
    """The steps of a fine-tuning."""
    return min(_MOST_STEPS, round(_EPOCHS * num_examples / _BATCH))


def _by_program(task: FewLabelsTask, model: str, train: Examples, **settings) -> np.ndarray:
    """The labels of the test texts by a model that the program trains."""
    with tempfile.TemporaryDirectory() as folder:
        run = albert_tf.classify(
            train=(train.texts, train.labels),
            init_checkpoint=model,
            output_dir=f"{folder}/run",
            max_seq_length=_MAX_SEQ_LENGTH,
            **settings,
        )
        return np.array([answer["label"] for answer in run.predictor.predict(task.test.texts)])


class Record:
    """What was measured; it is written after every draw, so that a program that is stopped loses nothing."""

    def __init__(self, settings: FewLabelsSettings, tasks: Mapping[str, FewLabelsTask]):
        self._path = settings.output_file
        rows = [f"{name}, {number}" for name in tasks for number in COUNTS]
        self.scores: dict[str, Scores] = {row: {} for row in rows}
        self.of_strengths: dict[str, Scores] = {row: {} for row in rows}
        # Of the first draw: training and the answers for the test texts.
        self.cpu_seconds: dict[str, dict[str, float]] = {row: {} for row in rows}
        self._about = {
            "processor": machine.processor_name(),
            "commit": machine.commit(".", short=True),
            "date": f"{datetime.date.today()}",
            "model": settings.init_checkpoint,
            "num_test_examples": {name: len(task.test.texts) for name, task in tasks.items()},
        }

    def add(self, row: str, way: str, score: float) -> None:
        """Adds the score of a draw."""
        self.scores[row].setdefault(way, []).append(score)
        print(f"{row}, {way}: {interval(self.scores[row][way])}", flush=True)
        self.write()

    def write(self) -> None:
        """Writes the JSON file and the tables."""
        content = {
            **self._about,
            "macro_f1": self.scores,
            "macro_f1_of_strengths": self.of_strengths,
            "cpu_seconds": self.cpu_seconds,
        }
        files.write_bytes(self._path, files.json_bytes(content))
        replace_parts(PAGE, parts_of(content))


def main(settings: FewLabelsSettings) -> None:
    """Measures every way on every task, and writes the JSON file and the tables."""
    folder = pathlib.Path(settings.data_dir)
    tasks = {
        "SST-2": read_glue(folder / "glue" / "SST-2", 0, 1, has_header=True),
        "articles": read_articles(folder / "squad" / "dev-v1.1.json"),
        "authors": read_authors(folder / "text" / "books"),
    }
    model = settings.init_checkpoint
    vectors = Vectors(model)
    ways = {name: ways_of(task, model, vectors) for name, task in tasks.items()}
    record = Record(settings, tasks)
    rows = list(itertools.product(tasks, COUNTS))

    for way, (name, number), seed in itertools.product(
        (TF_IDF, HEAD), rows, range(settings.num_seeds)
    ):
        task = tasks[name]
        labels = ways[name][way](task.pool.of_labels(number, seed), seed)
        record.add(f"{name}, {number}", way, macro_f1(task.test, labels))

    for (name, number), strength in itertools.product(rows, STRENGTHS):
        task = tasks[name]
        scores = []
        for seed in range(settings.num_seeds):
            train = task.pool.of_labels(number, seed)
            scores.append(macro_f1(task.test, by_head(task, vectors, strength, train)))
        record.of_strengths[f"{name}, {number}"][f"{strength:g}"] = scores
    record.write()

    # The head above is that of the program: the answers for the first draw are the same.
    for name, number in rows:
        task = tasks[name]
        train = task.pool.of_labels(number, 0)
        started = time.process_time()
        labels = _by_program(task, model, train, train_head_only=True)
        record.cpu_seconds[f"{name}, {number}"][HEAD] = round(time.process_time() - started, 1)
        same = np.mean(labels == ways[name][HEAD](train, 0))
        if same < 0.995:
            raise SystemExit(
                f"{name}, {number}: only {same:.1%} of the program's answers are the same"
            )
    record.write()

    for seed, way, (name, number) in itertools.product(
        range(settings.num_fine_tunings), FINE_TUNINGS, rows
    ):
        if time.process_time() > 60 * settings.cpu_minutes:
            print("the processor minutes of --cpu_minutes are used", flush=True)
            return
        task = tasks[name]
        started = time.process_time()
        labels = ways[name][way](task.pool.of_labels(number, seed), seed)
        seconds = record.cpu_seconds[f"{name}, {number}"]
        seconds.setdefault(way, round(time.process_time() - started, 1))
        record.add(f"{name}, {number}", way, macro_f1(task.test, labels))


def macro_f1(test: Examples, labels: np.ndarray) -> float:
    """The mean over the labels of F1, in percent."""
    return round(100 * float(f1_score(test.labels, labels, average="macro")), 2)


def parts_of(content: Mapping[str, Any]) -> dict[str, list[str]]:
    """The parts of the page, from the content of the JSON file."""
    scores = content["macro_f1"]
    seconds = content["cpu_seconds"]
    parts = {
        "few labels": table_of(scores),
        "few labels, first draw": table_of_first_draw(scores),
        "few labels, strengths": strengths_of(content["macro_f1_of_strengths"]),
        "few labels, time": times_of(seconds),
    }
    if all(FINE_TUNING in of_ways for of_ways in (*scores.values(), *seconds.values())):
        parts["few labels, in words"] = in_words(scores, seconds)
    return parts


def interval(scores: Sequence[float]) -> str:
    """The mean of scores, and half of its interval of 95 % (Student's t)."""
    half = scipy.stats.t.ppf(0.975, len(scores) - 1) * scipy.stats.sem(scores)
    return f"{np.mean(scores):.1f} ± {half:.1f}"


def _mean_of_draws(scores: Sequence[float]) -> str:
    """The cell of a way: its mean with the interval, which one draw does not have."""
    if not scores:
        return "not run"
    if len(scores) == 1:
        return "one draw"
    return interval(scores)


def table_of(results: Mapping[str, Scores]) -> list[str]:
    """A row for each task and number of examples, with the ways that were tried with several draws."""
    ways = (TF_IDF, HEAD)
    rows = []
    for name, of_ways in results.items():
        cells = [_mean_of_draws(of_ways.get(way, [])) for way in ways]
        rows.append((name, *cells))
    return tables.table(f"task, examples per label | {' | '.join(ways)}", rows)


def table_of_first_draw(results: Mapping[str, Scores]) -> list[str]:
    """A row for each task and number of examples, with the scores of all ways on the first draw."""
    rows = []
    for name, of_ways in results.items():
        cells = [f"{of_ways[way][0]:.1f}" if way in of_ways else "not run" for way in WAYS]
        task, _, number = name.partition(", ")
        num_examples = int(number) * _NUM_LABELS[task]
        epochs = _num_steps(num_examples) * _BATCH / num_examples
        rows.append((name, *cells, f"{epochs:.1f}"))
    names = " | ".join(SHOWN.get(way, way) for way in WAYS)
    return tables.table(f"task, examples per label | {names} | epochs of fine-tuning", rows)


def in_words(
    results: Mapping[str, Scores], cpu_seconds: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """How far fine-tuning is from the head alone on the same draw, by the number of examples, and what it costs."""
    sentences = []
    for number in COUNTS:
        rows = [of_ways for name, of_ways in results.items() if name.endswith(f", {number}")]
        differences = [row[FINE_TUNING][0] - row[HEAD][0] for row in rows]
        ends = f"{min(differences):+.1f} to {max(differences):+.1f}"
        sentences.append(f"{ends} with {number} examples of each label")

    # The first row has the start of the process, too.
    seconds = list(cpu_seconds.values())[1:]
    ratios = [of_ways[FINE_TUNING] / of_ways[HEAD] for of_ways in seconds]
    seconds_of_head = [of_ways[HEAD] for of_ways in seconds]
    seconds_of_fine_tuning = [of_ways[FINE_TUNING] for of_ways in seconds]
    return tables.wrapped(
        f"Fine-tuning minus the head alone, in points of macro F1 on the same draw: {'; '.join(sentences)}."
        f" Fine-tuning takes {min(seconds_of_fine_tuning):.0f} to {max(seconds_of_fine_tuning):.0f} processor seconds,"
        f" and the head {min(seconds_of_head):.0f} to {max(seconds_of_head):.0f}, so {min(ratios):.0f} to"
        f" {max(ratios):.0f} times as many within a row of the table (without the first row, which has the start of the"
        " process)."
    )


def strengths_of(results: Mapping[str, Scores]) -> list[str]:
    """A row for each task and number of examples, with the means of the strengths of regularization."""
    names = [f"{strength:g}" for strength in STRENGTHS]
    rows = []
    for row, of_strengths in results.items():
        means = [np.mean(of_strengths[name]) for name in names if name in of_strengths]
        rows.append((row, *(f"{mean:.1f}" for mean in means)))
    return tables.table(f"task, examples per label | {' | '.join(names)}", rows)


def times_of(cpu_seconds: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A row for each task and number of examples, with the seconds of the ways that the program has."""
    ways = (HEAD, *FINE_TUNINGS)
    rows = []
    for name, of_ways in cpu_seconds.items():
        cells = [f"{of_ways[way]:.0f}" if way in of_ways else "not run" for way in ways]
        rows.append((name, *cells))
    names = " | ".join(SHOWN.get(way, way) for way in ways)
    return tables.table(f"task, examples per label | {names}", rows)


if __name__ == "__main__":
    flags.run(main, FewLabelsSettings, description=__doc__)
