"""A corpus -> blocks of whole documents, which worker processes decode.

The corpus is UTF-8 text with one sentence a line and a blank line between documents; the end of a file ends a
document. A single process reads for all workers, so it does nothing but split bytes into blocks.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

from albert_tf.core.errors import UserError
from albert_tf.data_prep.text_files import check_first_line, decode_invalid

# A block ends with a document when it has at least this much text and this many documents, so that a random B can come
# from another document. Long documents make a block larger, up to the limit, where they are cut in two. A block also
# ends after a number of blank lines, which have no bytes.
BLOCK_BYTES = 1 << 20
BLOCK_DOCUMENTS = 16
LARGE_BLOCK_BYTES = 3 << 20
MOST_BLOCK_BYTES = 8 << 20
MOST_BLANK_LINES = 1 << 20
MOST_LINE_BYTES = 4 << 20


class TextBlock(NamedTuple):
    """Consecutive lines of the input, and the files that they come from."""

    index: int
    lines: list[bytes]
    # For the first line of each file: its index in the block, its file, and its number in that file.
    sources: list[tuple[int, str, int]]
    was_cut: bool

    def place_of(self, line: int) -> str:
        """The file and line number, for messages."""
        first, path, number = [source for source in self.sources if source[0] <= line][-1]
        return f"{path}, line {number + line - first}"


class Position(NamedTuple):
    """A line of a list of files."""

    file: int = 0
    offset: int = 0  # bytes before the line
    line: int = 1  # its number in the file


_open_here = functools.partial(open, mode="rb")


def read_blocks(
    files: Iterable[str],
    start: Position = Position(),  # noqa: B008 - it is immutable
    *,
    open_file: Callable[[str], BinaryIO] = _open_here,
) -> Iterator[TextBlock]:
    """Cuts files into blocks. Cuts are between documents, except in documents that are too long.

    Args:
      files: the paths.
      start: where the first block begins.
      open_file: opens a path; the file must have `peek`.

    Raises:
      UserError: a file cannot be read.
    """
    index, lines, sources, num_bytes, num_blank = 0, [], [], 0, 0
    for num_files, path in enumerate(itertools.islice(files, start.file, None)):
        first, offset = (1, 0) if num_files else (start.line, start.offset)
        sources.append((len(lines), path, first))
        for number, line in enumerate(read_lines(path, offset, open_file=open_file), start=first):
            line = line.rstrip(b"\n")
            lines.append(line)
            num_bytes += len(line)
            is_blank = not line or line.isspace()
            num_blank += is_blank
            is_full = is_blank and can_end_block(num_bytes, num_blank)
            if is_full or num_bytes >= MOST_BLOCK_BYTES:
                yield TextBlock(index, lines, sources, was_cut=not is_full)
                index, lines, num_bytes, num_blank = index + 1, [], 0, 0
                sources = [(0, path, number + 1)]
        lines.append(b"")
        num_blank += 1
    yield TextBlock(index, lines, sources, was_cut=False)


def can_end_block(num_bytes: int, num_blank: int) -> bool:
    """Whether a block may end with a blank line, the last of `num_blank`; `num_bytes` does not include line ends."""
    is_large = num_blank >= BLOCK_DOCUMENTS or num_bytes >= LARGE_BLOCK_BYTES
    return (num_bytes >= BLOCK_BYTES and is_large) or num_blank >= MOST_BLANK_LINES


def read_lines(
    path: str, offset: int = 0, *, open_file: Callable[[str], BinaryIO] = _open_here
) -> Iterator[bytes]:
    """The lines of a file with their line ends, starting at a byte; lines longer than `MOST_LINE_BYTES` are cut.

    Raises:
      UserError: the file cannot be read, or is not text in lines.
    """
    try:
        with open_file(path) as file:
            if offset:
                file.seek(offset)
            is_first = not offset
            while line := file.readline(MOST_LINE_BYTES):
                if is_first:
                    check_first_line(line, path)
                is_first = False
                if len(line) == MOST_LINE_BYTES:
                    line += _rest_of_character(file)
                yield line
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def _rest_of_character(file: BinaryIO) -> bytes:
    rest = b""
    while len(rest) < 3 and file.peek(1)[:1] and file.peek(1)[0] & 0xC0 == 0x80:
        rest += file.read(1)
    return rest


def decode_lines(lines: list[bytes], invalid_utf8: str) -> tuple[list[str], list[int], list[int]]:
    """Splits lines into documents.

    Example:
      [b"One.", b"Two.", b"", b"Three."] -> ["One.", "Two.", "Three."], [0, 0, 1], []

    Args:
      lines: the lines of a block.
      invalid_utf8: what to do with lines that are not UTF-8 (`text_files.invalid_utf8_setting`).

    Returns:
      The sentences, the number of each sentence's document, and the indices of lines that are not UTF-8.
    """
    texts, document_numbers, invalid_lines = [], [], []
    document = 0
    for index, line in enumerate(lines):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            invalid_lines.append(index)
            text = decode_invalid(line, invalid_utf8)
            if text is None:
                continue
        if text and not text.isspace():
            texts.append(text)
            document_numbers.append(document)
        else:
            document += 1
    return texts, document_numbers, invalid_lines
