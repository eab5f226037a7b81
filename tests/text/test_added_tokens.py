"""Tokens that transformers added to a vocabulary have the ids that it gives them."""

import hashlib
import json
import pathlib
import pickle

import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf import Tokenizer, UserError
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.text import added_tokens, earlier_vocabularies
from albert_tf.text.added_tokens import AddedToken
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.wordpiece_json import vocabulary_of
from tests.helpers import error_of

MODEL = pathlib.Path(__file__).parents[2] / "models" / "albert-tiny-docs"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "function", "##s", "[", "]", "e"]
WORDS += ["##1", ",", "a"]
NAMES = {2: "[CLS]", 14: "[E1]", 15: "[/E1]"}
ALL_WORDS = [*WORDS, "[E1]", "[/E1]"]  # former unused rows, or those of a trained tokenizer
# The ids that transformers 5.24 gives, without [CLS] and [SEP]: "[E1]" is 6000, and in WordPiece 14.
SENTENCEPIECE = {
    "the [E1] function [/E1] returns": [14, 13, 6000, 41, 13, 6001, 58],
    "the[E1]function": [14, 6000, 41],
    "The [e1] x": [14, 13, 6000, 83],
    "a [E1], b": [15, 13, 6000, 13, 16, 280],
}
PLAIN = {"The [e1] functions": [5, 14, 6, 7], "a[E1],[/E1]": [13, 14, 12, 15]}
SPECIAL = {"The [E1] functions": [5, 14, 6, 7], "the [e1], [CLS]": [5, 8, 10, 11, 9, 12, 8, 1, 9]}


def sentencepiece(folder: pathlib.Path) -> None:
    (folder / "spiece.model").write_bytes((MODEL / "spiece.model").read_bytes())
    (folder / "added_tokens.json").write_text('{"[/E1]": 6001, "[E1]": 6000}')


def wordpiece_json(folder: pathlib.Path, *, special: bool, words=WORDS) -> None:
    added = [
        {"id": id, "content": token, "special": special, "normalized": not special}
        for id, token in NAMES.items()
    ]
    model = {"type": "WordPiece", "vocab": {token: id for id, token in enumerate(words)}}
    values = {"added_tokens": added, "model": model, "normalizer": {}, "pre_tokenizer": {}}
    (folder / "tokenizer.json").write_text(json.dumps(values))


def wordpiece_txt(folder: pathlib.Path, words=WORDS) -> None:
    (folder / "vocab.txt").write_text("\n".join(words))
    tokens = {id: {"content": name, "special": True} for id, name in NAMES.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))


def only_names(folder: pathlib.Path) -> None:
    wordpiece_txt(folder, ALL_WORDS)
    names = '{"extra_special_tokens": ["[E1]", {"content": "[/E1]"}, "[SEP]", "[other]"]}'
    (folder / "tokenizer_config.json").write_text(names)


def pieces(folder: pathlib.Path) -> None:
    sentencepiece(folder)
    proto = ModelProto.FromString((folder / "spiece.model").read_bytes())
    proto.pieces.add(piece="[E1]", score=-1)
    proto.pieces.add(piece="[/E1]", score=0, type=ModelProto.SentencePiece.CONTROL)
    (folder / "spiece.model").write_bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("make", "file", "expected"),
    [
        (sentencepiece, "spiece.model", SENTENCEPIECE),
        (lambda folder: wordpiece_json(folder, special=False), "tokenizer.json", PLAIN),
        (lambda folder: wordpiece_json(folder, special=True), "tokenizer.json", SPECIAL),
        (wordpiece_txt, "vocab.txt", SPECIAL),
        (lambda f: wordpiece_json(f, special=True, words=ALL_WORDS), "tokenizer.json", SPECIAL),
        (lambda folder: wordpiece_txt(folder, ALL_WORDS), "vocab.txt", SPECIAL),
        (only_names, "vocab.txt", SPECIAL),
        (pieces, "spiece.model", SENTENCEPIECE),
    ],
)
def test_added_tokens_have_the_ids_of_transformers(tmp_path, make, file, expected):
    make(tmp_path)
    tokenizer = Tokenizer.from_file(tmp_path / file)
    assert [tokenizer.encode(text) for text in expected] == list(expected.values())
    assert [ids.tolist() for ids in tokenizer.encode_batch(expected)] == list(expected.values())
    # Written in a folder of ours, they are the same again.
    for name, content in vocabulary_files(tokenizer, 128).items():
        (tmp_path / name).write_bytes(content)
    again = Tokenizer.from_file(tmp_path / tokenizer.file_name)
    assert again.sha256 == tokenizer.sha256
    for text, ids in expected.items():
        found, spans = again.encode_with_offsets(text)
        assert found == ids
        first, last = spans[ids.index(again.token_to_id("[E1]"))] if "[E1]" in text else (0, 0)
        assert text[first:last] in ("[E1]", "")


