"""The compiled tokenizer has the ids of the tokenizer, for every vocabulary and every text."""

import functools
import random

import numpy as np
import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from albert_tf.data_prep.pretraining import compiled_tokenizer
from albert_tf.data_prep.pretraining.compiled_tokenizer import CompiledTokenizer
from albert_tf.text import normalization_rules
from albert_tf.text.added_tokens import SPECIAL, AddedToken
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer
from tests.text.texts import LINES, read_real_lines, train_with_digits, write_vocabulary

NORMAL = ModelProto.SentencePiece.NORMAL
USER_DEFINED = ModelProto.SentencePiece.USER_DEFINED
UNUSED = ModelProto.SentencePiece.UNUSED

BLANKS = [
    "",
    " ",
    "a b",
    "a  b",
    "  a b ",
    "a\tb",
    "a\r",
    "a\x1cb \x0b\x0c c",
    "a\u00a0b \u3000c",
    "a \u0301b c\u0301",
    "a ´ b",
    "´a",
    "a´",
    "a\nb",
    "a \x01b\x7fc",
    "a\0b",
    "a\u200bb",
    "▁a ▁ b▁",
    "\ud800 a",
]


def assert_same_ids(compiled, tokenizer, texts):
    ids, counts = compiled.encode(texts)
    expected = tokenizer.encode_batch(texts)
    assert (ids.dtype, counts.dtype) == (np.int32, np.int64)
    assert counts.tolist() == [len(ids_of_text) for ids_of_text in expected]
    assert ids.tolist() == [id for ids_of_text in expected for id in ids_of_text]


@functools.cache
def rules_table(rules):
    return normalization_rules.compiled(normalization_rule_name="nmt_nfkc") if rules else b""


def made_by_hand(pieces, *, kinds=(), rules=True, trainer=(), normalizer=(), **options):
    """The tokenizer of a model with these tokens and their scores."""
    model = ModelProto()
    special = (("<pad>", "CONTROL"), ("<unk>", "UNKNOWN"))
    for piece, kind in (*special, *((name, "CONTROL") for name in ("[CLS]", "[SEP]", "[MASK]"))):
        model.pieces.add(piece=piece, type=ModelProto.SentencePiece.Type.Value(kind))
    for piece, score in pieces.items():
        model.pieces.add(piece=piece, score=score, type=dict(kinds).get(piece, NORMAL))
    if dict(trainer).get("byte_fallback"):
        for byte in range(256):
            model.pieces.add(piece=f"<0x{byte:02X}>", type=ModelProto.SentencePiece.BYTE)
    settings = {"model_type": TrainerSpec.UNIGRAM, "pad_id": 0, "unk_id": 1, "bos_id": -1}
    for name, value in {**settings, "eos_id": -1, **dict(trainer)}.items():
        setattr(model.trainer_spec, name, value)
    model.normalizer_spec.precompiled_charsmap = rules_table(rules)
    for name, value in dict(normalizer).items():
        setattr(model.normalizer_spec, name, value)
    return SentencePieceTokenizer(model.SerializeToString(), **options)


LETTERS = {
    "▁": -3.0,
    "a": -2.0,
    "b": -2.5,
    "c": -4.0,
    "ab": -3.5,
    "▁a": -3.25,
    "▁b": -6.0,
    ",": -3.0,
}


@pytest.mark.parametrize("cleaning", [{}, {"do_lower_case": False}, {"keep_accents": True}])
def test_a_trained_vocabulary_has_equal_ids(tmp_path, cleaning):
    tokenizer = Tokenizer.from_file(train_with_digits(tmp_path, "unigram"), **cleaning)
    compiled = CompiledTokenizer(tokenizer)
    assert compiled.is_compiled
    assert_same_ids(compiled, tokenizer, LINES + BLANKS)
    assert_same_ids(compiled, tokenizer, [])


def test_sentencepiece_is_used_if_it_finds_other_tokens(monkeypatch):
    tokenizer = made_by_hand(LETTERS)
    tables = compiled_tokenizer._tables_of(tokenizer)
    changed = tables._replace(scores=tables.scores[::-1].copy())
    monkeypatch.setattr(compiled_tokenizer, "_tables_of", lambda tokenizer: changed)
    compiled = CompiledTokenizer(tokenizer)
    assert not compiled.is_compiled
    assert_same_ids(compiled, tokenizer, ["ab ab c", "b a"])


