"""Blocks of the corpus: reads a block, tokenizes it, plans its pairs once, and stores both.

The corpus is UTF-8 text, one sentence per line, a blank line between documents; the end of a file ends a document.
Block k is the documents that begin in the k-th MiB of the corpus, which is its files one after the other; a document
begins with the blank line before it, or with its file. So a process needs only the sizes of the files to find a block.

A long document is cut where a whole MiB of its file contains no blank line: there, the first line begins a document,
or the first character if no line begins either. So every block has less than 2 MiB of text.

A random B (`pretraining_examples.plan_pairs`) comes from the same block; in a block of a single document, such as a
part of a book, from another place of this document.
"""

import contextlib
import functools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.files import OutputFile
from albert_tf.data import pretraining_examples as examples
from albert_tf.data_prep import corpus
from albert_tf.data_prep.pretraining.compiled_tokenizer import CompiledTokenizer
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.text.tokenizer import Tokenizer

BLOCK_BYTES = 1 << 20
BLOCKS_IN_MEMORY = 32  # stored ones, of about 1 MB each, if a corpus has no more

Inputs = Sequence[Mapping[str, Any]]  # path (`file`) and size (`bytes`) of each file of the corpus
Counts = Mapping[str, Any]

_BLANK_LINE = re.compile(rb"\n[ \t\r\v\f]*\n")  # with the end of the line before it
_LINE = re.compile(rb"\n(?!\Z)")  # the end of the line before it
_CHARACTER = re.compile(rb"(?<=.)[^\x80-\xbf]", re.DOTALL)  # its first byte


class Job(NamedTuple):
    """What every process of a run needs."""

    settings: PretrainingDataSettings
    tokenizer: Tokenizer
    compiled_tokenizer: CompiledTokenizer  # made of `tokenizer`
    vocabulary: examples.Vocabulary
    pair_rule: examples.PairRule
    masking_rule: examples.MaskingRule


def counts_of(job: Job, path: str) -> dict[str, Any] | None:
    """The counts of a block or shard if an interrupted run has made it already."""
    return files.read_json(_counts_file(job, path)) if files.exists(path) else None


@contextlib.contextmanager
def writing(job: Job, path: str, counts: dict[str, Any]) -> Iterator[OutputFile]:
    """A file that gets its name when it is complete, after its counts, which may be filled until then."""
    # A worker of a cluster that was given up may still be writing the file.
    with OutputFile(path, wait=True) as file:
        yield file
        counts["bytes"] = file.num_bytes
        files.write_bytes(_counts_file(job, path), json.dumps(counts).encode())


def _counts_file(job: Job, path: str) -> str:
    return os.path.join(job.settings.work_folder, os.path.basename(path) + ".json")


class Span(NamedTuple):
    """The bytes of a file that are in one block."""

    path: str
    start: int
    end: int


class Block(NamedTuple):
    """Where a block begins and ends: `BLOCK_BYTES` of the corpus, the last block fewer."""

    number: int
    spans: list[Span]

    @property
    def num_bytes(self) -> int:
        """Bytes of the corpus."""
        return sum(span.end - span.start for span in self.spans)


class Text(NamedTuple):
    """Sentences, the number of each sentence's document, and (file, offset) of each line that is not UTF-8."""

    sentences: list[str]
    documents: list[int]
    invalid_lines: list[tuple[str, int]]


def blocks_of(inputs: Inputs) -> Iterator[Block]:
    """The blocks of a corpus."""
    number = 0
    spans = []
    room = BLOCK_BYTES
    for file in inputs:
        start = 0
        while start < file["bytes"]:
            end = min(start + room, file["bytes"])
            spans.append(Span(file["file"], start, end))
            room -= end - start
            start = end
            if not room:
                yield Block(number, spans)
                number += 1
                spans = []
                room = BLOCK_BYTES
    if spans:
        yield Block(number, spans)


# --- Reading.


def read_block(block: Block) -> Text:
    """Reads the documents of a block."""
    text = Text([], [], [])
    document = 0
    for span in block.spans:
        content, offset = read_span(span)
        lines = content.split(b"\n")
        for line in lines:
            try:
                sentence = line.decode()
            except UnicodeDecodeError:
                text.invalid_lines.append((span.path, offset))
                sentence = line.decode(errors="replace")
            offset += len(line) + 1
            if sentence and not sentence.isspace():
                text.sentences.append(sentence)
                text.documents.append(document)
            else:
                document += 1
        document += 1
    return text


def read_span(span: Span) -> tuple[bytes, int]:
    """The text of the documents that begin in a span, and its offset in the file.

    Example: a file is "One.\\n\\nTwo.\\nMore.\\n\\nThree.\\n", and a span is (3, 14), from the dot of "One." to the "r"
    of "More". Document "Two." begins in it and ends after it, so the text is "\\nTwo.\\nMore.\\n", at offset 5. The
    span before has "One.", the span after has "Three.".
    """
    # The byte before a span tells whether a line begins with the span: data[0] is byte 2 of the file.
    before = min(span.start, 1)
    with files.errors_named(span.path, "read"), files.open_binary(span.path) as file:
        file.seek(span.start - before)
        data = file.read(before + span.end - span.start + BLOCK_BYTES)
    if not span.start:
        corpus.check_head(data[: corpus.HEAD_BYTES], span.path)

    end_of_span = before + span.end - span.start  # in `data`: 12
    first = _first_document(data[:end_of_span]) if span.start else 0
    if first is None:
        return b"", span.end
    # The last document goes on to where the next span finds its first one.
    first_of_next = _first_document(data[end_of_span - 1 :])
    end = len(data) if first_of_next is None else end_of_span - 1 + first_of_next
    return data[first:end], span.start - before + first


