"""Texts -> sequences inside a graph: the same as the featurisers make, for all lengths and odd texts."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.feature_table import FeatureTable
from albert_tf.serving.in_graph.text import GraphText
from albert_tf.tasks.classification.text_pairs import TextExample, make_pair_features
from albert_tf.tasks.sequences import PairSettings
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import train_spm

TEXT = "the cat sat on a mat dog ran to old house it was late . , 1999, ( ) - _ é ﬁn ＿ ΣΑΣ"
WORDS = TEXT.split()
MAX_SEQ_LENGTH = 11


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
    texts_a = random_texts(1, 300, 12)
    texts_b = random_texts(2, 300, 12)
    examples = [TextExample("", *texts) for texts in zip(texts_a, texts_b, strict=True)]
    expected = padded(make_pair_features(PairSettings(tokenizer, length), examples))
    assert_same(graph.pairs(tf.constant(texts_a), tf.constant(texts_b)), expected)


@pytest.mark.parametrize("text_b", ["", "  ", "\u0301"], ids=["empty", "space", "accent"])
def test_a_second_text_without_tokens_counts_as_none(graph, tokenizer, text_b):
    features = graph.pairs(tf.constant(["the cat"]), tf.constant([text_b]))
    ids = tokenizer.encode("the cat")
    assert features["input_ids"].numpy().tolist() == [[2, *ids, 3]]
    assert not np.any(features["segment_ids"])
