"""The corpus: the files that a flag names, bytes that are not UTF-8, and files of sentences.

The programs of this folder pass the corpus to each other as UTF-8 text with one sentence per line and a blank line
between documents.
"""

import contextlib
import dataclasses
import hashlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tqdm

from albert_tf.core import compression, files
from albert_tf.core.errors import UserError
from albert_tf.core.files import OutputFile
from albert_tf.core.settings import LARGEST_SEED, Settings, setting
from albert_tf.core.workers import num_workers_setting


def invalid_utf8_setting() -> Any:
    """The setting of the flag --invalid_utf8, for every program that reads text."""
    return setting(
        "error",
        "What to do with a line that is not UTF-8: stop, or replace the bytes by U+FFFD.",
        choices=("error", "replace"),
    )


# Added to messages that too few or all documents are held out.
_FEW = "; cut a few long documents into files of some pages each (docs/guides/pretraining.md)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(Settings):
    """Where the corpus is written, and which part of it is held out for evaluation."""

    output_file: str = setting(
        "",
        "Text file to write: a sentence per line, a blank line between documents.",
        required=True,
    )
    eval_output_file: str = setting("", "Text file for the held-out documents.")
    eval_fraction: float = setting(
        0.0,
        "Share of the documents that goes to --eval_output_file, chosen by a hash of the document.",
        minimum=0,
        maximum=0.99,
    )
    random_seed: int = setting(
        12345, "Seed of the choice of held-out documents.", minimum=0, maximum=LARGEST_SEED
    )
    num_workers: int | None = num_workers_setting()

    def __post_init__(self):
        super().__post_init__()
        if self.eval_fraction and not self.eval_output_file:
            self.refuse("eval_output_file", "must be given with --eval_fraction")
        if self.eval_output_file and not self.eval_fraction:
            self.refuse("eval_fraction", "must be above 0 with --eval_output_file")
        outputs = map(files.real_path, (self.output_file, self.eval_output_file))
        if self.eval_output_file and len(set(outputs)) == 1:
            self.refuse("eval_output_file", "must differ from --output_file")


def expand_paths(patterns: str, *, not_among: Sequence[str] = ()) -> list[str]:
    """The files that a flag such as --input_file names, in a fixed order, each once.

    Args:
      patterns: files, globs and folders, separated by commas; subfolders are searched. Hidden files are left out, and
        what programs of this project write beside texts. The name of an existing file or folder may contain commas.
      not_among: files that the program is going to write; reading one of them is an error.
    """
    paths: list[str] = []
    for pattern in files.listed(patterns):
        with files.errors_named(f"--input_file={pattern}", "listed"):
            paths_of_pattern: list[str] = []
            for match in files.texts_matching(pattern):
                paths_of_pattern += _files_below(match) if files.is_folder(match) else [match]
        if not paths_of_pattern:
            raise UserError(f"--input_file={pattern}: no such file or folder")
        paths += paths_of_pattern
    written = {files.real_path(path) for path in not_among if path}
    for path in paths:
        if files.real_path(path) in written:
            raise UserError(f"--input_file: {path} is both read and written; write elsewhere")
    return list(dict.fromkeys(paths))


def _files_below(folder: str) -> Iterator[str]:
    """The files below a folder without hidden ones; the files of a folder come before those of its subfolders."""
    paths = [os.path.join(folder, name) for name in files.names_in(folder)]
    subfolders = set(filter(files.is_folder, paths))
    for path in paths:
        if path not in subfolders and not files.is_written_beside_texts(path):
            yield path
    for subfolder in sorted(subfolders):
        if not os.path.islink(subfolder):  # a link to a folder above would not end
            yield from _files_below(subfolder)


def size_of(path: str) -> int:
    """The number of bytes of a file."""
    with files.errors_named(path, "read"):
        return files.size_and_time(path)[0]


def total_bytes(paths: Sequence[str]) -> int:
    """The size of files, for a progress bar."""
    return sum(map(size_of, paths))


class Piece(NamedTuple):
    """A line of a file, or a part of a line that is longer than `MAX_LINE_BYTES`."""

    number: int  # of the line, from 1
    text: str  # without line end
    ends_line: bool


