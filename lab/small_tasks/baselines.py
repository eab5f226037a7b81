"""Baselines of the small tasks: the majority class, TF-IDF with linear models, a CRF, similarity without training.

A baseline takes the flags that name the files and columns of a task, and returns scores by title, as fractions of 1. It
returns nothing if a package that it needs is not installed.
"""

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import normalize

from albert_tf.tasks import metrics
from albert_tf.tasks.classification import glue, multi_label, tsv
from albert_tf.tasks.classification.text_pairs import TextExample
from albert_tf.tasks.race import passages
from albert_tf.tasks.tagging import entities
from lab.small_tasks import data

Scores = dict[str, float]
Baseline = Callable[[Mapping[str, str]], dict[str, Scores]]
MAJORITY, SIMILARITY, LINEAR, CRF = "majority class", "similarity", "linear model", "CRF"
TITLES = (MAJORITY, SIMILARITY, LINEAR, CRF)


# --- Texts and pairs of texts with one label or a score ---


def read_texts(flags: Mapping[str, str]) -> tuple[list[TextExample], list[TextExample]]:
    """The examples for training and for development."""
    if flags["task_name"] != "tsv":
        task = glue.find_task(flags["task_name"], flag="tasks")
        splits = ("train", "dev")
        return tuple(
            glue.read_glue(task, flags["data_dir"], name, flag="data_dir") for name in splits
        )
    train, dev = (_read_own(flags, name) for name in ("train_file", "eval_file"))
    return train, dev


def _read_own(flags: Mapping[str, str], name: str) -> list[TextExample]:
    separator = flags.get("label_separator", "")
    label = flags["label_column"]
    columns = {"text_columns": flags["text_columns"].split(","), "label_column": label}
    train, own = (
        tsv.read_own(flags[file], **columns, flag="data_dir") for file in ("train_file", name)
    )
    labels = tsv.find_labels(train, flags["train_file"], separator)
    return tsv.with_values(own, flags[name], labels, separator)


def _values(examples: Sequence[TextExample]) -> np.ndarray:
    return np.array([example.label for example in examples])


def _scores(predictions: np.ndarray, truths: np.ndarray) -> Scores:
    labels, numbers = ("accuracy", "f1", "macro_f1", "matthews"), ("pearson", "spearman")
    names = numbers if truths.dtype == float else labels
    return {name: metrics.METRICS[name](predictions, truths) for name in names}


def majority_class(flags: Mapping[str, str]) -> dict[str, Scores]:
    """The most frequent label of the training data."""
    train, dev = map(_values, read_texts(flags))
    return {MAJORITY: _scores(np.full(len(dev), np.bincount(train).argmax()), dev)}


def linear_on_texts(flags: Mapping[str, str]) -> dict[str, Scores]:
    """TF-IDF and logistic regression."""
    train, dev = read_texts(flags)
    rows, dev_rows = _text_features(train, dev)
    model = LogisticRegression(C=10.0, max_iter=1000).fit(rows, _values(train))
    return {LINEAR: _scores(model.predict(dev_rows), _values(dev))}


def ridge_on_texts(flags: Mapping[str, str]) -> dict[str, Scores]:
    """TF-IDF and ridge regression of scores."""
    train, dev = read_texts(flags)
    rows, dev_rows = _text_features(train, dev)
    model = Ridge(alpha=1.0, solver="lsqr").fit(rows, _values(train))
    return {LINEAR: _scores(model.predict(dev_rows), _values(dev))}


def similarity_of_pairs(flags: Mapping[str, str]) -> dict[str, Scores]:
    """The cosine of the TF-IDF of both texts; training texts are used without their scores."""
    train, dev = read_texts(flags)
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(_all_texts(train))
    return {SIMILARITY: _scores(_cosines(*_both(vectorizer, dev)), _values(dev))}


def _all_texts(examples: Sequence[TextExample]) -> list[str]:
    return [text for example in examples for text in (example.text_a, example.text_b) if text]


def _both(vectorizer, examples: Sequence[TextExample]) -> tuple:
    return tuple(
        vectorizer.transform([getattr(example, name) or "" for example in examples])
        for name in ("text_a", "text_b")
    )


