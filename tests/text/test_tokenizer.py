"""Tokenization in Python against a plain restatement of the original's."""

import hashlib
import pathlib
import unicodedata
from itertools import accumulate

import numpy as np
import pytest
import sentencepiece

from albert_tf.core.errors import UserError
from albert_tf.text.cleaning import clean_text
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.word_starts import is_word_start
from tests.text.texts import LINES, read_real_lines, train, train_with_digits


@pytest.fixture(scope="session", params=["unigram", "bpe"])
def model_file(request, tmp_path_factory):
    return train_with_digits(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="session", params=[True, False], ids=["lower", "cased"])
def tokenizer(request, model_file):
    return Tokenizer.from_file(model_file, do_lower_case=request.param)


def referee_clean(text, lower):
    text = " ".join(text.strip().split())
    text = unicodedata.normalize("NFKD", text)
    text = "".join(char for char in text if unicodedata.combining(char) == 0)
    return text.lower() if lower else text


def referee_pieces(processor, text):
    result = []
    for piece in processor.EncodeAsPieces(text):
        if not (len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()):
            result.append(piece)
            continue
        again = processor.EncodeAsPieces(piece[:-1].replace("▁", ""))
        if piece[0] != "▁" and again[0][0] == "▁":
            again[0] = again[0][1:]
        result += [part for part in again if part] + [","]
    return result


def referee_encode(model_file, text, lower):
    processor = load(model_file)
    return list(map(processor.PieceToId, referee_pieces(processor, referee_clean(text, lower))))


def load(model_file):
    return sentencepiece.SentencePieceProcessor(model_file=model_file)


def visible(model_file, text, lower):
    """What the model makes of a text, without spaces and markers."""
    normalized = load(model_file).normalize(referee_clean(text, lower))
    return normalized.replace("▁", "")


def test_long_runs_of_unknown_characters_are_one_token_as_in_sentencepiece(
    model_file, tokenizer, monkeypatch
):
    text = (
        "東" * 1400 + " a cat 1," + "京都" * 700 + "1," + "한국어" * 400 + "ﬁn" + "😀" * 1001 + "。"
    )
    ids, spans = tokenizer.encode_with_offsets(text)
    expected = referee_encode(model_file, text, tokenizer.do_lower_case)
    is_equal = ids == tokenizer.encode(text) == expected
    assert is_equal  # a comparison of the lists would print them
    monkeypatch.setattr("albert_tf.text.tokenizer.sentencepiece_tokenizer._LONGEST_RUN", 10**9)
    is_equal = (ids, spans) == tokenizer.encode_with_offsets(text)
    assert is_equal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Ｃａｆé \t ﬁn", "cafe fin"),
        ("a\u00a0b\u2003c\u001cd\u0085e", "a b c d e"),
        ("´", " "),
        ("İ ß Σ ΑΣ", "i ß σ ας"),
        ("x\u20dd\u0903", "x\u20dd\u0903"),  # marks of class 0 stay, whatever their category
        ("e\u0301\u0334", "e"),
        ("\ud83d", "\ufffd"),
        ("", ""),
        ("\n\t ", ""),
    ],
)
def test_clean_text(text, expected):
    assert clean_text(text, do_lower_case=True) == expected


@pytest.mark.parametrize(
    ("text", "lower", "keep_accents", "expected"),
    [
        (" Ça VA", False, False, "Ca VA"),
        # As in transformers and in XLNet: accents and compatibility forms are removed, or kept, together.
        (" Ｃａｆé \t ﬁn", True, True, "ｃａｆé ﬁn"),
        (" Ｃａｆé \t ﬁn", False, True, "Ｃａｆé ﬁn"),
        ("e\u0301 İ ΑΣ", True, True, "e\u0301 i\u0307 ας"),
        ("\ud83d", True, True, "\ufffd"),
    ],
)
def test_clean_text_keeps_case_and_accents_if_told_to(text, lower, keep_accents, expected):
    assert clean_text(text, do_lower_case=lower, keep_accents=keep_accents) == expected