def test_plain_lines_are_not_left_to_the_tokenizer(monkeypatch):
    tokenizer = made_by_hand(LETTERS)
    texts = ["A b", " ab \t c", "", "b\u00e1", "x yz", "中 ab 文字"]
    expected = tokenizer.encode_batch(texts)
    compiled = CompiledTokenizer(tokenizer)
    assert compiled.is_compiled

    monkeypatch.setattr(tokenizer, "encode_batch", lambda texts: pytest.fail(f"left: {texts}"))
    ids, _ = compiled.encode(texts)
    assert ids.tolist() == np.concatenate(expected).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": {"model_type": TrainerSpec.BPE}},
        {"trainer": {"treat_whitespace_as_suffix": True}},
        {"normalizer": {"add_dummy_prefix": False}},
        {"normalizer": {"remove_extra_whitespaces": False}},
        {"normalizer": {"escape_whitespaces": False}},
        {"pieces": {"▁ab": -1.0}, "kinds": {"▁ab": USER_DEFINED}},
        {"pieces": {"b▁a": -1.0}, "kinds": {"b▁a": USER_DEFINED}},
        {"pieces": {"b a": -1.0}, "kinds": {"b a": USER_DEFINED}},
        {"pieces": {"a b": -1.0}},
    ],
    ids=str,
)
def test_other_kinds_of_vocabularies_are_left_to_the_tokenizer(changes):
    changes = dict(changes)
    tokenizer = made_by_hand(LETTERS | changes.pop("pieces", {}), **changes)
    compiled = CompiledTokenizer(tokenizer)
    assert not compiled.is_compiled
    assert_same_ids(compiled, tokenizer, LINES + BLANKS)


def test_wordpiece_and_added_tokens_are_left_to_the_tokenizer(tmp_path):
    wordpiece = Tokenizer.from_file(write_vocabulary(tmp_path / "vocab.txt"))
    model = made_by_hand(LETTERS).content
    size = SentencePieceTokenizer(model).vocab_size
    added = SentencePieceTokenizer(model, added_tokens=[AddedToken("[a b]", size, SPECIAL)])
    for tokenizer in (wordpiece, added):
        compiled = CompiledTokenizer(tokenizer)
        assert not compiled.is_compiled
        assert_same_ids(compiled, tokenizer, [*LINES, *BLANKS, "a [a b] b"])


@pytest.mark.parametrize(
    "changes",
    [
        {"pieces": {"a▁b": -1.0, "b▁": -2.0, "▁▁": -1.0}},  # tokens with a blank inside
        {"pieces": {"bc": 0.0, "ba": 0.0}, "kinds": {"bc": USER_DEFINED, "ba": USER_DEFINED}},
        {"pieces": {"Á": 0.0, "´": 0.0}, "kinds": {"Á": USER_DEFINED, "´": USER_DEFINED}},
        {"pieces": {"bcc": -1.0}, "kinds": {"ab": UNUSED}},
        {"pieces": {"b": 1.5, "bc": 0.0}, "kinds": {"bc": USER_DEFINED}},  # a positive score
        {"pieces": {"1,": -1.0, "▁1,": -1.0, "▁1": -2.0, "1": -2.0}},
        {"pieces": {"é": -1.0, "中": -1.0, "文字": -1.0, "😀": -2.0}, "keep_accents": True},
        {"trainer": {"byte_fallback": True}},
        {"rules": False},
        {"do_lower_case": False, "pieces": {"A": -1.0, "Z": -1.0}},
    ],
    ids=str,
)
def test_vocabularies_made_by_hand_have_equal_ids(changes):
    changes = dict(changes)
    tokenizer = made_by_hand(LETTERS | changes.pop("pieces", {}), **changes)
    compiled = CompiledTokenizer(tokenizer)
    assert compiled.is_compiled
    letters = random.Random(1)
    words = ["".join(letters.choices("aabbc1,xÁé中文字😀´", k=9)) for _ in range(300)]
    texts = [" ".join(words[start : start + 5]) for start in range(0, 300, 5)]
    assert_same_ids(compiled, tokenizer, [*texts, *LINES, *BLANKS])


def test_a_vocabulary_without_the_marker_has_equal_ids():
    tokenizer = made_by_hand({"a": -1.0, "b": -2.0, "ab": -2.0, ",": -1.0})
    texts = ["a b", "x y z", "xa bx", "x", "中 文 a"]  # an unknown marker joins unknown words
    assert_same_ids(CompiledTokenizer(tokenizer), tokenizer, texts)


