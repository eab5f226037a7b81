"""Memory for long texts that are read in windows: it grows with the length of a text, not with its square."""

import tracemalloc

import numpy as np
import pytest

from albert_tf.serving.predictors import load_predictor
from albert_tf.tasks import predictor, sequences
from albert_tf.tasks.classification.text_pairs import (
    TextExample,
    TextFeatureSettings,
    make_text_features,
)
from albert_tf.tasks.race import passages
from albert_tf.tasks.squad import windows as squad_windows
from albert_tf.tasks.squad.questions import SquadQuestion
from albert_tf.tasks.tagging import predictor as tagging_predictor
from albert_tf.tasks.tagging import windows as tagging_windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import WORDS


@pytest.fixture(scope="module")
def tokenizer(tiny_pretrained) -> Tokenizer:
    return Tokenizer.from_pretrained(tiny_pretrained)


def tagging_table(tokenizer, words):
    settings = tagging_windows.WindowSettings(tokenizer, 25, 9)
    return tagging_windows.make_windows(settings, [(0, Sentence(tuple(words)))])


def squad_table(tokenizer, words):
    settings = squad_windows.WindowSettings(tokenizer, 33, 13, 5)
    question = SquadQuestion("", "who met anna", " ".join(words))
    return squad_windows.make_windows(settings, [(0, question), (1, question)])


def classification_table(tokenizer, words):
    settings = TextFeatureSettings(tokenizer, 23, windows=True)
    return make_text_features(settings, [TextExample("", " ".join(words), label=1)])


def sizes(make, tokenizer, num_words) -> tuple[int, int]:
    """The bytes of a table, and the most that were in use while it was made."""
    words = np.random.default_rng(2).choice(WORDS.split()[:40], num_words).tolist()
    tracemalloc.start()
    table = make(tokenizer, words)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    arrays = [table.row_splits, *table.sequences.values(), *table.columns.values()]
    return sum(array.nbytes for array in arrays), peak


@pytest.mark.parametrize("make", [tagging_table, squad_table, classification_table])
def test_twice_as_many_words_need_twice_the_memory(tokenizer, make):
    size, peak = sizes(make, tokenizer, 1000)
    size_of_more, peak_of_more = sizes(make, tokenizer, 2000)
    assert 1.9 * size < size_of_more < 2.1 * size
    assert peak_of_more < 2.3 * peak


def test_windows_over_100_000_tokens_need_some_megabytes():
    tracemalloc.start()
    windows = list(sequences.windows_over(100_000, 126, 64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(windows) == 1562
    assert sum(int(is_max.sum()) for _, _, is_max in windows) == 100_000
    assert peak < 4e6


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([3, 5, 10**4, 7], [4]),  # ordinary texts stay together, whatever their number
        ([3] * 5000, [5000]),
        ([10**6, 10**6, 4], [1, 2]),
        ([4, 10**7, 5, 10**6], [1, 1, 2]),
        ([600_000] * 5, [1, 1, 1, 1, 1]),
        ([500_000] * 5, [2, 2, 1]),
    ],
)
def test_long_texts_are_answered_in_groups(lengths, expected):
    examples = list(range(len(lengths)))
    groups = list(predictor._bounded_groups(examples, lengths))
    assert [len(group) for group in groups] == expected
    assert sum(groups, []) == examples


def test_gaps_cannot_multiply_the_length_of_a_request():
    with pytest.raises(ValueError, match="with 40,000 gaps and an option of 30 characters is"):
        passages.check_filled_length("_ " * 40_000, ["a", "b" * 30])
    passages.check_filled_length("_ " * 30_000, ["a", "b" * 30])
    passages.check_filled_length("one gap _", ["b" * 900_000])


def test_a_long_text_is_searched_once_for_all_of_its_entities(finished, monkeypatch):
    searched = []

    def visible_parts(text, spans):
        searched.append(text)
        return trimmed(text, spans)

    trimmed = tagging_predictor.visible_parts
    monkeypatch.setattr(tagging_predictor, "visible_parts", visible_parts)
    text = "anna saw bert . " * 30
    [answer] = load_predictor(finished("tagging").folder).predict([text])
    assert len(answer["entities"]) > 1
    assert searched == [text]
