"""WordPiece in Python against a plain restatement of the original's, and against the tokenizers library."""

import functools
import json
import pathlib
import pickle
import unicodedata

import numpy as np
import pytest

from albert_tf.core.errors import UserError
from albert_tf.text import wordpiece
from albert_tf.text.masked_text import encode_masked
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer, WordPieceTokenizer
from tests.text import texts

TEXTS = [*texts.LINES, *texts.CHINESE_LINES, "b" * 200, "b" * 201]
TEXTS += ["豈\u200b x\u0301\u200c", "\u0301a", "\u200b"]
RECORDED = pathlib.Path(__file__).with_name("wordpiece_of_tokenizers.json")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> str:
    return texts.write_vocabulary(tmp_path_factory.mktemp("wordpiece") / "vocab.txt")


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def tokenizer(request, vocabulary) -> Tokenizer:
    return Tokenizer.from_file(vocabulary, do_lower_case=request.param)


# --- A restatement of the original (tokenization.py)


def referee_vocabulary(path: str) -> dict[str, int]:
    vocabulary = {}
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in iter(file.readline, ""):
            token = line.strip().split()[0] if line.strip() else " "
            vocabulary.setdefault(token, len(vocabulary))
    return vocabulary


@functools.cache
def kind_of(char: str) -> str:
    code = ord(char)
    category = unicodedata.category(char)
    if code in (0, 0xFFFD) or (category in ("Cc", "Cf") and char not in "\t\n\r"):
        return "removed"
    if char in " \t\n\r" or category == "Zs":
        return "space"
    blocks = "4E00-9FFF 3400-4DBF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF"
    for block in f"{blocks} F900-FAFF 2F800-2FA1F".split():
        first, last = (int(end, 16) for end in block.split("-"))
        if first <= code <= last:
            return "chinese"
    return "other"


@functools.cache
def is_punctuation(char: str) -> bool:
    code = ord(char)
    is_ascii = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return is_ascii or unicodedata.category(char)[0] == "P"


def referee_words(text: str, lower: bool) -> list[str]:
    cleaned = ""
    for char in text:
        kind = kind_of(char)
        cleaned += {"removed": "", "space": " ", "chinese": f" {char} "}.get(kind, char)
    words = []
    for token in cleaned.strip().split():
        if lower:
            decomposed = unicodedata.normalize("NFD", token.lower())
            token = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        start_new = True
        for char in token:
            if is_punctuation(char):
                words.append(char)
                start_new = True
            else:
                if start_new:
                    words.append("")
                start_new = False
                words[-1] += char
    return " ".join(words).strip().split()


def referee_ids(vocabulary: dict[str, int], word: str) -> list[int]:
    if len(word) > 200:
        return [vocabulary["[UNK]"]]
    ids = []
    start = 0
    while start < len(word):
        end = len(word)
        while start < end:
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                break
            end -= 1
        if start == end:
            return [vocabulary["[UNK]"]]
        ids.append(vocabulary[piece])
        start = end
    return ids


class Referee:
    def __init__(self, path: str, lower: bool):
        self.vocabulary = referee_vocabulary(path)
        self.lower = lower
        self.ids_of = functools.cache(functools.partial(referee_ids, self.vocabulary))

    def encode(self, text: str) -> list[int]:
        return [id for word in referee_words(text, self.lower) for id in self.ids_of(word)]


def assert_spans_hold_the_tokens(tokenizer: Tokenizer, referee: Referee, text: str) -> None:
    """Each span holds what its token is made of; outside of all spans, there is nothing that makes a token."""
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids == referee.encode(text), text
    position = 0
    for id, (start, end) in zip(ids, spans, strict=True):
        assert start >= min(position, start) and start < end
        if start >= position:  # not the next token of the same character
            assert not referee_words(text[position:start], referee.lower), text
        position = end
        token = tokenizer.id_to_token(id).removeprefix("##")
        made = "".join(referee_words(text[start:end], referee.lower))
        # A character may be several tokens, and a sigma at the end of a span is not always that of a word.
        assert id == tokenizer.unk_id or token.replace("ς", "σ") in made.replace("ς", "σ"), text
    assert not referee_words(text[position:], referee.lower)


def test_the_file_says_which_kind_of_vocabulary_it_is(vocabulary, tmp_path):
    assert type(Tokenizer.from_file(vocabulary)) is WordPieceTokenizer
    path = texts.train_with_digits(tmp_path, "unigram")
    assert type(Tokenizer.from_file(path)) is SentencePieceTokenizer


def test_the_vocabulary_is_numbered_as_in_the_original(vocabulary, tokenizer):
    expected = referee_vocabulary(vocabulary)
    assert tokenizer.vocabulary() == list(expected)
    assert tokenizer.vocab_size == len(expected) > 300
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id]
    assert [*ids, tokenizer.mask_id] == [0, 2, 3, 4, 5]
    assert tokenizer.id_to_token(6) == " " and tokenizer.token_to_id("nothing") == tokenizer.unk_id


def test_ids_and_offsets_are_the_originals(vocabulary, tokenizer):
    referee = Referee(vocabulary, tokenizer.do_lower_case)
    for text in TEXTS:
        assert tokenizer.encode(text) == referee.encode(text), text
        assert_spans_hold_the_tokens(tokenizer, referee, text)


