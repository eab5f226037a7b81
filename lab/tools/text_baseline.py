"""Trains TF-IDF and logistic regression, for comparison with `run_classifier.py --task_name=tsv`.

    python -m lab.tools.text_baseline train.tsv dev.tsv --text_column=text_a --label_column=label

The features are runs of one to three characters, which suit Chinese, or single words and pairs of
words.
"""

import argparse
import sys

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification import tsv

NGRAMS = {"char": (1, 3), "word": (1, 2)}


def main(train: str, dev: str, text_column: str, label_column: str, analyzer: str) -> None:
    """Trains on one file and prints the scores on the other."""
    (texts, labels), (dev_texts, dev_labels) = (
        columns_of(path, text_column, label_column) for path in (train, dev)
    )
    vectorizer = TfidfVectorizer(
        analyzer=analyzer, ngram_range=NGRAMS[analyzer], min_df=2, sublinear_tf=True
    )
    model = LogisticRegression(C=10.0, max_iter=1000)
    model.fit(vectorizer.fit_transform(texts), labels)
    found = model.predict(vectorizer.transform(dev_texts))
    print(
        f"{len(texts):,} texts for training, {len(dev_texts):,} for development,"
        f" {len(model.classes_)} labels, {len(vectorizer.vocabulary_):,} features\n"
        f"accuracy {accuracy_score(dev_labels, found):.4f}"
        f"  macro F1 {f1_score(dev_labels, found, average='macro'):.4f}"
    )


def columns_of(path: str, *names: str) -> list[list[str]]:
    """Columns of a file, by name."""
    table = tsv.read_tsv(path, source=path)
    places = [table.position(name) for name in names]
    rows = [fields for _, fields in table.rows()]
    return [[fields[place] for fields in rows] for place in places]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train")
    parser.add_argument("dev")
    parser.add_argument("--text_column", default="text_a")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--analyzer", choices=NGRAMS, default="char")
    try:
        main(**vars(parser.parse_args()))
    except UserError as error:
        sys.exit(str(error))
