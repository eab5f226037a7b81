"""Tagging in the graph: the words, windows and entities of `TaggingPredictor`."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model.heads import AlbertForTokenClassification
from albert_tf.serving.in_graph import tagging
from albert_tf.serving.in_graph.tagging import GraphTagger
from albert_tf.tasks.compiled import Compiled
from albert_tf.tasks.tagging.predictor import TaggingPredictor
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import TINY, train_spm

WORDS = "the cat sat (on) a mat , in 1999, Café ½ ﬁnd Ｃat 😀 far. e\u0301 \u0301 zero\u200bwidth 中文北京 x"
SPACES = [" ", " ", "", "  ", "\n", "\u00a0", " \u0301 "]
LABELS = ("B-LOC", "O", "E-LOC", "I-LOC", "S-PER", "MISC", "I-PER")  # as of another project


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Tokens of one to a few characters, the lone marker and tokens across ideographs among them."""
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    english = "the cat sat on a mat, in 1999, cafe find (far). zero width x 1 2 12"
    lines = [english, "中文北京 北京"] * 9
    return Tokenizer.from_file(train_spm(path, lines, vocab_size=70, hard_vocab_limit=False))


@pytest.fixture(scope="module")
def model(tokenizer) -> AlbertForTokenClassification:
    """A model whose outputs differ from token to token."""
    config = TINY.replace(
        vocab_size=tokenizer.vocab_size,
        num_hidden_layers=1,
        max_position_embeddings=99,
        initializer_range=0.5,
    )
    return AlbertForTokenClassification(config.with_labels(LABELS, "other"), seed=3)


def random_texts(seed=0, number=40) -> list[str]:
    rng = np.random.default_rng(seed)
    lengths = [0, 150, *rng.integers(0, 40, number - 2)]
    return [
        "".join(f"{word}{rng.choice(SPACES)}" for word in rng.choice(WORDS.split(), length))
        for length in lengths
    ]


def found_in_graph(tagger, model, texts) -> list[list[tuple]]:
    outputs = tagger(model, tf.constant(texts, tf.string))
    outputs = {name: value.numpy() for name, value in outputs.items()}
    columns = [outputs[name] for name in ("label", "start", "end", "probability")]
    rows = (
        zip(*(column[index][:count] for column in columns), strict=True)
        for index, count in enumerate(outputs["count"])
    )
    return [[(label.decode(), *others) for label, *others in row] for row in rows]


@pytest.mark.parametrize("settings", [(29, 9, "space"), (4, 1, "none"), (99, 200, "space")])
def test_entities_equal_those_of_the_predictor(model, tokenizer, settings):
    names = ("max_seq_length", "doc_stride", "word_separator")
    task = dict(zip(names, settings, strict=True))
    texts = [*random_texts(), " \n", "we\ufffdird \u0085 a"]
    texts.append("$5 (50%) #x @y http://a.b/c?d U.S. 'q'")
    expected = TaggingPredictor(model, tokenizer, task, 7, compute=Compiled(model)).predict(texts)
    tagger = GraphTagger(tokenizer, task, model.config.labels)
    found = found_in_graph(tagger, model, texts)
    number = 0
    for text, rows, answer in zip(texts, found, expected, strict=True):
        entities = answer["entities"]
        names = ("label", "start", "end")
        assert [row[:3] for row in rows] == [tuple(e[name] for name in names) for e in entities]
        assert [text[e["start"] : e["end"]] for e in entities] == [e["text"] for e in entities]
        np.testing.assert_allclose(
            [row[3] for row in rows], [e["probability"] for e in entities], atol=1e-5
        )
        number += len(rows)
    for nothing in ([], [""]):
        assert found_in_graph(tagger, model, nothing) == [[]] * len(nothing)
    assert number > 40 and {row[0] for rows in found for row in rows} == {"LOC", "PER", "MISC"}


def test_invalid_bytes_count_as_one_character():
    words, starts, ends = tagging._split_words(tf.constant([b"caf\xe9 \xff x", "né x".encode()]))
    found = [word.decode() for word in words.flat_values.numpy()]
    assert found == ["caf", "\ufffd", "\ufffd", "x", "né", "x"]
    assert starts.numpy().tolist() == [0, 3, 5, 7, 0, 3]
    assert ends.numpy().tolist() == [3, 4, 6, 8, 2, 4]
