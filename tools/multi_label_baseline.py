"""Several labels per text with a logistic regression for each label, to compare run_classifier.py with.

    python -m tools.multi_label_baseline train.tsv dev.tsv test.tsv --text_columns=text --label_column=types

The features are TF-IDF of words and pairs of words, and of characters, as they are written. The thresholds are chosen
on dev.tsv and the scores are those of test.tsv.
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

FEATURES = {
    "words": lambda: TfidfVectorizer(ngram_range=(1, 2), lowercase=False, sublinear_tf=True),
    "characters": lambda: TfidfVectorizer(
        analyzer="char", ngram_range=(1, 4), min_df=2, lowercase=False, sublinear_tf=True
    ),
}


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
    together = [lambda: make_union(*(make() for make in FEATURES.values()))]
    for name, make in {**FEATURES, "both": together[0]}.items():
        model = make_pipeline(
            make(), OneVsRestClassifier(LogisticRegression(C=30, solver="liblinear"))
        )
        model.fit(texts, truths)
        thresholds = multi_label.best_thresholds(model.predict_proba(dev_texts), dev_truths)
        probabilities = model.predict_proba(test_texts)
        at_half = multi_label.f1_scores(probabilities >= multi_label.DEFAULT_THRESHOLD, test_truths)
        chosen = multi_label.f1_scores(probabilities >= thresholds, test_truths)
        scores = {
            **multi_label.average_precisions(probabilities, test_truths),
            **at_half,
            **{f"{name}_thresholds": value for name, value in chosen.items()},
        }
        print(name, *(f"{metric} {value:.4f}" for metric, value in scores.items()), sep="\n  ")
        print(
            multi_label.label_table(labels, probabilities >= thresholds, test_truths, thresholds),
            flush=True,
        )


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
