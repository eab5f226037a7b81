"""Tokens that transformers added to a vocabulary have the ids that it gives them."""

import json
import pathlib

import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf import Tokenizer, UserError
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.text import added_tokens

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


def test_a_letter_that_is_another_one_in_lower_case_is_not_found(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*WORDS, "s1\tadded", "kα\tadded", ""]))
    tokenizer = Tokenizer.from_file(path)
    s1 = tokenizer.token_to_id("s1")
    k = tokenizer.token_to_id("kα")
    # The long s is not an s in lower case, and the sign of Kelvin is a k.
    assert tokenizer.encode("S1 ſ1 s1") == [s1, tokenizer.unk_id, s1]
    assert tokenizer.encode("\u212aΑ kα") == [k, k]


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
    assert Tokenizer.from_file(file).content == file.read_bytes()


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
    content = added_tokens.content_of_json(JSON, "tokenizer.json")
    assert content == b"[UNK]\n[CLS]\n<x>\tadded special\n"
    with pytest.raises(UserError, match=r"^tokenizer\.json: .*tokens .*ids"):
        added_tokens.content_of_json({**JSON, name: value}, "tokenizer.json")
