"""Lines tokenized word by word get the ids that `Tokenizer` gives them."""

import pickle

import numpy as np
import pytest

from albert_tf.data_prep.pretraining import line_tokenizer
from albert_tf.data_prep.pretraining.line_tokenizer import LineTokenizer
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer
from tests.helpers import train_spm
from tests.text.texts import LINES

SYMBOLS = ["(", ")", '"', "-", ".", "–"]
ODD_LINES = [line for line in LINES if "\n" not in line] + ["\ud800 alone"]
ODD_WORDS = [word for line in ODD_LINES for word in line.split(" ")]


def corpus(num_lines=300):
    """Lines of made-up words."""
    rng = np.random.default_rng(5)
    syllables = ["ca", "the", "ma", "sat", "on", "fi", "n", "St", "ro", "a", "li", "x", "E", "6"]
    endings = ["", "", "", ",", ".", ")", "'s", "6,", "-on"]
    for line in range(num_lines):
        words = [
            "".join(rng.choice(syllables, rng.integers(1, 5))) + rng.choice(endings)
            for _ in range(12)
        ]
        yield f"the cat sat (on) mat {1900 + line % 90}, {' '.join(words)} is – 12, <or> 1,{line}"


def train(folder, **changes):
    settings = {"user_defined_symbols": SYMBOLS, "vocab_size": 170, "hard_vocab_limit": False}
    return train_spm(folder / "spiece.model", corpus(), **settings | changes)


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    return train(tmp_path_factory.mktemp("unigram"), split_by_number=False)


def check_equal(lines, tokenizer, own):
    """Every line has its ids; returns how many lines went to SentencePiece."""
    asked = []

    class Asked(SentencePieceTokenizer):
        def encode_batch(self, texts):
            asked.extend(texts)
            return super().encode_batch(texts)

    own._tokenizer = Asked(tokenizer.content, **tokenizer.cleaning)
    ids, lengths = own.encode(lines)
    expected = tokenizer.encode_batch(lines)
    ends = np.cumsum(lengths)
    assert len(lengths) == len(lines) and ends[-1] == len(ids)
    for line, end, length, one in zip(lines, ends, lengths, expected, strict=True):
        assert ids[end - length : end].tolist() == one.tolist(), line
    return len(asked)


@pytest.mark.parametrize("kind", ["lower", "cased", "accents"])
def test_lines_have_the_ids_of_the_tokenizer(model_file, kind):
    cleaning = {"do_lower_case": kind != "cased", "keep_accents": kind == "accents"}
    tokenizer = Tokenizer.from_file(model_file, **cleaning)
    own = LineTokenizer(tokenizer)
    check_equal([*corpus(), *ODD_LINES, *corpus(50)], tokenizer, own)
    check_equal(ODD_WORDS, tokenizer, own)
    words = sorted({word for line in corpus() for word in line.split()})
    assert check_equal(words, tokenizer, own) < 0.5 * len(words)


def test_a_line_with_two_segmentations_of_a_word_goes_to_sentencepiece(model_file):
    tokenizer = Tokenizer.from_file(model_file)
    own = LineTokenizer(tokenizer)
    pieces = [tokenizer.id_to_token(id) for id in range(tokenizer.vocab_size)]
    assert {"▁", "6"} <= set(pieces)
    scores = own._tables[1].scores
    doubled = [piece for piece in pieces if len(piece) == 2 and piece[0] == piece[1]]
    for piece in doubled:  # "66" "6" and "6" "66" have one score
        word = piece + piece[0]
        best = scores[pieces.index(piece)] + scores[pieces.index(piece[0])]
        ids = tokenizer.encode(word)
        if scores[ids].sum() == pytest.approx(best + scores[pieces.index("▁")]):
            assert check_equal([f"{'the cat ' * k}{word}" for k in range(40)], tokenizer, own) == 40
            break
    else:
        pytest.fail("the model has no such word; train it on another corpus")


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "bpe"},
        {"byte_fallback": True, "vocab_size": 400},
        {"treat_whitespace_as_suffix": True},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"split_by_whitespace": False, "vocab_size": 300},
        {"normalization_rule_name": "nfkc_cf"},
        {"normalization_rule_name": "identity"},
        {"user_defined_symbols": ["the", "at", "."]},
    ],
    ids=str,
)
def test_models_of_other_kinds(tmp_path, changes):
    for lower in (True, False):
        tokenizer = Tokenizer.from_file(train(tmp_path, **changes), do_lower_case=lower)
        check_equal([*corpus(100), *ODD_LINES, *ODD_WORDS], tokenizer, LineTokenizer(tokenizer))


def test_rules_about_several_characters(tmp_path):
    rules = tmp_path / "rules.tsv"
    rules.write_text("60 60\t22\n")  # `` becomes "
    path = train(tmp_path, normalization_rule_tsv=str(rules))
    tokenizer = Tokenizer.from_file(path)
    assert tokenizer.encode("the ``cat") == tokenizer.encode('the "cat')
    check_equal(["the ``cat", "`` `cat`` the"], tokenizer, LineTokenizer(tokenizer))


def test_a_full_table_of_words_is_emptied(model_file, monkeypatch):
    monkeypatch.setattr(line_tokenizer, "_MAX_WORDS", 40)
    tokenizer = Tokenizer.from_file(model_file)
    own = LineTokenizer(tokenizer)
    for line in corpus(20):
        check_equal([line, line], tokenizer, own)
        assert 0 < len(own._numbers) <= 40


def test_it_is_sent_to_other_processes(model_file):
    tokenizer = Tokenizer.from_file(model_file)
    own = LineTokenizer(tokenizer)
    own.encode(list(corpus()))
    sent = pickle.dumps(own)
    assert len(sent) < len(pickle.dumps(tokenizer)) + 1000  # without tables
    check_equal(list(corpus()), tokenizer, pickle.loads(sent))


def test_no_lines_have_no_ids(model_file):
    own = LineTokenizer(Tokenizer.from_file(model_file))
    assert [array.tolist() for array in own.encode([])] == [[], []]


def test_real_text_with_the_released_vocabulary(real_data, released_model_file):
    lines = [
        line
        for path in sorted(real_data.glob("text/*/*"))[::3]
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[::6]
    ]
    for lower in (True, False):
        tokenizer = Tokenizer.from_file(released_model_file, do_lower_case=lower)
        num_asked = check_equal(lines, tokenizer, LineTokenizer(tokenizer))
        if lower:  # the vocabulary knows no capitals
            assert num_asked < 0.25 * len(lines)