def test_unknown_tokens_that_may_end_in_a_comma_have_equal_ids():
    tokenizer = made_by_hand({"▁": -1.0, "a": -1.0, "1": -2.0})
    assert tokenizer.unknown_may_end_in_comma
    texts = ["a b 1,", "1, 2, a", "x1,", ",1", "中1,", "2,a"]
    assert_same_ids(CompiledTokenizer(tokenizer), tokenizer, texts)


@pytest.mark.parametrize(
    "rule", ["20 62\t63", "61 20\t62", "20\t61", "61 20 20 62\t", "61\t62 20 63"]
)
def test_rules_of_normalization_with_blanks_have_equal_ids(tmp_path, rule):
    path = tmp_path / "rules.tsv"
    path.write_text(rule + "\n")
    table = normalization_rules.compiled(normalization_rule_tsv=str(path))
    tokenizer = made_by_hand(LETTERS, normalizer={"precompiled_charsmap": table})
    assert_same_ids(CompiledTokenizer(tokenizer), tokenizer, [*BLANKS, "ba ab", "a bá", "´´b"])


@pytest.mark.parametrize("seed", range(5))
def test_scores_that_are_nearly_equal_are_rounded_as_sentencepiece_does(seed):
    """With few different scores there are ties, which rounding decides differently at each place of a long line."""
    numbers = random.Random(seed)
    scores = [-numbers.uniform(2, 3) for _ in range(3)]
    pieces = dict.fromkeys(("▁", "a", "b"), scores[0])
    for _ in range(60):
        piece = "".join(numbers.choices("ab", k=numbers.randint(2, 6)))
        marker = numbers.choice(["", "▁"])
        # Two tokens of half the length have almost the same score.
        pieces[marker + piece] = scores[0] * len(piece) / numbers.choice([1, 2]) * (1 + 2e-7)
    tokenizer = made_by_hand(pieces)
    texts = ["".join(numbers.choices("aabb ", k=numbers.randint(1, 3000))) for _ in range(40)]
    assert_same_ids(CompiledTokenizer(tokenizer), tokenizer, texts)


def test_long_runs_of_unknown_characters_have_equal_ids(tmp_path):
    tokenizer = Tokenizer.from_file(train_with_digits(tmp_path, "unigram"))
    texts = [f"the {'中' * length} cat," for length in (1, 2, 300, 333, 334, 999, 1001, 5000)]
    assert_same_ids(CompiledTokenizer(tokenizer), tokenizer, texts)


def test_the_released_vocabulary_has_equal_ids(released_model_file, real_data):
    tokenizer = Tokenizer.from_file(released_model_file)
    compiled = CompiledTokenizer(tokenizer)
    assert compiled.is_compiled
    assert_same_ids(compiled, tokenizer, read_real_lines(real_data) + LINES + BLANKS)


def test_a_vocabulary_whose_trie_is_wide_has_equal_ids():
    # After a character of three bytes, a digit and another such character are far apart.
    firsts = [chr(0x4E00 + number) for number in range(1500)]
    tokens = [token for first in firsts for token in (first, f"{first}1", f"{first}\u5e74")]
    pieces = {"▁": -2.0, "1": -9.0, **{token: -3.0 - len(token) for token in tokens}}
    tokenizer = made_by_hand(pieces)
    compiled = CompiledTokenizer(tokenizer)
    assert compiled.is_compiled
    texts = [f"{first}1{first} {first}\u5e74" for first in firsts]
    assert_same_ids(compiled, tokenizer, texts)


def test_a_trie_that_is_too_large_leaves_all_lines_to_the_tokenizer(monkeypatch):
    monkeypatch.setattr(compiled_tokenizer, "_trie_of", lambda tokens: np.zeros(0, np.uint64))
    tokenizer = made_by_hand(LETTERS)
    compiled = CompiledTokenizer(tokenizer)
    assert not compiled.is_compiled
    assert_same_ids(compiled, tokenizer, ["ab c", ""])


def test_scores_of_symbols_are_subtracted_in_double_precision():
    tokenizer = made_by_hand({"a": 3.3, "ab": 0.0}, kinds={"ab": USER_DEFINED})
    tables = compiled_tokenizer._tables_of(tokenizer)
    product = np.float32(2) * np.float32(3.3)  # of its length and the largest score
    assert tables.scores[tokenizer.token_to_id("ab")] == float(product) - 0.1
    assert float(product - np.float32(0.1)) != float(product) - 0.1
