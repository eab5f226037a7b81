"""Tokenization against a plain re-statement of the original's, in Python and inside a TensorFlow graph."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import sentencepiece

from albert_tf.core.errors import UserError
from albert_tf.serving.in_graph.tokenizer import (
    _clean_in_graph,
    _clean_with_origins_in_graph,
    decode_in_graph,
    graph_tokenizer,
    graph_tokenizer_with_offsets,
)
from albert_tf.text.tokenizer import Tokenizer, _clean_with_origins, clean_text, is_word_start
from tests.helpers import train_spm

USER_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]

LINES = [
    "The cat sat on the mat.",
    "",
    "   \t \n ",
    "1,000 and 12, then 1999, or 5,",
    "12,345,678, x1, 7, 77,",
    "Ünïcödé Ｃａｆé naïve Zürich",
    "cafe\u0301, e\u0301\u0302t",
    "\u0301leading accent",
    "\u0301 \u0302 words of accents \u0303",
    "´ a ´b",  # NFKD makes spaces of these
    "[CLS] a cat [SEP] [MASK] <pad> <unk>",
    "tabs\tand\u00a0no-break\u3000ideographic\u2028spaces\u001cand\u0085more",
    "emoji 😀 👩‍👩‍👧, 🇩🇪 5,",
    "中文字符 12, 日本語 한국어",
    "ﬁnd the ﬂag ½ ⅓ … ™",
    "Straße İstanbul ıI ΟΔΟΣ ΣΑΣ. ǅ",
    "²³, x², ①②, ٣٤, ٣,",
    "zero\u200bwidth soft\u00adhyphen",
    "▁ a▁b ▁▁5,",
    "NUL \u0000 ΑΣ\u0000Β inside",
    '(brackets) "quotes" - dash – £5, €7,',
    "ﬁ" * 30,
]


def corpus():
    """Lines with enough different made-up words for a unigram model to learn from."""
    syllables = ["ca", "the", "ma", "sat", "on", "fi", "n", "st", "ro", "a", "li", "x", "e"]
    for line in range(600):
        words = [syllables[line * k % 13] + syllables[(line // 7 + k) % 13] for k in range(1, 8)]
        yield (
            "5, x7, " * 3
            + f"the cat sat on the mat, in {1900 + line % 130}, and 12, then 1999, or 1,{line % 7}00, "
            + " ".join(words)
            + f" ({line}) x{line % 10}, é straße café defghijklmnopqrstuvwxyz<>[]/'"
        )


def train(path, sentences=None, **changes):
    """Trains a model on `corpus()` and writes it to `path`."""
    settings = {"user_defined_symbols": USER_SYMBOLS, "vocab_size": 190, "hard_vocab_limit": False}
    return train_spm(path, sentences or corpus(), **settings | changes)


@pytest.fixture(scope="session", params=["unigram", "bpe"])
def model_file(request, tmp_path_factory):
    """A small model; the one of type BPE surely has pieces that end in a digit and a comma."""
    folder = tmp_path_factory.mktemp(request.param)
    return train(
        folder / "spiece.model",
        model_type=request.param,
        split_by_number=False,
        split_by_unicode_script=False,
    )


@pytest.fixture(scope="session", params=[True, False], ids=["lower", "cased"])
def tokenizer(request, model_file):
    return Tokenizer.from_file(model_file, do_lower_case=request.param)


@pytest.fixture(scope="session")
def graph(tokenizer):
    return graph_tokenizer(tokenizer)


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
    return [
        processor.PieceToId(part) for part in referee_pieces(processor, referee_clean(text, lower))
    ]


def load(model_file):
    return sentencepiece.SentencePieceProcessor(model_file=model_file)


def visible(model_file, text, lower):
    """What the model makes of a text, without spaces and markers."""
    normalized = load(model_file).normalize(referee_clean(text, lower))
    return normalized.replace("▁", "")


def in_graph(graph, texts):
    import tensorflow as tf

    return graph.encode(tf.constant([text.encode() for text in texts])).to_list()


# Cleaning.


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


def test_clean_text_keeps_case_if_told_to():
    assert clean_text(" Ça VA", do_lower_case=False) == "Ca VA"


@pytest.mark.parametrize("text", [b"bytes", None, 5])
@pytest.mark.parametrize("method", ["encode", "encode_with_offsets", "clean"])
def test_text_must_be_str(tokenizer, text, method):
    with pytest.raises(TypeError, match=f"must be str, got {type(text).__name__}"):
        getattr(tokenizer, method)(text)


@pytest.mark.parametrize("texts", ["one text", b"one text", ["a", b"b"]])
def test_batch_must_be_several_str(tokenizer, texts):
    with pytest.raises(TypeError, match="got (one|bytes)"):
        tokenizer.encode_batch(texts)


# Encoding.


@pytest.mark.parametrize("text", LINES)
def test_encode_equals_referee(tokenizer, model_file, text):
    expected = referee_encode(model_file, text, tokenizer.do_lower_case)
    assert tokenizer.encode(text) == expected
    assert bool(expected) == bool(text.strip())


def test_hand_made_lines_reach_the_digit_comma_rule(model_file):
    if "bpe" not in model_file:
        pytest.skip("depends on what the model has learned")
    processor = load(model_file)
    pieces = [piece for line in LINES for piece in processor.EncodeAsPieces(line.lower())]
    changed = {piece for piece in pieces if piece[-2:-1].isdigit() and piece[-1] == ","}
    assert any(piece.startswith("▁") for piece in changed)
    assert any(not piece.startswith("▁") for piece in changed)


def test_digit_comma_rule(tokenizer):
    pieces = [tokenizer.id_to_piece(id) for id in tokenizer.encode("in 5, x7, a")]
    assert "".join(pieces).replace("▁", " ") == " in 5, x7, a"
    assert "," in pieces
    assert not any(piece[-2:-1].isdigit() and piece[-1] == "," for piece in pieces)


def test_encode_batch_equals_encode(tokenizer):
    arrays = tokenizer.encode_batch(LINES)
    assert [array.tolist() for array in arrays] == [tokenizer.encode(line) for line in LINES]
    assert {array.dtype for array in arrays} == {np.dtype(np.int32)}
    assert tokenizer.encode_batch([]) == []
    assert [array.tolist() for array in tokenizer.encode_batch(iter(["a"]))] == [
        tokenizer.encode("a")
    ]


def test_special_pieces_in_text_are_text(tokenizer):
    special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    ids = tokenizer.encode("<pad>[CLS][SEP][MASK]")
    assert len(ids) > 4
    assert not special & set(ids)


def test_special_pieces_made_of_unknown_characters_are_text(tmp_path):
    """Neighbouring unknown characters make one piece, whose text may be that of a control symbol."""
    sentences = [f"一二 三四五 {number}, 六七 八九十," for number in range(200)]
    path = train(tmp_path / "chinese.model", sentences=sentences)
    tokenizer = Tokenizer.from_file(path, do_lower_case=False)
    assert "[CLS]" in load(path).EncodeAsPieces("一[CLS]")
    assert tokenizer.cls_id not in tokenizer.encode("一[CLS]")
    assert tokenizer.encode("一[CLS]").count(tokenizer.unk_id) == 1


def test_case_is_a_real_switch(model_file):
    lower = Tokenizer.from_file(model_file)
    cased = Tokenizer.from_file(model_file, do_lower_case=False)
    assert lower.encode("The CAT") == lower.encode("the cat") == cased.encode("the cat")
    assert cased.encode("The CAT") != cased.encode("the cat")


def test_comma_unknown_to_the_model(tmp_path):
    """The text of an unknown piece can then end in a digit and a comma; encode must look at it."""
    sentences = [f"ab ba {'ab' * (number % 5)} abba" for number in range(200)]
    path = train(tmp_path / "no_comma.model", sentences=sentences)
    tokenizer = Tokenizer.from_file(path)
    lines = ["ab 5, ba", "ab 5 ba", "5,", "ab"]
    expected = [referee_encode(path, line, True) for line in lines]
    assert expected[0] != load(path).encode(lines[0])
    assert [array.tolist() for array in tokenizer.encode_batch(lines)] == expected
    with pytest.raises(UserError, match="piece for ','"):
        graph_tokenizer(tokenizer)


def test_decode(tokenizer):
    ids = [tokenizer.cls_id, *tokenizer.encode("the cat, in 1999,"), tokenizer.sep_id, 0, 0]
    assert tokenizer.decode(ids) == "the cat, in 1999,"
    assert tokenizer.decode(np.array(ids)) == "the cat, in 1999,"
    assert tokenizer.decode([tokenizer.mask_id, tokenizer.pad_id]) == ""
    assert "⁇" in tokenizer.decode([tokenizer.unk_id])


def test_survives_pickling(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert [copy.encode(line) for line in LINES] == [tokenizer.encode(line) for line in LINES]


# Offsets.


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
    pieces = [tokenizer.id_to_piece(id) for id in ids]
    assert "".join(pieces) == "".join(piece for piece, _ in expected)
    cut = [text[start:end] for start, end in spans]
    assert "".join(cut) == "".join(part for _, part in expected)
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    position = 0
    for piece, part in expected:
        # Every expected word ends where a piece ends, and its text is what those pieces cover.
        count = ends.index(position + len(piece)) + 1
        assert "".join(cut[:count]) == "".join(
            p for _, p in expected[: expected.index((piece, part)) + 1]
        )
        position += len(piece)


@pytest.mark.parametrize("text", LINES)
def test_offsets_clean_the_text_alike(text):
    for lower in (True, False):
        cleaned, origins = _clean_with_origins(text, lower)
        assert cleaned == clean_text(text, do_lower_case=lower)
        assert len(origins) == len(cleaned)


def test_pieces_of_one_character_share_its_span(tokenizer):
    text = "a½"
    _, spans = tokenizer.encode_with_offsets(text)
    assert {text[start:end] for start, end in spans[-2:]} <= {"½", "a½"}
    assert spans[-1][1] == 2


def check_offsets(tokenizer, model_file, text, shared_characters="½⅓⅔¼⅞…™℃ﬁﬂ①②"):
    """Every span holds its piece's text; together, in order, they hold all that the model sees."""
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    last_start, last_end, covered = 0, 0, ""
    for id, (start, end) in zip(ids, spans, strict=True):
        assert last_start <= start <= end <= len(text)
        part = text[start:end]
        assert part == part.strip()
        if id != tokenizer.unk_id and not set(part) & set(shared_characters):
            piece = tokenizer.id_to_piece(id).replace("▁", "")
            assert visible(model_file, part, tokenizer.do_lower_case) == piece
        covered += text[max(start, last_end) : end]
        last_start, last_end = start, max(end, last_end)
    lower = tokenizer.do_lower_case
    assert visible(model_file, covered, lower) == visible(model_file, text, lower)