@pytest.mark.parametrize("text", LINES)
def test_encode_equals_referee(tokenizer, model_file, text):
    expected = referee_encode(model_file, text, tokenizer.do_lower_case)
    assert tokenizer.encode(text) == expected
    assert bool(expected) == bool(text.strip())


def test_digit_comma_rule(tokenizer):
    pieces = [tokenizer.id_to_token(id) for id in tokenizer.encode("in 5, x7, a")]
    assert "".join(pieces).replace("▁", " ") == " in 5, x7, a"
    assert "," in pieces
    assert not any(piece[-2:-1].isdigit() and piece[-1] == "," for piece in pieces)


def test_encode_batch_equals_encode(tokenizer):
    arrays = tokenizer.encode_batch(LINES)
    assert [array.tolist() for array in arrays] == [tokenizer.encode(line) for line in LINES]
    assert {array.dtype for array in arrays} == {np.dtype(np.int32)}
    assert tokenizer.encode_batch([]) == []
    (array,) = tokenizer.encode_batch(iter(["a"]))
    assert array.tolist() == tokenizer.encode("a")


def test_special_tokens_in_text_are_text(tokenizer):
    special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    ids = tokenizer.encode("<pad>[CLS][SEP][MASK]")
    assert len(ids) > 4
    assert not special & set(ids)


def test_special_tokens_made_of_unknown_characters_are_text(tmp_path):
    """Neighboring unknown characters make one piece, whose text may be that of a control symbol."""
    sentences = [f"一二 三四五 {number}, 六七 八九十," for number in range(200)]
    path = train(tmp_path / "chinese.model", sentences=sentences)
    tokenizer = Tokenizer.from_file(path, do_lower_case=False)
    assert "[CLS]" in load(path).EncodeAsPieces("一[CLS]")
    assert tokenizer.cls_id not in tokenizer.encode("一[CLS]")
    assert tokenizer.encode("一[CLS]").count(tokenizer.unk_id) == 1


def test_comma_unknown_to_the_model(tmp_path):
    """The text of an unknown piece can then end in a digit and a comma; encode must look at it."""
    sentences = [f"ab ba {'ab' * (number % 5)} abba" for number in range(200)]
    path = train(tmp_path / "no_comma.model", sentences=sentences)
    tokenizer = Tokenizer.from_file(path)
    lines = ["ab 5, ba", "ab 5 ba", "5,", "ab"]
    expected = [referee_encode(path, line, True) for line in lines]
    assert expected[0] != load(path).encode(lines[0])
    assert [array.tolist() for array in tokenizer.encode_batch(lines)] == expected


def test_decode(tokenizer):
    ids = [tokenizer.cls_id, *tokenizer.encode("the cat, in 1999,"), tokenizer.sep_id, 0, 0]
    assert tokenizer.decode(ids) == "the cat, in 1999,"
    assert tokenizer.decode(np.array(ids)) == "the cat, in 1999,"
    assert tokenizer.decode([tokenizer.mask_id, tokenizer.pad_id]) == ""
    assert "⁇" in tokenizer.decode([tokenizer.unk_id])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  the cat", [("▁the", "the"), ("▁cat", "cat")]),
        ("the\u00a0\u2003CAT,", [("▁the", "the"), ("▁cat", "CAT"), (",", ",")]),
        ("cáfe\u0301", [("▁cafe", "cáfe\u0301")]),
        ("Ｃａｔ", [("▁cat", "Ｃａｔ")]),
        ("1999,", [("▁1999", "1999"), (",", ",")]),
        ("(the", [("▁", ""), ("(", "("), ("the", "the")]),
        ("", []),
        (" \t", []),
    ],
)
def test_offsets_of_words(model_file, text, expected):
    """Pieces are joined to words here, so that the test does not hang on what the model learned."""
    tokenizer = Tokenizer.from_file(model_file)
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    pieces = [tokenizer.id_to_token(id) for id in ids]
    assert "".join(pieces) == "".join(piece for piece, _ in expected)
    cut = [text[start:end] for start, end in spans]
    # Every expected word ends where a piece ends, and its text is what the pieces until there cover.
    texts = dict(zip(accumulate(pieces), accumulate(cut), strict=True))
    words, parts = zip(*expected, strict=True) if expected else ((), ())
    for joined, covered in zip(accumulate(words), accumulate(parts), strict=True):
        assert texts[joined] == covered