def test_every_character_is_treated_as_in_the_original():
    chars = [*texts.assigned_characters(), "\ud800", "\U0010ffff"]
    for start in range(0, len(chars), 100):
        text = " ".join(f"Σ{char}Σ" for char in chars[start : start + 100])
        words = wordpiece.split_words(text, do_lower_case=True).split()
        assert words == referee_words(text, lower=True), hex(ord(chars[start]))


def test_offsets_are_of_the_original_text(vocabulary):
    tokenizer = Tokenizer.from_file(vocabulary)
    text = "Cafe\u0301, \u200b我\u200b的 1999斯"
    ids, spans = tokenizer.encode_with_offsets(text)
    found = [
        (tokenizer.id_to_token(id), text[start:end])
        for id, (start, end) in zip(ids, spans, strict=True)
    ]
    assert found == [
        ("caf", "Caf"),
        ("##e", "e\u0301"),
        (",", ","),
        ("我", "我"),
        ("的", "的"),
        ("19", "19"),
        ("##99", "99"),
        ("[UNK]", "斯"),
    ]


def test_many_texts_are_one_after_the_other(tokenizer):
    for text, ids in zip(TEXTS, tokenizer.encode_batch(TEXTS), strict=True):
        assert ids.dtype == np.int32 and ids.tolist() == tokenizer.encode(text)
    with pytest.raises(TypeError, match="use encode"):
        tokenizer.encode_batch("one text")
    with pytest.raises(TypeError, match="text must be str"):
        tokenizer.encode(b"bytes")


def test_ids_and_offsets_are_those_of_tokenizers(vocabulary):
    """What `tokenizers.BertWordPieceTokenizer` computed, recorded, where its rules are the original's."""
    recorded = json.loads(RECORDED.read_text())
    assert len(recorded) > 30
    for entry in recorded:
        tokenizer = Tokenizer.from_file(vocabulary, do_lower_case=entry["lower"])
        ids, spans = tokenizer.encode_with_offsets(entry["text"])
        assert ids == entry["ids"], entry["text"]
        assert [list(span) for span in spans] == entry["offsets"], entry["text"]


@pytest.fixture(scope="module")
def released(real_data) -> str:
    return str(real_data / "chinese" / "vocab.txt")


def test_the_released_vocabulary_is_numbered_by_its_lines(released):
    tokenizer = Tokenizer.from_file(released)
    assert tokenizer.vocab_size == 21128
    lines = pathlib.Path(released).read_text(encoding="utf-8").split("\n")
    assert all(tokenizer.token_to_id(lines[id]) == id for id in (0, 101, 8000, 21127))


@pytest.mark.slow
def test_ten_thousand_real_lines_have_the_originals_ids(real_data, released):
    lines = texts.read_mixed_lines(real_data, 10_000)
    assert len(lines) == 10_000
    tokenizer = Tokenizer.from_file(released)
    referee = Referee(released, lower=True)
    expected = list(map(referee.encode, lines))
    assert [ids.tolist() for ids in tokenizer.encode_batch(lines)] == expected
    for line in lines[::10]:
        assert_spans_hold_the_tokens(tokenizer, referee, line)


def test_words_are_whole_words_of_the_original(tokenizer):
    for rule in ("original", "marker"):
        starts = tokenizer.word_starts(rule)
        expected = [not token.startswith("##") for token in tokenizer.vocabulary()]
        assert starts.dtype == bool and starts.tolist() == expected
    with pytest.raises(UserError, match="rule must be one of"):
        tokenizer.word_starts("chinese")


def test_decoding_joins_words(vocabulary):
    tokenizer = Tokenizer.from_file(vocabulary)
    ids = tokenizer.encode("Unaffable cat, 斯 我的")
    ids = [tokenizer.cls_id, *ids, tokenizer.sep_id, tokenizer.pad_id]
    assert tokenizer.decode(np.array(ids)) == "unaffable cat , [UNK] 我 的"


def test_text_around_a_mask_keeps_its_tokens(vocabulary):
    tokenizer = Tokenizer.from_file(vocabulary)
    ids = encode_masked(tokenizer, "我[MASK]的 un[MASK]able")
    assert ids == [
        *tokenizer.encode("我"),
        tokenizer.mask_id,
        *tokenizer.encode("的 un"),
        tokenizer.mask_id,
        *tokenizer.encode("able"),
    ]


def test_accents_stay_in_lower_case(vocabulary):
    """As with `strip_accents=False` in transformers: lower case, and nothing else."""
    tokenizer = Tokenizer.from_file(vocabulary, keep_accents=True)
    referee = Referee(vocabulary, lower=False)
    for text in TEXTS:
        if "Σ" not in text:
            assert tokenizer.encode(text) == referee.encode(text.lower()), text
        ids, spans = tokenizer.encode_with_offsets(text)
        assert ids == tokenizer.encode(text) and len(ids) == len(spans)
    text = "Café İ"
    assert tokenizer.encode(text) != Tokenizer.from_file(vocabulary).encode(text)
    assert tokenizer.encode_with_offsets(text)[1][-1][1] == len(text)
    assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == tokenizer.encode(text)