def _cosines(first, second) -> np.ndarray:
    """The cosine of each row of one matrix with the same row of the other."""
    return np.asarray(normalize(first).multiply(normalize(second)).sum(axis=1)).ravel()


def _text_features(train: Sequence[TextExample], dev: Sequence[TextExample]) -> tuple:
    """TF-IDF of words and pairs of words, or of one to three characters if the texts have no spaces.

    Of two texts: that of each, the difference, the product, and the cosine.
    """
    texts = _all_texts(train)
    if sum(" " in text.strip() for text in texts) > len(texts) / 2:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    else:
        vectorizer = TfidfVectorizer(
            analyzer="char", ngram_range=(1, 3), min_df=2, sublinear_tf=True
        )
    vectorizer.fit(texts)
    if train[0].text_b is None:
        return tuple(_both(vectorizer, examples)[0] for examples in (train, dev))
    rows = []
    for examples in (train, dev):
        first, second = _both(vectorizer, examples)
        cosines = scipy.sparse.csr_matrix(_cosines(first, second)[:, None])
        parts = [first, second, abs(first - second), first.multiply(second), cosines]
        rows.append(scipy.sparse.hstack(parts, format="csr"))
    return tuple(rows)


# --- Several labels ---


def _read_several(flags: Mapping[str, str]) -> list[tuple[list[str], np.ndarray]]:
    """Texts and labels for training, for thresholds, and for the scores."""
    parts = [_read_own(flags, f"{name}_file") for name in ("train", "eval", "test")]
    return [([example.text_a for example in part], _values(part)) for part in parts]


def label_frequencies(flags: Mapping[str, str]) -> dict[str, Scores]:
    """The frequencies of the labels in the training data as probabilities of every text."""
    (_, truths), (_, dev_truths), (_, test_truths) = _read_several(flags)
    dev, test = (np.broadcast_to(truths.mean(0), each.shape) for each in (dev_truths, test_truths))
    thresholds = multi_label.best_thresholds(dev, dev_truths)
    return {MAJORITY: multi_label.scores(test, test_truths, thresholds)}


def linear_on_several_labels(flags: Mapping[str, str]) -> dict[str, Scores]:
    """A logistic regression for each label, on TF-IDF of words, of characters and of both, in their original case."""
    (texts, truths), (dev_texts, dev_truths), (test_texts, test_truths) = _read_several(flags)
    options: dict[str, Any] = {"lowercase": False, "sublinear_tf": True}
    words = TfidfVectorizer(ngram_range=(1, 2), **options)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), min_df=2, **options)
    vectorizers = {"words": words, "characters": characters, "both": make_union(words, characters)}
    scores = {}
    for name, vectorizer in vectorizers.items():
        classifier = OneVsRestClassifier(LogisticRegression(C=30, solver="liblinear"))
        model = make_pipeline(vectorizer, classifier).fit(texts, truths)
        thresholds = multi_label.best_thresholds(model.predict_proba(dev_texts), dev_truths)
        probabilities = model.predict_proba(test_texts)
        scores[f"{LINEAR}, {name}"] = multi_label.scores(probabilities, test_truths, thresholds)
    return scores


# --- Tags of words ---


def linear_on_words(flags: Mapping[str, str]) -> dict[str, Scores]:
    """A logistic regression on the features of each word, which tags each word separately."""
    train, dev = _read_tagged(flags)
    vectorizer = DictVectorizer()
    rows = vectorizer.fit_transform([row for words, _ in train for row in word_features(words)])
    model = LogisticRegression(C=3.0, max_iter=300).fit(
        rows, [t for _, tags in train for t in tags]
    )
    found = [model.predict(vectorizer.transform(word_features(words))).tolist() for words, _ in dev]
    return {LINEAR: _entity_scores(dev, found)}


