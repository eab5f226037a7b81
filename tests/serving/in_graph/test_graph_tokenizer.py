"""The tokenizer inside a graph has the ids and cleaned texts of the tokenizer in Python."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.serving.in_graph.graph_tokenizer import clean, graph_tokenizer
from albert_tf.text.cleaning import clean_text
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import run_script
from tests.properties.strategies import ODD
from tests.text.texts import LINES, assigned_characters, read_real_lines, train, train_with_digits


@pytest.fixture(scope="session", params=["unigram", "bpe"])
def model_file(request, tmp_path_factory):
    return train_with_digits(tmp_path_factory.mktemp(request.param), request.param)


CLEANING = {"lower": (True, False), "cased": (False, False)}
CLEANING |= {"lower accents": (True, True), "cased accents": (False, True)}


@pytest.fixture(scope="session", params=CLEANING)
def tokenizer(request, model_file):
    lower, keep_accents = CLEANING[request.param]
    return Tokenizer.from_file(model_file, do_lower_case=lower, keep_accents=keep_accents)


@pytest.fixture(scope="session")
def graph(tokenizer):
    return graph_tokenizer(tokenizer)


def in_graph(graph, texts):
    return graph.encode(tf.constant([text.encode() for text in texts])).to_list()


def test_graph_cleans_every_character_like_python():
    """All code points but those that are too new for one of the Unicode tables."""
    chars = assigned_characters()
    texts = [f"Σ{char}Σ" for char in chars]
    found = clean(tf.constant([t.encode() for t in texts]), True).numpy()
    different = [
        char
        for char, text, result in zip(chars, texts, found, strict=True)
        if result.decode() != clean_text(text, do_lower_case=True)
    ]
    # Marks that came with Unicode 14 or later decide about a final sigma; older tables do not know them.
    assert all(ord(char) > 0x870 for char in different)
    assert len(different) < 500


def test_graph_replaces_invalid_bytes(tokenizer, graph):
    lines = [b"caf\xe9 the", b"\xff\xfe", b"cut \xf0\x9f\x98", b"ca\xe9t"]
    expected = [tokenizer.encode(line.decode("utf-8", errors="replace")) for line in lines]
    assert graph.encode(tf.constant(lines)).to_list() == expected


def test_graph_lowers_i_to_i_in_turkey(tmp_path):
    """TensorFlow's lower case depends on the locale of the process."""
    program = (
        "import sys; from albert_tf.text.tokenizer import Tokenizer;"
        "from albert_tf.serving.in_graph.graph_tokenizer import graph_tokenizer;"
        "tokenizer = Tokenizer.from_file(sys.argv[1]);"
        "ids = graph_tokenizer(tokenizer).encode(['IN Istanbul']).to_list();"
        "sys.exit(ids != [tokenizer.encode('in istanbul')])"
    )
    path = train(tmp_path / "spiece.model")
    assert run_script("-c", program, path, LC_ALL="tr_TR.UTF-8").returncode == 0


def mixed_lines(count, seed=0):
    """Lines of all that is hard to tokenize, in any order."""
    parts = [*"abcXYZ  019,,가한\u0344\u00ad\t\n\0", "\U0010ffff", *ODD]
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(parts, rng.integers(0, 25))) for _ in range(count)]


def test_ids_in_graph_equal_python(tokenizer, graph):
    lines = [*LINES, "a\U0010ffff b", *mixed_lines(500)]
    expected = [tokenizer.encode(line) for line in lines]
    assert any(tokenizer.unk_id in ids for ids in expected)
    assert in_graph(graph, lines) == expected
    assert in_graph(graph, [""]) == [[]]


@pytest.mark.parametrize(
    "changes",
    [
        {"user_defined_symbols": ["sat on", "<sep>", "½", "("], "split_by_whitespace": False},
        {"normalization_rule_name": "nmt_nfkc_cf", "treat_whitespace_as_suffix": True},
        {"byte_fallback": True, "vocab_size": 400},
    ],
    ids=["symbols", "folding", "bytes"],
)
def test_ids_in_graph_follow_the_models_normalizer(tmp_path, changes):
    tokenizer = Tokenizer.from_file(train(tmp_path / "spiece.model", **changes))
    lines = [*LINES, "the cat sat on<sep>the mat<sep>", *mixed_lines(300, seed=1)]
    assert in_graph(graph_tokenizer(tokenizer), lines) == [tokenizer.encode(line) for line in lines]


def test_real_lines_in_graph_equal_python(real_data, released_model_file):
    lines = read_real_lines(real_data)
    tokenizer = Tokenizer.from_file(released_model_file)
    assert in_graph(graph_tokenizer(tokenizer), lines) == [tokenizer.encode(line) for line in lines]


def test_a_vocabulary_without_comma_is_refused(tmp_path):
    sentences = [f"ab ba {'ab' * (number % 5)} abba" for number in range(200)]
    path = train(tmp_path / "no_comma.model", sentences=sentences)
    with pytest.raises(UserError, match="token for ','"):
        graph_tokenizer(Tokenizer.from_file(path))
