"""Compressed files: each kind is read, in one part or two; damaged data is one line."""

import bz2
import gzip
import io
import lzma
import random

import pyarrow
import pytest

from albert_tf.core import compression
from albert_tf.core.errors import UserError

TEXT = " ".join(random.Random(1).choices(["one", "two", "three"], k=50_000)).encode()


def zstandard(data):
    return pyarrow.compress(data, codec="zstd", asbytes=True)


KINDS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "Zstandard": zstandard,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_read_also_in_two_parts(kind):
    compressed = KINDS[kind](TEXT)
    assert compression.kind_of(compressed) == kind
    assert compression.uncompressed_bytes(compressed, "a") == TEXT
    assert compression.uncompressed_bytes(compressed + compressed, "a") == TEXT + TEXT


@pytest.mark.parametrize("kind", KINDS)
def test_data_that_is_cut_off_is_one_line(kind):
    compressed = KINDS[kind](TEXT)
    for size in (14, len(compressed) // 2, len(compressed) - 3):
        with pytest.raises(UserError, match=f"^a: its {kind} data is cut off or damaged$"):
            compression.uncompressed_bytes(compressed[:size], "a")


def test_other_files_are_read_as_they_are():
    for content in (b"", b"B", b"BZh is a name", TEXT):
        assert compression.uncompressed_bytes(content, "a") == content
    file = io.BufferedReader(io.BytesIO(TEXT))
    assert compression.uncompressed(file, "a") is file


def test_names_lose_only_the_ending_of_compressed_files():
    assert compression.without_ending("a/b.tsv.XZ") == "a/b.tsv"
    assert compression.without_ending("a/b.tsv") == "a/b.tsv"
