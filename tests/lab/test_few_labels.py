"""Few labels: how training examples are drawn, and how scores are shown."""

import numpy as np

from lab import few_labels


def test_a_seed_draws_equally_many_different_examples_of_each_label():
    labels = np.array(["a", "b", "b", "a", "b"] * 6)
    examples = few_labels.Examples(
        [f"{label}{index}" for index, label in enumerate(labels)], labels
    )
    drawn = examples.of_labels(4, seed=1)
    assert sorted(drawn.labels) == ["a"] * 4 + ["b"] * 4 and len({*drawn.texts}) == 8
    assert all(text[0] == label for text, label in zip(*drawn, strict=True))
    assert drawn.texts == examples.of_labels(4, seed=1).texts
    assert drawn.texts != examples.of_labels(4, seed=2).texts


def test_scores_are_shown_with_their_interval_or_both():
    # Student's t of 2 degrees of freedom is 4.303; the standard error is 1 / sqrt(3).
    assert few_labels.interval([50.0, 51.0, 52.0]) == "51.0 ± 2.5"
    assert few_labels.interval([50.0, 51.0]) == "50.5 (50.0, 51.0)"
    table = few_labels.table_of({"SST-2, 8": {few_labels.TF_IDF: [50.0, 51.0, 52.0]}})
    assert table[-1] == "| SST-2, 8 | 51.0 ± 2.5 | not run | not run |"


def test_a_book_becomes_passages_of_two_sentences(tmp_path):
    sentence = "This is a sentence of a book that somebody wrote some time ago, and it is long"
    path = tmp_path / "author_title.txt"
    path.write_text(
        f"A TITLE\n\n{sentence}. {sentence} too.\n{sentence} as well. The end of it.\n\nShort.\n"
    )
    assert few_labels.passages_of(path) == [
        f"{sentence}. {sentence} too.",
        f"{sentence} as well. The end of it.",
    ]
