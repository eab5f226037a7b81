"""Finds named entities with a CRF and with logistic regression, for comparison with run_tagger.py.

    python -m lab.tools.tagging_baseline train.conll dev.conll

The features of a word are the usual ones: the word, its first and last characters, its shape, and
the same of the words next to it. The CRF needs the package sklearn-crfsuite, and is left out
without it.
"""

import argparse
import importlib.util
import re
import sys

from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

from albert_tf.core.errors import UserError
from albert_tf.tasks.tagging import conll, entities
from albert_tf.tasks.tagging.settings import FIRST, LAST


def main(train: str, dev: str) -> None:
    """Trains on one file and prints the scores on the other."""
    (words, tags), (dev_words, dev_tags) = map(read, (train, dev))
    models = {"logistic regression": with_logistic_regression}
    if importlib.util.find_spec("sklearn_crfsuite"):
        models["CRF"] = with_crf
    for name, predict in models.items():
        found = predict(
            [features(row) for row in words], tags, [features(row) for row in dev_words]
        )
        print(f"{name}\n{entities.score_table(dev_tags, found)}", flush=True)


def read(path: str) -> tuple[list[tuple[str, ...]], list[list[str]]]:
    """The words and the tags of each sentence of a file."""
    columns = {"token_column": FIRST, "tag_column": LAST}
    file = conll.read_tagged(path, **columns, need_tags=True, flag="file")
    return [sentence.words for sentence in file.sentences], list(map(list, file.tags))


def features(words: tuple[str, ...]) -> list[dict[str, float]]:
    """The features of each word of a sentence."""
    own = [
        {
            "word": word.lower(),
            **{f"start{n}": word[:n].lower() for n in (1, 2, 3)},
            **{f"end{n}": word[-n:].lower() for n in (1, 2, 3)},
            "shape": shape(word),
            "short shape": re.sub(r"(.)\1+", r"\1", shape(word)),
        }
        for word in words
    ]
    edge = {"word": "<edge>"}
    padded = [edge, edge, *own, edge, edge]
    rows = []
    for place in range(2, len(padded) - 2):
        row = {f"0 {name}={value}": 1.0 for name, value in padded[place].items()}
        for shift in (-2, -1, 1, 2):
            near = padded[place + shift]
            names = [name for name in ("word", "short shape", "end3") if name in near]
            row |= {f"{shift} {name}={near[name]}": 1.0 for name in names}
        row[f"pair={padded[place - 1]['word']} {padded[place]['word']}"] = 1.0
        rows.append(row)
    return rows


def shape(word: str) -> str:
    """Capital letters as X, other letters as x, digits as 0."""
    return re.sub(r"\d", "0", re.sub(r"[^\W\d_]", lambda m: "X" if m[0].isupper() else "x", word))


def with_logistic_regression(rows, tags, dev_rows) -> list[list[str]]:
    """Predicts each word separately."""
    vectorizer = DictVectorizer()
    flat = vectorizer.fit_transform([row for sentence in rows for row in sentence])
    model = LogisticRegression(C=3.0, max_iter=300)
    model.fit(flat, [tag for sentence in tags for tag in sentence])
    return [model.predict(vectorizer.transform(sentence)).tolist() for sentence in dev_rows]


def with_crf(rows, tags, dev_rows) -> list[list[str]]:
    """Predicts all words of a sentence together."""
    import sklearn_crfsuite

    model = sklearn_crfsuite.CRF(algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=200)
    model.fit(rows, tags)
    return model.predict(dev_rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train")
    parser.add_argument("dev")
    try:
        main(**vars(parser.parse_args()))
    except UserError as error:
        sys.exit(str(error))
