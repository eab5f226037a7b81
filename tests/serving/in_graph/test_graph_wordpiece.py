"""WordPiece inside a graph has the ids of WordPiece in Python."""

import pytest
import tensorflow as tf

from albert_tf.serving.in_graph.graph_tokenizer import graph_tokenizer
from albert_tf.text.tokenizer import Tokenizer
from tests.text.texts import (
    CHINESE_LINES,
    LINES,
    assigned_characters,
    read_mixed_lines,
    write_vocabulary,
)

TEXTS = [*LINES, *CHINESE_LINES, "b" * 200, "b" * 201, "中" + "é" * 201]
TEXTS += ["豈\u200b x\u0301\u200c", "\u0301a", "\u200b", "\U0001d165\U0001d16d"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> str:
    return write_vocabulary(tmp_path_factory.mktemp("wordpiece") / "vocab.txt")


@pytest.fixture(scope="module", params=["lower", "cased", "accents"])
def tokenizer(request, vocabulary) -> Tokenizer:
    is_lower = request.param != "cased"
    keeps_accents = request.param == "accents"
    return Tokenizer.from_file(vocabulary, do_lower_case=is_lower, keep_accents=keeps_accents)


@pytest.fixture(scope="module")
def graph(tokenizer) -> tf.Module:
    return graph_tokenizer(tokenizer)


def encoded(graph, texts) -> list[list[int]]:
    return graph.encode(tf.constant([text.encode() for text in texts], tf.string)).to_list()


def test_ids_equal_python(tokenizer, graph):
    expected = [tokenizer.encode(text) for text in TEXTS]
    for text, ids, found in zip(TEXTS, expected, encoded(graph, TEXTS), strict=True):
        assert found == ids, text
    assert encoded(graph, []) == []


def test_every_character_equals_python(tokenizer, graph):
    """All code points but those that are too new for one of the Unicode tables."""
    chars = assigned_characters()[::7]
    texts = [f"σ{char}a{char}的" for char in chars]
    different = [
        ord(char)
        for char, text, found in zip(chars, texts, encoded(graph, texts), strict=True)
        if found != tokenizer.encode(text)
    ]
    assert all(code > 0x870 for code in different) and len(different) < 500


def test_invalid_bytes_are_dropped(tokenizer, graph):
    found = graph.encode(tf.constant([b"caf\xe9t", b"\xff\xfe", b"a \xf0\x9f\x98"])).to_list()
    assert found == [tokenizer.encode("caft"), [], tokenizer.encode("a")]


def test_fifty_thousand_real_lines_equal_python(real_data):
    tokenizer = Tokenizer.from_file(str(real_data / "chinese" / "vocab.txt"))
    graph = graph_tokenizer(tokenizer)
    lines = read_mixed_lines(real_data, 50_000)
    for start in range(0, len(lines), 5000):
        part = lines[start : start + 5000]
        assert encoded(graph, part) == [row.tolist() for row in tokenizer.encode_batch(part)]