SHARED = "½⅓⅔¼⅞…™℃ﬁﬂ①②"  # by several tokens


def check_offsets(tokenizer, model_file, text, shared_characters=SHARED):
    """Every span holds its piece's text; together, in order, they hold all that the model sees."""
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    last_start = 0
    last_end = 0
    covered = ""
    for id, (start, end) in zip(ids, spans, strict=True):
        assert last_start <= start <= end <= len(text)
        part = text[start:end]
        assert part == part.strip()
        is_text = id != tokenizer.unk_id and not load(model_file).is_byte(id)
        if is_text and not set(part) & set(shared_characters):
            piece = tokenizer.id_to_token(id).replace("▁", "")
            assert visible(model_file, part, tokenizer.do_lower_case) == piece
        covered += text[max(start, last_end) : end]
        last_start, last_end = start, max(end, last_end)
    lower = tokenizer.do_lower_case
    assert visible(model_file, covered, lower) == visible(model_file, text, lower)


@pytest.mark.parametrize("text", [line for line in LINES if "Σ" not in line])
def test_offsets_hold_the_text_of_their_tokens(tokenizer, model_file, text):
    check_offsets(tokenizer, model_file, text)


def test_bytes_of_a_character_have_its_offsets(tmp_path):
    path = train(tmp_path / "bytes.model", byte_fallback=True, vocab_size=400)
    tokenizer = Tokenizer.from_file(path)
    num_bytes = 0
    for text in [line for line in LINES if "Σ" not in line] + ["中5, é中", "<0xE4>½😀中"]:
        check_offsets(tokenizer, path, text)
        ids, spans = tokenizer.encode_with_offsets(text)
        assert ids == referee_encode(path, text, lower=True)
        is_byte = load(path).is_byte(ids)
        for place in np.flatnonzero(is_byte):
            start, end = spans[place]
            same = [is_byte[n] and spans[n] == (start, end) for n in range(len(ids))]
            content = bytes(
                int(tokenizer.id_to_token(ids[n])[1:-1], 16) for n in np.flatnonzero(same)
            )
            seen = visible(path, text[start:end], lower=True)  # "½" is "1", "⁄" and "2"
            assert content.decode() == "".join(char for char in seen if char not in "0123456789")
            num_bytes += 1
    assert num_bytes > 100


def test_only_the_first_byte_of_a_character_may_start_a_word(tmp_path):
    path = train(tmp_path / "bytes.model", byte_fallback=True, vocab_size=400)
    tokenizer = Tokenizer.from_file(path)
    ids = tokenizer.encode("é中")[-3:]
    assert [tokenizer.id_to_token(id) for id in ids] == ["<0xE4>", "<0xB8>", "<0xAD>"]
    assert tokenizer.word_starts()[ids].tolist() == [True, False, False]


def test_ids_of_special_tokens(tokenizer, model_file):
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id]
    assert [*ids, tokenizer.mask_id] == [0, 1, 2, 3, 4]
    assert [tokenizer.id_to_token(id) for id in range(5)] == names
    assert tokenizer.vocab_size == load(model_file).vocab_size()
    assert tokenizer.sha256 == hashlib.sha256(pathlib.Path(model_file).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        *((piece, True) for piece in ("▁the", "▁", "1", "19a", "é", "中", "£", "€", "–", "<pad>")),
        *((piece, True) for piece in ("'", "'s", "=", ">", ",", "(", "\\")),
        *((piece, False) for piece in ("ing", "ING", "a.")),
        ("x", False),  # missing in the alphabet of the original's first release
        ("...", False),  # only a single mark is a word
        ("[CLS]", False),  # the original treats it before it asks
    ],
)
def test_word_start_rule_of_the_original(piece, expected):
    assert is_word_start(piece) == expected


