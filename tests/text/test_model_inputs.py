"""Texts -> inputs of a model: special tokens, pairs, lengths, padding; transformers' tokenizer, recorded by hand."""

import pickle

import numpy as np
import pytest

from albert_tf.core.errors import UserError
from albert_tf.text.tokenizer import Tokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##x", "##y"]  # ids 0 to 9


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_bytes("\n".join(TOKENS).encode())


def rows_of(inputs) -> list[str]:
    """Each sequence as one digit for each token, and its mask and segments."""
    names = ("input_ids", "input_mask", "segment_ids")
    return [
        " ".join("".join(map(str, values)) for values in row)
        for row in zip(*map(inputs.get, names), strict=True)
    ]


@pytest.mark.parametrize(
    "arguments, options, expected",
    [
        (["ax b"], {}, ["25863 11111 00000"]),
        ([["a", "bx cy a"]], {}, ["2530000 1110000 0000000", "2687953 1111111 0000000"]),
        (["a", "b c"], {}, ["253673 111111 000111"]),
        ([["a", "b"], ["", "c"]], {}, ["25300 11100 00000", "26373 11111 00011"]),
        ([[]], {}, []),
        ([["a b c", "a"]], {"max_length": 4}, ["2563 1111 0000", "2530 1110 0000"]),
        (["a b c", "a b c"], {"max_length": 8}, ["25673563 11111111 00000111"]),
        (["a b c", "a b c"], {"max_length": 7}, ["2563563 1111111 0000111"]),
        (["a b c", "b"], {"max_length": 6}, ["256363 111111 000011"]),
        (["a"], {"max_length": 5, "padding": "max_length"}, ["25300 11100 00000"]),
        ([["a", "b c"]], {"padding": False}, ["253 111 000", "2673 1111 0000"]),
        (["a b"], {"max_length": 4, "truncation": False}, ["2563 1111 0000"]),
    ],
)
def test_sequences_by_hand(tokenizer, arguments, options, expected):
    inputs = tokenizer(*arguments, **options)
    assert rows_of(inputs) == expected
    for values in inputs.values():
        if options.get("padding") is False:
            assert all(type(value) is int for row in values for value in row)
        else:
            assert values.dtype == np.int32 and values.ndim == 2


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ([["a", "a b c"]], {"max_length": 4, "truncation": False}, "text 1 does not fit into max_"),
        (["a"], {"max_length": 3}, "max_length must be an integer of at least 4, got 3"),
        (["a", ["b", "c"]], {}, "equally many, got 1 and 2"),
        ([b"ab"], {}, "got 97"),
    ],
)
def test_wrong_arguments(tokenizer, arguments, options, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        tokenizer(*arguments, **options)


def test_the_models_length_is_the_default(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    copy.max_length = 4
    for each in (copy, pickle.loads(pickle.dumps(copy))):
        assert rows_of(each("a b c")) == ["2563 1111 0000"]
        assert rows_of(each("a b c", max_length=6)) == ["25673 11111 00000"]
    assert copy.decode(copy("bx")["input_ids"][0]) == "bx"


def test_tensors_are_returned_on_demand(tokenizer):
    arrays, tensors = (tokenizer(["a", "a b"], return_tensors=kind) for kind in ("np", "tf"))
    for name, values in arrays.items():
        assert tensors[name].dtype.name == "int32"
        np.testing.assert_array_equal(tensors[name], values)
    with pytest.raises(UserError, match="return_tensors must be 'np' or 'tf', got 'pt'"):
        tokenizer("a", return_tensors="pt")
