"""Text -> piece ids: cleaning, SentencePiece, the digit-comma rule, offsets into the original text.

    clean_text         white space, compatibility forms, accents, case
    Tokenizer          the same ids as the original's `preprocess_text` and `encode_ids`, for data preparation
    graph_tokenizer    the same ids again, computed inside a TensorFlow graph, for exported models
    graph_tokenizer_with_offsets    and the same offsets into the original text

Special pieces are inserted by id only: "[CLS]" inside a text is text. TensorFlow is imported by
the graph's tokenizers and for remote paths only, so that processes that prepare data start without it.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece

from albert_tf.core.errors import UserError
from albert_tf.core.files import read_bytes

if TYPE_CHECKING:
    pass


MARKER = "▁"  # U+2581: SentencePiece writes it for the space before a word
WORD_START_RULES = ("original", "marker")
_WORD = re.compile(r"\S+")  # splits where str.split() does
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can hold it, UTF-8 cannot
_ENGLISH_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_NO_BYTE_FALLBACK = "offsets need a SentencePiece model trained without byte_fallback"
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')  # the original's: no ' < = >


def clean_text(text: str, *, do_lower_case: bool) -> str:
    """Collapses white space, decomposes compatibility forms, drops accents and, if asked to, case.

    White space goes first, so that spaces which the decomposition makes ("´" is a space and an accent) stay.

    Example:
      " Ｃａｆé \\t ﬁn" -> "cafe fin"

    Args:
      text: any string; half a surrogate pair counts as U+FFFD.
      do_lower_case: whether to lower the case.

    Returns:
      The cleaned text; empty if `text` is white space only.

    Raises:
      TypeError: `text` is not a str.

    Source: tokenization.py:33-50 (`preprocess_text`).
    """
    _check_is_text(text)
    text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", _LONE_SURROGATE.sub("\ufffd", text))
        text = _NOT_ASCII.sub(_without_accents, text)
    return text.lower() if do_lower_case else text


def _without_accents(found: re.Match) -> str:
    return "".join([char for char in found[0] if not unicodedata.combining(char)])


def is_word_start(piece: str) -> bool:
    """Whether a piece starts a word of its own by the original's rule, made for English.

    A piece continues a word only if it has no marker and all of it is English letters and punctuation other
    than "'", "<", "=" and ">"; so every unmarked digit starts a word. A punctuation mark alone starts one.

    Source: create_pretraining_data.py:393-407 (`_is_start_piece_sp`). It lists "€" and "£" too, as bytes that
    equal no piece in Python 3; being no English letters, they start a word all the same.
    """
    return (
        piece.startswith((MARKER, "<"))
        or piece in _PUNCTUATION
        or not all(char.lower() in _ENGLISH_LETTERS | _PUNCTUATION for char in piece)
    )


class Tokenizer:
    """A SentencePiece model with the text cleaning and the digit-comma rule of the original.

    The digit-comma rule: a piece that ends in a digit and a comma ("▁1999,") is encoded again without the comma
    ("▁1999" ","), so that the number keeps its own piece.

    Attributes:
      model_proto: the bytes of the model file.
      do_lower_case: whether text is lower-cased.
      sha256: hexadecimal hash of `model_proto`.
      vocab_size: number of pieces, V.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of `<pad>`, `<unk>`, `[CLS]`, `[SEP]` and `[MASK]`.
    """

    def __init__(
        self, model_proto: bytes, *, do_lower_case: bool = True, source: str = "SentencePiece model"
    ):
        """Loads a serialized model.

        Args:
          model_proto: the bytes of a SentencePiece model file.
          do_lower_case: whether to lower-case text; false for a cased model.
          source: what error messages call the model.

        Raises:
          UserError: the bytes are no SentencePiece model, or a special piece is missing.
        """
        self.model_proto = model_proto
        self.do_lower_case = do_lower_case
        self.sha256 = hashlib.sha256(model_proto).hexdigest()
        self._processor = _load_processor(model_proto, source)
        self.vocab_size = self._processor.get_piece_size()
        self.unk_id = self._processor.unk_id()
        self.pad_id = self._special_id("<pad>", source)
        self.cls_id = self._special_id("[CLS]", source)
        self.sep_id = self._special_id("[SEP]", source)
        self.mask_id = self._special_id("[MASK]", source)

        # What the digit-comma rule makes of a piece of the vocabulary depends on that piece alone.
        self._replacements = {
            id: list(map(self._processor.piece_to_id, self._split_digit_comma(piece)))
            for id, piece in enumerate(map(self.id_to_piece, range(self.vocab_size)))
            if _ends_in_digit_comma(piece)
        }
        # An unknown piece's text can end in a comma only if the comma itself is unknown, or if the model cuts
        # at white space only: both make the last piece of a private-use character and a comma unknown.
        self._unknown_may_end_in_comma = self._processor.encode("\ue000,")[-1] == self.unk_id

    @classmethod
    def from_file(cls, path: str, *, do_lower_case: bool = True) -> "Tokenizer":
        """Loads a model file; paths with :// are read through TensorFlow.

        Raises:
          UserError: the file cannot be read, is no SentencePiece model, or lacks a special piece.
        """
        return cls(read_bytes(path), do_lower_case=do_lower_case, source=path)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special pieces.

        Raises:
          TypeError: `text` is not a str.

        Source: tokenization.py:53-96 (`encode_pieces`, `encode_ids`).
        """
        return self._encode_cleaned([self.clean(text)])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[np.ndarray]:
        """The ids of many texts, faster than one by one; uses one processor core.

        Returns:
          For each text an int32 array [pieces], equal to `encode(text)`.

        Raises:
          TypeError: one of `texts` is not a str, or `texts` itself is one.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("texts must be several texts, got one; use encode(text)")
        all_ids = self._encode_cleaned([self.clean(text) for text in texts])
        return [np.array(ids, np.int32) for ids in all_ids]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and which of its characters each piece stands for.

        Example:
          "Ｃafé, 1999," -> "▁cafe" "," "▁1999" "," at (0, 4), (4, 5), (6, 10), (10, 11)

        Spans neither begin nor end in white space. A piece without text of its own (the marker alone) has an
        empty span, where the next piece's text begins. Characters that leave no trace in any piece (accents,
        zero-width characters) belong to the character before. The pieces of one character ("½" is "1", "⁄"
        and "2") all have that character's span.

        Args:
          text: the text as the user wrote it, before any cleaning.

        Returns:
          ids, equal to `encode(text)`, and as many (start, end) with `text[start:end]` the piece's text.

        Raises:
          TypeError: `text` is not a str.
          UserError: the model breaks characters into bytes (trained with byte_fallback).
        """
        cleaned, origins = _clean_with_origins(text, self.do_lower_case)
        ids, pieces = self._encode_with_pieces(cleaned)
        char_spans = self._visible_char_spans(cleaned, origins)
        lengths = list(map(_visible_length, pieces))
        if sum(lengths) != len(char_spans):
            raise UserError(_NO_BYTE_FALLBACK)

        spans = []
        first = 0
        for length in lengths:
            if length:
                start, end = char_spans[first][0], char_spans[first + length - 1][1]
            else:
                start = end = char_spans[first][0] if first < len(char_spans) else len(text)
            spans.append((start, end))
            first += length
        return ids, spans

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; `<pad>`, `[CLS]`, `[SEP]` and `[MASK]` are skipped, an unknown piece is "⁇"."""
        skipped = {self.pad_id, self.cls_id, self.sep_id, self.mask_id}
        return self._processor.decode([int(id) for id in ids if int(id) not in skipped])

    def id_to_piece(self, id: int) -> str:
        """The piece of an id, with its marker."""
        return self._processor.id_to_piece(int(id))

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` if the vocabulary does not have it."""
        return self._processor.piece_to_id(piece)

    def clean(self, text: str) -> str:
        """`clean_text` with this tokenizer's `do_lower_case`."""
        return clean_text(text, do_lower_case=self.do_lower_case)

    def normalize(self, cleaned: str) -> str:
        """What the model cuts into pieces in place of a cleaned text; the marker stands for spaces."""
        return self._processor.normalize(cleaned)

    def word_starts(self, rule: str = "original") -> np.ndarray:
        """Which pieces start a word, for whole-word and n-gram masking.

        Args:
          rule: `original` is `is_word_start`, right for English; `marker` takes pieces that begin with the
            marker, for languages in which the original's rule makes every piece a word.

        Returns:
          bool [V].

        Raises:
          UserError: there is no such rule.
        """
        if rule not in WORD_START_RULES:
            raise UserError(f"rule must be one of {', '.join(WORD_START_RULES)}; got {rule!r}")
        pieces = [self.id_to_piece(id) for id in range(self.vocab_size)]
        if rule == "marker":
            return np.array([piece.startswith(MARKER) for piece in pieces])
        return np.array([is_word_start(piece) for piece in pieces])

    def replacement_table(self) -> tuple[np.ndarray, np.ndarray]:
        """What the digit-comma rule makes of every piece: itself, for most.

        Returns:
          The new ids of all pieces in a row, int32 [total], and how many each piece has, int64 [V].
        """
        rows = [self._replacements.get(id, [id]) for id in range(self.vocab_size)]
        return np.concatenate(rows).astype(np.int32), np.array([len(row) for row in rows], np.int64)

    def _replacement_lengths(self) -> np.ndarray:
        """The visible characters of each piece in the first array of `replacement_table`, int64 [total]."""
        pieces = []
        for id in range(self.vocab_size):
            piece = self.id_to_piece(id)
            pieces += self._split_digit_comma(piece) if id in self._replacements else [piece]
        return np.array([_visible_length(piece) for piece in pieces], np.int64)

    def _encode_cleaned(self, texts: list[str]) -> list[list[int]]:
        all_ids = self._processor.encode(texts, num_threads=1)
        replacements = self._replacements
        for row, ids in enumerate(all_ids):
            if self._unknown_may_end_in_comma and self.unk_id in ids:
                all_ids[row] = self._encode_with_pieces(texts[row])[0]
            elif not replacements.keys().isdisjoint(ids):
                all_ids[row] = [new for id in ids for new in replacements.get(id, (id,))]
        return all_ids

    def _encode_with_pieces(self, cleaned: str) -> tuple[list[int], list[str]]:
        """Ids and pieces, the digit-comma rule applied; an unknown piece is given as its text."""
        new_ids, new_pieces = [], []
        pieces = self._processor.encode(cleaned, out_type=str)
        for id, piece in zip(self._processor.encode(cleaned), pieces, strict=True):
            if _ends_in_digit_comma(piece):
                parts = self._split_digit_comma(piece)
                new_ids += map(self._processor.piece_to_id, parts)
                new_pieces += parts
            else:
                new_ids.append(id)
                new_pieces.append(piece)
        return new_ids, new_pieces

    def _split_digit_comma(self, piece: str) -> list[str]:
        """The pieces of a piece that ends in a digit and a comma.

        Encoding its number anew puts a marker in front, which goes again if the piece had none. (The original
        means to do that as well, but compares with the marker's bytes, which nothing equals in Python 3. The
        released vocabulary has no such piece.)
        """
        parts = self._processor.encode(piece[:-1].replace(MARKER, ""), out_type=str)
        if parts and parts[0].startswith(MARKER) and not piece.startswith(MARKER):
            parts[:1] = [parts[0][1:]] if len(parts[0]) > 1 else []
        return [*parts, ","]

    def _visible_char_spans(
        self, cleaned: str, origins: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Spans in the original of the characters that pieces consist of, markers left out.

        The model has a normaliser of its own, whose offsets lead from its output to the cleaned text; `origins`
        lead from there to the original.
        """
        normalized, starts = self._processor.normalize(cleaned, with_offsets=True)
        spans = []
        end = len(cleaned)
        for position in reversed(range(len(normalized))):
            if starts[position] < starts[position + 1]:
                end = starts[position + 1]
            if normalized[position] != MARKER:
                spans.append((origins[starts[position]][0], origins[end - 1][1]))
        spans.reverse()
        return spans

    def _special_id(self, piece: str, source: str) -> int:
        id = self._processor.piece_to_id(piece)
        if id == self.unk_id:
            raise UserError(
                f"{source}: has no piece {piece}; train it with <pad>, [CLS], [SEP] and [MASK]"
            )
        return id


def _clean_with_origins(text: str, do_lower_case: bool) -> tuple[str, list[tuple[int, int]]]:
    """`clean_text`, and for each of its characters the (start, end) in `text` that it comes from."""
    _check_is_text(text)
    text = _LONE_SURROGATE.sub("\ufffd", text)
    chars, origins = [], []
    previous_end = None
    for word in _WORD.finditer(text):
        if previous_end is not None:
            chars.append(" ")
            origins.append((previous_end, word.start()))
        previous_end = word.end()
        for position in range(word.start(), word.end()):
            # Decomposing one by one gives what decomposing the whole gives, but for the order of accents.
            for char in unicodedata.normalize("NFKD", text[position]):
                if not unicodedata.combining(char):
                    chars.append(char)
                    origins.append((position, position + 1))
                elif origins:
                    origins[-1] = (origins[-1][0], position + 1)
    cleaned = "".join(chars)
    if do_lower_case:
        # As a whole, for final sigma; "İ", whose lower case is longer, has lost its dot by now.
        cleaned = cleaned.lower()
    assert len(cleaned) == len(origins)
    return cleaned, origins


def _visible_length(piece: str) -> int:
    """Characters of a piece without markers."""
    return len(piece.replace(MARKER, ""))


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _check_is_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text must be str, got {type(text).__name__}; decode bytes as UTF-8 first")


def _load_processor(model_proto: bytes, source: str) -> sentencepiece.SentencePieceProcessor:
    # Nothing at all would be taken as "load later".
    try:
        if model_proto:
            return sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    except RuntimeError:
        pass
    raise UserError(f"{source}: is not a SentencePiece model")