# The ids of transformers 5.24, in a folder that is written here: [E1] is special, 6000, and [N] a plain one, 6001; the
# token for white space is 13.
SPACES = {
    " [E1]  [E1] ": [6000, 6000],
    " [N]  [N] ": [6001, 13, 6001],
    "the  \t[E1]\n the ": [14, 6000, 14],
    "the  \t[N]\n the ": [14, 13, 6001, 14],
    "the ([E1])": [14, 13, 5, 6000, 13, 6],
    "the [E1] [N] a": [14, 6000, 6001, 15],
    "the [N] [E1] a": [14, 13, 6001, 6000, 15],
    "[E1][N] [E1]": [6000, 6001, 6000],
    "a[E1] a[N]a [N]": [15, 6000, 15, 6001, 15, 13, 6001],
    "\u3000[N] a": [6001, 15],
    "a\u3000[E1] a": [15, 6000, 15],
    "´ [N] ´ [E1]": [6001, 6000],
}


# The ids that the class AlbertTokenizer of transformers 5.24 gives with the same tokens.
SPACES_OF_OTHERS = {
    "the [N] function": [14, 6001, 41],
    "the[N] function": [14, 6001, 41],
    "a [N]": [15, 6001],
    " [N] [N] a": [6001, 6001, 15],
    "the [E1] function": [14, 6000, 41],
}


def test_white_space_before_a_plain_token_is_a_token_and_beside_a_special_one_none():
    added = [
        AddedToken("[E1]", 6000, added_tokens.SPECIAL),
        AddedToken("[N]", 6001, added_tokens.PLAIN),
    ]
    content = (MODEL / "spiece.model").read_bytes()
    tokenizer = Tokenizer.from_bytes(content, added_tokens=added)
    assert {text: tokenizer.encode(text) for text in SPACES} == SPACES
    for text, ids in SPACES.items():
        assert tokenizer.encode_with_offsets(text)[0] == ids
    of_others = TokenizerRules(finds_special_tokens=True)
    tokenizer = Tokenizer.from_bytes(content, added_tokens=added, rules=of_others)
    assert {text: tokenizer.encode(text) for text in SPACES_OF_OTHERS} == SPACES_OF_OTHERS


@pytest.mark.parametrize(
    "file", ["tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"]
)
def test_a_token_that_is_a_word_alone_is_an_error_of_one_line(file, tmp_path):
    wordpiece_txt(tmp_path, ALL_WORDS)
    Tokenizer.from_file(tmp_path / "vocab.txt")
    described = {"id": 14, "content": "[E1]", "special": True, "single_word": True}
    hidden = {"id": 2, "content": "[CLS]", "special": True, "single_word": True}
    for token in (hidden, described):
        contents = {
            "tokenizer_config.json": {"added_tokens_decoder": {str(token["id"]): token}},
            "tokenizer.json": {"added_tokens": [token]},
            "special_tokens_map.json": {"additional_special_tokens": [token]},
        }
        (tmp_path / file).write_text(json.dumps(contents[file]))
        if token is hidden:
            Tokenizer.from_file(tmp_path / "vocab.txt")
    message = f"{tmp_path / file}: added token '[E1]': single_word is true, expected false"
    assert error_of(Tokenizer.from_file, tmp_path / "vocab.txt").startswith(message)


def test_a_letter_that_is_another_one_in_lower_case_is_not_found():
    added = [AddedToken("s1", 14, added_tokens.PLAIN), AddedToken("kα", 15, added_tokens.PLAIN)]
    tokenizer = Tokenizer.from_bytes("\n".join(WORDS).encode(), added_tokens=added)
    s1 = tokenizer.token_to_id("s1")
    k = tokenizer.token_to_id("kα")
    # The long s is not an s in lower case, and the sign of Kelvin is a k.
    assert tokenizer.encode("S1 ſ1 s1") == [s1, tokenizer.unk_id, s1]
    assert tokenizer.encode("\u212aΑ kα") == [k, k]