class LineReader:
    """Reads text files line by line, also compressed ones, in little memory whatever the length of the lines.

    `num_bytes` is read so far, `num_invalid` lines were not UTF-8.
    """

    def __init__(self, invalid_utf8: str):
        self.num_bytes = self.num_invalid = 0
        self._invalid_utf8 = invalid_utf8

    def read(self, path: str) -> Iterator[str]:
        """The texts of `read_pieces`."""
        for piece in self.read_pieces(path):
            yield piece.text

    def read_pieces(self, path: str) -> Iterator[Piece]:
        """The lines of a file, without byte-order mark; binary files are errors.

        Lines of more than `MAX_LINE_BYTES` come in pieces, which end after a sentence, else after a word, else after a
        character.
        """
        with files.errors_named(path, "read"), files.open_binary(path) as raw:
            file = compression.uncompressed(raw, path)
            check_head(file.peek(HEAD_BYTES)[:HEAD_BYTES], path)
            number = 1
            encoding = "utf-8-sig"
            for data, ends_line in _read_pieces(file):
                self.num_bytes += len(data)
                try:
                    text = data.decode(encoding)
                except UnicodeDecodeError:
                    if self._invalid_utf8 == "error":
                        raise UserError(not_utf8(f"{path}, line {number}")) from None
                    self.num_invalid += 1
                    text = data.decode(encoding, errors="replace")
                yield Piece(number, text.rstrip("\r\n") if ends_line else text, ends_line)
                number += ends_line
                encoding = "utf-8"

    def print_report(self, program: str) -> None:
        """Prints how many lines were not UTF-8, if there were any."""
        if self.num_invalid:
            print_note(program, f"{self.num_invalid:,} lines were not UTF-8")


def not_utf8(place: str) -> str:
    """The message about a line that is not UTF-8."""
    return f"{place}: not UTF-8; --invalid_utf8=replace reads on"


MAX_LINE_BYTES = 1 << 20  # longer lines are read in pieces
_SEARCHED_BYTES = 1 << 16  # at the end of such a piece, for the end of a sentence or of a word
# A mark after a word of four bytes or more, because shorter ones may be abbreviations, and before a blank, if no small
# letter follows; or one of 。 ！ ？ । with or without 」 or 』.
_SENTENCE_END = re.compile(
    rb"[A-Za-z\x80-\xff]{4}[.!?][\"')\]]*[ \t]+(?![a-z])"
    rb"|(?:\xe3\x80\x82|\xef\xbc[\x81\x9f]|\xe0\xa5\xa4)(?:\xe3\x80[\x8d\x8f])*"
)
_WORD_END = re.compile(rb"[ \t]+")
_CHARACTER_END = re.compile(rb"(?=[^\x80-\xbf])")  # before the first byte of a character


