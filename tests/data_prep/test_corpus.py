"""The reader of lines: long ones come in pieces, of which nothing is lost."""

import pytest

from albert_tf.core.errors import UserError
from albert_tf.data_prep import corpus


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads content, of which lines of more than 40 bytes come in pieces cut in their last 30 bytes."""
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 40)
    monkeypatch.setattr(corpus, "_SEARCHED_BYTES", 30)

    def pieces(content, invalid_utf8="error"):
        path = tmp_path / "a.txt"
        path.write_bytes(content)
        return list(corpus.LineReader(invalid_utf8).read_pieces(str(path)))

    return pieces


def test_long_lines_are_cut_after_sentences_then_words_then_characters(read):
    sentences = "Is he at home here? Who knows Mr. Brown or Bodo? Nobody knew anything of him."
    assert [piece.text for piece in read(sentences.encode())] == [
        "Is he at home here? ",
        "Who knows Mr. Brown or Bodo? ",
        "Nobody knew anything of him.",
    ]
    words = "these are only words that have no end in a long line"
    assert [piece.text for piece in read(words.encode())] == [
        "these are only words that have no end ",
        "in a long line",
    ]
    assert [len(piece.text) for piece in read(("é" * 50).encode())] == [19, 19, 12]
    chinese = "今天的天气很好。我们去公园。你去吗？「我去。」他说。"
    assert [piece.text for piece in read(chinese.encode())] == [
        "今天的天气很好。",
        "我们去公园。你去吗？",
        "「我去。」他说。",
    ]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("size", range(1, 130, 3))
def test_pieces_joined_are_the_line_and_only_the_last_ends_it(read, size, end):
    line = b"ab. " * (size // 4) + b"x" * (size % 4)
    pieces = read(line + end + b"y\n")
    of_first = [piece for piece in pieces if piece.number == 1]
    joined = "".join(piece.text for piece in of_first)
    assert joined == (line + (b"" if end else b"y")).decode()
    assert [piece.ends_line for piece in of_first] == [False] * (len(of_first) - 1) + [True]
    assert len(of_first) > 1 or size < 42
    if end:
        assert pieces[-1] == corpus.Piece(2, "y", True)


def test_bytes_that_are_not_utf8_are_named_by_their_line_also_in_a_long_one(read):
    content = b"a\n" + b"x" * 90 + b"\xff" + b"y" * 50
    with pytest.raises(UserError, match=r"a\.txt, line 2: not UTF-8"):
        read(content)
    replaced = "".join(piece.text for piece in read(content, "replace"))
    assert replaced == "a" + "x" * 90 + "\ufffd" + "y" * 50


def test_a_zip_archive_is_named(read):
    with pytest.raises(UserError, match="is a zip archive, expected UTF-8 text; unpack it"):
        read(b"PK\x03\x04\x14\0\0\0")