def _first_document(data: bytes) -> int | None:
    """Where the first document begins in a span; None if it contains only the rest of the file's last document."""
    if blank_line := _BLANK_LINE.search(data):
        return blank_line.start() + 1
    if len(data) <= BLOCK_BYTES:  # the end of the file
        return None
    if line := _LINE.search(data):
        return line.end()
    character = _CHARACTER.search(data)
    return character.start() if character else 1


# --- Tokenizing and planning.


def store_block(job: Job, block: Block) -> dict[str, Any]:
    """Tokenizes a block, plans its pairs and stores both, unless they are stored already; returns its counts."""
    path = _block_file(job, block.number)
    if counts := counts_of(job, path):
        return counts
    text = read_block(block)
    if text.invalid_lines and job.settings.invalid_utf8 == "error":
        invalid_path, offset = text.invalid_lines[0]
        raise UserError(corpus.not_utf8(_place_of(invalid_path, offset)))
    undivided = as_documents(job, text.sentences, text.documents)
    documents = examples.divide_long_sentences(undivided, job.pair_rule)
    lengths = np.diff(undivided.sentence_offsets)
    numbers = range(job.settings.dupe_factor)
    all_pairs = [plan_pass(job, documents, block.number, copy).astype(np.int32) for copy in numbers]
    sentences_of_documents = np.diff(documents.document_offsets)
    counts = {
        "blocks": 1,
        "text_bytes": block.num_bytes,
        "documents": len(sentences_of_documents),
        "single_sentence_documents": int((sentences_of_documents == 1).sum()),
        "sentences": len(lengths),
        "divided_sentences": int(np.sum(lengths > job.pair_rule.max_tokens)),
        "tokens": len(documents.ids),
        "unknown_tokens": int(np.sum(documents.ids == job.tokenizer.unk_id)),
        "text_tokens_in_records": sum(
            examples.tokens_of_text(pairs, job.settings.max_seq_length) for pairs in all_pairs
        ),
        "examples": sum(map(len, all_pairs)),
        "invalid_utf8_lines": len(text.invalid_lines),
    }
    with writing(job, path, counts) as file:
        np.save(file, documents.ids)
        np.save(file, np.cumsum([*map(len, all_pairs)])[:-1])
        np.save(file, np.concatenate(all_pairs))
    return counts


def _place_of(path: str, offset: int) -> str:
    """The file and the number of the line that begins at an offset, for messages."""
    line = 1
    with files.open_binary(path) as file:
        while offset > 0:
            data = file.read(min(offset, 1 << 20))
            if not data:
                break
            line += data.count(b"\n")
            offset -= len(data)
    return f"{path}, line {line}"


def sum_counts(counts_of_blocks: Iterable[Counts]) -> dict[str, int]:
    """Adds up the counts of blocks, or sums of them."""
    total: Counter = Counter()
    for counts in counts_of_blocks:
        total.update(counts)
    del total["bytes"]  # the size of the stored blocks
    return dict(total)


def stored_pairs(job: Job, number: int, num_blocks: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The token ids of a stored block, and for each pass its pairs, int32 [pairs, 5].

    Every shard of a small corpus takes examples from all of its blocks, so they stay in memory until `forget_blocks`.
    """
    path = _block_file(job, number)
    with files.errors_named(path, "read"):
        if num_blocks > BLOCKS_IN_MEMORY:
            return _read_stored(path)
        return _kept(path, files.size_and_time(path))


def forget_blocks() -> None:
    """Frees the memory of the blocks that this process keeps."""
    _kept.cache_clear()


@functools.lru_cache(maxsize=BLOCKS_IN_MEMORY)
def _kept(path: str, size_and_time: tuple[int, float]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The content of a stored block; its size and time tell it from that of another run."""
    del size_and_time
    return _read_stored(path)


def _read_stored(path: str) -> tuple[np.ndarray, list[np.ndarray]]:
    with files.open_binary(path) as file:
        ids = np.load(file)
        ends = np.load(file)
        pairs = np.load(file)
    return ids, np.split(pairs, ends)


def _block_file(job: Job, index: int) -> str:
    return os.path.join(job.settings.work_folder, f"block-{index:06d}")


def as_documents(job: Job, sentences: list[str], document_numbers: list[int]) -> examples.Documents:
    """Tokenizes and joins sentences; sentences without any token are left out."""
    ids, lengths = job.compiled_tokenizer.encode(sentences)
    numbers = np.array(document_numbers, np.int64)[lengths > 0]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ids_type = np.uint16 if job.tokenizer.vocab_size <= 1 << 16 else np.int32
    return examples.Documents(
        ids=ids.astype(ids_type),
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64),
        document_offsets=np.append(starts, len(numbers)).astype(np.int64),
    )


def plan_pass(job: Job, documents: examples.Documents, block: int, number: int) -> np.ndarray:
    """The pairs of one pass through a block."""
    seed = examples.combine_seeds(job.settings.random_seed, number, block)
    return examples.plan_pairs(documents, job.pair_rule, seed)