@pytest.mark.parametrize("text", [line for line in LINES if "Σ" not in line])
def test_offsets_hold_the_text_of_their_pieces(tokenizer, model_file, text):
    check_offsets(tokenizer, model_file, text)


def test_offsets_need_a_model_without_byte_fallback(tmp_path):
    path = train(tmp_path / "bytes.model", byte_fallback=True, vocab_size=400)
    tokenizer = Tokenizer.from_file(path)
    assert tokenizer.encode("中")
    with pytest.raises(UserError, match="byte_fallback"):
        tokenizer.encode_with_offsets("中")


# The vocabulary.


def test_ids_of_special_pieces(tokenizer, model_file):
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    ids = [
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    ]
    assert ids == [0, 1, 2, 3, 4]
    assert [tokenizer.id_to_piece(id) for id in ids] == names
    assert tokenizer.vocab_size == load(model_file).vocab_size()


def test_sha256_is_that_of_the_file(tokenizer, model_file):
    import hashlib

    assert tokenizer.sha256 == hashlib.sha256(pathlib.Path(model_file).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("▁the", True),
        ("▁", True),
        ("ing", False),
        ("ING", False),
        ("x", False),  # missing in the alphabet of the original's first release
        ("1", True),
        ("19a", True),
        ("é", True),
        ("中", True),
        ("£", True),
        ("€", True),
        ("–", True),
        ("'", True),
        ("'s", True),
        ("=", True),
        ("<pad>", True),
        (">", True),
        (",", True),
        ("(", True),
        ("\\", True),
        ("...", False),  # only a single mark is a word
        ("a.", False),
        ("[CLS]", False),  # the original treats it before it asks
    ],
)
def test_word_start_rule_of_the_original(piece, expected):
    assert is_word_start(piece) == expected


