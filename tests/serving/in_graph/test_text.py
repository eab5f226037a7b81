"""Texts -> sequences inside a graph: the same as the featurisers make, for all lengths and odd texts."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.feature_table import FeatureTable
from albert_tf.serving.in_graph import text as graph_text
from albert_tf.serving.in_graph.text import GraphText
from albert_tf.tasks.classification.text_pairs import PairSettings, TextExample, make_pair_features
from albert_tf.tasks.race.passages import (
    RaceQuestion,
    RaceSettings,
    join_question_and_option,
    make_race_features,
)
from albert_tf.text.masked_text import encode_masked
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import train_spm

TEXT = "the cat sat on a mat dog ran to old house it was late . , 1999, ( ) - _ é ﬁn ＿ ΣΑΣ"
WORDS = TEXT.split()
MAX_SEQ_LENGTH, MAX_QA_LENGTH = 11, 5


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    sentences = ["the cat sat on a mat.", "a dog ran to the old house, 1999, it was late (-)."]
    changes = {"vocab_size": 60, "hard_vocab_limit": False, "user_defined_symbols": [".", "("]}
    return Tokenizer.from_file(train_spm(path, sentences * 5, **changes))


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphText(tokenizer, MAX_SEQ_LENGTH)


def padded(table: FeatureTable) -> dict[str, np.ndarray]:
    """A table as one batch, as long as its longest sequence."""
    examples = np.arange(len(table))
    return table.batch(examples, int(table.lengths.max()), ["input_ids", "segment_ids"])


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == tf.int32
        np.testing.assert_array_equal(found[name], array)


def random_texts(seed: int, number: int, most: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, most))) for _ in range(number)]


@pytest.mark.parametrize("length", [4, 5, MAX_SEQ_LENGTH, 50])
def test_pairs(tokenizer, length):
    graph = GraphText(tokenizer, length)
    texts_a, texts_b = random_texts(1, 300, 12), random_texts(2, 300, 12)
    examples = [TextExample("", *texts) for texts in zip(texts_a, texts_b, strict=True)]
    expected = padded(make_pair_features(PairSettings(tokenizer, length), examples))
    assert_same(graph.pairs(tf.constant(texts_a), tf.constant(texts_b)), expected)


@pytest.mark.parametrize("text_b", ["", "  ", "\u0301"], ids=["empty", "space", "accent"])
def test_a_second_text_without_tokens_counts_as_none(graph, tokenizer, text_b):
    features = graph.pairs(tf.constant(["the cat"]), tf.constant([text_b]))
    ids = tokenizer.encode("the cat")
    assert features["input_ids"].numpy().tolist() == [[2, *ids, 3]]
    assert not np.any(features["segment_ids"])


@pytest.mark.parametrize("length", [4, 6, MAX_SEQ_LENGTH, 50])
def test_choices(tokenizer, length):
    graph = GraphText(tokenizer, length)
    contexts, texts = random_texts(3, 250, 14), random_texts(4, 250, 7)
    options = np.array(random_texts(5, 1000, 4)).reshape(250, 4)
    questions = [
        RaceQuestion(str(row), "high", context, text, tuple(choices), None)
        for row, (context, text, choices) in enumerate(zip(contexts, texts, options, strict=True))
    ]
    assert sum("_" in text for text in texts) > 10 < sum("＿" in text for text in texts)
    table = make_race_features(RaceSettings(tokenizer, length, MAX_QA_LENGTH), questions)
    found = graph.choices(
        tf.constant(contexts), tf.constant(texts), tf.constant(options), max_qa_length=MAX_QA_LENGTH
    )
    assert_same(found, padded(table))


def test_options_are_put_into_gaps():
    questions = ["Who?", "Ann _ , then _ .", "_", "__ x", "", "x _"]
    options = ["Ann", "sang", "\\1 &", "b", "c", ""]
    found = graph_text.join_questions_and_options(tf.constant(questions), tf.constant(options))
    expected = map(join_question_and_option, questions, options)
    assert [text.decode() for text in found.numpy()] == list(expected)


def test_masks_are_typed(graph, tokenizer):
    the, cat, dot, mask = (tokenizer.encode(text) for text in ("the", "cat", ".", "[MASK]"))
    within = [id for id in tokenizer.encode("the.") if id not in the]  # "." without the marker
    assert dot[-1:] == within
    texts = ["the [MASK].", "[MASK]", "the [MASK] cat [MASK][MASK]", "the cat", "", "[mask]"]
    features, positions = graph.masked(tf.constant(texts))
    rows = [row[row != 0].tolist() for row in features["input_ids"].numpy()]
    assert rows[0] == [2, *the, 4, *within, 3]
    assert rows[1] == [2, 4, 3]
    assert rows[2] == [2, *the, 4, *cat, 4, 4, 3][:MAX_SEQ_LENGTH]
    assert rows[3] == [2, *the, *cat, 3]
    assert rows[4] == [2, 3]
    assert 4 not in rows[5] and 4 not in mask
    assert positions.to_list() == [
        [index for index, id in enumerate(row) if id == 4] for row in rows
    ]
    assert np.array_equal(features["input_mask"], features["input_ids"] != 0)
    assert not np.any(features["segment_ids"])


def test_a_long_text_loses_its_last_masks(graph):
    features, positions = graph.masked(tf.constant(["[MASK] " * 20]))
    assert features["input_ids"].numpy().tolist() == [[2, *[4] * (MAX_SEQ_LENGTH - 2), 3]]
    assert positions.to_list() == [list(range(1, MAX_SEQ_LENGTH - 1))]


def test_parts_beside_masks_are_encoded_as_outside_the_graph(tokenizer):
    graph = GraphText(tokenizer, 200)
    rng = np.random.default_rng(7)
    spaces = ["", " ", "\x0b", "\x1c", "\x85", "\u00a0", "\u2028", "\u3000", "\u200b"]
    texts = [
        "[MASK]".join(rng.choice(spaces) + text for text in random_texts(seed, 4, 4))
        for seed in range(100)
    ]
    features, _ = graph.masked(tf.constant(texts))
    found = [row[row != 0].tolist() for row in features["input_ids"].numpy()]
    assert found == [[2, *encode_masked(tokenizer, text), 3] for text in texts]
