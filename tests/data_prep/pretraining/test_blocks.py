"""Blocks: which documents each process finds by itself, what it stores, and what is read again."""

import gzip
import random
import re

import pytest

from albert_tf.core.errors import UserError
from albert_tf.data_prep.pretraining import blocks
from albert_tf.data_prep.pretraining.blocks import Block, Span


@pytest.fixture
def write(tmp_path):
    """Writes files in which blocks are found; returns their entries in the metadata."""

    def write_files(*contents):
        paths = [tmp_path / str(number) for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return [{"file": str(path), "bytes": path.stat().st_size} for path in paths]

    return write_files


def texts_of(inputs):
    return list(map(blocks.read_block, blocks.blocks_of(inputs)))


def documents_of(text):
    """The sentences of each document of a block."""
    numbers = sorted(set(text.documents))
    pairs = list(zip(text.sentences, text.documents, strict=True))
    return [[sentence for sentence, document in pairs if document == number] for number in numbers]


def test_blocks_are_mebibytes_of_all_files(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10)
    files = [{"file": name, "bytes": size} for name, size in (("a", 4), ("b", 0), ("c", 17))]
    assert list(blocks.blocks_of(files)) == [
        Block(0, [Span("a", 0, 4), Span("c", 0, 6)]),
        Block(1, [Span("c", 6, 16)]),
        Block(2, [Span("c", 16, 17)]),
    ]
    assert [block.num_bytes for block in blocks.blocks_of(files)] == [10, 10, 1]


def test_a_document_belongs_to_the_block_of_the_blank_line_before_it(write, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 12)
    #                first block | second   | third
    inputs = write(b"one.\ntwo.\n\n" + b"three\nfour.\n" + b"\nfive.\n")
    assert [documents_of(text) for text in texts_of(inputs)] == [
        [["one.", "two."], ["three", "four."]],
        [["five."]],
        [],
    ]


@pytest.mark.parametrize("blank", [b"\n\n", b"\n \t\n", b"\r\n\r\n", b"\n\n\n\n"])
@pytest.mark.parametrize("size", range(9, 30))
def test_every_process_finds_the_same_documents(write, monkeypatch, blank, size):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
    names = [f"{number:02d}" for number in range(20)]
    content = blank.join(f"{name}".encode() for name in names)
    texts = texts_of(write(content, b"", content))
    found = [document for text in texts for document in documents_of(text)]
    assert [[name.strip() for name in document] for document in found] == [[n] for n in 2 * names]


def test_white_space_of_any_kind_ends_a_document(write):
    lines = ["a", " \t", "b", "\u3000", "", "c"]
    (text,) = texts_of(write("\n".join(lines).encode()))
    assert documents_of(text) == [["a"], ["b"], ["c"]]


def test_a_long_document_is_cut_between_lines_where_a_block_has_no_blank_line(write, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8)
    texts = texts_of(write(b"aa\nbb\ncc\ndd\nee\nff\ngg\nhh\n\ni\n"))
    assert [documents_of(text) for text in texts] == [
        [["aa", "bb", "cc"]],
        [["dd", "ee", "ff"]],
        [["gg", "hh"]],
        [["i"]],
    ]


def test_the_end_of_a_file_is_not_cut_from_its_last_document(write, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8)
    texts = texts_of(write(b"aa\nbb\ncc\ndd\n"))
    assert [documents_of(text) for text in texts] == [[["aa", "bb", "cc", "dd"]], []]


@pytest.mark.parametrize("seed", range(60))
def test_no_line_is_lost_or_read_twice(write, monkeypatch, seed):
    rng = random.Random(seed)
    size = rng.choice([5, 16, 50, 1000])
    monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
    kinds = ["ab", "ééé", "", "", " \t", "\r", "x" * 40, " " * 30]
    contents = []
    for _ in range(rng.randint(1, 4)):
        lines = [rng.choice(kinds) * rng.randint(1, 3) for _ in range(rng.choice([0, 3, 60]))]
        contents.append(("\n".join(lines) + rng.choice(["", "\n", "\n\n"])).encode())
    texts = texts_of(write(*contents))
    found = "".join(sentence for text in texts for sentence in text.sentences)
    assert re.sub(r"\s", "", found) == re.sub(r"\s", "", b"".join(contents).decode())
    for text in texts:  # less than two blocks, and the bytes of a character
        assert sum(len(sentence.encode()) for sentence in text.sentences) < 2 * size + 4


def test_lines_that_are_not_utf8_have_their_places(write, monkeypatch):
    inputs = write(b"a\n\xe9\nb\n\n" + b"c\n\xff\n")
    (text,) = texts_of(inputs)
    assert text.sentences == ["a", "\ufffd", "b", "c", "\ufffd"]
    assert text.invalid_lines == [(inputs[0]["file"], 2), (inputs[0]["file"], 9)]
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 6)
    assert [line for text in texts_of(inputs) for line in text.invalid_lines] == text.invalid_lines


def test_compressed_text_is_no_text_of_blocks(write):
    with pytest.raises(UserError, match="0: is compressed; unpack it, or let split_sentences"):
        texts_of(write(gzip.compress(b"One is.\nTwo is.\n")))