def test_word_starts(tokenizer):
    pieces = [tokenizer.id_to_piece(id) for id in range(tokenizer.vocab_size)]
    original, marker = tokenizer.word_starts(), tokenizer.word_starts(rule="marker")
    assert original.dtype == marker.dtype == bool
    assert original.tolist() == [is_word_start(piece) for piece in pieces]
    assert marker.tolist() == [piece[0] == "▁" for piece in pieces]
    assert (original & ~marker).any()
    with pytest.raises(UserError, match="original, marker; got 'english'"):
        tokenizer.word_starts(rule="english")


# Files.


def test_missing_file(tmp_path):
    path = str(tmp_path / "absent.model")
    with pytest.raises(UserError, match="absent.model: cannot be read .No such file"):
        Tokenizer.from_file(path)


@pytest.mark.parametrize("content", [b"", b"not a model\n", b"\x00" * 10])
def test_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "wrong.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match="wrong.model: is not a SentencePiece model$"):
        Tokenizer.from_file(str(path))


@pytest.mark.parametrize(
    ("missing", "changes"),
    [
        ("[MASK]", {"control_symbols": ["[CLS]", "[SEP]"]}),
        ("[CLS]", {"control_symbols": []}),
        ("<pad>", {"pad_id": -1, "unk_id": 0}),
    ],
)
def test_missing_special_piece(tmp_path, missing, changes):
    path = train(tmp_path / "lacking.model", **changes)
    with pytest.raises(UserError) as caught:
        Tokenizer.from_file(path)
    assert "lacking.model" in str(caught.value)
    assert f"no piece {missing};" in str(caught.value)