@pytest.mark.parametrize("make", [sentencepiece, wordpiece_txt])
def test_added_tokens_stand_beside_the_vocabulary(make, tmp_path):
    make(tmp_path)
    (file,) = [path for path in tmp_path.iterdir() if path.suffix in (".model", ".txt")]
    alone = Tokenizer.from_bytes(file.read_bytes())
    tokenizer = Tokenizer.from_file(file)
    assert tokenizer.content == alone.content == file.read_bytes()
    assert tokenizer.vocab_size == alone.vocab_size + 2
    assert tokenizer.vocabulary()[-2:] == ["[E1]", "[/E1]"]
    assert [(token.text, token.id) for token in tokenizer.added_tokens] == [
        ("[E1]", alone.vocab_size),
        ("[/E1]", alone.vocab_size + 1),
    ]
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode("a[E1]") == tokenizer.encode("a[E1]")

    # What records and runs compare tells other added tokens apart, also if only their kind differs.
    assert alone.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    other_kind = 3 - tokenizer.added_tokens[0].kind
    others = [token._replace(kind=other_kind) for token in tokenizer.added_tokens]
    hashes = {alone.sha256, tokenizer.sha256, copy.sha256}
    hashes.add(Tokenizer.from_bytes(file.read_bytes(), added_tokens=others).sha256)
    assert len(hashes) == 3


def test_the_files_of_a_folder_are_the_same_vocabulary(tmp_path):
    content = "".join(f"{word}\n" for word in WORDS).encode()
    tokens = [AddedToken("[E1]", len(WORDS), added_tokens.SPECIAL)]
    tokenizer = Tokenizer.from_bytes(content, added_tokens=tokens)
    for name, written in vocabulary_files(tokenizer, 64).items():
        (tmp_path / name).write_bytes(written)
    for name in ("vocab.txt", "tokenizer.json"):
        again = Tokenizer.from_file(tmp_path / name)
        assert again.sha256 == tokenizer.sha256, name
        assert again.encode("[E1]") == [len(WORDS)]


def test_a_special_token_that_is_a_word_is_found_as_it_is_written(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "f", "##oo"]
    content = "".join(f"{word}\n" for word in words).encode()
    tokens = [AddedToken("foo", len(words), added_tokens.SPECIAL)]
    tokenizer = Tokenizer.from_bytes(content, added_tokens=tokens)
    assert tokenizer.encode("foo FOO") == [7, 5, 6]


def test_an_added_token_with_white_space_may_stand_among_the_words(tmp_path):
    words = {word: id for id, word in enumerate(WORDS)}
    model = {"type": "WordPiece", "vocab": {**words, "x": len(WORDS) + 1}}
    added = [{"id": len(WORDS), "content": "The Function", "normalized": True}]
    values = {"added_tokens": added, "model": model, "normalizer": {}, "pre_tokenizer": {}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    for name, content in vocabulary_files(tokenizer, 128).items():
        (tmp_path / name).write_bytes(content)
    assert b"The Function" not in tokenizer.content
    for again in (tokenizer, Tokenizer.from_file(tmp_path / "vocab.txt")):
        assert again.encode("a the function, x") == [13, 14, 12, 15]
        assert again.id_to_token(14) == "The Function"


def marked_sentencepiece() -> bytes:
    """A model of an earlier version; its token 58 was among its own tokens."""
    model = ModelProto.FromString((MODEL / "spiece.model").read_bytes())
    model.pieces[58].type = ModelProto.SentencePiece.USER_DEFINED
    model.pieces[58].score = added_tokens.PLAIN
    for text, kind in [("[E1]", added_tokens.PLAIN), ("[/E1]", added_tokens.SPECIAL)]:
        model.pieces.add(piece=text, score=kind, type=ModelProto.SentencePiece.USER_DEFINED)
    return model.SerializeToString()


def marked_wordpiece() -> bytes:
    """The same as a vocab.txt, with a token of two words among the others."""
    lines = [*WORDS[:12], "Two  Words\tadded", *WORDS[12:], "[E1]\tadded", "[/E1]\tadded special"]
    return "\n".join([*lines, ""]).encode()


EARLIER = {
    "spiece.model": (
        marked_sentencepiece,
        {
            "the[e1]function": [14, 6000, 41],
            "a ▁returns[/E1][/e1]": [15, 13, 58, 6001, 13, 1, 94, 48, 120, 1],
        },
    ),
    "vocab.txt": (
        marked_wordpiece,
        {"the[e1], a": [5, 15, 13, 14], "two  words[/E1] [/e1]": [12, 16, 8, 1, 10, 11, 9]},
    ),
}


@pytest.mark.parametrize("name", EARLIER)
def test_a_vocabulary_of_an_earlier_version_has_its_tokens(name, tmp_path):
    """It had the kinds of added tokens in itself."""
    make, expected = EARLIER[name]
    tokenizer = Tokenizer.from_bytes(make())
    plain, added = earlier_vocabularies.without_marks(make())
    assert (tokenizer.content, tokenizer.added_tokens) == (plain, added) and len(added) == 3
    assert earlier_vocabularies.without_marks(plain) == (plain, ())
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / name).write_bytes(make())
    Tokenizer.from_file(tmp_path / "earlier" / name).save_pretrained(tmp_path)
    assert (tmp_path / name).read_bytes() == plain
    for again in (tokenizer, Tokenizer.from_file(tmp_path / name)):
        assert [again.encode(text) for text in expected] == list(expected.values())
        assert again.sha256 == tokenizer.sha256


