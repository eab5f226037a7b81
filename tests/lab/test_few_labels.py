"""Few labels: how training examples are drawn, and how scores are shown."""

import json

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
    assert few_labels.interval([50.04]) == "50.0 (once)"
    table = few_labels.table_of({"SST-2, 8": {few_labels.TF_IDF: [50.0, 51.0, 52.0]}})
    assert table[-1] == "| SST-2, 8 | 51.0 ± 2.5 | not run | not run | not run |"
    table = few_labels.times_of({"SST-2, 8": {few_labels.FINE_TUNING: 61.4}})
    assert table[-1] == "| SST-2, 8 | not run | 61 | not run |"
    scores = {f"{strength:g}": [strength, 2 + strength] for strength in few_labels.STRENGTHS}
    table = few_labels.strengths_of({"SST-2, 8": scores})
    assert table[-1] == "| SST-2, 8 | 1.1 | 1.3 | 2.0 | 4.0 | 11.0 | 31.0 |"


def test_questions_about_every_fourth_paragraph_are_for_tests(tmp_path):
    def article(title: str, num_paragraphs: int) -> dict:
        paragraphs = [
            {"qas": [{"question": f"{title} {number} {index}?"} for index in range(3)]}
            for number in range(num_paragraphs)
        ]
        return {"title": title, "paragraphs": paragraphs}

    # The last article has the fewest questions.
    articles = [article("Z", 1), *(article(chr(ord("A") + number), 5) for number in range(10))]
    path = tmp_path / "dev-v1.1.json"
    path.write_text(json.dumps({"data": articles}))
    task = few_labels.read_articles(path)
    assert {*task.pool.labels} == {*task.test.labels} == {*"ABCDEFGHIJ"}
    assert len(task.pool.texts) == 10 * 3 * 3 and len(task.test.texts) == 10 * 2 * 3
    assert {text.split()[1] for text in task.test.texts} == {"0", "4"}
    assert {text.split()[1] for text in task.pool.texts} == {"1", "2", "3"}


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