def test_starts_without_tensorflow():
    """Processes that prepare data must not pay for it."""
    program = "import sys, albert_tf.text.tokenizer; sys.exit('tensorflow' in sys.modules)"
    folder = pathlib.Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=folder, timeout=60).returncode == 0


# Inside the graph.


def test_graph_equals_python(tokenizer, graph):
    assert in_graph(graph, LINES) == [tokenizer.encode(line) for line in LINES]


def test_graph_takes_no_texts(graph):
    import tensorflow as tf

    ids = graph.encode(tf.constant([], tf.string))
    assert ids.dtype == tf.int32
    assert ids.to_list() == []


def test_graph_cleans_every_character_like_python():
    """All code points but those that are too new for one of the Unicode tables."""
    import tensorflow as tf

    codes = [*range(0xD800), *range(0xE000, 0x2FFFF)]
    chars = [chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"]
    texts = [f"Σ{char}Σ" for char in chars]
    found = _clean_in_graph(tf.constant([t.encode() for t in texts]), True).numpy()
    different = [
        char
        for char, text, result in zip(chars, texts, found, strict=True)
        if result.decode() != clean_text(text, do_lower_case=True)
    ]
    # Marks that came with Unicode 14 or later decide about a final sigma; older tables do not know them.
    assert all(ord(char) > 0x870 for char in different)
    assert len(different) < 500


def test_graph_replaces_invalid_bytes(tokenizer, graph):
    import tensorflow as tf

    lines = [b"caf\xe9 the", b"\xff\xfe", b"cut \xf0\x9f\x98", b"ca\xe9t"]
    expected = [tokenizer.encode(line.decode("utf-8", errors="replace")) for line in lines]
    assert graph.encode(tf.constant(lines)).to_list() == expected


def test_graph_lowers_i_to_i_in_turkey(tmp_path):
    """TensorFlow's lower case depends on the locale of the process."""
    program = (
        "import sys; from albert_tf.text.tokenizer import Tokenizer, graph_tokenizer;"
        "tokenizer = Tokenizer.from_file(sys.argv[1]);"
        "ids = graph_tokenizer(tokenizer).encode(['IN Istanbul']).to_list();"
        "sys.exit(ids != [tokenizer.encode('in istanbul')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, train(tmp_path / "spiece.model")],
        cwd=pathlib.Path(__file__).parents[2],
        env=os.environ | {"LC_ALL": "tr_TR.UTF-8"},
        timeout=100,
    )
    assert result.returncode == 0


def test_graph_survives_saving(tokenizer, graph, tmp_path):
    import tensorflow as tf

    tf.saved_model.save(graph, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert in_graph(loaded, LINES) == [tokenizer.encode(line) for line in LINES]


# Offsets inside the graph.


@pytest.fixture(scope="session")
def graph_with_offsets(tokenizer):
    return graph_tokenizer_with_offsets(tokenizer)


def offsets_in_graph(graph, texts):
    """For each text its ids, and the (start, end) of each, as `encode_with_offsets` gives them."""
    import tensorflow as tf

    lines = [text if isinstance(text, bytes) else text.encode() for text in texts]
    columns = (
        column.to_list() for column in graph.encode_with_offsets(tf.constant(lines, tf.string))
    )
    return [
        (ids, list(zip(starts, ends, strict=True)))
        for ids, starts, ends in zip(*columns, strict=True)
    ]


def mixed_lines(count, seed=0):
    """Lines of all that is hard to count, in any order."""
    parts = [
        *"abcXYZ 019,,.(€)–´▁中가한😀İΣςẞ½ﬁＣ™…",
        "\u0301",
        "\u0344",
        "\u200b",
        "\u00ad",
        "\ufeff",
    ]
    parts += ["\u00a0", "\u3000", "\t", "\n", "\0", "\ufffe", "1999,", "[CLS]", "the cat", "👩‍👩‍👧"]
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(parts, rng.integers(0, 25))) for _ in range(count)]


