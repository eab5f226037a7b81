"""Few labels: how training examples are drawn, and how scores are shown."""

import json

import numpy as np

from lab import few_labels
from tests.helpers import ROOT


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


def test_scores_of_several_draws_are_shown_with_their_interval():
    # Student's t of 2 degrees of freedom is 4.303; the standard error is 1 / sqrt(3).
    assert few_labels.interval([50.0, 51.0, 52.0]) == "51.0 ± 2.5"
    table = few_labels.table_of({"SST-2, 8": {few_labels.TF_IDF: [50.0, 51.0, 52.0]}})
    assert table[-1] == "| SST-2, 8 | 51.0 ± 2.5 | not run |"
    table = few_labels.table_of({"SST-2, 8": {few_labels.HEAD: [50.0]}})
    assert table[-1] == "| SST-2, 8 | not run | one draw |"
    table = few_labels.times_of({"SST-2, 8": {few_labels.FINE_TUNING: 61.4}})
    assert table[-1] == "| SST-2, 8 | not run | 61 | not run |"
    scores = {f"{strength:g}": [strength, 2 + strength] for strength in few_labels.STRENGTHS}
    table = few_labels.strengths_of({"SST-2, 8": scores})
    assert table[-1] == "| SST-2, 8 | 1.1 | 1.3 | 2.0 | 4.0 | 11.0 | 31.0 |"


def test_fine_tuning_is_compared_with_the_head_on_the_same_draw():
    tf_idf = few_labels.TF_IDF
    head = few_labels.HEAD
    fine_tuning = few_labels.FINE_TUNING
    # The means of the head are 50 above, but its first draws are 2, 1 and 4 below fine-tuning.
    scores = {
        "SST-2, 8": {tf_idf: [1.0, 2.0], head: [10.0, 110.0], fine_tuning: [12.0]},
        "SST-2, 32": {tf_idf: [1.0, 2.0], head: [20.0, 120.0], fine_tuning: [21.0, 0.0]},
        "articles, 128": {tf_idf: [1.0, 2.0], head: [30.0, 130.0], fine_tuning: [34.0]},
    }
    table = few_labels.table_of_first_draw(scores)
    # 8 x 2 examples, 10 steps of 16; 128 x 10 examples, 100 steps.
    assert table[2] == "| SST-2, 8 | 1.0 | 10.0 | 12.0 | not run | 10.0 |"
    assert table[4] == "| articles, 128 | 1.0 | 30.0 | 34.0 | not run | 1.2 |"
    seconds = {name: {head: 2.0, fine_tuning: 8.0} for name in scores}
    seconds["SST-2, 8"] = {head: 100.0, fine_tuning: 100.0}
    text = " ".join(few_labels.in_words(scores, seconds))
    assert "+2.0 to +2.0 with 8 examples of each label;" in text
    assert "+4.0 to +4.0 with 128 examples of each label." in text
    assert "takes 8 to 8 processor seconds, and the head 2 to 2, so 4 to 4 times" in text


def test_the_page_has_the_numbers_of_the_json_file():
    text = (ROOT / few_labels.PAGE).read_text()
    content = json.loads((ROOT / few_labels.FewLabelsSettings.output_file).read_text())
    for name, lines in few_labels.parts_of(content).items():
        assert f"<!-- {name} -->\n\n" + "\n".join(lines) + "\n\n<!-- end of" in text


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