def test_word_starts(tokenizer):
    pieces = [tokenizer.id_to_token(id) for id in range(tokenizer.vocab_size)]
    original = tokenizer.word_starts()
    marker = tokenizer.word_starts(rule="marker")
    assert original.dtype == marker.dtype == bool
    assert original.tolist() == [is_word_start(piece) for piece in pieces]
    assert marker.tolist() == [piece[0] == "▁" for piece in pieces]
    assert (original & ~marker).any()
    with pytest.raises(UserError, match="original, marker; got 'english'"):
        tokenizer.word_starts(rule="english")


BYTE_LEVEL = "#version: 0.2\n\u0120 t\nh e\n\u0120t he\n".encode()  # as of GPT-2 and RoBERTa
BPE = b'{\n  "model": {\n    "type": "BPE",\n    "unk_token": "[UNK]"\n  }\n}\n'


@pytest.mark.parametrize("content", [None, b"", b"not a model\n", b"\x00" * 10, BYTE_LEVEL, BPE])
def test_a_file_that_is_no_model_is_rejected(tmp_path, content):
    path = tmp_path / "wrong.model"
    if content is not None:
        path.write_bytes(content)
    expected = "cannot be read" if content is None else "is neither a SentencePiece model nor"
    with pytest.raises(UserError, match=f"wrong.model: {expected}"):
        Tokenizer.from_file(str(path))


@pytest.mark.parametrize(
    ("missing", "changes"),
    [("[MASK]", {"control_symbols": ["[CLS]", "[SEP]"]}), ("<pad>", {"pad_id": -1, "unk_id": 0})],
)
def test_a_missing_special_token_is_named(tmp_path, missing, changes):
    path = train(tmp_path / "lacking.model", **changes)
    with pytest.raises(UserError) as caught:
        Tokenizer.from_file(path)
    assert "lacking.model" in str(caught.value) and f"no token {missing};" in str(caught.value)


def test_real_lines_equal_referee(released_model_file, real_data):
    real_lines = read_real_lines(real_data)
    tokenizer = Tokenizer.from_file(released_model_file)
    processor = load(released_model_file)
    expected = [
        [processor.PieceToId(part) for part in referee_pieces(processor, referee_clean(line, True))]
        for line in real_lines
    ]
    assert [tokenizer.encode(line) for line in real_lines] == expected
    assert [ids.tolist() for ids in tokenizer.encode_batch(real_lines)] == expected
    assert [tokenizer.encode_with_offsets(line)[0] for line in real_lines] == expected


def test_released_vocabulary(released_model_file):
    tokenizer = Tokenizer.from_file(released_model_file)
    assert tokenizer.vocab_size == 30000
    assert tokenizer.sha256[:8] == "fefb02b6"
    assert [tokenizer.id_to_token(id) for id in tokenizer.encode("In 1999, [CLS]")] == [
        "▁in",
        "▁1999",
        ",",
        "▁[",
        "cl",
        "s",
        "]",
    ]


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "cased"])
def test_ids_and_offsets_with_accents(model_file, lower):
    tokenizer = Tokenizer.from_file(model_file, do_lower_case=lower, keep_accents=True)
    processor = load(model_file)
    num_different = 0
    for text in LINES:
        cleaned = " ".join(text.split())
        cleaned = cleaned.lower() if lower else cleaned
        expected = [processor.PieceToId(part) for part in referee_pieces(processor, cleaned)]
        ids, spans = tokenizer.encode_with_offsets(text)
        assert ids == tokenizer.encode(text) == expected, text
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        shown = "".join(text[start:end] for start, end in spans)
        assert len(set(shown)) <= len(set(text)) and (shown or not cleaned)
        num_different += ids != Tokenizer.from_file(model_file, do_lower_case=lower).encode(text)
    assert num_different > 5


def test_offsets_of_a_letter_that_is_two_in_lower_case(model_file):
    tokenizer = Tokenizer.from_file(model_file, keep_accents=True)
    text = "a İ, cat"
    _, spans = tokenizer.encode_with_offsets(text)
    assert (2, 3) in spans and text[slice(*spans[-1])] in "cat"
