"""Assigns several labels per text with logistic regressions, for comparison with run_classifier.py.

    python -m lab.tools.multi_label_baseline train.tsv dev.tsv test.tsv --label_column=types

The features are TF-IDF of words, pairs of words, and characters, in their original case. The
thresholds are chosen on dev.tsv, and the scores are for test.tsv.
"""

import argparse
import sys

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification import multi_label, tsv


def features(name: str):
    """A vectorizer of texts."""
    if name == "both":
        return make_union(features("words"), features("characters"))
    if name == "words":
        return TfidfVectorizer(ngram_range=(1, 2), lowercase=False, sublinear_tf=True)
    return TfidfVectorizer(
        analyzer="char", ngram_range=(1, 4), min_df=2, lowercase=False, sublinear_tf=True
    )


def main(
    train: str, dev: str, test: str, text_columns: str, label_column: str, label_separator: str
) -> None:
    """Trains on one file, chooses thresholds on the second, prints the scores on the third."""
    labels = tsv.find_labels(
        train, label_column=label_column, label_separator=label_separator, flag="train"
    )
    data = []
    for path in (train, dev, test):
        examples = tsv.read_own(
            path,
            text_columns=text_columns.split(","),
            label_column=label_column,
            labels=labels,
            label_separator=label_separator,
            flag="file",
        )
        texts = [" ".join(filter(None, (item.text_a, item.text_b))) for item in examples]
        data.append((texts, np.array([item.label for item in examples])))
    (texts, truths), (dev_texts, dev_truths), (test_texts, test_truths) = data
    for name in ("words", "characters", "both"):
        classifier = OneVsRestClassifier(LogisticRegression(C=30, solver="liblinear"))
        model = make_pipeline(features(name), classifier)
        model.fit(texts, truths)
        thresholds = multi_label.best_thresholds(model.predict_proba(dev_texts), dev_truths)
        probabilities = model.predict_proba(test_texts)
        scores = multi_label.scores(probabilities, test_truths, thresholds)
        print(name, *(f"{metric} {value:.4f}" for metric, value in scores.items()), sep="\n  ")
        reached = probabilities >= thresholds
        print(multi_label.label_table(labels, reached, test_truths, thresholds), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("train", "dev", "test"):
        parser.add_argument(name)
    parser.add_argument("--text_columns", default="text")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--label_separator", default=",")
    try:
        main(**vars(parser.parse_args()))
    except UserError as error:
        sys.exit(str(error))
