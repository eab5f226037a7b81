"""Tags and entities: every scheme, and scores beside a restatement of conlleval's."""

import random

import numpy as np
import pytest

from albert_tf.tasks.tagging import entities

SCHEMES = {
    "IOB1": "I-PER I-PER B-PER I-LOC O I-LOC I-LOC I-LOC O",
    "IOB2": "B-PER I-PER B-PER B-LOC O B-LOC I-LOC I-LOC O",
    "BIOES": "B-PER E-PER S-PER S-LOC O B-LOC I-LOC E-LOC O",
    "BILOU": "B-PER L-PER U-PER U-LOC O B-LOC I-LOC L-LOC O",
    "BMES": "B-PER E-PER S-PER S-LOC O B-LOC M-LOC E-LOC O",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_marks_the_same_entities(scheme):
    tags = SCHEMES[scheme].split()
    assert entities.entities_of(tags) == [
        ("PER", 0, 1),
        ("PER", 2, 2),
        ("LOC", 3, 3),
        ("LOC", 5, 7),
    ]
    assert entities.to_iob2(tags) == SCHEMES["IOB2"].split()
    assert all(map(entities.is_tag, tags))


def test_labels_without_letter_are_runs_of_their_type():
    assert entities.entities_of(["LOC", "LOC", "O", "PER", "LOC"]) == [
        *[("LOC", 0, 1), ("PER", 3, 3)],
        ("LOC", 4, 4),
    ]


def test_labels_and_their_continuations():
    labels = entities.iob2_labels({"PER", "LOC"})
    assert labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert entities.continuations(labels) == [0, 2, 2, 4, 4]
    assert entities.continuations(("B-LOC", "LOC", "O")) == [0, 1, 2]


def spans_of_conlleval(tags):
    """conlleval.pl's startOfChunk and endOfChunk, restated."""
    found = set()
    previous = ("O", "")
    start = None
    for index, tag in enumerate([*tags, "O"]):
        letter, _, type = tag.partition("-")
        changed = previous[1] != type
        ends = (
            previous[0] in "ES"
            or (previous[0] in "BI" and letter in "BOS")
            or (previous[0] != "O" and changed)
        )
        starts = (
            letter in "BS"
            or (previous[0] in "ESO" and letter in "EI")
            or (letter != "O" and changed)
        )
        if start is not None and ends:
            found.add((previous[1], start, index - 1))
            start = None
        if starts:
            start = index
        previous = letter, type
    return found


def test_entities_and_scores_equal_those_of_conlleval_for_random_tags():
    rng = np.random.default_rng(0)
    tags = ["O", *(f"{letter}-{type}" for letter in "BIES" for type in ("A", "C-D"))]
    true, predicted = (
        [list(rng.choice(tags, rng.integers(1, 9))) for _ in range(400)] for _ in "ab"
    )
    predicted = [
        [new if rng.random() < 0.3 else old for old, new in zip(row, [*other, *row], strict=False)]
        for row, other in zip(true, predicted, strict=True)
    ]
    for row in (*true, *predicted):
        assert set(entities.entities_of(row)) == spans_of_conlleval(row)
    spans = [
        {(index, *span) for index, row in enumerate(rows) for span in spans_of_conlleval(row)}
        for rows in (true, predicted)
    ]
    scores = entities.scores(true, predicted)
    for name in ("A", "C-D", "micro avg"):
        right, given = (
            {span for span in group if name in (span[1], "micro avg")} for group in spans
        )
        hits = len(right & given)
        assert 0 < hits < min(len(right), len(given))
        assert scores[name]["precision"] == pytest.approx(hits / len(given))
        assert scores[name]["recall"] == pytest.approx(hits / len(right))
        assert scores[name]["f1-score"] == pytest.approx(2 * hits / (len(right) + len(given)))
        assert scores[name]["support"] == len(right)


def test_without_any_entity_there_is_no_score():
    assert entities.scores([["O"]], [["O"]]) == {}
    assert entities.scores([["B-A"]], [["O"]])["micro avg"]["f1-score"] == 0


def test_entities_are_those_of_seqeval_for_every_scheme():
    from seqeval.metrics.sequence_labeling import get_entities

    rng = random.Random(5)
    tags = ["O", *(f"{letter}-{type}" for letter in "BIES" for type in ("LOC", "PER"))]
    for _ in range(300):
        row = rng.choices(tags, k=rng.randint(1, 9))
        assert entities.entities_of(row) == get_entities(row), row
