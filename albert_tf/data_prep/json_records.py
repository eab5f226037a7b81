"""Reads the values of JSON lines, or the items of one JSON array, one at a time whatever the size of the file."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.data_prep.corpus import Piece

MAX_RECORD_CHARS = 1 << 27  # a longer value is an error
_CHUNK_CHARS = 1 << 20  # of an array, read at once
# An error so near to the end of what was read may only mean that the rest of the value is missing.
_LONGEST_TOKEN = 16
_BLANKS = re.compile(r"[ \t\r\n]*")

Record = tuple[str, Any]  # where a value is, for messages; and the value


def of_lines(pieces: Iterable[Piece], path: str) -> Iterator[Record]:
    """The value of each line that is not blank."""
    for number, pieces_of_line in itertools.groupby(pieces, key=lambda piece: piece.number):
        place = f"{path}:{number}"
        line = ""
        for piece in pieces_of_line:
            line += piece.text
            _check_length(len(line), place)
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: not JSON ({error})") from None
        yield place, value


def of_array(pieces: Iterable[Piece], path: str) -> Iterator[Record]:
    """The items of an array, which may be in one line or in several."""
    text = _ArrayText(pieces, path)
    text.skip("[")
    while text.next_character() != "]":
        yield text.next_item()
        if text.next_character() != "]":
            text.skip(",")
    text.skip("]")
    if text.next_character():
        raise UserError(f"{path}: has text after the end of its JSON array")


class _ArrayText:
    """The text of an array, of which only the part around the current item is in memory."""

    def __init__(self, pieces: Iterable[Piece], path: str):
        self._pieces = iter(pieces)
        self._path = path
        self._text = ""
        self._position = 0
        self._num_items = 0

    @property
    def _place(self) -> str:
        return f"{self._path}, item {self._num_items} of its array"

    def next_character(self) -> str:
        """The next character that is not blank, "" at the end of the file; it is not read yet."""
        while True:
            self._position = _BLANKS.match(self._text, self._position).end()  # type: ignore[union-attr]
            if self._position < len(self._text) or not self._read_on(_CHUNK_CHARS):
                return self._text[self._position : self._position + 1]

    def skip(self, expected: str) -> None:
        """Reads one character."""
        character = self.next_character()
        if character != expected:
            shown = repr(character) if character else "the end of the file"
            raise UserError(
                f"{self._place}: not JSON (expected {expected!r} after it, got {shown})"
            )
        self._position += 1

    def next_item(self) -> Record:
        """Reads an item."""
        self._num_items += 1
        self.next_character()
        while True:
            try:
                value, self._position = _DECODER.raw_decode(self._text, self._position)
                return self._place, value
            except RecursionError as error:
                raise UserError(f"{self._place}: not JSON ({error})") from None
            except json.JSONDecodeError as error:
                is_unfinished_text = error.msg.startswith("Unterminated string")
                is_at_end = error.pos >= len(self._text) - _LONGEST_TOKEN
                # Twice as much each time: an item is parsed only a few times, however long it is.
                num_chars = max(_CHUNK_CHARS, len(self._text) - self._position)
                if not (is_unfinished_text or is_at_end) or not self._read_on(num_chars):
                    raise UserError(f"{self._place}: not JSON ({error.msg})") from None

    def _read_on(self, num_chars: int) -> bool:
        """Forgets the text before the position and reads at least `num_chars` more, if the file has them.

        Returns whether anything was left to read.
        """
        rest = self._text[self._position :]
        _check_length(len(rest), self._place)
        texts = [rest]
        num_read = 0
        for piece in self._pieces:
            text = piece.text + "\n" if piece.ends_line else piece.text
            texts.append(text)
            num_read += len(text)
            if num_read >= num_chars:
                break
        self._text = "".join(texts)
        self._position = 0
        return len(texts) > 1


_DECODER = json.JSONDecoder()


def _check_length(num_chars: int, place: str) -> None:
    if num_chars > MAX_RECORD_CHARS:
        limit = f"{MAX_RECORD_CHARS:,} characters"
        raise UserError(f"{place}: a JSON value of more than {limit}; divide it into several")