def test_offsets_in_graph_equal_python(tokenizer, graph_with_offsets):
    lines = [*LINES, *mixed_lines(500)]
    expected = [tokenizer.encode_with_offsets(line) for line in lines]
    assert any(tokenizer.unk_id in ids for ids, _ in expected)
    assert any(start == end for _, spans in expected for start, end in spans)
    assert offsets_in_graph(graph_with_offsets, lines) == expected
    assert offsets_in_graph(graph_with_offsets, []) == []
    assert offsets_in_graph(graph_with_offsets, [""]) == [([], [])]


def test_offsets_in_graph_count_invalid_bytes_as_characters(tokenizer, graph_with_offsets):
    rng = np.random.default_rng(0)
    parts = [
        b"a",
        b" ",
        b"1,",
        *(bytes([byte]) for byte in b"\xc3\xa9\xe2\x96\x81\xf0\x9f\x98\xed\xa0\xff"),
    ]
    lines = [b"".join(rng.choice(parts, rng.integers(0, 12))) for _ in range(500)]
    texts = [line.decode(errors="replace") for line in lines]
    assert sum("\ufffd" in text for text in texts) > 100
    expected = [tokenizer.encode_with_offsets(text) for text in texts]
    assert offsets_in_graph(graph_with_offsets, lines) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"user_defined_symbols": ["sat on", "<sep>", "½", "("], "split_by_whitespace": False},
        {"normalization_rule_name": "nmt_nfkc_cf", "treat_whitespace_as_suffix": True},
        {
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
        },
    ],
    ids=["symbols", "folding", "identity"],
)
def test_offsets_in_graph_follow_the_models_normaliser(tmp_path, changes):
    tokenizer = Tokenizer.from_file(train(tmp_path / "spiece.model", **changes))
    lines = [*LINES, "the cat sat on<sep>the mat<sep>", *mixed_lines(300, seed=1)]
    expected = [tokenizer.encode_with_offsets(line) for line in lines]
    assert offsets_in_graph(graph_tokenizer_with_offsets(tokenizer), lines) == expected