def test_added_tokens_with_other_ids_are_an_error(tmp_path):
    sentencepiece(tmp_path)
    path = tmp_path / "added_tokens.json"
    file = tmp_path / "spiece.model"
    errors = {6001: "ids .6001., expected 6,000 first", 14: "'.E1.' has the id 14, expected 6000"}
    for id, message in errors.items():
        path.write_text(json.dumps({"[E1]": id}))
        with pytest.raises(UserError, match=message):
            Tokenizer.from_file(file)
    path.write_text('{"(": 5, "<unk>": 1}')  # transformers lists user-defined pieces, too
    tokenizer = Tokenizer.from_file(file)
    assert tokenizer.content == file.read_bytes() and tokenizer.added_tokens == ()
    path.write_text('{"[CLS]": 6000}')
    with pytest.raises(UserError, match=r"'.CLS.' has the id 6000, expected 2"):
        Tokenizer.from_file(file)


def test_a_vocabulary_with_counts_has_no_added_tokens(tmp_path):
    """Tools write `token<TAB>count`; the original takes the first word of a line, and so does this library."""
    plain = tmp_path / "plain.txt"
    counted = tmp_path / "counted.txt"
    plain.write_text("\n".join(WORDS))
    counts = (f"{token}\t{count % 3}" for count, token in enumerate(WORDS[5:]))
    counted.write_text("\n".join([*WORDS[:5], *counts]))
    text = "the functions, [a]"
    expected = Tokenizer.from_file(plain).encode(text)
    assert Tokenizer.from_file(counted).encode(text) == expected == [5, 6, 7, 12, 8, 13, 9]


JSON = {
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "[CLS]": 1}},
    "added_tokens": [{"id": 2, "content": "<x>"}],
}
WRONG_JSON = {
    "added_tokens": [
        *("x", 5, [5], [{"content": "<x>"}], [{"id": [1], "content": "<x>"}]),
        *([{"id": 2, "content": {}}], [{"id": 2, "content": "a\nb"}], [{"id": 2, "content": ""}]),
        *([{"id": float("inf"), "content": "<x>"}], [{"id": -1, "content": "<x>"}]),
    ],
    "model": [
        {"type": "WordPiece"},
        {"type": "WordPiece", "vocab": ["[UNK]"]},
        {"type": "WordPiece", "vocab": {"[UNK]": None, "[CLS]": {}}},
    ],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in WRONG_JSON for value in WRONG_JSON[name]]
)
def test_values_of_other_types_in_a_tokenizer_json_are_one_line(name, value):
    content, added = vocabulary_of(JSON, "tokenizer.json")
    assert content == b"[UNK]\n[CLS]\n"
    assert added == (AddedToken("<x>", 2, added_tokens.SPECIAL),)
    with pytest.raises(UserError, match=r"^tokenizer\.json: .*tokens .*ids"):
        vocabulary_of({**JSON, name: value}, "tokenizer.json")


@pytest.mark.parametrize(
    "content",
    [
        b"[UNK]\n[UNK]\tadded\n",
        json.dumps(
            {**JSON, "model": {"type": "WordPiece", "vocab": {}}, "added_tokens": []}
        ).encode(),
        json.dumps(
            {**JSON, "added_tokens": [{"id": 0, "content": "x"}, {"id": 1, "content": "y"}]}
        ).encode(),
    ],
)
def test_a_vocabulary_of_added_tokens_alone_is_one_line(content):
    assert "source: " in error_of(Tokenizer.from_bytes, content, source="source")