def _read_pieces(file: io.BufferedIOBase) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file with their ends, long ones in pieces; and whether a line ends."""
    rest = b""  # of a line, behind the piece that was cut off
    while data := rest + file.readline(MAX_LINE_BYTES - len(rest)):
        ends_line = data.endswith(b"\n") or len(data) < MAX_LINE_BYTES
        end = len(data) if ends_line else _place_to_cut(data)
        yield data[:end], ends_line
        rest = data[end:]


def in_pieces(text: str) -> Iterator[str]:
    """A text in pieces of at most `MAX_LINE_BYTES`, cut as a line of a file."""
    if len(text) <= MAX_LINE_BYTES // 4:  # a character has up to four bytes
        yield text
        return
    data = text.encode("utf-8", "surrogatepass")
    for piece, _ in _read_pieces(io.BytesIO(data)):
        yield piece.decode("utf-8", "surrogatepass")


def _place_to_cut(data: bytes) -> int:
    """Where a piece of a line ends."""
    start = len(data) - _SEARCHED_BYTES
    for pattern in (_SENTENCE_END, _WORD_END, _CHARACTER_END):
        ends = [match.end() for match in pattern.finditer(data, start)]
        # The end of the data is no place: the next byte may belong to the same sentence, word or character.
        if places := [end for end in ends if start < end < len(data)]:
            return places[-1]
    return len(data)


HEAD_BYTES = 1 << 16


def check_head(head: bytes, path: str) -> None:
    """Raises a UserError if a file that begins with these bytes is not text; archives and UTF-16 have NUL bytes."""
    if compression.kind_of(head):
        raise UserError(f"{path}: is compressed; unpack it, or let split_sentences read it")
    if head.startswith(b"PK\x03\x04"):
        raise UserError(f"{path}: is a zip archive, expected UTF-8 text; unpack it")
    if b"\0" in head:
        raise UserError(f"{path}: is binary (it has NUL bytes), expected UTF-8 text")
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise UserError(f"{path}: its lines end in CR alone; save it with LF or CR LF")


@dataclasses.dataclass
class Count:
    """The amount of text written to a file."""

    documents: int = 0
    sentences: int = 0
    bytes: int = 0

    def __str__(self):
        size = f"{self.bytes / 1e6:.1f} MB"
        return f"{self.documents:,} documents, {self.sentences:,} sentences, {size}"


class CorpusWriter:
    """Writes documents as sentences, to the corpus or to its held-out part; `corpus_writer` makes it."""

    def __init__(
        self, settings: CorpusSettings, training_file: OutputFile, held_out_file: OutputFile | None
    ):
        self._settings = settings
        self._files = (training_file, held_out_file)
        self.training = Count()
        self.held_out = Count()

    def write(self, key: str, sentences: Sequence[str]) -> None:
        """Appends the sentences of a document, which are not empty; documents with equal keys go to the same file."""
        # The same documents are held out on every machine and in every order.
        seeded_key = f"{self._settings.random_seed}\n{key}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.sha256(seeded_key).digest()[:8])
        held_out = number < self._settings.eval_fraction * 2**64
        count = self.held_out if held_out else self.training
        text = "\n".join(sentences) + "\n"
        data = ("\n" + text if count.documents else text).encode()
        file = self._files[held_out]
        assert file, "nothing is held out without --eval_fraction"
        file.write(data)
        count.documents += 1
        count.sentences += len(sentences)
        count.bytes += len(data)

    def check_not_empty(self) -> None:
        """Raises a `UserError` if a file would be empty."""
        num_documents = self.training.documents
        if not num_documents:
            all_held_out = f"all are held out; lower --eval_fraction{_FEW}"
            reason = all_held_out if self.held_out.documents else "the input is empty"
            raise UserError(f"no document is left: {reason}")
        if self._settings.eval_fraction and not self.held_out.documents:
            reason = f"is held out; raise --eval_fraction or change --random_seed{_FEW}"
            raise UserError(f"none of {num_documents:,} documents {reason}")

    def summary(self) -> str:
        """One line that says how much was written to which file."""
        text = f"{self.training} in {self._settings.output_file}"
        if self._settings.eval_fraction:
            text += f"; held out {self.held_out} in {self._settings.eval_output_file}"
        return text


@contextlib.contextmanager
def corpus_writer(settings: CorpusSettings) -> Iterator[CorpusWriter]:
    """A writer whose files appear when the `with` block ends without an error; an empty one is an error."""
    held_out = OutputFile(settings.eval_output_file) if settings.eval_fraction else None
    with OutputFile(settings.output_file) as training_file, held_out or contextlib.nullcontext():
        writer = CorpusWriter(settings, training_file, held_out)
        yield writer
        writer.check_not_empty()


def show_progress(description: str, total: int, unit: str) -> tqdm.tqdm:
    """Progress for the programs of this folder, on standard error; a log gets a line every half minute."""
    tqdm.tqdm.monitor_interval = 0  # no thread: workers are forked from single-threaded processes
    interval = 0.2 if sys.stderr.isatty() else 30
    values = {"unit": unit, "unit_scale": True, "mininterval": interval}
    return tqdm.tqdm(desc=description, total=total, dynamic_ncols=True, **values)


def print_note(label: str, message: str) -> None:
    """Prints one line to standard error, under the program's name."""
    print(f"{label}: {message}", file=sys.stderr, flush=True)