def crf(flags: Mapping[str, str]) -> dict[str, Scores]:
    """A CRF on the same features, which tags all words of a sentence together; needs sklearn-crfsuite."""
    if not importlib.util.find_spec("sklearn_crfsuite"):
        return {}
    import sklearn_crfsuite

    train, dev = _read_tagged(flags)
    model = sklearn_crfsuite.CRF(algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=200)
    model.fit([word_features(words) for words, _ in train], [tags for _, tags in train])
    found = model.predict([word_features(words) for words, _ in dev])
    return {CRF: _entity_scores(dev, [list(tags) for tags in found])}


def _read_tagged(flags: Mapping[str, str]) -> list[list[tuple[Sequence[str], list[str]]]]:
    """The words and tags of each sentence, for training and for development."""
    files = [data.read_tags(flags[name]) for name in ("train_file", "eval_file")]
    return [
        [
            (sentence.words, list(tags))
            for sentence, tags in zip(file.sentences, file.tags, strict=True)
        ]
        for file in files
    ]


def _entity_scores(dev: Sequence[tuple], found: Sequence[list[str]]) -> Scores:
    total = entities.scores([tags for _, tags in dev], found).get("micro avg", {})
    names = {"f1": "f1-score", "precision": "precision", "recall": "recall"}
    return {name: total.get(key, 0.0) for name, key in names.items()}


def word_features(words: Sequence[str]) -> list[dict[str, float]]:
    """Features of each word: itself, its first and last characters, its shape, and some of its neighbors' features."""
    own = [
        {
            "word": word.lower(),
            **{f"start{n}": word[:n].lower() for n in (1, 2, 3)},
            **{f"end{n}": word[-n:].lower() for n in (1, 2, 3)},
            "shape": _shape(word),
            "short shape": re.sub(r"(.)\1+", r"\1", _shape(word)),
        }
        for word in words
    ]
    edge = {"word": "<edge>"}
    padded = [edge, edge, *own, edge, edge]
    rows = []
    for position in range(2, len(padded) - 2):
        row = {f"0 {name}={value}": 1.0 for name, value in padded[position].items()}
        for shift in (-2, -1, 1, 2):
            near = padded[position + shift]
            names = [name for name in ("word", "short shape", "end3") if name in near]
            row |= {f"{shift} {name}={near[name]}": 1.0 for name in names}
        row[f"pair={padded[position - 1]['word']} {padded[position]['word']}"] = 1.0
        rows.append(row)
    return rows


def _shape(word: str) -> str:
    """Capital letters as X, other letters as x, digits as 0."""
    return re.sub(r"\d", "0", re.sub(r"[^\W\d_]", lambda m: "X" if m[0].isupper() else "x", word))


# --- Questions with four options ---


def majority_option(flags: Mapping[str, str]) -> dict[str, Scores]:
    """The most frequent position of the right option in the training data."""
    train, dev = _read_questions(flags)
    position = np.bincount([question.answer for question in train]).argmax()
    return {MAJORITY: _option_scores(dev, np.full(len(dev), position))}


def similarity_of_options(flags: Mapping[str, str]) -> dict[str, Scores]:
    """The option whose TF-IDF is most similar to that of passage and question, without training."""
    train, dev = _read_questions(flags)
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit([question.article for question in train])
    asked = vectorizer.transform([f"{each.article} {each.question}" for each in dev])
    options = [vectorizer.transform([each.options[n] for each in dev]) for n in range(4)]
    cosines = np.stack([_cosines(asked, option) for option in options], axis=1)
    return {SIMILARITY: _option_scores(dev, cosines.argmax(axis=1))}


def _read_questions(flags: Mapping[str, str]) -> list[list[passages.RaceQuestion]]:
    options: dict[str, Any] = {"level": "all", "flag": "data_dir", "need_answers": True}
    return [passages.read_race(flags["data_dir"], split, **options) for split in ("train", "dev")]


def _option_scores(questions: Sequence[passages.RaceQuestion], chosen: np.ndarray) -> Scores:
    hits = chosen == np.array([question.answer for question in questions])
    levels = np.array([question.level for question in questions])
    groups = {f"accuracy_{level}": hits[levels == level] for level in passages.LEVELS}
    return {
        name: float(part.mean()) for name, part in {"accuracy": hits, **groups}.items() if len(part)
    }