def test_origins_in_graph_of_every_character_equal_python():
    import tensorflow as tf

    codes = [*range(0xD800), *range(0xE000, 0x2FFFF)]
    chars = [chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"]
    texts = [f"a{''.join(chars[k : k + 40])} {chars[k]}b" for k in range(0, len(chars), 40)]
    cleaned, starts, ends = _clean_with_origins_in_graph(decode_in_graph(tf.constant(texts)), False)
    for text, *found in zip(texts, cleaned.numpy(), starts.to_list(), ends.to_list(), strict=True):
        expected, origins = _clean_with_origins(text, False)
        assert found[0].decode() == expected
        assert list(zip(*found[1:], strict=True)) == origins


def test_offsets_in_graph_need_a_model_without_byte_fallback(tmp_path):
    path = train(tmp_path / "bytes.model", byte_fallback=True, vocab_size=400)
    with pytest.raises(UserError, match="byte_fallback"):
        graph_tokenizer_with_offsets(Tokenizer.from_file(path))


def test_offsets_in_graph_survive_saving(tokenizer, graph_with_offsets, tmp_path):
    import tensorflow as tf

    tf.saved_model.save(graph_with_offsets, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert offsets_in_graph(loaded, LINES) == list(map(tokenizer.encode_with_offsets, LINES))
    assert in_graph(loaded, LINES) == [tokenizer.encode(line) for line in LINES]


# Real text with the released vocabulary.


@pytest.fixture(scope="session")
def real_lines(real_data):
    """2,000 lines, evenly spread over several kinds of text."""
    files = sorted(real_data.glob("text/*/*")) + sorted(real_data.glob("glue/*/*.tsv"))
    lines = [
        line
        for file in files
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    articles = json.loads((real_data / "squad" / "dev-v1.1.json").read_text(encoding="utf-8"))[
        "data"
    ]
    lines += [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    assert len(lines) > 2000
    return lines[:: len(lines) // 2000]


def test_real_lines_equal_referee(released_model_file, real_lines):
    tokenizer = Tokenizer.from_file(released_model_file)
    processor = load(released_model_file)
    expected = [
        [processor.PieceToId(part) for part in referee_pieces(processor, referee_clean(line, True))]
        for line in real_lines
    ]
    assert [tokenizer.encode(line) for line in real_lines] == expected
    assert [ids.tolist() for ids in tokenizer.encode_batch(real_lines)] == expected
    assert [tokenizer.encode_with_offsets(line)[0] for line in real_lines] == expected


def test_real_lines_in_graph_equal_python(released_model_file, real_lines):
    tokenizer = Tokenizer.from_file(released_model_file)
    expected = [tokenizer.encode(line) for line in real_lines]
    assert in_graph(graph_tokenizer(tokenizer), real_lines) == expected


def test_offsets_of_real_lines_in_graph_equal_python(released_model_file, real_lines):
    tokenizer = Tokenizer.from_file(released_model_file)
    expected = list(map(tokenizer.encode_with_offsets, real_lines))
    assert offsets_in_graph(graph_tokenizer_with_offsets(tokenizer), real_lines) == expected


def test_released_vocabulary(released_model_file):
    tokenizer = Tokenizer.from_file(released_model_file)
    assert tokenizer.vocab_size == 30000
    assert tokenizer.sha256[:8] == "fefb02b6"
    assert [tokenizer.id_to_piece(id) for id in tokenizer.encode("In 1999, [CLS]")] == [
        *("▁in", "▁1999", ",", "▁[", "cl", "s", "]")
    ]
