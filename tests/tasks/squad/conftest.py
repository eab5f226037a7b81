"""Tokenizers of SQuAD's tests, whose tokens can be counted by hand."""

import pytest

from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import train_spm

WORDS = "who where is was in the a cat sat on mat dog ran far away from home then slept"


@pytest.fixture(scope="session")
def words(tmp_path_factory) -> Tokenizer:
    """Its tokens are the words of `WORDS`."""
    path = tmp_path_factory.mktemp("words") / "spiece.model"
    settings = {"model_type": "word", "vocab_size": 60, "hard_vocab_limit": False}
    return Tokenizer.from_file(train_spm(path, [WORDS] * 3, **settings))


@pytest.fixture(scope="session")
def characters(tmp_path_factory) -> Tokenizer:
    """Its tokens are characters, the marker before a word among them."""
    path = tmp_path_factory.mktemp("characters") / "spiece.model"
    text = "abcdefghijklmnopqrstuvwxyz 0123456789 ,.?()"
    settings = {"model_type": "char", "vocab_size": 70, "hard_vocab_limit": False}
    return Tokenizer.from_file(train_spm(path, [text] * 3, **settings))
